"""HTTP routes to pause and delete tenants. They parse requests, call TenantRules and translate answers."""

from __future__ import annotations

import re

from fastapi import APIRouter, Request

from tistream.errors import InvalidRequest
from tistream.model.ids import TenantKey
from tistream.wire.meta import DELETE_GRACE_MAX_MS, DeleteTenant, PauseTenant, TenantInfo
from tistream_meta.owner.route_table import tenant_info
from tistream_meta.routes.forwarding import OwnersRoute
from tistream_meta.routes.forwarding import server_of as _server

_MS = re.compile(r"[0-9]{1,15}")

router = APIRouter(route_class=OwnersRoute)


@router.put("/v1/clusters/{cluster_id}/tenants/{tenant_id}/pause", operation_id="PauseTenant")
def pause_tenant(request: Request, cluster_id: str, tenant_id: str, body: PauseTenant) -> TenantInfo:
    """Stop reading a tenant's files, or begin again. Idempotent."""
    key = TenantKey.parse(cluster_id, tenant_id)
    return tenant_info(_server(request).tenant_rules.pause(key, paused=body.paused))


@router.put("/v1/clusters/{cluster_id}/tenants/{tenant_id}/deletion", status_code=202, operation_id="DeleteTenant")
def delete_tenant(request: Request, cluster_id: str, tenant_id: str, body: DeleteTenant) -> TenantInfo:
    """Delete a tenant with all its data once the grace time has passed."""
    key = TenantKey.parse(cluster_id, tenant_id)
    if not _MS.fullmatch(body.grace_ms) or int(body.grace_ms) > DELETE_GRACE_MAX_MS:
        raise InvalidRequest(
            f"grace_ms {body.grace_ms[:80]!r} is not a number of milliseconds from 0 to {DELETE_GRACE_MAX_MS}",
            {"parameter": "grace_ms"},
        )
    return tenant_info(_server(request).tenant_rules.delete(key, body.confirm, int(body.grace_ms)))


@router.delete("/v1/clusters/{cluster_id}/tenants/{tenant_id}/deletion", operation_id="KeepTenant")
def keep_tenant(request: Request, cluster_id: str, tenant_id: str) -> TenantInfo:
    """Cancel the deletion of a tenant before its time has come."""
    return tenant_info(_server(request).tenant_rules.keep(TenantKey.parse(cluster_id, tenant_id)))
