"""Token buckets, with which a tenant's rates are limited. Pure; the clock is a parameter."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace

from tistream.wire import limits as wire

BURST_S = 2.0  # burst: unused rate of this time may be used later
ROUNDING_S = 1e-12  # rounding error of sums of fractions, which must not cause a wait


@dataclass(frozen=True, slots=True)
class EnforcedLimits:
    """The limits of one tenant at one API server; n servers together allow n times as much. 0 means unlimited. In
    `pulls_at_once`, 0 means half of the server's PULLS_MAX."""

    requests_per_second: float = 0
    pulls_at_once: int = 0
    served_bytes_per_second: float = 0
    notifications_per_second: float = 0


def own_or(defaults: EnforcedLimits, own: wire.Limits) -> EnforcedLimits:
    """The limits that apply to a tenant: each of its own limits that is set, otherwise the platform's default."""
    names = [limit.name for limit in fields(EnforcedLimits)]
    given = {name: value for name in names if (value := getattr(own, name)) is not None}
    return replace(defaults, **given)


@dataclass(slots=True)
class Bucket:
    """A token bucket, which holds BURST_S seconds of its rate. `spent` is the amount that was taken and has not been
    refilled yet. Each call gets the rate of refilling, per second (0: unlimited), and the time in monotonic ms."""

    at_ms: int
    spent: float = 0.0

    def take(self, now_ms: int, rate: float, amount: float = 1.0) -> float:
        """Take an amount if the bucket holds it, or if it is full, and return 0. Otherwise take nothing, and return the
        seconds until the amount can be taken."""
        if rate <= 0:
            return 0.0
        self._come_back(now_ms, rate)
        over = self.spent + amount - max(rate * BURST_S, amount)
        if over > rate * ROUNDING_S:
            return over / rate
        self.spent += amount
        return 0.0

    def charge(self, now_ms: int, rate: float, amount: float) -> float:
        """Take an amount that has been used already, even if the bucket does not hold it. Returns the seconds to wait
        before more may be used."""
        if rate <= 0:
            return 0.0
        self._come_back(now_ms, rate)
        self.spent += amount
        return max(0.0, self.spent - rate * BURST_S) / rate

    def idle(self, now_ms: int, rate: float) -> bool:
        """Whether the bucket is full, as a new one is."""
        if rate > 0:
            self._come_back(now_ms, rate)
        return rate <= 0 or self.spent == 0

    def _come_back(self, now_ms: int, rate: float) -> None:
        self.spent = max(0.0, self.spent - max(0, now_ms - self.at_ms) * rate / 1000)
        self.at_ms = max(self.at_ms, now_ms)
