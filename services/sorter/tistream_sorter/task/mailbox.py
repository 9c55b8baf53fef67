"""Passes files, orders and notes from other threads to a task. The next turn of the task reads them (task_machine.py).
Thread-safe.

Its lock is the only one of a task. The lock protects data that threads share, and is held only briefly. No thread
decides or waits while it holds the lock.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from tistream.concurrency import new_lock
from tistream.errors import InvalidRequest
from tistream.format.run import RunRef
from tistream.model.ts import MAX_TS
from tistream.wire.file_batch import FileRef
from tistream.wire.meta import SealOrder
from tistream.wire.sorter import Hold
from tistream_sorter.jobs.index.base_unit import BaseResult
from tistream_sorter.jobs.index.index_unit import IndexUnit
from tistream_sorter.jobs.rewrite import Rewritten
from tistream_sorter.state.damage import DamagedFiles
from tistream_sorter.state.positions import Positions, closed, outlived
from tistream_sorter.state.task_state import TaskState
from tistream_sorter.task.inbox import Inbox
from tistream_sorter.task.seal_orders import FittingOrder, may_stop, read_order
from tistream_sorter.task.status import no_room
from tistream_sorter.task.tick import TaskFile, without_content


@dataclass(frozen=True, slots=True)
class RetentionNote:
    """A note that sets for how many ms committed rows are kept; None: for ever."""

    ms: int | None


@dataclass(frozen=True, slots=True)
class SchemaReadNote:
    """A note that the schema registry has read the pool up to `ts` and stored the result. Rows above it must be
    kept."""

    ts: int


@dataclass(frozen=True, slots=True)
class FlushedByAllNote:
    """A note that the manifests of all tasks of the tenant cover `ts`, so readers may have read up to it. Rows above it
    must be kept, because no reader has read further than the slowest task. The highest of several notes counts."""

    ts: int


@dataclass(frozen=True, slots=True)
class OpenBackfillsNote:
    """A note that open backfills may have chunks as of any ts above `above_ts`, so rows above it must be kept. MAX_TS:
    no backfill is open."""

    above_ts: int


@dataclass(frozen=True, slots=True)
class AncestorErasedNote:
    """A note that a sealed ancestor has no objects left, so it can be removed from the heritage (the ancestors whose
    objects may exist)."""

    task_id: int


@dataclass(frozen=True, slots=True)
class GarbageNote:
    """A note about an object that may exist and that no manifest will ever name, so it is garbage."""

    key: str


@dataclass(frozen=True, slots=True)
class IndexMergedNote:
    """A note that a merge of the version index has ended. The next manifest names the runs `written` in place of the
    inputs of `unit`."""

    unit: IndexUnit
    written: Sequence[RunRef]


# Rewritten: a compaction is complete. BaseResult: a base chunk was converted; the next manifest names its base and its
# run.
Note = (
    RetentionNote
    | SchemaReadNote
    | FlushedByAllNote
    | OpenBackfillsNote
    | AncestorErasedNote
    | GarbageNote
    | Rewritten
    | IndexMergedNote
    | BaseResult
)


@dataclass(frozen=True, slots=True)
class Notes:
    """The values of all notes at one moment. A turn that reads `rewritten`, `merged`, `based` and `wasted` also removes
    them; the others keep their last value."""

    keep_ms: int | None
    read_ts: int
    flushed_by_all: int
    backfilled_ts: int
    nothing_left_of: frozenset[int]
    rewritten: list[Rewritten]
    merged: list[IndexMergedNote]
    based: list[BaseResult]
    wasted: list[str]


class Mailbox:
    """The data of one task that other threads share with the thread of its turns."""

    def __init__(self, state: TaskState, files_max: int, *, read_by_registry: bool, backfills: bool = False) -> None:
        self._lock = new_lock()
        self._files_max = files_max
        self._inbox = Inbox(state.positions)
        self._damages = DamagedFiles()
        read_ts, backfilled_ts = (0 if unknown else MAX_TS for unknown in (read_by_registry, backfills))
        self._notes = Notes(None, read_ts, 0, backfilled_ts, frozenset(), [], [], [], [])
        self._sent: SealOrder | None = None  # the order as the owner gave it
        self._order: FittingOrder | None = None  # the same order, if it fits the task
        self._in_turn = False
        self._unread = True  # whether something has come since the last turn began

    # -- any thread ----------------------------------------------------------------------------------------------

    def leave(self, note: Note) -> None:
        """Store a note, which the task's next turn reads."""
        with self._lock:
            notes = before = self._notes
            match note:
                case RetentionNote(ms):
                    self._notes = replace(notes, keep_ms=ms)
                case SchemaReadNote(ts):
                    self._notes = replace(notes, read_ts=ts)
                case FlushedByAllNote(ts):
                    self._notes = replace(notes, flushed_by_all=max(notes.flushed_by_all, ts))
                case OpenBackfillsNote(above_ts):
                    self._notes = replace(notes, backfilled_ts=above_ts)
                case AncestorErasedNote(task_id):
                    self._notes = replace(notes, nothing_left_of=notes.nothing_left_of | {task_id})
                case GarbageNote(key):
                    notes.wasted.append(key)
                case Rewritten():
                    notes.rewritten.append(note)
                case IndexMergedNote():
                    notes.merged.append(note)
                case BaseResult():
                    notes.based.append(note)
            self._unread |= self._notes is before or self._notes != before  # the lists of a Notes are appended to

    def set_order(self, order: SealOrder | None, state: TaskState) -> str | None:
        """Set the owner's current order to split or merge the task; None: no order. Later turns execute it. Returns the
        reason if a new order cannot be executed, otherwise None."""
        with self._lock:
            if order == self._sent:
                return None
            self._sent, self._order = order, None
            self._unread = True
            try:
                self._order = found = None if order is None else read_order(order, state.identity)
            except InvalidRequest as error:
                return str(error)
        if found is not None and found.stop_at is not None and not may_stop(state, found):
            return f"stop_at {found.stop_at} lies below the progress {state.progress_ts}"
        return None

    def offer(self, files: Sequence[TaskFile], durable: TaskState, now_ms: int) -> bool:
        """Queue each file that is the next of its chain, and skip the others. Returns False, and queues no file, if the
        inbox is full. `durable`: the state of the newest manifest. `now_ms`: monotonic."""
        with self._lock:
            if len(self._inbox.files) + len(files) > self._files_max and self._inbox.files:
                return False
            self._unread = True
            for file in files:
                if outlived(durable.positions, durable.flushed_ts, file.ref):
                    continue
                if not self._damages.refuses(file.ref, now_ms):
                    late = closed(durable.positions, durable.flushed_ts, file.ref)
                    self._inbox.offer(without_content(file) if late else file)
            return True

    def received(self) -> Positions:
        """The position in each chain after all queued files."""
        with self._lock:
            return self._inbox.positions

    def holds(self, monotonic_ms: int) -> tuple[Positions, list[Hold]]:
        """Returns (the position in each chain after all queued files, the holds of files that cannot be queued). Such a
        file is damaged, or its store has too many open chains."""
        with self._lock:
            received, holds = self._inbox.positions, self._damages.holds(monotonic_ms)
            return received, holds + [no_room(ref, received) for ref in self._inbox.crowded()]

    def has_files(self) -> bool:
        """Whether a file is queued."""
        with self._lock:
            return bool(self._inbox.files)

    def has_unread(self) -> bool:
        """Whether a file, an order or a note has come that no turn has read yet."""
        return self._unread

    def has_results(self) -> bool:
        """Whether a background job (a compaction, a merge of the version index, a converted base chunk) has a result
        that no turn has read yet."""
        with self._lock:
            return bool(self._notes.rewritten or self._notes.merged or self._notes.based)

    def nothing_left_of(self) -> frozenset[int]:
        """The sealed ancestors that have no objects left."""
        with self._lock:
            return self._notes.nothing_left_of

    # -- the turn -------------------------------------------------------------------------------------------------

    def begin_turn(self) -> None:
        """Begin a turn of the task. Raises AssertionError if another turn has not ended, which is a bug."""
        with self._lock:
            assert not self._in_turn, "two turns of one task at the same time"
            self._in_turn = True

    def end_turn(self) -> None:
        """End the turn of the task."""
        with self._lock:
            self._in_turn = False

    def order(self) -> FittingOrder | None:
        """The owner's current order to split or merge the task, parsed; None without one, or if it does not fit."""
        with self._lock:
            return self._order

    def notes(self) -> Notes:
        """Read all notes, and remove those that only one turn may read."""
        with self._lock:
            notes, self._unread = self._notes, False
            self._notes = replace(notes, rewritten=[], merged=[], based=[], wasted=[])
            return notes

    def peek(self, bytes_max: int, task_id: int) -> list[TaskFile]:
        """Return the files of the next tick, the oldest ones within `bytes_max` (Inbox.peek). They stay in the
        inbox."""
        with self._lock:
            return self._inbox.peek(bytes_max, task_id)

    def queued(self, count: int) -> list[TaskFile]:
        """The first `count` files of the inbox, which stay there."""
        with self._lock:
            return self._inbox.files[:count]

    def remove(self, files: Sequence[TaskFile]) -> None:
        """Remove these files, the first of the inbox, because a manifest or the state in memory covers them."""
        with self._lock:
            self._inbox.remove(len(files))
            for file in files:
                self._damages.accepted(file.ref)

    def committed(self, after: TaskState) -> None:
        """Record that a manifest has the state `after`: forget the positions of closed chains that it has dropped.
        Queued files stay."""
        with self._lock:
            self._inbox.committed(after.positions, after.flushed_ts)

    def forget(self, positions: Positions, bad: Sequence[tuple[FileRef, str]], now_ms: int) -> None:
        """Drop files that cannot be read (each with the reason), and the later files of their chains. `positions`:
        those of the newest state, to which their stores return. `now_ms`: monotonic."""
        with self._lock:
            for ref, reason in bad:
                self._damages.note(ref, reason, now_ms)
            self._inbox.forget(positions, [ref.key for ref, _ in bad])
