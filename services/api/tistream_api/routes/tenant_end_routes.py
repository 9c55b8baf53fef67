"""Pause, delete and keep tenants: what the meta server answers, behind the gate."""

from __future__ import annotations

from fastapi import APIRouter, Request
from fastapi.responses import Response

from tistream.wire.meta_client import MetaClient
from tistream_api.admission import gate
from tistream_api.request import params
from tistream_api.request.bodies import Body
from tistream_api.request.meta_paths import at_meta
from tistream_api.routes import openapi
from tistream_api.routes.pull_routes import TENANT


def build_tenant_end_router(meta: MetaClient) -> APIRouter:
    """To be included behind the gate. Who may register tenants of a cluster may delete them."""
    router = APIRouter(tags=["tenant"])

    def forward(method: str, path: str, body: bytes | None = None) -> Response:
        answer = meta.request(method, path, body)
        return Response(answer.content, answer.status_code, media_type="application/json")

    @router.put(
        TENANT + "/pause",
        operation_id="PauseTenant",
        responses=openapi.TENANT_PROBLEMS,
        openapi_extra=gate.OPERATE_TENANT.declared(openapi.json_doc({"paused": {"type": "boolean", "example": True}})),
    )
    def pause_tenant(request: Request, cluster_id: str, tenant_id: str, body: Body) -> Response:
        """Take nothing more of a tenant in: `{"paused": true}`; what is there is served. False: go on."""
        params.parse_none(request.scope["query_string"])
        return forward("PUT", f"{at_meta(cluster_id, tenant_id)}/pause", body)

    @router.put(
        TENANT + "/deletion",
        operation_id="DeleteTenant",
        status_code=202,
        responses=openapi.TENANT_PROBLEMS,
        openapi_extra=gate.OPERATE_CLUSTER.declared(openapi.deletion_doc()),
    )
    def delete_tenant(request: Request, cluster_id: str, tenant_id: str, body: Body) -> Response:
        """Delete a tenant with all that it has: `{"confirm": "acme", "grace_ms": "86400000"}`. Until that time has
        passed (a day, if nothing is said) it is paused, and DELETE takes this back."""
        params.parse_none(request.scope["query_string"])
        return forward("PUT", f"{at_meta(cluster_id, tenant_id)}/deletion", body)

    @router.delete(
        TENANT + "/deletion",
        operation_id="KeepTenant",
        responses=openapi.TENANT_PROBLEMS,
        openapi_extra=gate.OPERATE_CLUSTER.declared(),
    )
    def keep_tenant(request: Request, cluster_id: str, tenant_id: str) -> Response:
        """Take back that a tenant is to be deleted, before its time has come."""
        params.parse_none(request.scope["query_string"])
        return forward("DELETE", f"{at_meta(cluster_id, tenant_id)}/deletion")

    return router
