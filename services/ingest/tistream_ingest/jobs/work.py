"""The messages between the Spark driver and its executors about a release, which is one step of reading a log backup.
They are plain data, and contain no rows. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from tistream.logbackup.metadata import Slice
from tistream.logbackup.release import Release
from tistream.model.ids import TenantKey
from tistream.model.span import KeySpan
from tistream.model.ts import Window
from tistream.pool.versions.plan import IndexShard
from tistream_ingest.plan.cuts import Survey


@dataclass(frozen=True, slots=True)
class PoolShards:
    """The tenant's committed rows, from which old values are read: the runs and segments of its tasks, in key order.
    floor_ts: versions at or below it may be missing (snapshot_ts, retention)."""

    shards: tuple[IndexShard, ...]
    floor_ts: int


@dataclass(frozen=True, slots=True)
class ReleaseShard:
    """The changes of a release with keys in `span`. writes, values, late: the slices to read, as in
    plan.taking.ReleaseInput. keep_index: whether changes of index entries are kept."""

    number: int
    span: KeySpan
    window: Window
    writes: tuple[Slice, ...]
    values: tuple[Slice, ...]
    late: tuple[Slice, ...]
    keep_index: bool

    @property
    def weight(self) -> int:
        """The unpacked bytes of the slices that the shard must read, and 4 KiB for the shard itself."""
        return sum(one.plain for one in (*self.writes, *self.values, *self.late)) + 4096


@dataclass(frozen=True, slots=True)
class ReleaseJob:
    """One release to execute."""

    tenant: TenantKey
    release: Release
    shards: tuple[ReleaseShard, ...]
    pool: PoolShards


@dataclass(frozen=True, slots=True)
class WrittenFile:
    """A change file that the job has written or found. rows: its number of changes. fresh: whether this job created
    it."""

    key: str
    ts: int
    rows: int
    size: int
    fresh: bool


@dataclass(frozen=True, slots=True)
class WorkFailure:
    """The reason why the work on a shard or change file failed. kind: `missing` (an object of the log or the pool does
    not exist; `object` names it), `damaged` (an object fails its checks), `broken` (an invariant; `number`), `refused`
    (the log has a form that is not supported), `unavailable` (a retry may succeed)."""

    kind: str
    reason: str
    object: str | None = None
    number: int | None = None


Surveyed = Survey | WorkFailure
