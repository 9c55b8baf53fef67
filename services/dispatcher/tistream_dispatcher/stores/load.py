"""Measures the load of a store in bytes per second, over about the last half minute. Pure."""

from __future__ import annotations

import math
from dataclasses import dataclass

SPAN_MS = 30_000  # time constant of the mean: older work counts less and less
FIRST_MS = 10_000  # before this time, the load is not known


@dataclass(frozen=True, slots=True)
class StoreLoad:
    """The load of a store as an exponentially weighted mean of bytes per second. Times are monotonic milliseconds."""

    since_ms: int
    at_ms: int
    amount: float = 0.0  # bytes, decayed to their weight at `at_ms`

    @classmethod
    def begun(cls, now_ms: int) -> StoreLoad:
        """A load of zero that begins at `now_ms`."""
        return cls(now_ms, now_ms)

    def added(self, now_ms: int, size: int) -> StoreLoad:
        """The load after `size` more bytes were processed at `now_ms`."""
        return StoreLoad(self.since_ms, now_ms, self._faded(now_ms) + size)

    def per_second(self, now_ms: int) -> float | None:
        """The load in bytes per second; None in the first FIRST_MS, because it is not known yet."""
        age_ms = now_ms - self.since_ms
        if age_ms < FIRST_MS:
            return None
        seconds = SPAN_MS / 1_000 * -math.expm1(-age_ms / SPAN_MS)
        return self._faded(now_ms) / seconds

    def _faded(self, now_ms: int) -> float:
        return self.amount * math.exp((self.at_ms - now_ms) / SPAN_MS)
