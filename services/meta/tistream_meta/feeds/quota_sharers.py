"""Counts the workers among which the rate quotas of a tenant are divided. Pure. A quota applies to the tenant, and each
worker limits what it sends itself. So a worker takes the share that results from the number of workers that have sent
something for the tenant lately. The counts are in the memory of the owner. A new owner receives them again with the
next beat of each worker."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

BUSY_MS = 5_000  # a worker that was not busy for so long has no share


@dataclass(slots=True)
class QuotaSharers:
    """Remembers when each worker was last busy for a tenant, in monotonic ms."""

    _busy: dict[str, dict[str, int]] = field(default_factory=dict)

    def record(self, node_id: str, tenants: Sequence[str], now_ms: int) -> Mapping[str, int]:
        """Record the tenants for which a worker is busy. Returns, for each tenant for which any worker is busy, the
        number of workers among which its quotas are divided; this worker is counted for all of them, because it may
        send next."""
        for tenant in tenants:
            self._busy.setdefault(tenant, {})[node_id] = now_ms
        recent = {
            tenant: {node: at_ms for node, at_ms in nodes.items() if now_ms - at_ms <= BUSY_MS}
            for tenant, nodes in self._busy.items()
        }
        self._busy = {tenant: nodes for tenant, nodes in recent.items() if nodes}
        return {tenant: len(nodes.keys() | {node_id}) for tenant, nodes in self._busy.items()}
