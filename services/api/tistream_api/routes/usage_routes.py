"""Usage and quotas of tenants. The meta server answers; the API server has the only public port."""

from __future__ import annotations

from urllib.parse import urlencode

from fastapi import APIRouter, Request
from fastapi.responses import Response

from tistream.wire.clients.meta_client import MetaClient
from tistream_api.admission.gate import OPERATE_CLUSTER, READ_TENANT
from tistream_api.request import params
from tistream_api.request.bodies import Body
from tistream_api.request.meta_paths import at_meta
from tistream_api.routes import openapi

TENANT = "/v1/clusters/{cluster_id}/tenants/{tenant_id}"


def build_usage_router(meta: MetaClient) -> APIRouter:
    """The routes of `tistream tenant usage` and `tistream tenant quotas`."""
    router = APIRouter(tags=["tenant"])

    def forward(method: str, path: str, body: bytes | None = None) -> Response:
        answer = meta.request(method, path, body)
        return Response(answer.content, answer.status_code, media_type="application/json")

    @router.get(
        TENANT + "/usage",
        operation_id="TenantUsage",
        responses=openapi.TENANT_PROBLEMS,
        openapi_extra=READ_TENANT.declared(openapi.usage_doc()),
    )
    def tenant_usage(request: Request, cluster_id: str, tenant_id: str) -> Response:
        """A tenant's usage by hour: bytes in, stored and served, rows, requests to object storage."""
        asked = urlencode(params.parse_usage(request.scope["query_string"]))
        return forward("GET", f"{at_meta(cluster_id, tenant_id)}/usage?{asked}")

    @router.get(
        TENANT + "/quotas",
        operation_id="Quotas",
        responses=openapi.TENANT_PROBLEMS,
        openapi_extra=READ_TENANT.declared(),
    )
    def quotas(request: Request, cluster_id: str, tenant_id: str) -> Response:
        """A tenant's quotas, and the bytes that it stores now."""
        params.parse_none(request.scope["query_string"])
        return forward("GET", f"{at_meta(cluster_id, tenant_id)}/quotas")

    @router.put(
        TENANT + "/quotas",
        operation_id="SetQuotas",
        responses=openapi.TENANT_PROBLEMS,
        openapi_extra=OPERATE_CLUSTER.declared(openapi.quotas_doc()),
    )
    def set_quotas(request: Request, cluster_id: str, tenant_id: str, body: Body) -> Response:
        """Set a tenant's quotas: `{"requests_per_second": 50}`; a quota that is left out has the settings' value."""
        params.parse_none(request.scope["query_string"])
        return forward("PUT", f"{at_meta(cluster_id, tenant_id)}/quotas", body)

    return router
