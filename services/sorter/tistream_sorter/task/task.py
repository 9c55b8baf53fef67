"""One task in this process, as any thread may use it. Thread-safe; no I/O.

Two rules hold, and the types enforce them:

* Any thread may use the methods of `Task`. A method reads or replaces one value as a whole, or puts something into the
  mailbox (mailbox.py), whose lock is the only one. It never changes the state.
* The state changes only in a turn (task_machine.py), and a turn begins only with `Task.turn`. One turn runs at a time;
  a second one at the same time is a bug, and raises AssertionError. A turn may last long: no other thread waits for it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

from tistream.model.span import KeySpan
from tistream.schema.tidb.meta_change import SCHEMA_SPANS
from tistream.wire.meta import SealOrder
from tistream.wire.sorter import Coverage, Hold, StoreNeed, TaskStatus
from tistream_sorter.state.positions import Positions
from tistream_sorter.state.task_state import TaskState
from tistream_sorter.task.mailbox import Mailbox, Note
from tistream_sorter.task.status import coverage, is_late, slice_holds, store_need, task_status
from tistream_sorter.task.task_machine import TaskMachine, TickLimits
from tistream_sorter.task.tick import TaskFile
from tistream_sorter.upkeep.load import LoadMeter


class Troubles(NamedTuple):
    """The parts of a task's status that may change while its state stays the same. `late`: whether the watermark is
    older than LATE_MS. `received`: the positions after all queued files if the task has a `trouble` or is `stopped`, so
    that these files are not applied; otherwise None."""

    trouble: str | None
    stopped: str | None
    holds: list[Hold]
    late: bool
    received: Positions | None


class Task:
    """A task that this process holds under one epoch."""

    def __init__(self, state: TaskState, limits: TickLimits) -> None:
        self.task_id = state.identity.task_id
        self.read_by_registry = any(state.identity.span.overlaps(span) for span in SCHEMA_SPANS)
        self._mail = Mailbox(
            state, limits.inbox_files_max, read_by_registry=self.read_by_registry, backfills=limits.backfills
        )
        self._turn = TaskMachine(state, limits, self._mail)

    @contextmanager
    def turn(self) -> Iterator[TaskMachine]:
        """Begin a turn as a context manager, in which the task decides its next step or changes its state. Only the
        thread that runs the task's ticks may call this."""
        self._mail.begin_turn()
        try:
            yield self._turn
        finally:
            self._mail.end_turn()

    # -- current values -----------------------------------------------------------------------------------------------

    @property
    def state(self) -> TaskState:
        """The current state, including files that no manifest covers yet."""
        return self._turn.state

    @property
    def durable(self) -> TaskState:
        """The state that the newest manifest contains."""
        return self._turn.durable

    @property
    def stop_at(self) -> int | None:
        """The ts at which the task stops for a merge, according to the newest manifest; None if it does not stop."""
        return self.durable.stop_at

    @property
    def stopped(self) -> str | None:
        """The reason why the task has stopped; None while it is not stopped."""
        return self._turn.stopped

    @property
    def trouble(self) -> str | None:
        """The reason why the last tick failed; None if it did not fail. A failed tick is retried."""
        return self._turn.trouble

    @property
    def load(self) -> LoadMeter:
        """The meter of the task's load, for balancing between sorters."""
        return self._turn.load

    @property
    def unfinished(self) -> bool:
        """Whether the task has begun to apply files, and the next turn must continue."""
        return self._turn.unfinished

    @property
    def has_unread(self) -> bool:
        """Whether a file, an order or a note has come that no turn has read yet."""
        return self._mail.has_unread()

    @property
    def to_settle(self) -> bool:
        """Whether a background job (a compaction, a merge of the version index, a converted base chunk) has a result
        that no manifest has yet: no turn has read it, or the next manifest must restate the state with it."""
        return self._mail.has_results() or self.state.restate

    @property
    def ancestors(self) -> list[int]:
        """Sealed ancestors whose objects may still exist."""
        gone = self._mail.nothing_left_of()
        return [one for one in self.durable.heritage if one not in gone]

    def received(self) -> Positions:
        """The position in each chain after all queued files."""
        return self._mail.received()

    def status(self, wall_ms: int, monotonic_ms: int) -> TaskStatus:
        """The status of the task at this time of both clocks."""
        # Read `durable` before the inbox, so that the received positions are never behind the durable ones.
        state, durable, trouble = self.state, self.durable, self.trouble
        received, holds = self._mail.holds(monotonic_ms)
        if trouble is not None:  # the slices lack queued files, so a late slice does not mean a late upstream
            holds.append(Hold(stage="sort", reason=f"task {self.task_id}: {trouble}"))
        else:
            holds += slice_holds(state, wall_ms)
        return task_status(state, durable, received, holds, self.stopped)

    def troubles(self, wall_ms: int, monotonic_ms: int) -> Troubles:
        """Why the task does not advance at this time of both clocks, in a form that is compared with an earlier one."""
        trouble, stopped = self.trouble, self.stopped
        received, holds = self._mail.holds(monotonic_ms)
        stuck = trouble is not None or stopped is not None
        return Troubles(trouble, stopped, holds, is_late(self.state, wall_ms), received if stuck else None)

    def coverage(self, span: KeySpan) -> Coverage:
        """The slices inside `span` according to the newest manifest. Later progress is not shown: a crash may lose it,
        and its file too if the store's chain breaks. A scan that began above the durable state would then never
        connect."""
        return coverage(self.durable, span)

    def needs_of(self, store_id: int) -> StoreNeed:
        """What the task still needs from a store, with the reasons."""
        state, durable = self.state, self.durable
        return store_need(state, durable, self.received(), store_id)

    # -- input from other threads --------------------------------------------------------------------------------------

    def offer(self, files: Sequence[TaskFile], now_ms: int) -> bool:
        """Queue each file that is the next of its chain, and skip the others. Returns False, and queues no file, if the
        inbox is full. `now_ms`: monotonic.

        A dispatcher may not know yet that a chain is closed. Of a late file of a closed chain only the position is
        used, because the file may be deleted before a tick reads it.
        """
        return self._mail.offer(files, self.durable, now_ms)

    def order(self, order: SealOrder | None) -> str | None:
        """Set the owner's current order to split or merge the task; None: no order. Returns the reason if a new order
        cannot be executed, otherwise None."""
        return self._mail.set_order(order, self.state)

    def leave(self, note: Note) -> None:
        """Store a note, which the next turn reads."""
        self._mail.leave(note)

    def fail(self, reason: str) -> None:
        """Record that the tick has failed and will be repeated. The status shows the reason until a manifest is
        committed."""
        self._turn.trouble = reason

    def stop(self, reason: str) -> None:
        """Stop the task for good, because it must not continue. It keeps all of its data, and the status shows the
        reason."""
        self._turn.stopped = reason
