"""When a shard did what, in a worker: it tells its driver, which makes spans of it. Workers send none themselves."""

from __future__ import annotations

import time

from tistream.clock import SystemClock

Stage = tuple[str, int, int]


class Stages:
    """One after the other, each until the next begins. Unix time of this machine, in ns; durations are exact."""

    def __init__(self) -> None:
        self._ahead_ns = SystemClock().now_ms() * 1_000_000 - time.perf_counter_ns()
        self._began_ns = self._now_ns()
        self._done: list[Stage] = []

    def over(self, name: str) -> None:
        """What was done since the last one was this."""
        now_ns = self._now_ns()
        self._done.append((name, self._began_ns, now_ns))
        self._began_ns = now_ns

    @property
    def done(self) -> tuple[Stage, ...]:
        """So far."""
        return tuple(self._done)

    def _now_ns(self) -> int:
        return time.perf_counter_ns() + self._ahead_ns
