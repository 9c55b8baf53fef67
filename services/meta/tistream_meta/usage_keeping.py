"""The owner's work on what tenants have used: old hours go, and who stores more than its quota is told."""

from __future__ import annotations

import logging

from tistream.clock import Clock
from tistream.model.ids import TenantKey
from tistream_meta.metrics import MetaMetrics
from tistream_meta.server import MetaServer

log = logging.getLogger(__name__)


class UsageKeeping:
    """`step` is a loop's body."""

    def __init__(self, server: MetaServer, clock: Clock, keep_ms: int, metrics: MetaMetrics) -> None:
        self._server, self._clock, self._keep_ms, self._metrics = server, clock, keep_ms, metrics
        self._over: frozenset[TenantKey] = frozenset()

    def step(self) -> None:
        """One turn. Raises Unavailable."""
        if not self._server.is_owner():
            self._over = frozenset()
            self._metrics.over_stored.set(0)
            return
        now_ms, usage = self._clock.now_ms(), self._server.usage()
        stored = {key: (usage.stored_now(key, now_ms) or 0, limit) for key, limit in usage.limited().items()}
        over = {key: amounts for key, amounts in stored.items() if amounts[0] > amounts[1]}
        for key in sorted(over.keys() - self._over):
            size, limit = over[key]
            log.warning("tenant stores more than its quota", extra={"tenant": str(key), "bytes": size, "quota": limit})
        self._over = frozenset(over)
        self._metrics.over_stored.set(len(over))
        if gone := usage.forget(now_ms - self._keep_ms):
            log.info("old usage deleted", extra={"rows": gone})
