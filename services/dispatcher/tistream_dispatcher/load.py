"""How much work a store is: bytes a second, over about the last half minute. Pure."""

from __future__ import annotations

import math
from dataclasses import dataclass

SPAN_MS = 30_000  # what was longer ago counts for less and less
FIRST_MS = 10_000  # before, there is no telling


@dataclass(frozen=True, slots=True)
class Load:
    """An exponentially weighted mean. Monotonic milliseconds."""

    since_ms: int
    at_ms: int
    amount: float = 0.0  # bytes, faded to what they count at `at_ms`

    @classmethod
    def begun(cls, now_ms: int) -> Load:
        """Nothing was done yet."""
        return cls(now_ms, now_ms)

    def added(self, now_ms: int, size: int) -> Load:
        """So many bytes were worked off now."""
        return Load(self.since_ms, now_ms, self._faded(now_ms) + size)

    def per_second(self, now_ms: int) -> float | None:
        """Bytes a second; None while the beginning is too near."""
        age_ms = now_ms - self.since_ms
        if age_ms < FIRST_MS:
            return None
        seconds = SPAN_MS / 1_000 * -math.expm1(-age_ms / SPAN_MS)
        return self._faded(now_ms) / seconds

    def _faded(self, now_ms: int) -> float:
        return self.amount * math.exp((self.at_ms - now_ms) / SPAN_MS)
