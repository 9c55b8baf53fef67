"""Runs the background work on committed rows, beside the ticks: compaction of small segments, and merges of the version
index."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tistream.clock import Clock
from tistream.storage.measured import MeasuredObjectStore
from tistream_sorter.metrics import SorterMetrics
from tistream_sorter.node.compactor import Compactor
from tistream_sorter.node.index_merger import IndexMerger
from tistream_sorter.node.tick_jobs import Runner
from tistream_sorter.task.task import Task
from tistream_sorter.task.task_machine import TickLimits


class Upkeep:
    """Runs the kinds of background work that the settings enable. Used by one thread."""

    def __init__(
        self,
        objects: MeasuredObjectStore,
        runner: Runner,
        limits: TickLimits,
        clock: Clock,
        new_nonce: Callable[[], str],
        metrics: SorterMetrics,
    ) -> None:
        self._kinds: list[Compactor | IndexMerger] = []
        if limits.compact is not None:
            self._kinds.append(Compactor(objects, runner, limits.compact, clock, new_nonce, metrics))
        if limits.index is not None:
            self._kinds.append(IndexMerger(objects, runner, limits.index, clock, new_nonce, metrics))

    def work(self, tasks: Callable[[], Sequence[Task]]) -> bool:
        """Run one job of each kind for all tasks. Returns whether there was any work. `tasks` returns the tasks that
        are not stopped."""
        worked = [kind.work(tasks()) for kind in self._kinds]  # every kind runs, whatever the others returned
        return any(worked)
