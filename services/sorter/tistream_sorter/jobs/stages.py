"""Measures the stages of a shard's work in a Spark worker: read, match, write. Workers export no traces; the driver
converts the stages to trace spans."""

from __future__ import annotations

import time

from tistream.clock import SystemClock

Stage = tuple[str, int, int]


class Stages:
    """Records when each stage of a shard's work began and ended; a stage begins where the one before it ended. Times
    are in Unix ns: the wall clock is read once, at the start, and a monotonic clock gives the rest, so a change of the
    clock distorts no duration."""

    def __init__(self) -> None:
        self._ahead_ns = SystemClock().now_ms() * 1_000_000 - time.perf_counter_ns()
        self._began_ns = self._now_ns()
        self._done: list[Stage] = []

    def over(self, name: str) -> None:
        """End the current stage under this name, and begin the next one."""
        now_ns = self._now_ns()
        self._done.append((name, self._began_ns, now_ns))
        self._began_ns = now_ns

    @property
    def done(self) -> tuple[Stage, ...]:
        """The stages that have ended, as (name, begin, end) in Unix ns."""
        return tuple(self._done)

    def _now_ns(self) -> int:
        return time.perf_counter_ns() + self._ahead_ns
