"""The clock as a parameter. Code that needs the time is given a `Clock`; tests and simulations give it a ManualClock,
whose time they set."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """The interface of a clock. It has a wall time and a monotonic time, both in milliseconds."""

    def now_ms(self) -> int:
        """Milliseconds since the Unix epoch."""

    def monotonic_ms(self) -> int:
        """Milliseconds from an arbitrary point; never goes back."""


class SystemClock:
    """The machine's own clock."""

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic_ms(self) -> int:
        return time.monotonic_ns() // 1_000_000


class ManualClock:
    """A clock for tests and simulations: its time changes only when `advance` is called."""

    def __init__(self, now_ms: int = 0) -> None:
        self._now_ms = now_ms

    def now_ms(self) -> int:
        return self._now_ms

    def monotonic_ms(self) -> int:
        return self._now_ms

    def advance(self, ms: int) -> None:
        """Move the wall time and the monotonic time forward by `ms` >= 0."""
        assert ms >= 0
        self._now_ms += ms
