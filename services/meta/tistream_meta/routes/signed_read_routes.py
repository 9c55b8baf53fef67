"""The HTTP route that records answers of SignedChanges in the audit log."""

from __future__ import annotations

from fastapi import APIRouter, Request

from tistream.model.ids import TenantKey
from tistream.wire.audit import SignedRead
from tistream.wire.meta import Accepted
from tistream_meta.database.audit_log import AuditLog
from tistream_meta.routes.forwarding import OwnersRoute

router = APIRouter(route_class=OwnersRoute)


@router.post(
    "/upcall/v1/clusters/{cluster_id}/tenants/{tenant_id}/signed-changes", status_code=202, operation_id="SignedChanges"
)
def record_signed_changes(request: Request, cluster_id: str, tenant_id: str, body: SignedRead) -> Accepted:
    """Record that the caller of the API server gets URLs of row groups. The API server gives none without this
    record."""
    log: AuditLog = request.app.state.audit
    log.record_signed(TenantKey.parse(cluster_id, tenant_id), body)
    return Accepted()
