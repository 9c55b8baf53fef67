"""Finds one store's files, reads their footers and watermark rows, and returns them in chain order. `chain.StoreChains`
and `suspect_files.SuspectFiles` make the decisions; this module does the I/O."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from itertools import islice

from tistream.clock import Clock
from tistream.errors import CorruptObject, NotFoundYet
from tistream.format.manifest import ChainPosition
from tistream.model.ids import TenantKey
from tistream.storage import layout
from tistream.storage.change_reader import TAIL_BYTES
from tistream.storage.object_store import ObjectStore
from tistream.wire.dispatcher import StoreStatus
from tistream.wire.sorter import Chain, Hold
from tistream_dispatcher.metrics import DispatcherMetrics
from tistream_dispatcher.stores.chain import ChainHold, NextFile, StoreChains
from tistream_dispatcher.stores.change_source import ReadFile, read_file
from tistream_dispatcher.stores.read_ahead import ByteBudget, ReadAhead
from tistream_dispatcher.stores.suspect_files import SuspectFiles

log = logging.getLogger(__name__)

TAIL_STEP = 1 << 10
# limit of the bytes of a file's end that are fetched: otherwise one file with watermarks before its changes would make
# the dispatcher fetch other files completely
TAIL_MAX = 1 << 20
READS_MAX = 256  # files read in one poll; the next poll continues
LONG_BACKLOG = 1_000  # if more files than this wait for a missing one, most LISTs begin after them
WIDE_MS = 10_000  # pause between LISTs that begin earlier: before a long backlog, or at the late files of older chains
RECHECK_MS = 5_000  # pause between checks of files that break a chain, because an operator may remove or repair them


class StoreFeed:
    """Finds and reads the files of one store of one tenant. Only the tenant's thread may use it."""

    def __init__(
        self,
        tenant: TenantKey,
        store_id: int,
        positions: Iterable[ChainPosition],
        objects: ObjectStore,
        clock: Clock,
        metrics: DispatcherMetrics,
        room: ByteBudget | None = None,
    ) -> None:
        """`positions`: where to begin in each chain. `room`: the memory for files that were read before their turn,
        shared by all of the tenant's stores."""
        self.store_id = store_id
        self.chains = StoreChains(positions)
        self._tenant = tenant
        self._objects = objects
        self._clock = clock
        self._metrics = metrics
        self._suspects = SuspectFiles()
        self._arrived: dict[int, int] = {}  # ts -> wall milliseconds, of files that were not routed yet
        self._ahead = ReadAhead(room)
        self._wide_ms = 0
        self._recheck_ms = 0
        self._logged_hold: ChainHold | None = None
        self._tail_bytes = TAIL_BYTES

    def rewind(self, positions: Iterable[ChainPosition]) -> None:
        """Begin again at `positions`, and forget the files that wait. The positions may be lower, because a task has
        lost files or the tasks have changed, or higher, because another dispatcher has read the store further."""
        self.chains = StoreChains(positions)
        self._ahead.clear()
        self._arrived.clear()
        self._wide_ms = 0

    def close(self) -> None:
        """Release the files that are in memory, and keep no file from now on, because the store is not read any
        more."""
        self._ahead.close()

    # -- finding files ---------------------------------------------------------------------------------------------

    def announced(self, stamps: Iterable[int]) -> bool:
        """Read those of the announced files that are not known yet; `stamps` are their ts. Returns whether any of these
        exists. A file that does not exist yet is found by a later LIST. Raises Unavailable; InvalidRequest if a link
        leads out of the store's directory."""
        return self._look(sorted(stamps))

    def lacks(self, stamps: Iterable[int]) -> bool:
        """Whether any of the files with the ts `stamps` has not been found yet, and would be read if it existed."""
        return any(self._is_new(ts) for ts in stamps)

    def poll(self) -> bool:
        """LIST new files and read them, at most READS_MAX. Returns whether any of them exists. Raises the errors of
        `announced`."""
        now_ms = self._clock.monotonic_ms()
        prefix = layout.change_file_prefix(self._tenant, self.store_id)
        start = layout.change_file(self._tenant, self.store_id, self._list_after(now_ms))
        names = (layout.parse_change_file(info.key) for info in self._objects.list_after(prefix, start))
        stamps = (name[2] for name in names if name is not None)
        return self._look(list(islice(filter(self._is_new, stamps), READS_MAX)))

    def _list_after(self, now_ms: int) -> int:
        after = self.chains.list_after()
        waiting, newest_ts = self.chains.backlog()
        long = waiting > LONG_BACKLOG
        if not long and not self.chains.may_begin_older():
            return after
        if now_ms >= self._wide_ms:
            self._wide_ms = now_ms + WIDE_MS
            return 0 if self.chains.may_begin_older() else after
        return newest_ts if long else after

    def retry(self) -> bool:
        """Read again the files that could not be read and are due, and check whether the files that break the chain
        still exist. Returns whether a file that could not be read was due. Raises the errors of `announced`."""
        now_ms = self._clock.monotonic_ms()
        due = self._suspects.due(now_ms)
        for ts in due:
            self._inspect(ts)
        hold = self.chains.hold()
        if hold is not None and hold.quarantined and hold.ts not in self._suspects and now_ms >= self._recheck_ms:
            self._recheck_ms = now_ms + RECHECK_MS
            for ts in self.chains.with_same_prev(hold.ts):
                self._inspect(ts)
        return bool(due)

    def next_retry_ms(self) -> int | None:
        """When `retry` is due, in monotonic ms; None if all files could be read."""
        return self._suspects.next_ms()

    def _look(self, stamps: Iterable[int]) -> bool:
        found = False
        for ts in stamps:
            if self._is_new(ts):
                self._arrived.setdefault(ts, self._clock.now_ms())
                found |= self._inspect(ts)
        return found

    def _is_new(self, ts: int) -> bool:
        return self.chains.must_read(ts) and ts not in self._suspects

    def _inspect(self, ts: int) -> bool:
        """Read one file and record it in the chain. Returns whether it exists."""
        file = self._read_now(ts)
        if file is not None and self.chains.has_seen(ts):
            self._ahead.keep(file, self.chains.has_seen)
        return file is not None or ts in self._suspects

    def _read_now(self, ts: int) -> ReadFile | None:
        """Read one file and record it in the chain. Returns it; None if it does not exist or cannot be read."""
        try:
            file = self._read_file(ts)
        except NotFoundYet:
            self._suspects.cleared(ts)
            self.chains.forget(ts)
            self._arrived.pop(ts, None)
            return None
        except CorruptObject as error:
            self._cannot_read(ts, error.reason)
            return None
        self._suspects.cleared(ts)
        self.chains.see(file.seen)
        return file

    def _read_file(self, ts: int) -> ReadFile:
        key = layout.change_file(self._tenant, self.store_id, ts)
        file = read_file(self._objects, key, self._arrived.get(ts, self._clock.now_ms()), self._tail_bytes)
        # The next file's end is probably about as long: fetch a quarter more than that, instead of 64 KiB of a small
        # file.
        self._tail_bytes = min(TAIL_STEP * (1 + file.tail_bytes * 5 // 4 // TAIL_STEP), TAIL_MAX)
        return file

    def _cannot_read(self, ts: int, reason: str) -> None:
        version = self._version(ts)
        if version is None:
            self._suspects.cleared(ts)
            self.chains.forget(ts)
            return
        unchanged_ms = self._suspects.failed(ts, version, reason, self._clock.monotonic_ms())
        self.chains.damage(ts, reason, unchanged_ms)
        if not self.chains.must_read(ts) and not self.chains.has_seen(ts):
            self._suspects.cleared(ts)  # the file is too old to matter

    def _version(self, ts: int) -> str | None:
        try:
            return self._objects.head(layout.change_file(self._tenant, self.store_id, ts)).version
        except NotFoundYet:
            return None

    # -- returning files -------------------------------------------------------------------------------------------

    def next_file(self) -> tuple[NextFile, ReadFile] | None:
        """Return the next file in chain order with its content, which is read if it is not in memory; None if no file
        is next, or the next one cannot be read. The file does not count against the budget, so there is always room for
        it. Raises the errors of `announced`."""
        while (ready := self.chains.ready()) is not None:
            ts = ready.file.ts
            file = self._ahead.pop(ts) or self._read_now(ts)
            if ts in self._suspects:
                return None
            if file is not None and self.chains.ready() == ready:
                return ready, file
        self._ahead.only(self.chains.has_seen)
        if len(self._arrived) > self.chains.backlog()[0] + len(self._suspects):  # some were deleted, or are ignored
            known = (one for one in self._arrived.items() if self.chains.has_seen(one[0]) or one[0] in self._suspects)
            self._arrived = dict(known)
        return None

    def advance(self, ready: NextFile) -> None:
        """Record that the file returned by `next_file` was routed, so that its chain advances."""
        self.chains.advance(ready)
        self._arrived.pop(ready.file.ts, None)

    # -- reporting -------------------------------------------------------------------------------------------------

    def hold(self) -> Hold | None:
        """Why the store makes no progress, or None. A change is logged."""
        found = self.chains.hold()
        if found != self._logged_hold:
            self._log_hold(found)
        if found is None:
            return None
        key = layout.change_file(self._tenant, self.store_id, found.ts)
        return Hold(stage=found.stage, store_id=str(self.store_id), object=key, reason=found.reason)

    def _log_hold(self, found: ChainHold | None) -> None:
        fields = {"tenant": str(self._tenant), "store": self.store_id}
        if found is None:
            log.info("store continues", extra=fields)
        else:
            key = layout.change_file(self._tenant, self.store_id, found.ts)
            message = "store is quarantined" if found.quarantined else "store waits for a file"
            log.warning(message, extra={**fields, "stage": found.stage, "object": key, "reason": found.reason})
            if found.quarantined:
                self._metrics.quarantines.inc()
        self._logged_hold = found

    def status(self) -> StoreStatus:
        """The store's status as the HTTP answer has it."""
        hold = self.hold()
        return StoreStatus(
            cluster_id=self._tenant.cluster_id,
            tenant_id=self._tenant.tenant_id,
            store_id=self.store_id,
            chains=[Chain(first_ts=chain.first_ts, at_ts=chain.at_ts) for chain in self.chains.positions()],
            last_file_ts=self.chains.last_ts(),
            quarantined=hold is not None and hold.stage == "damaged",
            hold=hold,
        )


def unread(tenant: TenantKey, store_id: int) -> StoreStatus:
    """The status of a store that is not read yet, because the tasks' positions in it are not known."""
    return StoreStatus(
        cluster_id=tenant.cluster_id,
        tenant_id=tenant.tenant_id,
        store_id=store_id,
        chains=[],
        last_file_ts=0,
        read=False,
    )
