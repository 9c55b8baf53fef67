"""The work beside the ticks of a node: compaction, then the version index."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tistream.clock import Clock
from tistream.storage.measured import MeasuredObjectStore
from tistream_sorter.metrics import SorterMetrics
from tistream_sorter.node.compactor import Compactor
from tistream_sorter.node.index_merger import IndexMerger
from tistream_sorter.node.tick_jobs import Runner
from tistream_sorter.task.task import Task, TickLimits


class Upkeep:
    """Call `work` again and again, from one thread."""

    def __init__(
        self,
        objects: MeasuredObjectStore,
        runner: Runner,
        limits: TickLimits,
        clock: Clock,
        new_nonce: Callable[[], str],
        metrics: SorterMetrics,
    ) -> None:
        self._jobs: list[Compactor | IndexMerger] = []
        if limits.compact is not None:
            self._jobs.append(Compactor(objects, runner, limits.compact, clock, new_nonce, metrics))
        if limits.index is not None:
            self._jobs.append(IndexMerger(objects, runner, limits.index, clock, new_nonce, metrics))

    def work(self, tasks: Callable[[], Sequence[Task]], done: Callable[[], None]) -> bool:
        """Run the due jobs, one of each kind for all tasks, and call `done` after each. Return whether there were
        any."""
        worked = False
        for jobs in self._jobs:
            if jobs.work(tasks()):
                worked = True
                done()
        return worked
