"""Runs the merges of small segments that upkeep/compaction_plan.py selects, as jobs. A task's next manifest commits the
results, not this module."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Protocol

from tistream.clock import Clock
from tistream.storage.measured import MeasuredObjectStore
from tistream_sorter.jobs.rewrite import Rewrite, Rewritten
from tistream_sorter.metrics import SorterMetrics
from tistream_sorter.node.upkeep_jobs import UpkeepJobs
from tistream_sorter.state.task_state import TaskState
from tistream_sorter.task.mailbox import GarbageNote
from tistream_sorter.task.status import log_fields
from tistream_sorter.task.task import Task
from tistream_sorter.upkeep.compaction_plan import CompactRules, rewrite

log = logging.getLogger(__name__)


class RewriteRunner(Protocol):
    """Runs merges of segments as one job. Production uses SparkRunner."""

    def rewrite(self, units: Sequence[Rewrite]) -> list[Rewritten]: ...


class Compactor(UpkeepJobs[Rewrite]):
    """Merges small segments of the tasks of this process (compaction)."""

    what = "compact"

    def __init__(
        self,
        objects: MeasuredObjectStore,
        runner: RewriteRunner,
        rules: CompactRules,
        clock: Clock,
        new_nonce: Callable[[], str],
        metrics: SorterMetrics,
    ) -> None:
        super().__init__(clock)
        self._objects, self._runner, self._rules = objects, runner, rules
        self._new_nonce, self._metrics = new_nonce, metrics

    def _unit(self, state: TaskState) -> Rewrite | None:
        return rewrite(state.identity, state.live_segments, self._alone, self._new_nonce(), self._rules)

    def _run(self, found: Sequence[tuple[Task, Rewrite]]) -> None:
        results = self._runner.rewrite([unit for _, unit in found])
        units = {unit.task_id: (task, unit) for task, unit in found}
        for done in results:
            task, unit = units[done.task_id]
            self._objects.add_all(done.traffic, task.state.identity.tenant)
            self._pass_on(task, unit, done)

    def _pass_on(self, task: Task, unit: Rewrite, done: Rewritten) -> None:
        if done.failed is not None:
            self._give_up(task, unit, done.inputs)
            log.warning("segments cannot be compacted", extra={**log_fields(task.state), "reason": done.failed})
            return
        assert done.output is not None
        self._pauses.worked(task.task_id)
        self._metrics.compacted.inc(len(done.inputs))
        self._metrics.compacted_bytes.inc(done.output.size)
        task.leave(done)

    def _failed(self, task: Task, unit: Rewrite) -> None:
        self._metrics.compact_failures.inc()
        task.leave(GarbageNote(unit.key))
