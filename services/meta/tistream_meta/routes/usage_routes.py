"""HTTP routes of usage and quotas. They parse requests, call UsageKeeping and translate answers."""

from __future__ import annotations

import re
from typing import Annotated

from fastapi import APIRouter, Query, Request

from tistream.errors import InvalidRequest
from tistream.model.ids import TenantKey
from tistream.wire.limits import Limits
from tistream.wire.meta import Accepted
from tistream.wire.usage import HOUR_MS, RANGE_MAX_MS, QuotasInfo, SetQuotas, Usage, UsageReport, hour_of
from tistream_meta.feeds.feed_usage import FeedUsageBook, with_feeds
from tistream_meta.owner.usage_keeping import UsageKeeping
from tistream_meta.routes.audit_routes import AuditedRoute
from tistream_meta.routes.forwarding import OwnersRoute

_MS = re.compile(r"[0-9]{1,18}")
_DAY_MS = 24 * HOUR_MS

router = APIRouter(route_class=AuditedRoute)
of_owner = APIRouter(route_class=OwnersRoute)

From = Annotated[str | None, Query(alias="from")]


def _keeping(request: Request) -> UsageKeeping:
    keeping: UsageKeeping = request.app.state.usage
    return keeping


@router.post("/upcall/v1/usage", status_code=202, operation_id="TellUsage")
def report_usage(request: Request, body: UsageReport) -> Accepted:
    """Store the usage of tenants that a process has counted since it started. Any meta server accepts it."""
    _keeping(request).book.take(body)
    return Accepted()


@router.get("/v1/clusters/{cluster_id}/tenants/{tenant_id}/usage", operation_id="TenantUsage")
def tenant_usage(request: Request, cluster_id: str, tenant_id: str, start: From = None, to: str | None = None) -> Usage:
    """The usage of a tenant by hour, from `start` (in a query: `from`) to `to`; by default the last day up to now."""
    key, keeping = TenantKey.parse(cluster_id, tenant_id), _keeping(request)
    to_ms = hour_of(keeping.now_ms()) + HOUR_MS if to is None else _ms(to, "to")
    from_ms = max(0, to_ms - _DAY_MS) if start is None else _ms(start, "from")
    if from_ms > to_ms:
        raise InvalidRequest(f"from {from_ms} lies above to {to_ms}: the range is empty", {"parameter": "from"})
    if to_ms - from_ms > RANGE_MAX_MS:
        days = RANGE_MAX_MS // _DAY_MS
        raise InvalidRequest(f"from..to spans more than {days} days: ask for less at a time", {"parameter": "from"})
    feeds: FeedUsageBook = request.app.state.feed_usage
    return with_feeds(keeping.book.of_tenant(key, from_ms, to_ms), feeds.of_tenant(key, from_ms, to_ms))


@router.get("/v1/clusters/{cluster_id}/tenants/{tenant_id}/quotas", operation_id="Quotas")
def quotas(request: Request, cluster_id: str, tenant_id: str) -> QuotasInfo:
    """The quotas of a tenant, and the bytes that it stores now."""
    return _keeping(request).quotas(TenantKey.parse(cluster_id, tenant_id))


@of_owner.put("/v1/clusters/{cluster_id}/tenants/{tenant_id}/quotas", operation_id="SetQuotas")
def set_quotas(request: Request, cluster_id: str, tenant_id: str, body: SetQuotas) -> QuotasInfo:
    """Set the quotas of a tenant. Idempotent."""
    limits = Limits(**body.model_dump())
    return _keeping(request).set_quotas(TenantKey.parse(cluster_id, tenant_id), limits)


def _ms(text: str, name: str) -> int:
    if not _MS.fullmatch(text):
        raise InvalidRequest(
            f"{name}: {text[:40]!r} is not a time in Unix milliseconds, such as 1760000000000", {"parameter": name}
        )
    return int(text)


router.include_router(of_owner)
