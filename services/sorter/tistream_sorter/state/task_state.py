"""A task as its manifests leave it. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import pyarrow as pa

from tistream.format.manifest import NOTHING_TAKEN, IntakeCount, Manifest, Merging, PendingPart
from tistream.format.segment import SegmentRef
from tistream.model.ids import TenantKey
from tistream.model.span import KeySpan
from tistream.model.ts import MAX_TS
from tistream_sorter.state.positions import Positions
from tistream_sorter.watermark.slice_history import History
from tistream_sorter.watermark.slices import SliceMap


@dataclass(frozen=True, slots=True)
class TaskIdentity:
    """What never changes during an epoch."""

    tenant: TenantKey
    task_id: int
    span: KeySpan
    snapshot_ts: int
    task_epoch: int
    keep_index_keys: bool = False
    checkpoint_every: int = 64  # manifests; bounds what a reader must read to begin
    parents: tuple[int, ...] = ()  # sealed tasks whose state it begins with


@dataclass(frozen=True, slots=True)
class Retention:
    """How long committed rows are kept after their commit (ms; None = for ever). None goes that was committed after
    `read_ts`: somebody still has to read it."""

    keep_ms: int | None = None
    read_ts: int = MAX_TS


@dataclass(frozen=True, slots=True)
class TaskState:
    """A task as its last manifest left it, plus the progress of files without entries since.

    `stop_at` binds: nothing above it is flushed, or told as progress; `merge` is what for. `inherited`: this is what
    sealed parents have left, and no manifest of the task's own says so yet. `restate`: the next manifest tells every
    live segment, since some were replaced. Of retained_ts, schema_retained_ts and heritage see the manifest's.
    `served_ts`: readers were told before this epoch began that nothing at or below it comes any more.
    """

    identity: TaskIdentity
    number: int
    checkpoint: int
    flushed_ts: int
    slices: SliceMap
    positions: Positions
    pending: tuple[PendingPart, ...]
    live_segments: tuple[SegmentRef, ...]
    counters: dict[str, int]
    written_ms: int
    history: History = field(default_factory=History)
    scans: tuple[pa.Table, ...] = ()
    next_seq: int = 0
    unwritten: int = 0  # files taken since the manifest
    stop_at: int | None = None
    merge: Merging | None = None
    inherited: bool = False
    retention: Retention = Retention()
    retained_ts: int = 0
    schema_retained_ts: int = 0
    heritage: tuple[int, ...] = ()
    restate: bool = False
    intake: IntakeCount = NOTHING_TAKEN
    served_ts: int = 0
    taken_bytes: int = 0  # of files that no manifest tells of yet, and that were not counted before

    @property
    def begins_ts(self) -> int:
        """What was committed at or below it is nobody's concern any more."""
        return max(self.identity.snapshot_ts, self.retained_ts)

    @property
    def progress_ts(self) -> int:
        """Nothing at or below it will come. The next tick flushes through it."""
        reached = max(self.flushed_ts, self.slices.watermark())
        return reached if self.stop_at is None else min(reached, self.stop_at)

    @property
    def unflushed(self) -> bool:
        """Whether rows may wait at or below progress_ts without anything having come: of an heir, whose keys were ahead
        of others that its parents had, and where nothing binds any more (stop_at)."""
        return self.progress_ts > self.flushed_ts and self.told_ts < self.progress_ts

    @property
    def told_ts(self) -> int:
        """Nothing at or below it is pending, and nothing will come: a resolved ts that needs no further object."""
        pending = min((part.commit_ts_min for part in self.pending), default=MAX_TS)
        return max(self.flushed_ts, min(self.progress_ts, pending - 1))


def first_state(identity: TaskIdentity, number: int) -> TaskState:
    """A task that has no state manifest yet. `number` is the last manifest (a claim)."""
    return begun(
        TaskState(
            identity=identity,
            number=number,
            checkpoint=0,
            flushed_ts=identity.snapshot_ts,
            slices=SliceMap(identity.span, identity.snapshot_ts),
            positions={},
            pending=(),
            live_segments=(),
            counters={},
            written_ms=0,
        )
    )


def recovered_state(identity: TaskIdentity, manifest: Manifest, live: Sequence[SegmentRef], number: int) -> TaskState:
    """The task as its newest state manifest says; `number` is the last manifest of any kind."""
    assert manifest.slices is not None
    assert manifest.waiting is not None
    return begun(
        TaskState(
            identity=identity,
            number=number,
            checkpoint=manifest.checkpoint,
            flushed_ts=manifest.flushed_ts,
            slices=SliceMap.from_tables(identity.span, manifest.slices, manifest.waiting),
            positions=dict(manifest.positions),
            pending=manifest.pending,
            live_segments=tuple(live),
            counters=dict(manifest.counters),
            written_ms=manifest.written_ms,
            stop_at=manifest.stop_at,
            merge=manifest.merge,
            retained_ts=manifest.retained_ts,
            schema_retained_ts=manifest.schema_retained_ts,
            heritage=manifest.heritage,
            intake=manifest.intake,
        )
    )


def begun(state: TaskState) -> TaskState:
    """The state of a task that goes on from what is durable: what happened to its slices before decides nothing."""
    return replace(state, history=begun_history(state.slices), scans=(), next_seq=0, unwritten=0)


def begun_history(slices: SliceMap) -> History:
    """What the slices know, as the beginning of what will happen to them."""
    history = History()
    slices.begin(history)
    return history
