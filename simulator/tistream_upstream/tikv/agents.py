"""TiKV stores, and the agent beside each. An agent collects ranges of Raft logs, pushes files, may die, and scans spans
whose data were lost. Mutable; no I/O."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial

from tistream.model.span import KeySpan
from tistream.model.ts import LOGICAL_BITS
from tistream.push.change_writer import FileIdentity
from tistream.storage import layout
from tistream_upstream.config import ClusterConfig
from tistream_upstream.effects import Announce, AskCoverage, Effect, Push
from tistream_upstream.tikv import change_file
from tistream_upstream.tikv.change_file import GroupLimits
from tistream_upstream.tikv.kv import Kv
from tistream_upstream.tikv.regions import Range, Region, RegionMap
from tistream_upstream.world import World


@dataclass(slots=True)
class Upload:
    """A file that an agent is uploading. It arrives at `at_ms`."""

    ts: int
    at_ms: int
    ranges: list[Range]
    push: Push
    announced: bool


@dataclass(slots=True)
class Store:
    """A store and its agent.

    `pushed_ts` is the ts of its last file that has arrived, and `cut_ts` the ts of the last file that its agent has
    made. `begin_anew`: its next file begins a new chain. `gone`: the store never comes back. `late` is an upload of a
    dead agent that may still arrive. `broken`: that upload has arrived although another file has the same prev_ts, so
    the store needs a new chain. `doubtful` are the spans in the files that were made after that upload; `doubt_ts` is
    the promised_ts of that time.
    """

    id: int
    up: bool = True
    gone: bool = False
    buffer: list[Range] = field(default_factory=list)
    uploads: deque[Upload] = field(default_factory=deque)
    pushed_ts: int = 0
    cut_ts: int = 0
    begin_anew: bool = True
    slow_until_ms: int = 0
    phase_ms: int = 0
    late: Upload | None = None
    broken: bool = False
    doubtful: list[KeySpan] = field(default_factory=list)
    doubt_ts: int = 0

    @property
    def haunted(self) -> bool:
        """Whether an upload of a dead agent may still arrive, or has broken the chain."""
        return self.late is not None or self.broken


@dataclass(slots=True)
class _Asked:
    """An open request for coverage. Versions above `since_ts` are kept until it is answered. `held_ts`: promised_ts at
    the time of the loss."""

    span: KeySpan
    store_id: int
    since_ts: int
    held_ts: int


class Agents:
    """The stores of the cluster, with their agents."""

    def __init__(self, config: ClusterConfig, world: World, regions: RegionMap, kv: Kv, effects: list[Effect]) -> None:
        self._config = config
        self._world = world
        self._regions = regions
        self._kv = kv
        self._effects = effects
        self._rng: random.Random = world.rng("agents")
        self.stores = {number: Store(number) for number in range(1, config.stores + 1)}
        self._asked: dict[int, _Asked] = {}
        self._requests = 0
        self._lost: list[KeySpan] = []
        self._since_ts = self._held_ts = 0
        self._horizon_ts = 0
        self._limits = GroupLimits(config.rows_per_group, config.group_bytes)
        self.pushed_files = 0
        self.pushed_rows = 0
        self.pushed_bytes = 0
        self.scans = 0
        self.on_late: Callable[[Store, Upload], None] | None = None
        self.on_successor: Callable[..., None] | None = None
        for store in self.stores.values():
            store.phase_ms = self._rng.randint(0, max(1, config.churn.skew_ms)) + self._rng.randrange(config.push_ms)

    # -- watching -------------------------------------------------------------------------------------------------

    def watch(self, region: Region, after: tuple[tuple[int, int], ...] = ()) -> Range:
        """Return the range of a region's log that its leader's agent collects. If no range is open, begin one, which
        comes `after` these log entries of the parents."""
        if region.open is None:
            first = region.index + 1
            region.open = Range(region.id, region.version, region.span, first, region.index, after=after)
            region.open.floor_ts = region.told_ts
            self.stores[region.store_id].buffer.append(region.open)
        return region.open

    def close(self, region: Region) -> None:
        """End the range that is collected, at the region's last log entry, and give it the region's present
        resolved_ts."""
        ts = self._world.ts()
        store_id = region.store_id
        self._kv.max_ts[store_id] = max(self._kv.max_ts[store_id], ts)
        self.watch(region).resolved_ts = region.told_ts = region.resolve(ts)
        region.open = None

    @staticmethod
    def watched(region: Region) -> bool:
        """Whether an agent collects the region's log. After a loss of data none does, until the region has been
        scanned."""
        return region.open is not None

    # -- pushing --------------------------------------------------------------------------------------------------

    def start(self, base_ts: int) -> None:
        """Begin the tenant: scan every region for versions above `base_ts`, the snapshot's ts, and begin to push
        files."""
        for region in self._regions.all:
            region.told_ts = base_ts
            self._scan(region, base_ts)
        for store in self.stores.values():
            self._world.after(store.phase_ms % self._config.push_ms + 1, partial(self._push_tick, store))

    def _push_tick(self, store: Store) -> None:
        period, churn, now_ms = self._config.push_ms, self._config.churn, self._world.now_ms
        if store.slow_until_ms <= now_ms and self._rng.random() < churn.slow_store * period / 1000:
            store.slow_until_ms = now_ms + self._rng.randint(*churn.slow_ms)
        if store.up and not (store.slow_until_ms > now_ms and self._rng.random() < 0.5):
            self.push(store)
        self._world.after(period, lambda: self._push_tick(store))

    def push(self, store: Store, *, now: bool = False) -> None:
        """Make a file of the ranges of a store's agent, and begin to upload it; at random, make it twice. Does nothing
        if there is no range, or if the store must begin a new chain and its scans are not complete. With `now`, the
        file and the earlier uploads arrive at once, even if the store is slow."""
        if now:
            self._arrive_all(store)
        anew = store.begin_anew
        if anew and any(one.store_id == store.id for one in self._asked.values()):
            return  # the first file of a chain has the scans of all regions that the store leads
        if anew and store.broken and any(one.base_ts is None for one in store.buffer):
            return  # a new chain begins with scans only, and the store got another region
        ranges = self._cut(store)
        if not ranges:
            return
        store.begin_anew = False
        prev_ts = store.cut_ts
        if anew and all(one.base_ts is not None for one in ranges):
            prev_ts = 0
        for _ in range(2 if self._rng.random() < self._config.churn.repeated_file else 1):
            store.cut_ts = self._world.ts()
            self._upload(store, prev_ts, ranges, now=now)
            prev_ts = store.cut_ts

    def _cut(self, store: Store) -> list[Range]:
        """End the open ranges of a store, and begin new ones; idle ranges may be left open at random (`idle_untold`).
        Returns the ranges that have ended since the last call."""
        untold = self._config.churn.idle_untold
        told = []
        for region in self._regions.all:
            if region.store_id == store.id and region.open is not None:
                idle = region.open.first > region.open.last and region.open.base_ts is None
                if not (idle and untold and self._rng.random() < untold):
                    self.close(region)
                    told.append(region)
        open_still = {id(region.open) for region in self._regions.all if region.open is not None}
        ranges = [one for one in store.buffer if id(one) not in open_still]
        store.buffer = [one for one in store.buffer if id(one) in open_still]
        for region in told:
            self.watch(region)
        return ranges

    def _upload(self, store: Store, prev_ts: int, ranges: list[Range], *, now: bool) -> None:
        config = self._config
        body = change_file.encode(FileIdentity(config.tenant, store.id, prev_ts), ranges, self._limits)
        rows = sum(len(one.entries) for one in ranges)
        if store.haunted:
            store.doubtful += [one.span for one in ranges]
        key = layout.change_file(config.tenant, store.id, store.cut_ts)
        push = Push(store.id, store.cut_ts, prev_ts, key, body, rows)
        at_ms = self._world.now_ms + self._rng.randint(1, 20)
        if store.slow_until_ms > self._world.now_ms:
            at_ms = store.slow_until_ms
        if store.uploads:
            at_ms = max(at_ms, store.uploads[-1].at_ms)
        announced = self._rng.random() >= config.churn.unannounced
        upload = Upload(store.cut_ts, at_ms, ranges, push, announced)
        store.uploads.append(upload)
        if now:
            self._arrive_all(store)
        else:
            self._world.at(at_ms, lambda: self._arrived(store, upload))

    def _arrived(self, store: Store, upload: Upload) -> None:
        if not store.uploads or store.uploads[0] is not upload:
            return  # it was lost, or has arrived early
        store.uploads.popleft()
        store.pushed_ts = upload.ts
        self.tell(store, upload)
        anew = upload.push.prev_ts == 0
        if anew:
            store.broken, store.doubtful = False, []
        late = store.late
        if late is not None and self.on_successor is not None and (anew or upload.push.prev_ts == late.push.prev_ts):
            self.on_successor(store, late, anew=anew)

    def tell(self, store: Store, upload: Upload) -> None:
        """Emit the effects of a file that has arrived in object storage: the put and, perhaps, its announcement."""
        self.pushed_files += 1
        self.pushed_rows += upload.push.rows
        self.pushed_bytes += len(upload.push.body)
        self._effects.append(upload.push)
        if upload.announced:
            self._effects.append(Announce(store.id, upload.ts))

    def _arrive_all(self, store: Store) -> None:
        while store.uploads:
            self._arrived(store, store.uploads[0])

    # -- dying ----------------------------------------------------------------------------------------------------

    def die(self, store: Store, *, lose: bool) -> bool:
        """End a store's agent. With `lose`, its unpushed data are lost; otherwise they are pushed first, unless the
        chain is broken. Returns whether data were lost; then `ask_for_lost` must follow."""
        if not (lose or (store.broken and store.begin_anew)):
            self.push(store, now=True)
            self._arrive_all(store)
            return False
        self._since_ts, self._held_ts = self.horizon_ts(), self.promised_ts()
        self._leave_late(store)
        lost = list(store.doubtful) if store.broken else []
        lost += [one.span for upload in store.uploads for one in upload.ranges]
        lost += [one.span for one in store.buffer]
        store.uploads.clear()
        store.buffer = []
        store.cut_ts = store.pushed_ts
        store.begin_anew = store.pushed_ts == 0 or store.broken or self._rng.random() < self._config.churn.new_chain
        for region in self._regions.all:
            if region.store_id == store.id:
                lost.append(region.span)
                region.open, region.resolver_ts = None, 0
        self._lost = lost
        return True

    def _leave_late(self, store: Store) -> None:
        """At random, let the upload of a dying agent arrive later, unless an earlier late upload has broken the
        chain."""
        store.late = None
        share = self._config.churn.late_upload
        if store.broken or self.on_late is None or not (share and store.pushed_ts and self._rng.random() < share):
            return
        if not store.uploads:
            self.push(store)
        if store.uploads and store.uploads[0].push.prev_ts == store.pushed_ts:
            store.late, store.doubtful, store.doubt_ts = store.uploads[0], [], self._held_ts
            self.on_late(store, store.late)

    def renewing(self, store: Store) -> bool:
        """Whether the store's next file begins a new chain: such a file has been cut already, or the scans with which
        the chain begins are finished or were requested."""
        if any(upload.push.prev_ts == 0 for upload in store.uploads):
            return True
        waits = any(one.store_id == store.id for one in self._asked.values())
        ready = bool(store.buffer) and all(one.base_ts is not None for one in store.buffer)
        return store.begin_anew and (waits or ready)

    @property
    def haunted(self) -> bool:
        """Whether an upload of a dead agent of any store may still arrive, or has broken a chain."""
        return any(store.haunted for store in self.stores.values())

    def ask_for_lost(self) -> None:
        """For each region that has keys which the dead agent has led since its last push, request the platform's
        coverage (AskCoverage). When the answer arrives, the region's leader scans it."""
        lost, self._lost = self._lost, []
        for region in self._regions.all:
            if any(span.overlaps(region.span) for span in lost):
                self._ask(region)

    def _ask(self, region: Region) -> None:
        self._requests += 1
        asked = _Asked(region.span, region.store_id, self._since_ts, self._held_ts)
        self._asked[self._requests] = asked
        self._effects.append(AskCoverage(self._requests, region.store_id, region.span))

    def coverage(self, request: int, slices: Iterable[tuple[KeySpan, int]]) -> bool:
        """Take the platform's answer to a request for coverage: the (span, resolved_ts) of the slices in its span. The
        span is then scanned.

        Returns False if the lowest resolved_ts is so low that versions above it are no longer kept; the caller must
        then ask again later. A request that was answered before is ignored.
        """
        asked = self._asked.get(request)
        if asked is None:
            return True
        told = [resolved_ts for span, resolved_ts in slices if span.overlaps(asked.span)]
        base_ts = min(told, default=0)
        if base_ts < asked.since_ts:
            return False
        del self._asked[request]
        for region in self._regions.overlapping(asked.span):
            self._scan(region, base_ts)
        return True

    @property
    def asked(self) -> dict[int, KeySpan]:
        """The requests that the agents have sent to the platform (AskCoverage: up to which ts has it the changes of a
        span?) and that it has not answered: the span of each, by the number of the request."""
        return {request: asked.span for request, asked in self._asked.items()}

    def _scan(self, region: Region, base_ts: int) -> None:
        if region.open is not None:
            self.close(region)
        scanned = self.watch(region)
        scanned.base_ts = scanned.floor_ts = base_ts
        scanned.entries.extend(self._kv.scan(region, base_ts))
        self.scans += 1

    def horizon_ts(self) -> int:
        """Compute the ts above which versions are kept: `history_ms` below promised_ts, because a platform may not have
        read all files yet. It never decreases."""
        oldest = self.promised_ts() - (self._config.history_ms << LOGICAL_BITS)
        self._horizon_ts = max(self._horizon_ts, oldest)
        return self._horizon_ts

    def promised_ts(self) -> int:
        """The ts up to which the stored files are complete. A platform without delay would serve it."""
        held = [one.held_ts for one in self._asked.values()]
        for store in self.stores.values():
            held += [one.floor_ts for one in store.buffer]
            held += [one.floor_ts for upload in store.uploads for one in upload.ranges]
            held += [store.doubt_ts] if store.haunted else []
        return min(held, default=0)
