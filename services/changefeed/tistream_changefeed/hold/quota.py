"""Limits how fast this worker sends the changes of each tenant. All workers share the rate quotas of a tenant
(docs/changefeeds.md, "Limits"). The rate of pulls is limited by each API server."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from tistream.clock import Clock
from tistream.concurrency import Lock, new_lock
from tistream.model.ids import TenantKey
from tistream.wire.bulk.changefeeds import HeldBy
from tistream.wire.limits import Limits

BURST_S = 1.0  # so much of a quota that was not used may be used later
BUSY_MS = 2_000  # a worker that has sent nothing for so long needs no share


@dataclass(frozen=True, slots=True)
class QuotaPause:
    """A pause before the next transaction, because a quota is used up. `held_by` explains it to users in the feed's
    status."""

    wait_ms: int
    held_by: HeldBy


@dataclass(slots=True)
class _Spent:
    at_ms: int
    amount: float = 0.0  # that the quota has not covered yet

    def charge(self, now_ms: int, rate: int, amount: int) -> int:
        """Add an amount that was used. `rate`: the quota per second. Returns the ms until the quota has room again.
        `now_ms`: monotonic."""
        self.amount = max(0.0, self.amount - (now_ms - self.at_ms) * rate / 1000) + amount
        self.at_ms = now_ms
        return int(max(0.0, self.amount - rate * BURST_S) * 1000 / rate)


@dataclass(slots=True)
class TenantQuotas:
    """Counts what all feeds of each tenant have sent at this worker, and computes pauses. Thread-safe. `limits` returns
    a tenant's limits in the newest routes. `sharers`: the number of workers among which a tenant's quotas are divided,
    by tenant (`cluster/tenant`); the meta server counts them."""

    limits: Callable[[TenantKey], Limits]
    clock: Clock
    sharers: Mapping[str, int] = field(default_factory=dict)
    _sent_ms: dict[TenantKey, int] = field(default_factory=dict)
    _spent: dict[tuple[TenantKey, str], _Spent] = field(default_factory=dict)
    _lock: Lock = field(default_factory=new_lock)

    def charge(self, tenant: TenantKey, rows: int, size: int) -> QuotaPause | None:
        """Count what a transaction has sent: row events and bytes. Returns a pause, or None if the tenant may continue
        at once."""
        limits, found = self.limits(tenant), []
        sharers = self.sharers.get(str(tenant), 1)
        with self._lock:
            now_ms = self.clock.monotonic_ms()
            for name, rate, amount in (
                ("feed_rows_per_second", limits.feed_rows_per_second, rows),
                ("feed_bytes_per_second", limits.feed_bytes_per_second, size),
            ):
                if not rate:
                    self._spent.pop((tenant, name), None)
                    continue
                if amount:
                    self._sent_ms[tenant] = now_ms
                spent = self._spent.setdefault((tenant, name), _Spent(now_ms))
                found.append((spent.charge(now_ms, max(1, rate // sharers), amount), name, rate))
        wait_ms, name, rate = max(found, default=(0, "", 0))
        if not wait_ms:
            return None
        divided = "" if sharers == 1 else f", of which each of {sharers} workers has its share"
        used_up = f"the changefeeds of the tenant have used up the quota {name} = {rate}{divided}"
        remedy = "an operator may raise it (`tistream tenant quotas`)"
        return QuotaPause(wait_ms, HeldBy(stage="quota", object=str(tenant), reason=f"{used_up}: {remedy}"))

    def busy(self) -> list[str]:
        """The tenants with a rate quota for which this worker has sent something in the last BUSY_MS, as texts,
        sorted."""
        with self._lock:
            now_ms = self.clock.monotonic_ms()
            self._sent_ms = {tenant: at for tenant, at in self._sent_ms.items() if now_ms - at <= BUSY_MS}
            return sorted(map(str, self._sent_ms))


def unlimited(rows: int, size: int) -> QuotaPause | None:  # noqa: ARG001
    """Return None: a feed without a quota never pauses. Takes the place of TenantQuotas.charge."""
    return None
