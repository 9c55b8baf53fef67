"""Timestamps (TSO), and windows of them. A TSO is `physical_ms << 18 | logical` in a signed 64-bit integer (tikv/pd,
pkg/tso)."""

from __future__ import annotations

from dataclasses import dataclass

LOGICAL_BITS = 18
MAX_TS = 2**63 - 1


def physical_ms(ts: int) -> int:
    """The physical part of `ts`, in milliseconds since the Unix epoch."""
    return ts >> LOGICAL_BITS


def from_physical_ms(ms: int) -> int:
    """The lowest ts of millisecond `ms`."""
    return ms << LOGICAL_BITS


@dataclass(frozen=True, slots=True, order=True)
class Window:
    """The timestamps t with `low < t <= high`."""

    low: int
    high: int

    def __post_init__(self) -> None:
        assert 0 <= self.low <= self.high <= MAX_TS

    def __contains__(self, ts: int) -> bool:
        return self.low < ts <= self.high

    def overlaps(self, low: int, high: int) -> bool:
        """Whether any ts of the closed interval [low, high] is in the window."""
        return low <= self.high and high > self.low
