"""HTTP surface of what tenants have used, and may use. Parses, calls, translates; decides nothing."""

from __future__ import annotations

import re
from typing import Annotated

from fastapi import APIRouter, Query, Request

from tistream.errors import InvalidRequest
from tistream.model.ids import TenantKey
from tistream.wire.limits import Limits
from tistream.wire.meta import Accepted
from tistream.wire.usage import HOUR_MS, RANGE_MAX_MS, QuotasInfo, SetQuotas, Usage, UsageReport, hour_of
from tistream_meta.forwarding import elsewhere, server_of
from tistream_meta.model import Tenant

_MS = re.compile(r"[0-9]{1,18}")
_DAY_MS = 24 * HOUR_MS

router = APIRouter()

From = Annotated[str | None, Query(alias="from")]


@router.post("/upcall/v1/usage", status_code=202, operation_id="TellUsage")
def tell_usage(request: Request, body: UsageReport) -> Accepted:
    """What a process has done for tenants, in all. Any meta server takes it."""
    server_of(request).usage().take(body)
    return Accepted()


@router.get("/v1/clusters/{cluster_id}/tenants/{tenant_id}/usage", operation_id="TenantUsage")
def tenant_usage(request: Request, cluster_id: str, tenant_id: str, start: From = None, to: str | None = None) -> Usage:
    """What a tenant has used, by hour; without a range of the last day."""
    key, server = TenantKey.parse(cluster_id, tenant_id), server_of(request)
    to_ms = hour_of(server.now_ms()) + HOUR_MS if to is None else _ms(to, "to")
    from_ms = max(0, to_ms - _DAY_MS) if start is None else _ms(start, "from")
    if not 0 <= to_ms - from_ms <= RANGE_MAX_MS:
        raise InvalidRequest(f"from lies above to, or more than {RANGE_MAX_MS} ms below", {"parameter": "from"})
    return server.usage().of_tenant(key, from_ms, to_ms)


@router.get("/v1/clusters/{cluster_id}/tenants/{tenant_id}/quotas", operation_id="Quotas")
def quotas(request: Request, cluster_id: str, tenant_id: str) -> QuotasInfo:
    """What a tenant may use, and what it stores now."""
    return _info(request, server_of(request).tenant(TenantKey.parse(cluster_id, tenant_id)))


@router.put("/v1/clusters/{cluster_id}/tenants/{tenant_id}/quotas", operation_id="SetQuotas")
def set_quotas(request: Request, cluster_id: str, tenant_id: str, body: SetQuotas) -> QuotasInfo:
    """Say what a tenant may use. The same again is no error."""
    if (owner := elsewhere(request)) is not None:
        return owner.set_quotas(cluster_id, tenant_id, body)
    limits = Limits(**body.model_dump())
    return _info(request, server_of(request).set_limits(TenantKey.parse(cluster_id, tenant_id), limits))


def _info(request: Request, tenant: Tenant) -> QuotasInfo:
    server, limit = server_of(request), tenant.limits.stored_bytes
    stored = server.usage().stored_now(tenant.key, server.now_ms())
    return QuotasInfo(
        cluster_id=tenant.key.cluster_id,
        tenant_id=tenant.key.tenant_id,
        bytes_stored_now=None if stored is None else str(stored),
        stored_bytes_exceeded=bool(limit) and stored is not None and stored > (limit or 0),
        **tenant.limits.model_dump(),
    )


def _ms(text: str, name: str) -> int:
    if not _MS.fullmatch(text):
        raise InvalidRequest(f"{name} {text[:40]!r} is no number of milliseconds", {"parameter": name})
    return int(text)
