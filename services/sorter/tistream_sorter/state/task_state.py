"""The state of a task after its last manifest. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import pyarrow as pa

from tistream.format.manifest import NOTHING_TAKEN, IntakeCount, Merging, PendingPart
from tistream.format.run import Index
from tistream.format.segment import SegmentRef
from tistream.format.task_view import TaskView
from tistream.model.base_cover import Cover
from tistream.model.ids import TenantKey
from tistream.model.span import KeySpan
from tistream.model.ts import MAX_TS
from tistream_sorter.state.positions import Positions
from tistream_sorter.watermark.slice_history import SliceHistory
from tistream_sorter.watermark.slices import SliceMap


@dataclass(frozen=True, slots=True)
class TaskIdentity:
    """The properties of a task that do not change during an epoch. keep_index_keys: whether changes of index entries
    are kept."""

    tenant: TenantKey
    task_id: int
    span: KeySpan
    snapshot_ts: int
    task_epoch: int
    keep_index_keys: bool = False
    raw: bool = False  # whether the tenant is RawKV
    # Number of manifests between checkpoints; it limits the manifests that a new reader must read.
    checkpoint_every: int = 64
    parents: tuple[int, ...] = ()  # sealed tasks whose state the task inherits


@dataclass(frozen=True, slots=True)
class Retention:
    """How long committed rows are kept after their commit, in ms; None: for ever. Rows above `read_ts` are kept in any
    case, because readers, or the chunks of a backfill, still need them. indexed: whether segments are kept until the
    version index has their rows."""

    keep_ms: int | None = None
    read_ts: int = MAX_TS
    indexed: bool = False


@dataclass(frozen=True, slots=True)
class TaskState:
    """The state after the last manifest. The progress of files without entries, which arrived since then, is included.

    number, checkpoint: numbers of the last manifest, and of the last checkpoint manifest. written_ms: when the last
    manifest was written (wall clock). history, scans, next_seq: the changes of slices and the scans since the last
    manifest, and the `seq` of the next file. stop_at: no row above it is flushed, and no progress above it is reported,
    because of the merge `merge`. inherited: the state comes from sealed parents, and the task has no manifest of its
    own yet. restate: some live segments were replaced, so the next manifest must list all of them. index: the version
    index. retained_ts, schema_retained_ts: rows, and rows of the schema's keys, at or below may be gone. heritage: the
    sealed tasks whose objects may still exist. served_ts: the highest resolved_ts that readers had received when this
    epoch began; no new row may appear at or below it. cover: the keys of which backfills know all rows; the rows
    themselves are in the index.
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
    history: SliceHistory = field(default_factory=SliceHistory)
    scans: tuple[pa.Table, ...] = ()
    next_seq: int = 0
    unwritten: int = 0  # files processed since the last manifest
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
    index: Index = ()
    cover: Cover = ()
    uncounted_bytes: int = 0  # bytes of files that no manifest covers yet and that are not in `intake`

    @property
    def begins_ts(self) -> int:
        """Changes with a commit_ts at or below this are dropped, because they are before the tenant's snapshot or past
        retention."""
        return max(self.identity.snapshot_ts, self.retained_ts)

    @property
    def progress_ts(self) -> int:
        """The ts up to which the next tick flushes: the task's watermark, bounded by stop_at. No entry at or below it
        will arrive."""
        reached = max(self.flushed_ts, self.slices.watermark())
        return reached if self.stop_at is None else min(reached, self.stop_at)

    @property
    def unflushed(self) -> bool:
        """Whether pending rows at or below progress_ts can be flushed although no file arrived. That happens in a child
        task whose watermark is above its parents' flushed_ts, and after a stop_at was withdrawn."""
        return self.progress_ts > self.flushed_ts and self.reported_ts < self.progress_ts

    @property
    def reported_ts(self) -> int:
        """The progress that the task reports to readers. No row at or below it is pending or will arrive, so what the
        manifests name is complete up to it."""
        pending = min((part.commit_ts_min for part in self.pending), default=MAX_TS)
        return max(self.flushed_ts, min(self.progress_ts, pending - 1))


def first_state(identity: TaskIdentity, number: int) -> TaskState:
    """The state of a new task, whose log holds only claims: nothing is flushed above snapshot_ts. `number`: the number
    of its last claim."""
    return after_manifest(
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


def recovered_state(identity: TaskIdentity, view: TaskView) -> TaskState:
    """Rebuild a task's state from its manifests. At least one of them must be more than a claim."""
    manifest = view.state
    assert manifest is not None
    assert manifest.slices is not None
    assert manifest.waiting is not None
    return after_manifest(
        TaskState(
            identity=identity,
            number=view.number,
            checkpoint=manifest.checkpoint,
            flushed_ts=manifest.flushed_ts,
            slices=SliceMap.from_tables(identity.span, manifest.slices, manifest.waiting),
            positions=dict(manifest.positions),
            pending=manifest.pending,
            live_segments=view.segments,
            counters=dict(manifest.counters),
            written_ms=manifest.written_ms,
            stop_at=manifest.stop_at,
            merge=manifest.merge,
            retained_ts=manifest.retained_ts,
            schema_retained_ts=manifest.schema_retained_ts,
            heritage=manifest.heritage,
            intake=manifest.intake,
            index=view.index,
            cover=view.cover,
        )
    )


def after_manifest(state: TaskState) -> TaskState:
    """The state directly after a manifest: `scans`, `next_seq` and `unwritten` are reset, and the history begins anew
    with the present slices, because no later decision needs the earlier changes."""
    return replace(state, history=begun_history(state.slices), scans=(), next_seq=0, unwritten=0)


def begun_history(slices: SliceMap) -> SliceHistory:
    """A new history of slice changes that begins with the present state of the slices."""
    history = SliceHistory()
    slices.begin(history)
    return history
