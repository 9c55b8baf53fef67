"""A clock that goes with the machine's, that a test puts forward, and whose monotonic time may go slowly."""

from __future__ import annotations

from tistream.clock import SystemClock

STANDING = 0.001  # what a second allows is not allowed again while a test runs, however slow it is


class AheadClock(SystemClock):
    """Wall time and monotonic time; both are ahead by what `advance` was told. The monotonic one has `speed`."""

    def __init__(self, speed: float = 1.0) -> None:
        self._ahead_ms, self._speed = 0, speed

    def now_ms(self) -> int:
        return super().now_ms() + self._ahead_ms

    def monotonic_ms(self) -> int:
        return int(super().monotonic_ms() * self._speed) + self._ahead_ms

    def advance(self, ms: int) -> None:
        """Move the clock forward."""
        assert ms >= 0
        self._ahead_ms += ms
