"""Runs the merges of the version index that upkeep/index_plan.py selects, as jobs."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Protocol

from tistream.clock import Clock
from tistream.storage import layout
from tistream.storage.measured import MeasuredObjectStore
from tistream_sorter.jobs.index.index_unit import IndexResult, IndexUnit
from tistream_sorter.metrics import SorterMetrics
from tistream_sorter.node.upkeep_jobs import UpkeepJobs
from tistream_sorter.state.task_state import TaskState
from tistream_sorter.task.mailbox import GarbageNote, IndexMergedNote
from tistream_sorter.task.status import log_fields
from tistream_sorter.task.task import Task
from tistream_sorter.upkeep.index_plan import IndexRules, index_unit

log = logging.getLogger(__name__)


class IndexMergeRunner(Protocol):
    """Runs merges of the version index as one job. Production uses SparkRunner. Results are in the order of `units`."""

    def merge_index(self, units: Sequence[IndexUnit]) -> list[IndexResult]: ...


class IndexMerger(UpkeepJobs[IndexUnit]):
    """Adds new rows to the version index of each task, and merges its runs. If a merge does not fit into memory, its
    result is a list of shards, which a second job merges."""

    what = "index"

    def __init__(
        self,
        objects: MeasuredObjectStore,
        runner: IndexMergeRunner,
        rules: IndexRules,
        clock: Clock,
        new_nonce: Callable[[], str],
        metrics: SorterMetrics,
    ) -> None:
        super().__init__(clock)
        self._objects, self._runner, self._rules = objects, runner, rules
        self._new_nonce, self._metrics = new_nonce, metrics
        self._shards: dict[str, int] = {}  # by nonce: number of shards of the units of the current job

    def _unit(self, state: TaskState) -> IndexUnit | None:
        return index_unit(state, self._rules, self._clock.now_ms(), self._new_nonce(), self._alone)

    def _rests(self, state: TaskState, /) -> bool:
        """Whether the index has all rows, so that the task need not be examined until its state changes. Rows that are
        not in the index become due as time passes."""
        covered_ts = min((part.indexed_ts for part in state.index), default=0)
        return all(segment.commit_ts_max <= covered_ts for segment in state.live_segments)

    def _run(self, found: Sequence[tuple[Task, IndexUnit]]) -> None:
        self._shards = {}
        whole = self._results(found)
        pieces = [
            (task, replace(unit, shard=span, number=number))
            for (task, unit), one in zip(found, whole, strict=True)
            for number, span in enumerate(one.shards)
        ]
        self._shards = {unit.nonce: len(one.shards) for (_, unit), one in zip(found, whole, strict=True)}
        by_nonce: dict[str, list[IndexResult]] = {}
        for (_, unit), one in zip(pieces, self._results(pieces) if pieces else (), strict=True):
            by_nonce.setdefault(unit.nonce, []).append(one)
        for (task, unit), one in zip(found, whole, strict=True):
            self._pass_on(task, unit, by_nonce.get(unit.nonce, [one]))

    def _results(self, found: Sequence[tuple[Task, IndexUnit]]) -> list[IndexResult]:
        """Run one job and return its results in order."""
        results = self._runner.merge_index([unit for _, unit in found])
        for (task, _), done in zip(found, results, strict=True):
            self._objects.add_all(done.traffic, task.state.identity.tenant)
        return results

    def _pass_on(self, task: Task, unit: IndexUnit, results: Sequence[IndexResult]) -> None:
        """Collect the results of all shards of a merge, in key order, and pass them to its task."""
        if reasons := [one.failed for one in results if one.failed is not None]:
            damaged = [key for one in results for key in one.damaged]
            self._give_up(task, unit, damaged)
            log.warning("version index cannot be merged", extra={**log_fields(task.state), "reason": reasons[0]})
            return
        written = [run for one in results for run in one.runs]
        self._pauses.worked(task.task_id)
        self._metrics.indexed_bytes.inc(unit.source_bytes)
        self._metrics.index_written_bytes.inc(sum(run.size for run in written))
        task.leave(IndexMergedNote(unit, written))

    def _failed(self, task: Task, unit: IndexUnit) -> None:
        self._metrics.index_failures.inc()
        for number in range(max(1, self._shards.get(unit.nonce, 1))):
            task.leave(GarbageNote(layout.run(unit.tenant, unit.task_id, unit.task_epoch, unit.nonce, number)))
