"""Stores and returns the usage of tenants, deletes old usage, and sets quotas."""

from __future__ import annotations

import logging

from tistream.clock import Clock
from tistream.model.ids import TenantKey
from tistream.wire.limits import Limits
from tistream.wire.usage import QuotasInfo
from tistream_meta.database.repository import Repository
from tistream_meta.database.usage_book import UsageBook
from tistream_meta.decide.model import Tenant
from tistream_meta.feeds.feed_usage import FeedUsageBook
from tistream_meta.metrics import MetaMetrics
from tistream_meta.owner.server import MetaServer

log = logging.getLogger(__name__)


class UsageKeeping:
    """Stores and returns the usage and quotas of tenants. Every meta server accepts reports of usage and returns usage,
    whether it is the owner or not, because the counters only grow."""

    def __init__(
        self, server: MetaServer, repository: Repository, clock: Clock, keep_ms: int, metrics: MetaMetrics
    ) -> None:
        self._server, self._repository, self._clock = server, repository, clock
        self._keep_ms, self._metrics = keep_ms, metrics
        self._over: frozenset[TenantKey] = frozenset()

    @property
    def book(self) -> UsageBook:
        """The usage as it is stored in the database."""
        return self._repository.usage

    def now_ms(self) -> int:
        """The wall clock, in Unix ms."""
        return self._clock.now_ms()

    def quotas(self, key: TenantKey) -> QuotasInfo:
        """The quotas of a tenant, and the bytes that it stores. Raises UnknownName."""
        return self._info(self._repository.tenant(key))

    def set_quotas(self, key: TenantKey, limits: Limits) -> QuotasInfo:
        """Set the quotas of a tenant, as the owner. Raises UnknownName."""
        return self._info(self._server.tenant_rules.set_limits(key, limits))

    def _info(self, tenant: Tenant) -> QuotasInfo:
        limit, stored = tenant.limits.stored_bytes, self.book.stored_now(tenant.key, self._clock.now_ms())
        return QuotasInfo(
            cluster_id=tenant.key.cluster_id,
            tenant_id=tenant.key.tenant_id,
            bytes_stored_now=None if stored is None else str(stored),
            stored_bytes_exceeded=bool(limit) and stored is not None and stored > (limit or 0),
            **tenant.limits.model_dump(),
        )

    def step(self) -> None:
        """Loop body: delete the rows of usage that are older than keep_ms, and log the tenants that began to store more
        than their quota. Does nothing on a server that is not the owner. Raises Unavailable."""
        if not self._server.is_owner():
            self._over = frozenset()
            self._metrics.over_stored.set(0)
            return
        now_ms, usage = self._clock.now_ms(), self.book
        stored = {key: (usage.stored_now(key, now_ms) or 0, limit) for key, limit in usage.limited().items()}
        over = {key: amounts for key, amounts in stored.items() if amounts[0] > amounts[1]}
        for key in sorted(over.keys() - self._over):
            size, limit = over[key]
            log.warning("tenant stores more than its quota", extra={"tenant": str(key), "bytes": size, "quota": limit})
        self._over = frozenset(over)
        self._metrics.over_stored.set(len(over))
        before_ms = now_ms - self._keep_ms
        if gone := usage.forget(before_ms) + self._repository.part(FeedUsageBook).forget(before_ms):
            log.info("old usage deleted", extra={"rows": gone})
