"""Slows the feeds of a tenant down to its quota at this worker (docs/changefeeds.md, "Limits")."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from tistream.clock import Clock
from tistream.concurrency import Lock, new_lock
from tistream.model.ids import TenantKey
from tistream.wire.bulk.changefeeds import HeldBy
from tistream.wire.limits import Limits

BURST_S = 1.0  # so much of a quota that was not used may be used later


@dataclass(frozen=True, slots=True)
class Slowed:
    """A pause before the next transaction, and what users see of it."""

    wait_ms: int
    held_by: HeldBy


@dataclass(slots=True)
class _Spent:
    at_ms: int
    amount: float = 0.0  # that the quota has not covered yet

    def charge(self, now_ms: int, rate: int, amount: int) -> int:
        """Take an amount that was used. Returns the milliseconds until the next may be."""
        self.amount = max(0.0, self.amount - (now_ms - self.at_ms) * rate / 1000) + amount
        self.at_ms = now_ms
        return int(max(0.0, self.amount - rate * BURST_S) * 1000 / rate)


@dataclass(slots=True)
class TenantQuotas:
    """What all feeds of each tenant have sent at this worker. Thread-safe. `limits`: of a tenant, in the newest
    routes."""

    limits: Callable[[TenantKey], Limits]
    clock: Clock
    _spent: dict[tuple[TenantKey, str], _Spent] = field(default_factory=dict)
    _lock: Lock = field(default_factory=new_lock)

    def charge(self, tenant: TenantKey, rows: int, size: int) -> Slowed | None:
        """Count what a transaction has sent. None: the tenant may go on at once."""
        limits, found = self.limits(tenant), []
        with self._lock:
            now_ms = self.clock.monotonic_ms()
            for name, rate, amount in (
                ("feed_rows_per_second", limits.feed_rows_per_second, rows),
                ("feed_bytes_per_second", limits.feed_bytes_per_second, size),
            ):
                if not rate:
                    self._spent.pop((tenant, name), None)
                    continue
                spent = self._spent.setdefault((tenant, name), _Spent(now_ms))
                found.append((spent.charge(now_ms, rate, amount), name, rate))
        wait_ms, name, rate = max(found, default=(0, "", 0))
        if not wait_ms:
            return None
        used_up = f"the changefeeds of the tenant have used up the quota {name} = {rate} of this worker"
        remedy = "an operator may raise it (`tistream tenant quotas`)"
        return Slowed(wait_ms, HeldBy(stage="quota", object=str(tenant), reason=f"{used_up}: {remedy}"))


def unlimited(rows: int, size: int) -> Slowed | None:  # noqa: ARG001
    """The charge of a feed without a quota."""
    return None
