"""Runs background work as Spark jobs. A job has one unit of work for each task that has any. A task's next manifest
commits the results, not this module."""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Generic, TypeVar

from tistream import trace
from tistream.clock import Clock
from tistream.format.run import Index
from tistream.format.segment import SegmentRef
from tistream_sorter.state.task_state import TaskState
from tistream_sorter.task.task import Task
from tistream_sorter.upkeep.compaction_plan import TaskBackoff

log = logging.getLogger(__name__)

UNITS_MAX = 8  # units of one job; the results are committed before the next job begins

Unit = TypeVar("Unit")
Looked = tuple[tuple[SegmentRef, ...], Index, int]


class UpkeepJobs(ABC, Generic[Unit]):
    """Base class of one kind of background work. One thread calls `work` repeatedly. `what` names the jobs in logs and
    traces."""

    what: str

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._alone: frozenset[str] = frozenset()  # keys of objects that cannot be read or merged
        self._looked: dict[int, Looked] = {}  # by task: a state without work
        self._pauses = TaskBackoff()
        self._one_by_one = False

    def work(self, tasks: Sequence[Task]) -> bool:
        """Run the units of work that are due, at most UNITS_MAX, as one job; after a job that failed as a whole, each
        as a job of its own. Returns whether there were any units. Failures are logged, and their tasks pause."""
        held = {task.task_id for task in tasks}
        self._looked = {task_id: state for task_id, state in self._looked.items() if task_id in held}
        self._pauses.keep_only(held)
        found = [(task, unit) for task in tasks if (unit := self._next(task)) is not None][:UNITS_MAX]
        # After a job that failed as a whole each task gets a job of its own, so that one cannot block the others.
        jobs = [[one] for one in found] if self._one_by_one else [found] if found else []
        died = [job for job in jobs if not self._job(job)]
        self._one_by_one = bool(died)
        for task, _ in (job[0] for job in died if len(job) == 1):
            self._pauses.failed(task.task_id, self._clock.monotonic_ms())
        return bool(found)

    @abstractmethod
    def _unit(self, state: TaskState) -> Unit | None:
        """The next unit of work of a task, according to its newest manifest; None if there is no work."""

    def _rests(self, _: TaskState, /) -> bool:
        """Whether a task without work now can have none until its segments, its index or its retained_ts change. If so,
        the task is not examined before."""
        return True

    @abstractmethod
    def _run(self, found: Sequence[tuple[Task, Unit]]) -> None:
        """Run one job. After it has succeeded, pass its results to the tasks. If Spark raises an exception, no task
        gets a result."""

    @abstractmethod
    def _failed(self, task: Task, unit: Unit) -> None:
        """Record as garbage the objects that a failed unit may have written, because no manifest will name them."""

    def _next(self, task: Task) -> Unit | None:
        state = task.durable
        if task.to_settle or state.inherited:
            return None  # the result of the last job is not committed yet
        known = self._looked.get(task.task_id)
        if known is not None and (known[0] is state.live_segments and known[1:] == (state.index, state.retained_ts)):
            return None
        if not self._pauses.over(task.task_id, self._clock.monotonic_ms()):
            return None
        unit = self._unit(state)
        if unit is None and self._rests(state):
            self._looked[task.task_id] = state.live_segments, state.index, state.retained_ts
        return unit

    def _job(self, found: Sequence[tuple[Task, Unit]]) -> bool:
        """Run one job. Returns whether it succeeded."""
        try:
            with trace.root(self.what, attributes={"tistream.tasks": len(found)}):
                self._run(found)
        except Exception as error:  # Spark may raise any exception; no manifest will name the output
            tasks = [task.task_id for task, _ in found]
            log.error("job failed", exc_info=error, extra={"what": self.what, "tasks": tasks})
            for task, unit in found:
                self._failed(task, unit)
            return False
        return True

    def _give_up(self, task: Task, unit: Unit, damaged: Sequence[str]) -> None:
        """Handle a failed unit of work: record its output as garbage, and skip the objects `damaged`, which caused the
        failure, from now on. If `damaged` is empty, pause the task."""
        self._failed(task, unit)
        self._alone |= frozenset(damaged)
        if not damaged:
            self._pauses.failed(task.task_id, self._clock.monotonic_ms())
