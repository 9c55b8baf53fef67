"""Measures the steps of a shard in a worker. The driver converts them to trace spans; workers export no spans."""

from __future__ import annotations

import time

from tistream.clock import SystemClock

Stage = tuple[str, int, int]


class Stages:
    """Consecutive stages, without gaps. Times are Unix time of this machine in ns, derived from a monotonic clock, so
    durations are exact."""

    def __init__(self) -> None:
        self._ahead_ns = SystemClock().now_ms() * 1_000_000 - time.perf_counter_ns()
        self._began_ns = self._now_ns()
        self._done: list[Stage] = []

    def over(self, name: str) -> None:
        """End the current stage, and give it a name."""
        now_ns = self._now_ns()
        self._done.append((name, self._began_ns, now_ns))
        self._began_ns = now_ns

    @property
    def done(self) -> tuple[Stage, ...]:
        """The stages that have ended."""
        return tuple(self._done)

    def _now_ns(self) -> int:
        return time.perf_counter_ns() + self._ahead_ns
