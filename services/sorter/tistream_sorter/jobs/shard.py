"""A key-range shard of one task's tick, and its outcome: what travels between the driver and Spark's workers. Pure."""

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
    """One change file (all its row groups of changes, by index) and which of them may hold keys of the shard.

    `seq` is the file's place in the tick.
    """

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
class StoreRules:
    """What becomes of values that are not flushed yet (docs/adr/0007); bytes.

    point_bytes_min: waiting values of one row group together, from which on they are left in the source file.
    seal_bytes_min: settled rows of one commit_ts, from which on they are written as a segment at once. chunk_bytes: of
    source row groups, unpacked, that are read through pointers at a time, and of rows that are gathered before they are
    written.
    """

    point_bytes_min: int = 256 << 10
    seal_bytes_min: int = 1 << 20
    chunk_bytes: int = 16 << 20


@dataclass(frozen=True, slots=True)
class Shard:
    """Everything one Spark task needs to know; data stays in object storage.

    `history` and `scans` are Arrow IPC streams (slice_history.HISTORY, SCANS_SCHEMA). Of the parts it reads those that
    matter (jobs/pruning.py): the UNMATCHED parts `swept`, and those in the spans `scanned`, in any case. `lookup` are
    the segments in which repeats at or below the window are looked up; None before it is known whether there are any.
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
    store: StoreRules = field(default_factory=StoreRules)
    lookup: tuple[SegmentRef, ...] | None = None

    @property
    def weight(self) -> int:
        """Bytes to read: what tasks are balanced by."""
        groups = sum(group.length for file in self.files for group in file.wanted_groups)
        return groups + sum(part.size for part in (*self.unmatched, *self.ready)) + 4096


@dataclass(frozen=True, slots=True)
class ShardResult:
    """What a shard wrote, or why it could not. Only a manifest makes it true.

    consumed: pending parts that need no further mention, as (key, start of the piece that the shard was given).
    bad_files: seq -> reason, for files whose row groups fail their checks: nothing was written. lookup_window:
    (lowest, highest) commit_ts of repeats to be looked up: run again with the segments. broken: (invariant, reason).
    failed: the store did not answer; run again later, and not at once where the tenant's key is why (`key_unusable`).
    traffic: what the shard asked of the store, by kind. stages: (name, began, ended), of what was done one after the
    other, in ns of Unix time by the worker's clock.
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
