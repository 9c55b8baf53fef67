"""A sorter node that ticks once a call: its own loop's work, without HTTP and without waiting."""

from __future__ import annotations

import random
from collections.abc import Sequence

from prometheus_client import CollectorRegistry

from bench.inputs.tasks import TASK_ID, identity, task_files
from tistream.clock import SystemClock
from tistream.storage.measured import MeasuredObjectStore
from tistream.storage.open import open_objects
from tistream_sorter.app import tick_limits
from tistream_sorter.jobs.run import SparkRunner
from tistream_sorter.metrics import SorterMetrics
from tistream_sorter.node.node import SorterNode
from tistream_sorter.settings import TickSettings
from tistream_sorter.spark.session import build_session

WARM_TICKS = 5


class TickNode:
    """Each call offers one second's files to the task and ticks, which must commit. Settings are the defaults."""

    def __init__(self, root: str, seconds: Sequence[Sequence[str]], snapshot_ts: int, master: str) -> None:
        objects, clock, tick = open_objects(root), SystemClock(), TickSettings()
        self._runner = SparkRunner(build_session(master, "bench", {}), root)
        self._runner.warm()
        limits = tick_limits(tick, self._runner.slots)
        nonces = random.Random(1)
        metrics = SorterMetrics(CollectorRegistry())
        self._node = SorterNode(
            MeasuredObjectStore(objects), self._runner, limits, clock, lambda: f"{nonces.getrandbits(64):016x}", metrics
        )
        self._clock = clock
        self._node.assign([identity(snapshot_ts)])
        chains: dict[int, int] = {}
        self._seconds = iter([task_files(objects, keys, chains) for keys in seconds])
        for _ in range(WARM_TICKS):
            self()

    def __call__(self) -> int:
        """The number of the manifest that was committed."""
        task = self._node.find(TASK_ID)
        assert task is not None
        before = task.state.number
        assert task.offer(next(self._seconds), self._clock.monotonic_ms())
        while self._node.tick():
            pass
        assert task.stopped is None, task.stopped
        assert task.state.number > before, "nothing was committed"
        return task.state.number

    def close(self) -> None:
        """Stop Spark."""
        self._node.close()
        self._runner.close()
