"""Runs the merges that upkeep/compaction_plan.py selects, as jobs. Commits nothing: the task's next manifest does."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Protocol

from tistream import trace
from tistream.clock import Clock
from tistream.format.segment import SegmentRef
from tistream.storage.measured import MeasuredObjectStore
from tistream_sorter.jobs.rewrite import Rewrite, Rewritten
from tistream_sorter.metrics import SorterMetrics
from tistream_sorter.task.mailbox import Wasted
from tistream_sorter.task.status import log_fields
from tistream_sorter.task.task import Task
from tistream_sorter.upkeep.compaction_plan import CompactRules, Pauses, rewrite

log = logging.getLogger(__name__)

UNITS_MAX = 8  # of one job: its results are committed before the next job begins


class Rewriter(Protocol):
    """Runs merges of segments as one job."""

    def rewrite(self, units: Sequence[Rewrite]) -> list[Rewritten]: ...


class Compactor:
    """Call `compact` again and again, from one thread. `rules` None: nothing is compacted."""

    def __init__(
        self,
        objects: MeasuredObjectStore,
        runner: Rewriter,
        rules: CompactRules | None,
        clock: Clock,
        new_nonce: Callable[[], str],
        metrics: SorterMetrics,
    ) -> None:
        self._objects, self._runner, self._rules = objects, runner, rules
        self._clock, self._new_nonce, self._metrics = clock, new_nonce, metrics
        self._alone: frozenset[str] = frozenset()  # keys of segments that cannot be read or merged
        self._looked: dict[int, tuple[SegmentRef, ...]] = {}  # by task: a list of segments without work
        self._pauses = Pauses()
        self._one_by_one = False

    def compact(self, tasks: Sequence[Task]) -> bool:
        """Run the due merges as one job. Return whether there were any."""
        if self._rules is None:
            return False
        held = {task.task_id for task in tasks}
        self._looked = {task_id: live for task_id, live in self._looked.items() if task_id in held}
        self._pauses.keep_only(held)
        found = [(task, unit) for task in tasks if (unit := self._unit(task, self._rules)) is not None][:UNITS_MAX]
        # After a job that failed as a whole each task gets a job of its own, so that one cannot block the others.
        jobs = [[one] for one in found] if self._one_by_one else [found] if found else []
        died = [job for job in jobs if not self._job(job)]
        self._one_by_one = bool(died)
        for task, _ in (job[0] for job in died if len(job) == 1):
            self._pauses.failed(task.task_id, self._clock.monotonic_ms())
        return bool(found)

    def _unit(self, task: Task, rules: CompactRules) -> Rewrite | None:
        state = task.durable
        if task.to_settle or state.inherited:
            return None  # what came of the last job is not committed yet
        if self._looked.get(state.identity.task_id) is state.live_segments:
            return None
        if not self._pauses.over(state.identity.task_id, self._clock.monotonic_ms()):
            return None
        unit = rewrite(state.identity, state.live_segments, self._alone, self._new_nonce(), rules)
        if unit is None:
            self._looked[state.identity.task_id] = state.live_segments
        return unit

    def _job(self, found: Sequence[tuple[Task, Rewrite]]) -> bool:
        """Run one job and return whether it succeeded."""
        try:
            with trace.root("compact", attributes={"tistream.tasks": len(found)}):
                results = self._runner.rewrite([unit for _, unit in found])
        except Exception as error:  # whatever Spark raises: nothing of it will be named
            tasks = [task.task_id for task, _ in found]
            log.error("job that puts segments together failed", exc_info=error, extra={"tasks": tasks})
            for task, unit in found:
                self._failed(task, unit)
            return False
        units = {unit.task_id: (task, unit) for task, unit in found}
        for done in results:
            task, unit = units[done.task_id]
            self._objects.add_all(done.traffic, task.state.identity.tenant)
            self._take(task, unit, done)
        return True

    def _take(self, task: Task, unit: Rewrite, done: Rewritten) -> None:
        if done.failed is not None:
            self._failed(task, unit)
            self._alone |= frozenset(done.inputs)
            if not done.inputs:
                self._pauses.failed(task.task_id, self._clock.monotonic_ms())
            log.warning("segments cannot be compacted", extra={**log_fields(task.state), "reason": done.failed})
            return
        assert done.output is not None
        self._pauses.worked(task.task_id)
        self._metrics.compacted.inc(len(done.inputs))
        self._metrics.compacted_bytes.inc(done.output.size)
        task.leave(done)

    def _failed(self, task: Task, unit: Rewrite) -> None:
        """Record a failed merge. Its output may exist; no manifest will name it, so its key is garbage."""
        self._metrics.compact_failures.inc()
        task.leave(Wasted(unit.key))
