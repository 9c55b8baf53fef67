"""Enforces each tenant's rate limits of requests and pulls, so that one tenant cannot use up what others need.
Workers of changefeeds enforce those of feeds (docs/changefeeds.md, "Limits")."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from tistream.clock import Clock
from tistream.concurrency import Lock, new_lock
from tistream.errors import TooManyRequests
from tistream_api.admission.token_bucket import Bucket, EnforcedLimits

Tenant = tuple[str, str]
"""Cluster and tenant, as a request names them; such a tenant may not exist."""

REMEMBERED = 4_096  # tenants with state; above it, tenants without recent activity are dropped


@dataclass(slots=True)
class _Buckets:
    requests: Bucket
    notifications: Bucket
    sent: Bucket


@dataclass(slots=True)
class TenantLimits:
    """Enforces the rate limits of all tenants at this server. Thread-safe. `limits_of` returns a tenant's limits;
    `pulls_max` is the limit of pulls of the whole server."""

    clock: Clock
    limits_of: Callable[[Tenant], EnforcedLimits]
    pulls_max: int
    _of: dict[Tenant, _Buckets] = field(default_factory=dict)
    _pulls: Counter[Tenant] = field(default_factory=Counter)
    _lock: Lock = field(default_factory=new_lock)

    def request(self, tenant: Tenant) -> None:
        """Count a request. Raises TooManyRequests if the tenant has reached its limit."""
        limits = self.limits_of(tenant)
        with self._lock:
            now_ms = self.clock.monotonic_ms()
            wait_s = self._buckets(tenant, now_ms).requests.take(now_ms, limits.requests_per_second)
        _refuse("requests", wait_s)

    def notification(self, tenant: Tenant) -> None:
        """Count the announcement of a change file. Raises TooManyRequests if the tenant has reached its limit."""
        limits = self.limits_of(tenant)
        with self._lock:
            now_ms = self.clock.monotonic_ms()
            wait_s = self._buckets(tenant, now_ms).notifications.take(now_ms, limits.notifications_per_second)
        _refuse("notifications", wait_s)

    def begin_pull(self, tenant: Tenant) -> None:
        """Count a pull that begins. The caller must call `end_pull`. Raises TooManyRequests if the tenant has too many
        at a time."""
        limits = self.limits_of(tenant)
        most = max(1, self.pulls_max // 2)
        if limits.pulls_at_once:  # a tenant never gets all pulls of the server
            most = min(max(1, self.pulls_max - max(1, self.pulls_max // 8)), limits.pulls_at_once)
        with self._lock:
            if self._pulls[tenant] >= most:
                raise TooManyRequests(
                    f"{most} pulls of this tenant are under way, which is its maximum (pulls_at_once of `tistream "
                    "tenant quotas`): end one, or retry later"
                )
            self._pulls[tenant] += 1

    def end_pull(self, tenant: Tenant) -> None:
        """Record that a pull has ended."""
        with self._lock:
            self._pulls[tenant] -= 1
            if not self._pulls[tenant]:
                del self._pulls[tenant]

    def sent(self, tenant: Tenant, amount: int) -> float:
        """Count bytes that a pull has sent. Returns the seconds to wait before it sends more."""
        limits = self.limits_of(tenant)
        with self._lock:
            now_ms = self.clock.monotonic_ms()
            return self._buckets(tenant, now_ms).sent.charge(now_ms, limits.served_bytes_per_second, amount)

    def reserve(self, tenant: Tenant, amount: int) -> bool:
        """Count bytes as sent, and return True, if the tenant's rate allows them now. Otherwise count nothing, and
        return False. An amount above the burst is allowed if the bucket is full."""
        limits = self.limits_of(tenant)
        with self._lock:
            now_ms = self.clock.monotonic_ms()
            return not self._buckets(tenant, now_ms).sent.take(now_ms, limits.served_bytes_per_second, amount)

    def _buckets(self, tenant: Tenant, now_ms: int) -> _Buckets:
        found = self._of.get(tenant)
        if found is None:
            if len(self._of) >= REMEMBERED:
                self._forget_idle(now_ms)
            found = self._of[tenant] = _Buckets(Bucket(now_ms), Bucket(now_ms), Bucket(now_ms))
        return found

    def _forget_idle(self, now_ms: int) -> None:
        for tenant, own in list(self._of.items()):
            limits = self.limits_of(tenant)
            if (
                own.requests.idle(now_ms, limits.requests_per_second)
                and own.notifications.idle(now_ms, limits.notifications_per_second)
                and own.sent.idle(now_ms, limits.served_bytes_per_second)
            ):
                del self._of[tenant]


def _refuse(what: str, wait_s: float) -> None:
    if wait_s > 0:
        raise TooManyRequests(
            f"more {what} per second of this tenant than its limit allows (`tistream tenant quotas`): retry after "
            f"{wait_s:.1f} s",
            wait_s,
        )
