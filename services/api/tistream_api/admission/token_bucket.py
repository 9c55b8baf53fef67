"""Token buckets: how much of something a tenant may have in a second. Pure; the clock is a parameter."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace

from tistream.wire import limits as wire

BURST_S = 2.0  # what was not used before may be, so many seconds of it
ROUNDING_S = 1e-12  # sums of fractions are off by that: nobody is told to wait so long


@dataclass(frozen=True, slots=True)
class Limits:
    """Of one tenant at one API server; 0: none."""

    requests_per_second: float = 0
    pulls_at_once: int = 0
    served_bytes_per_second: float = 0
    notifications_per_second: float = 0


def own_or(defaults: Limits, own: wire.Limits) -> Limits:
    """A tenant's own limits, and where it has none the platform's."""
    names = [limit.name for limit in fields(Limits)]
    told = {name: value for name in names if (value := getattr(own, name)) is not None}
    return replace(defaults, **told)


@dataclass(slots=True)
class Bucket:
    """`spent` is what was taken and has not come back yet; it comes back at the rate, which each call tells."""

    at_ms: int
    spent: float = 0.0

    def take(self, now_ms: int, rate: float, amount: float = 1.0) -> float:
        """Take it if the burst allows: 0; else nothing, and in how many seconds it would."""
        if rate <= 0:
            return 0.0
        self._come_back(now_ms, rate)
        over = self.spent + amount - max(rate * BURST_S, amount)
        if over > rate * ROUNDING_S:
            return over / rate
        self.spent += amount
        return 0.0

    def charge(self, now_ms: int, rate: float, amount: float) -> float:
        """Take it whatever there is, since it is gone already; for how many seconds to wait before the next."""
        if rate <= 0:
            return 0.0
        self._come_back(now_ms, rate)
        self.spent += amount
        return max(0.0, self.spent - rate * BURST_S) / rate

    def idle(self, now_ms: int, rate: float) -> bool:
        """Whether it is as good as a new one."""
        if rate > 0:
            self._come_back(now_ms, rate)
        return rate <= 0 or self.spent == 0

    def _come_back(self, now_ms: int, rate: float) -> None:
        self.spent = max(0.0, self.spent - max(0, now_ms - self.at_ms) * rate / 1000)
        self.at_ms = max(self.at_ms, now_ms)
