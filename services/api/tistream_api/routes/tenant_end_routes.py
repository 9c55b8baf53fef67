"""HTTP routes to pause and delete tenants, and to withdraw a deletion. They are forwarded to the meta server."""

from __future__ import annotations

from fastapi import APIRouter
from fastapi.responses import Response

from tistream.wire.clients.meta_client import MetaClient
from tistream.wire.meta import TenantInfo
from tistream_api.admission import gate
from tistream_api.request.bodies import Body
from tistream_api.request.meta_paths import at_meta
from tistream_api.routes import openapi
from tistream_api.routes.pull_routes import TENANT


def build_tenant_end_router(meta: MetaClient) -> APIRouter:
    """Build the router of the calls that pause and delete tenants. Its routes must be behind the gate
    (admission/gate.py). Deleting requires the same grant as registering a tenant."""
    router = APIRouter(tags=["tenant"])

    def forward(method: str, path: str, body: bytes | None = None) -> Response:
        answer = meta.request(method, path, body)
        return Response(answer.content, answer.status_code, media_type="application/json")

    @router.put(
        TENANT + "/pause",
        operation_id="PauseTenant",
        response_model=TenantInfo,
        responses=openapi.TENANT_PROBLEMS,
        openapi_extra=openapi.json_doc({"paused": {"type": "boolean", "example": True}}),
    )
    @gate.OPERATE_TENANT
    def pause_tenant(cluster_id: str, tenant_id: str, body: Body) -> Response:
        """Stop reading a tenant's input: `{"paused": true}`; committed data is still served. With false, reading
        resumes."""
        return forward("PUT", f"{at_meta(cluster_id, tenant_id)}/pause", body)

    @router.put(
        TENANT + "/deletion",
        operation_id="DeleteTenant",
        response_model=TenantInfo,
        status_code=202,
        responses=openapi.TENANT_PROBLEMS,
        openapi_extra=openapi.deletion_doc(),
    )
    @gate.OPERATE_CLUSTER
    def delete_tenant(cluster_id: str, tenant_id: str, body: Body) -> Response:
        """Delete a tenant and all its data: `{"confirm": "acme", "grace_ms": "86400000"}`. During the grace period (by
        default a day) it is paused, and DELETE cancels the deletion."""
        return forward("PUT", f"{at_meta(cluster_id, tenant_id)}/deletion", body)

    @router.delete(
        TENANT + "/deletion",
        operation_id="KeepTenant",
        response_model=TenantInfo,
        responses=openapi.TENANT_PROBLEMS,
    )
    @gate.OPERATE_CLUSTER
    def keep_tenant(cluster_id: str, tenant_id: str) -> Response:
        """Cancel the deletion of a tenant during its grace period."""
        return forward("DELETE", f"{at_meta(cluster_id, tenant_id)}/deletion")

    return router
