"""Runs one source (log backup) of one tenant in steps. Each step makes at most one release, which writes the changes up
to a newer checkpoint as change files.

The reads have a fixed order: first the checkpoints, then the list of metadata, then the safe point, then data. In
another order, a flush between two reads could be missed, or a deletion could go unnoticed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from tistream.clock import Clock
from tistream.errors import NotFoundYet, SourceRefused
from tistream.logbackup import meta_name, prefix
from tistream.logbackup.release import STORE_ID, Release, ReleaseFile
from tistream.model.ids import TenantKey
from tistream.model.ts import from_physical_ms, physical_ms
from tistream.schema.records import RestoredTables
from tistream.storage import layout
from tistream.storage.object_store import ObjectInfo, ObjectStore
from tistream.storage.open import open_existing
from tistream.storage.release_log import ReleaseLog
from tistream_ingest.jobs.work import PoolShards, ReleaseJob, ReleaseShard, Surveyed, WorkFailure, WrittenFile
from tistream_ingest.plan import cuts, spans
from tistream_ingest.plan.catalog import Catalog
from tistream_ingest.plan.cuts import FileLimits, Survey
from tistream_ingest.plan.rules import SourceRules, may_matter, uploaded_lately
from tistream_ingest.plan.taking import NeedsOlder, ReleaseInput, take
from tistream_ingest.source.bucket import Bucket
from tistream_ingest.source.stopped import HEALS, SourceHeld, SourceStopped

WAIT_MS = 500  # between looks at the pool
REREADS = 3  # of the pool's manifests, until an object that they still name counts as lost


class ReleaseRunner(Protocol):
    """Executes releases. `survey` reads the sizes of changes from the log, and `run` writes the change files."""

    @property
    def slots(self) -> int: ...
    def survey(self, log_url: str, shards: Sequence[ReleaseShard], limits: FileLimits) -> Sequence[Surveyed]: ...
    def run(self, log_url: str, job: ReleaseJob) -> Sequence[WrittenFile | WorkFailure]: ...


class TenantPool(Protocol):
    """The interface through which a source reads the tenant's committed rows (its pool)."""

    def reached_ts(self) -> int:
        """The ts up to which every committed row is in the pool. Raises Unavailable."""

    def current(self) -> PoolShards:
        """The runs and segments of the pool, as of the last call of `reached_ts`."""


@dataclass(frozen=True, slots=True)
class SourceIdentity:
    """The properties of a source that never change. snapshot_ts: the tenant's; its changes above it are read.
    keep_index: whether the tenant's index entries are kept."""

    source_id: str
    tenant: TenantKey
    url: str
    snapshot_ts: int
    keep_index: bool


@dataclass(slots=True)
class LogFacts:
    """Facts that a source has read from its log backup, for its status. A ts is 0 while it is unknown.
    `checkpoint_since_ms`: Unix ms at which the checkpoint last rose. `safe_point_ts`: the log below it may be
    truncated. `waits_for`: None if the source does not wait."""

    checkpoint_ts: int = 0
    checkpoint_since_ms: int = 0
    released_ts: int = 0
    safe_point_ts: int = 0
    flushes: dict[int, list[int]] = field(default_factory=dict)  # store -> the last flush_ts, in ms
    waits_for: str | None = None


