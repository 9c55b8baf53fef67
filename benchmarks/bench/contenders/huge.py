"""A sorter node that lives through the timeline of a huge transaction: files appear when they are due, ticks follow
each other as in the service, and the clock is the timeline's."""

from __future__ import annotations

import logging
import os
import random
import threading
import time
from pathlib import Path

from prometheus_client import CollectorRegistry

from bench.inputs.changes import FIRST_MS, TENANT, snapshot_ts
from bench.inputs.huge import SMALL, Staged, first_key
from bench.inputs.tasks import routed
from tistream.model.span import KeySpan
from tistream.model.ts import physical_ms
from tistream.storage.measured import MeasuredObjectStore
from tistream.storage.open import open_objects
from tistream_sorter.app import tick_limits
from tistream_sorter.jobs.run import SparkRunner
from tistream_sorter.metrics import SorterMetrics
from tistream_sorter.node.node import SorterNode
from tistream_sorter.settings import TickSettings
from tistream_sorter.spark.session import build_session
from tistream_sorter.state.task_state import TaskIdentity

HUGE_TASK, SMALL_TASK = 1, 2
SAMPLE_S = 0.1


class Timeline:
    """The wall clock and the monotonic clock of a timeline that began at FIRST_MS when this was made."""

    def __init__(self) -> None:
        self._began = time.perf_counter()

    def monotonic_ms(self) -> int:
        return int((time.perf_counter() - self._began) * 1000)

    def now_ms(self) -> int:
        return FIRST_MS + self.monotonic_ms()


class HugeNode:
    """Two tasks: one has the huge table, the other what is beside it. Settings are the defaults."""

    def __init__(self, root: str, master: str) -> None:
        logging.basicConfig(level=logging.WARNING)
        self._root = root
        self._runner = SparkRunner(build_session(master, "bench", {}), root)
        self._runner.warm()

    def __call__(self, staged: Staged, patience_s: float) -> dict[str, float]:
        """Live through it, until the small task is level and the huge one has flushed everything; what was seen."""
        objects, clock, tick = MeasuredObjectStore(open_objects(self._root)), Timeline(), TickSettings()
        nonces = random.Random(1)
        metrics = SorterMetrics(CollectorRegistry())
        limits = tick_limits(tick, self._runner.slots)
        node = SorterNode(objects, self._runner, limits, clock, lambda: f"{nonces.getrandbits(64):016x}", metrics)
        border = first_key(SMALL)
        spans = {HUGE_TASK: KeySpan(b"", border), SMALL_TASK: KeySpan(border, b"")}
        node.assign([TaskIdentity(TENANT, task_id, span, snapshot_ts(), 1) for task_id, span in spans.items()])
        lags: list[float] = []
        done = threading.Event()
        watcher = threading.Thread(target=self._watch, args=(node, clock, lags, done), daemon=True)
        watcher.start()
        chains: dict[int, int] = {}
        last_ms = FIRST_MS + len(staged.seconds) * 1000
        ticks, longest, taken = 0, 0.0, 0
        while not self._level(node, last_ms):
            while taken < len(staged.seconds) and clock.now_ms() >= FIRST_MS + (taken + 1) * 1000:
                self._push(staged.seconds[taken])
                keys = [key for key, _ in staged.seconds[taken]]
                for task_id, files in routed(objects, keys, chains, spans).items():
                    task = node.find(task_id)
                    assert task is not None
                    assert task.offer(files, clock.monotonic_ms())
                taken += 1
            began = time.perf_counter()
            committed = node.tick()
            ticks += committed
            longest = max(longest, time.perf_counter() - began)
            stopped = [task.stopped for task in node.tasks() if task.stopped]
            assert not stopped, stopped
            assert clock.monotonic_ms() < patience_s * 1000, "the huge transaction does not pass"
            if not committed:
                time.sleep(tick.interval_ms / 1000)
        done.set()
        watcher.join()
        node.close()
        return {
            "lag_max_s": max(lags),
            "lag_p99_s": sorted(lags)[int(len(lags) * 0.99)],
            "seconds": clock.monotonic_ms() / 1000,
            "ticks": ticks,
            "longest_tick_s": longest,
        }

    def _push(self, files: tuple[tuple[str, Path], ...]) -> None:
        for key, path in files:
            target = Path(self._root) / key
            target.parent.mkdir(parents=True, exist_ok=True)
            os.link(path, target)

    def _level(self, node: SorterNode, last_ms: int) -> bool:
        return all(physical_ms(task.state.progress_ts) >= last_ms - 1 for task in node.tasks())

    def _watch(self, node: SorterNode, clock: Timeline, lags: list[float], done: threading.Event) -> None:
        """The small task's lag: the timeline's present minus its progress, once its first file has come."""
        while not done.wait(SAMPLE_S):
            task = node.find(SMALL_TASK)
            progress = physical_ms(task.state.progress_ts) if task is not None else 0
            if clock.monotonic_ms() > 2_000:
                lags.append((clock.now_ms() - progress) / 1000)

    def close(self) -> None:
        """Stop Spark."""
        self._runner.close()
