"""Events whose waits end at once, and take the time of a manual clock."""

from __future__ import annotations

from collections.abc import Callable

from tistream.clock import ManualClock
from tistream.concurrency import SystemThreads


class WaitsAtOnce:
    """An event whose waits take the time of a manual clock. `on_wait` is called before each one with its seconds."""

    def __init__(self, clock: ManualClock, waits: list[float], on_wait: Callable[[float], object]) -> None:
        self._clock, self._waits, self._on_wait, self._is_set = clock, waits, on_wait, False

    def is_set(self) -> bool:
        return self._is_set

    def set(self) -> None:
        self._is_set = True

    def clear(self) -> None:
        self._is_set = False

    def wait(self, timeout: float | None = None) -> bool:
        assert timeout is not None
        self._on_wait(timeout)
        self._clock.advance(int(timeout * 1000))
        self._waits.append(timeout)
        return self._is_set


class VirtualWaits(SystemThreads):
    """Primitives with such events. `waits`: what was waited for, in seconds."""

    def __init__(self, clock: ManualClock, on_wait: Callable[[float], object] = lambda _: None) -> None:
        self._clock, self._on_wait, self.waits = clock, on_wait, list[float]()

    def event(self) -> WaitsAtOnce:
        return WaitsAtOnce(self._clock, self.waits, self._on_wait)
