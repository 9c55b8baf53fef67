"""A clock that goes with the machine's, and that a test puts forward: what takes a minute is over at once."""

from __future__ import annotations

from tistream.clock import SystemClock


class AheadClock(SystemClock):
    """Wall time and monotonic time; both are ahead by what `advance` was told."""

    def __init__(self) -> None:
        self._ahead_ms = 0

    def now_ms(self) -> int:
        return super().now_ms() + self._ahead_ms

    def monotonic_ms(self) -> int:
        return super().monotonic_ms() + self._ahead_ms

    def advance(self, ms: int) -> None:
        """So much time passes."""
        assert ms >= 0
        self._ahead_ms += ms
