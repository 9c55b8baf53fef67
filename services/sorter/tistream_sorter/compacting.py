"""Has small segments written as larger ones, as compaction.py tells. Commits nothing: the task's next manifest does."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Protocol

from tistream.format.segment import SegmentRef
from tistream.storage.measured import MeasuredObjectStore
from tistream_sorter.compaction import CompactRules, Rewrite, Rewritten, rewrite
from tistream_sorter.metrics import SorterMetrics
from tistream_sorter.status import log_fields
from tistream_sorter.task import Task

log = logging.getLogger(__name__)

UNITS_MAX = 8  # of one job: what comes back is committed before more is begun


class Rewriter(Protocol):
    """Writes segments as one, as a job."""

    def rewrite(self, units: Sequence[Rewrite]) -> list[Rewritten]: ...


class Compactor:
    """Call `compact` again and again, from one thread. `rules` None: nothing is compacted."""

    def __init__(
        self,
        objects: MeasuredObjectStore,
        runner: Rewriter,
        rules: CompactRules | None,
        new_nonce: Callable[[], str],
        metrics: SorterMetrics,
    ) -> None:
        self._objects, self._runner, self._rules = objects, runner, rules
        self._new_nonce, self._metrics = new_nonce, metrics
        self._alone: frozenset[str] = frozenset()  # segments that could not be read, or are too much with another

        self._failed: set[int] = set()  # tasks of which the last attempt failed: the others go first
        self._looked: dict[int, tuple[SegmentRef, ...]] = {}  # by task: segments of which there is nothing to do

    def compact(self, tasks: Sequence[Task]) -> bool:
        """One job, if there is anything to do; whether anything came of it."""
        if self._rules is None:
            return False
        held = {task.task_id for task in tasks}
        self._looked = {task_id: live for task_id, live in self._looked.items() if task_id in held}
        ordered = sorted(tasks, key=lambda task: task.task_id in self._failed)
        found = [(task, unit) for task in ordered if (unit := self._unit(task, self._rules)) is not None][:UNITS_MAX]
        if not found:
            return False
        by_task = {unit.task_id: task for task, unit in found}
        done = self._runner.rewrite([unit for _, unit in found])
        for one in done:
            self._objects.add_all(one.traffic)
            self._take(by_task[one.task_id], one)
        failed = {one.task_id for one in done if one.failed is not None}
        self._failed = (self._failed - by_task.keys()) & held | failed
        return len(failed) < len(done)

    def _unit(self, task: Task, rules: CompactRules) -> Rewrite | None:
        state = task.durable
        if task.to_settle or state.inherited:
            return None  # what came of the last job is not committed yet
        if self._looked.get(state.identity.task_id) is state.live_segments:
            return None
        unit = rewrite(state.identity, state.live_segments, self._alone, self._new_nonce(), rules)
        if unit is None:
            self._looked[state.identity.task_id] = state.live_segments
        return unit

    def _take(self, task: Task, done: Rewritten) -> None:
        if done.failed is not None or len(done.inputs) < 2:
            self._alone |= frozenset(done.inputs)
            self._metrics.compact_failures.inc()
            reason = done.failed or "its rows are too much to be put together with others"
            log.warning("segments cannot be compacted", extra={**log_fields(task.state), "reason": reason})
            return
        assert done.output is not None
        self._metrics.compacted.inc(len(done.inputs))
        self._metrics.compacted_bytes.inc(done.output.size)
        task.rewritten(done)
