"""The input and the result of one shard: the part of a tick that one Spark task executes, for a range of keys. Both are
exchanged between driver and worker, and contain names of objects, not rows. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field

from tistream.format.manifest import PendingPart
from tistream.format.segment import SegmentRef
from tistream.model.ids import TenantKey
from tistream.model.span import KeySpan
from tistream.storage.measured import Traffic
from tistream.wire.file_batch import RowGroupRef
from tistream_sorter.match.kernel import MatchRules


@dataclass(frozen=True, slots=True)
class ShardFile:
    """One change file as a shard reads it. groups: all its row groups of changes, by index. wanted: indexes of the row
    groups that may hold keys of the shard. seq: position of the file in the tick."""

    seq: int
    key: str
    size: int
    footer_start: int
    groups: tuple[RowGroupRef, ...]
    wanted: tuple[int, ...]

    @property
    def wanted_groups(self) -> tuple[RowGroupRef, ...]:
        return tuple(self.groups[index] for index in self.wanted)


@dataclass(frozen=True, slots=True)
class StorageRules:
    """Limits that decide where the values of rows are stored until they are flushed (docs/adr/0007). All are in bytes.

    point_bytes_min: if the pending values of one row group have at least this size, they stay in the change file.
    seal_bytes_min: if the matched rows of one commit_ts have at least this size, they are written as a segment at once.
    chunk_bytes: unpacked size of the row groups that are read through pointers at a time, and size of the rows that are
    collected before a write.
    """

    point_bytes_min: int = 256 << 10
    seal_bytes_min: int = 1 << 20
    chunk_bytes: int = 16 << 20


@dataclass(frozen=True, slots=True)
class Shard:
    """The input of one shard. It names objects; their rows stay in object storage.

    history, scans: the changes of slices and the scans of this tick, as Arrow IPC streams (slice_history.HISTORY,
    SCANS_SCHEMA). unmatched, ready, sealed: pending parts, of which jobs/pruning.py decides which ones are read. swept:
    keys of UNMATCHED parts that are read in any case. scanned: spans whose UNMATCHED parts are read in any case.
    lookup: the segments in which repeated rows at or below the window are looked up; None in the first run, which finds
    out whether there are any.
    """

    tenant: TenantKey
    task_id: int
    task_epoch: int
    nonce: str
    number: int
    span: KeySpan
    rules: MatchRules
    files: tuple[ShardFile, ...]
    unmatched: tuple[PendingPart, ...]
    ready: tuple[PendingPart, ...]
    history: bytes
    scans: bytes
    sealed: tuple[PendingPart, ...] = ()
    swept: frozenset[str] = frozenset()
    scanned: tuple[KeySpan, ...] = ()
    store: StorageRules = field(default_factory=StorageRules)
    lookup: tuple[SegmentRef, ...] | None = None

    @property
    def weight(self) -> int:
        """Estimate the bytes that the shard must read: its row groups, and its UNMATCHED and READY parts, whether or
        not they will be skipped. It decides how shards are distributed over Spark tasks."""
        groups = sum(group.length for file in self.files for group in file.wanted_groups)
        return groups + sum(part.size for part in (*self.unmatched, *self.ready)) + 4096


@dataclass(frozen=True, slots=True)
class ShardResult:
    """The objects that a shard wrote, or the reason if it wrote none. The objects have no effect until a manifest names
    them.

    consumed: pending parts that the next manifest leaves out, as (key, start of the span that the shard was given).
    bad_files: by `seq`, the reason for files whose row groups fail a check; nothing was written. lookup_window:
    (lowest, highest) commit_ts of repeated rows; the shard must be run again with the segments of that window. broken:
    (invariant, reason). failed: the object store did not answer; the shard must be run again later. With `key_unusable`
    the tenant's encryption key is the cause, and an immediate retry is pointless. traffic: requests to the object
    store, by kind. stages: (name, begin, end) of consecutive stages, in Unix ns by the worker's clock.
    """

    task_id: int
    number: int
    segments: tuple[SegmentRef, ...] = ()
    pending: tuple[PendingPart, ...] = ()
    consumed: frozenset[tuple[str, bytes]] = frozenset()
    counters: dict[str, int] = field(default_factory=dict)
    bad_files: dict[int, str] = field(default_factory=dict)
    lookup_window: tuple[int, int] | None = None
    broken: tuple[int, str] | None = None
    failed: str | None = None
    key_unusable: bool = False
    read_bytes: int = 0
    wall_ms: int = 0
    traffic: dict[str, Traffic] = field(default_factory=dict)
    stages: tuple[tuple[str, int, int], ...] = ()