@dataclass(slots=True)
class SourceRunner:
    """Runs the steps of one source. Several processes may do so at once: conditional puts decide which of them writes
    the record of each release. Not thread-safe. `announce` is called with the (tenant, store id, ts) of each new change
    file."""

    identity: SourceIdentity
    bucket: Bucket
    objects: ObjectStore
    pool: TenantPool
    runner: ReleaseRunner
    clock: Clock
    announce: Callable[[TenantKey, int, int], None]
    rules: SourceRules = field(default_factory=SourceRules)
    open_log: Callable[[str], ObjectStore] = open_existing
    seen: LogFacts = field(default_factory=LogFacts)
    rows_wait: str | None = None  # why the rows from before the log, which have the first old values, are not there yet
    _last: Release | None = None
    _open: tuple[Release, ReleaseInput | None] | None = None
    _catalog: Catalog | None = None
    _gone: dict[str, int] = field(
        default_factory=dict
    )  # object of the pool -> the steps of this release that missed it
    _loaded: bool = False  # whether the metadata was listed since this process began

    @property
    def released_ts(self) -> int:
        """The ts up to which all commits are in change files. Before the first release, the tenant's snapshot_ts."""
        return self.identity.snapshot_ts if self._last is None else self._last.high

    def execute(self, release: Release) -> None:
        """Write the change files of a release whose record exists already, unless the files exist too. Raises the
        errors of `step`."""
        if self._catalog is None:
            self._recover()
        self._execute(release, None)

    def step(self) -> bool:
        """Release the changes up to the newest checkpoint. Returns whether a release was made.

        Raises:
            SourceHeld: a later step may succeed.
            SourceStopped: the source cannot continue.
            CorruptObject: a checkpoint, a metadata object or the record of a release is damaged; it may be repaired.
            Unavailable: a store did not answer.
        """
        if self._catalog is None:
            self._recover()
        if self._open is None:
            self._decide()
        if self._open is None:
            return False
        release, taking = self._open
        self._execute(release, taking)
        return True

    # --- recovery --------------------------------------------------------------------------------------------------

    def _recover(self) -> None:
        """Begin at the newest record of a release. If its files do not all exist and its rows are not in the pool, the
        next step writes the files."""
        newest = self._records.newest()
        if newest is not None:
            done = self.pool.reached_ts() >= newest.high or self._files_are_there(newest)
            if done:
                self._last = newest
            else:
                self._last = self._records.read(newest.number - 1) if newest.number > 1 else None
                self._open = newest, None
        self.seen.released_ts = self.released_ts
        self._catalog = Catalog(self.released_ts, self._horizon(self.released_ts))

    def _files_are_there(self, release: Release) -> bool:
        try:
            for piece in release.files:
                self.objects.head(layout.change_file(self.identity.tenant, STORE_ID, piece.ts))
        except NotFoundYet:
            return False
        return True

    def _horizon(self, ts: int) -> int:
        return max(0, ts - from_physical_ms(self.rules.horizon_ms))

    @property
    def _records(self) -> ReleaseLog:
        return ReleaseLog(self.objects, self.identity.tenant)

    # --- deciding --------------------------------------------------------------------------------------------------

    def _decide(self) -> None:
        """Decide on the next release, if the log's checkpoint has advanced: put its record."""
        assert self._catalog is not None
        low, high = self.released_ts, self._checkpoint()
        if high <= low:
            return
        if self._last is None and self.rows_wait is not None:
            self.seen.waits_for = self.rows_wait
            raise SourceHeld("sort", self.rows_wait)
        self._load(self._catalog)
        self._loaded = True
        self._check_safe_point(low)
        restores, restored = self._restores(high)
        taking = take(self._catalog, low, high)
        while isinstance(taking, NeedsOlder):
            self._catalog = Catalog(low, min(taking.ts, self._catalog.horizon_ts - 1))
            self._load(self._catalog)
            taking = take(self._catalog, low, high)
        number, index = (1, 1) if self._last is None else (self._last.number + 1, self._last.next_index)
        mine = Release(
            number,
            self.identity.source_id,
            self.identity.url,
            low,
            high,
            0 if self._last is None else self._last.files[-1].ts,
            self.identity.snapshot_ts if self._last is None else None,
            self._pieces(taking, index),
            taking.metas,
            self.identity.keep_index,
            restores,
            restored,
        )
        decided = self._records.decide(mine)
        self._open = decided, (taking if decided == mine else None)

    def _checkpoint(self) -> int:
        found = prefix.global_checkpoint(self.bucket.checkpoints())
        if found > self.seen.checkpoint_ts:
            self.seen.checkpoint_ts, self.seen.checkpoint_since_ms = found, self.clock.now_ms()
        return found

    def _load(self, catalog: Catalog) -> None:
        """Read the metadata objects that have not been read yet."""
        after = meta_name.list_after(catalog.names)
        for name, info in self.bucket.metas(after):
            if name not in catalog.names:
                self._load_one(catalog, name, info)
        if after:
            catalog.forget_names(after)

    def _load_one(self, catalog: Catalog, name: str, info: ObjectInfo) -> None:
        if not may_matter(name, min(catalog.horizon_ts, catalog.released_ts)):
            catalog.skip(name)
            return
        try:
            found = self.bucket.metadata(name)
        except NotFoundYet:
            return  # truncated since the LIST: the safe point shows whether it matters
        except SourceRefused as error:
            raise SourceStopped(str(error)) from error
        self._note_flush(name, found.store_id)
        lately = self._loaded or uploaded_lately(name, info.modified_ms, catalog.released_ts)
        catalog.add(name, found, fresh=lately and self._last is not None)

    def _note_flush(self, name: str, store_id: int) -> None:
        hints = meta_name.parse(name)
        if hints is not None:
            flushes = self.seen.flushes.setdefault(store_id, [])
            flushes.append(physical_ms(hints.flush_ts))
            del flushes[: -self.rules.flushes_kept]

    def _check_safe_point(self, low: int) -> None:
        self.seen.safe_point_ts = self.bucket.safe_point()
        if self.seen.safe_point_ts > low:
            raise SourceStopped(
                f"the log was truncated to {self.seen.safe_point_ts}, above the released ts {low}: changes between "
                "them are lost to this source; backfill the tenant at a newer snapshot"
            )

    def _restores(self, high: int) -> tuple[tuple[str, ...], tuple[RestoredTables, ...]]:
        """Find the restores by BR whose rows are not in the log, and which ended at or below `high`. Returns the names
        of all of them, and those that no release has marked yet. Raises CorruptObject, Unavailable; SourceStopped if an
        object is of an unknown form."""
        known = () if self._last is None else self._last.restores
        names, new = list[str](), list[RestoredTables]()
        for name in self.bucket.restores():
            ended = prefix.restore_commit_ts(name)
            if ended is None:
                raise SourceStopped(
                    f"{prefix.RESTORES}{name}: `br restore` ran beside the log backup, and this object does not say "
                    "until when: take a full backup, and add a tenant that begins with it"
                )
            if not self.identity.snapshot_ts < ended <= high:
                continue  # part of the snapshot, or marked by a later release
            if name not in known:
                new.append(self.bucket.restored(name))
            names.append(name)
        return tuple(names), tuple(new)

    def _pieces(self, taking: ReleaseInput, index: int) -> tuple[ReleaseFile, ...]:
        limits = self.rules.limits
        if taking.rows_max <= limits.rows and taking.bytes_max <= limits.bytes:
            return cuts.whole(taking.window, index)
        surveys: list[Survey] = []
        shards = self._shards(taking)
        for found in self.runner.survey(self.identity.url, shards, limits):
            if isinstance(found, WorkFailure):
                self._failed(found)
            else:
                surveys.append(found)
        return cuts.pieces(taking.window, index, surveys, limits)

    # --- executing -------------------------------------------------------------------------------------------------

    def _execute(self, release: Release, taking: ReleaseInput | None) -> None:
        assert self._catalog is not None
        if taking is None:
            taking = self._taking_of(release)
        pool = PoolShards((), self.identity.snapshot_ts)
        if taking.writes or taking.late:
            pool = self._pool(release.low)
        shards = tuple(self._shards(taking))
        results = self.runner.run(release.url, ReleaseJob(self.identity.tenant, release, shards, pool))
        for failed in results:
            if isinstance(failed, WorkFailure):
                self._failed(failed)
        for piece in release.files:
            self.announce(self.identity.tenant, STORE_ID, piece.ts)
        self._last, self._open = release, None
        self._gone.clear()
        self.seen.released_ts, self.seen.waits_for = release.high, None
        self._catalog.released(release.high, self._horizon(release.high), taking.compared)

    def _pool(self, ts: int) -> PoolShards:
        """The pool, from which old values are read. Raises SourceHeld while it lacks rows of earlier releases, up to
        `ts`."""
        reached = self.pool.reached_ts()
        if reached < ts:
            self.seen.waits_for = f"the changes up to {ts} are not in the pool yet: it has come to {reached}"
            raise SourceHeld("sort", self.seen.waits_for)
        return self.pool.current()

    def _taking_of(self, release: Release) -> ReleaseInput:
        """The input of a release whose record exists already. It is selected from the metadata objects that the record
        names."""
        catalog = Catalog(release.low, 0)
        # An earlier source of the tenant, with another log, may have decided it and not have executed it.
        bucket = self.bucket if release.url == self.identity.url else Bucket(self.open_log(release.url))
        for name in release.metas:
            try:
                catalog.add(name, bucket.metadata(name), fresh=False)
            except NotFoundYet:
                self._failed(WorkFailure("missing", "is named by a release record", prefix.METAS + name))
        found = take(catalog, release.low, release.high)
        assert isinstance(found, ReleaseInput)  # the catalog's horizon is 0
        return found

    def _shards(self, taking: ReleaseInput) -> list[ReleaseShard]:
        everything = (*taking.writes, *taking.values, *taking.late)
        each = self.rules.shard_bytes(sum(one.plain for one in everything), self.runner.slots)
        cut = spans.spans(everything, each)
        parts = (spans.shared_out(found, cut) for found in (taking.writes, taking.values, taking.late))
        return [
            ReleaseShard(number, span, taking.window, writes, values, late, self.identity.keep_index)
            for number, (span, writes, values, late) in enumerate(zip(cut, *parts, strict=True))
        ]

    def _failed(self, failed: WorkFailure) -> None:
        """Raise the error that stops or holds the source after a failed job."""
        if failed.kind == "missing" and failed.object is not None and self._of_pool(failed.object):
            self._pool_object_gone(failed.object)
        if failed.kind == "missing":
            safe_point = self.bucket.safe_point()
            if safe_point > self.released_ts:
                self._check_safe_point(self.released_ts)
            gone = "compacted (v1/migrations/)" if self.bucket.has_migrations() else "deleted"
            raise SourceStopped(f"{failed.object} is gone: it was {gone}; backfill the tenant at a newer snapshot")
        if failed.kind == "damaged":
            raise SourceHeld("damaged", f"{failed.reason}; {HEALS}", failed.object)
        if failed.kind in ("broken", "refused"):
            raise SourceStopped(failed.reason)
        raise SourceHeld("push", failed.reason)

    def _of_pool(self, key: str) -> bool:
        """Whether an object is a segment or run of the tenant's pool, from which old values are read."""
        return layout.task_of(key) is not None and layout.tenant_of(key) == self.identity.tenant

    def _pool_object_gone(self, key: str) -> None:
        """Raise SourceHeld because an object of the pool is gone. The next step reads newer manifests. If they still
        name the object after REREADS steps, it was not compacted, but is lost, and the error says so."""
        self._gone[key] = self._gone.get(key, 0) + 1
        if self._gone[key] <= REREADS:
            raise SourceHeld("sort", "it was compacted into another object: the pool is read again", key)
        reason = "it is lost: it is gone, and the newest manifests still name it, so another program has deleted it"
        raise SourceHeld("damaged", f"{reason}; {HEALS}", key)
