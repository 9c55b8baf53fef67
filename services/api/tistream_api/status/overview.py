"""Summarizes all tenants for one answer, from data that this process has already; it calls no other service. Pure."""

from __future__ import annotations

from tistream.wire.api import TenantState, TenantSummary
from tistream.wire.meta import TenantRoute
from tistream_api.status.lateness import LATE_SECONDS, TenantReports, held_by


def summary(route: TenantRoute, picture: TenantReports) -> TenantSummary:
    """Summarize a tenant for the list of all tenants. `state` of the result: waiting (nothing can be read yet), paused,
    damaged, late, or live."""
    known = route.snapshot_ts is not None and picture.resolved_ts > 0
    hold = held_by(picture) if known else None
    return TenantSummary(
        cluster_id=route.cluster_id,
        tenant_id=route.tenant_id,
        state=_state(picture, known, hold is not None and hold.stage == "damaged"),
        resolved_ts=str(picture.resolved_ts) if known else None,
        lag_seconds=round(picture.lag_seconds, 3) if known else None,
        held_by=hold,
        waits=None if known else route.problem or "it is being read",
        tasks=len(route.tasks),
        stores=len(route.stores or ()),
        retention_ms=None if route.retention_ms is None else str(route.retention_ms),
    )


def _state(picture: TenantReports, known: bool, damaged: bool) -> TenantState:
    if not known:
        return "waiting"
    if picture.paused is not None:
        return "paused"
    if damaged:
        return "damaged"
    return "late" if picture.lag_seconds > LATE_SECONDS else "live"
