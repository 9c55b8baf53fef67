"""Keeps TiKV from collecting versions that a territory still needs. This "hold" is set before the first registration,
and moved after each file."""

from __future__ import annotations

from tistream.model.ids import TenantKey
from tistream_agent.core.steps import HoldRefused, HoldSet
from tistream_agent.upstream.pd import NULL_KEYSPACE, HoldTooLow, PdClient

TTL_S = 24 * 3_600  # an agent that is away for less loses nothing


class GcHold:
    """The hold of one territory. PD knows it under an id that names the territory."""

    def __init__(self, pd: PdClient, tenant: TenantKey, store_id: int, keyspace: int = NULL_KEYSPACE) -> None:
        self._pd, self._keyspace = pd, keyspace
        self.service_id = f"tistream-{tenant.cluster_id}-{tenant.tenant_id}-{store_id}"

    def move(self, ts: int) -> HoldSet | HoldRefused:
        """Make PD keep all versions above `ts`. Returns whether PD has accepted that. Raises Unavailable if the caller
        may retry."""
        try:
            self._pd.hold_gc(self.service_id, ts, TTL_S, self._keyspace)
        except HoldTooLow as refused:
            return HoldRefused(ts, refused.safe_point)
        return HoldSet(ts)

    def release(self) -> None:
        """Delete the hold, so that TiKV may collect garbage again. Raises Unavailable."""
        self._pd.release_gc(self.service_id, self._keyspace)
