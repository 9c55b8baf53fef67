"""Keeps TiKV from collecting versions that a territory still needs. This "hold" is set before the first registration,
and moved after each file."""

from __future__ import annotations

from collections.abc import Callable

from tistream.model.ids import TenantKey
from tistream_agent.core.steps import HoldRefused, HoldSet
from tistream_agent.upstream.pd import NULL_KEYSPACE, HoldTooLow, PdClient

TTL_S = 24 * 3_600  # an agent that is away for less loses nothing
PLANNED_TTL_S = 600  # of a hold beside one that lasts longer, which a command that dies does not release


class GcHold:
    """The hold of one territory. PD knows it under an id that names the territory."""

    def __init__(self, pd: PdClient, tenant: TenantKey, store_id: int, keyspace: int = NULL_KEYSPACE) -> None:
        self._pd, self._keyspace = pd, keyspace
        self.service_id = f"tistream-{tenant.cluster_id}-{tenant.tenant_id}-{store_id}"

    def move(self, ts: int, ttl_s: int = TTL_S, check: Callable[[], None] = lambda: None) -> HoldSet | HoldRefused:
        """Make PD keep all versions above `ts` for `ttl_s` seconds. `check` is called right before each request to PD,
        which is not sent if it raises. Returns whether PD has accepted the hold. Raises Unavailable if the caller may
        retry."""
        try:
            self._pd.hold_gc(self.service_id, ts, ttl_s, self._keyspace, check)
        except HoldTooLow as refused:
            return HoldRefused(ts, refused.safe_point)
        return HoldSet(ts)

    def release(self) -> None:
        """Delete the hold, so that TiKV may collect garbage again. Raises Unavailable."""
        self._pd.release_gc(self.service_id, self._keyspace)
