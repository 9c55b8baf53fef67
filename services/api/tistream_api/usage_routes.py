"""What a tenant has used, and may use. The meta server answers; the API's is the one public port."""

from __future__ import annotations

from typing import Annotated
from urllib.parse import urlencode

from fastapi import APIRouter, Depends, Request
from fastapi.responses import Response

from tistream.wire.meta_client import MetaClient
from tistream_api import openapi, params

TENANT = "/v1/clusters/{cluster_id}/tenants/{tenant_id}"


async def _body(request: Request) -> bytes:
    return await request.body()


Body = Annotated[bytes, Depends(_body)]


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
        openapi_extra=openapi.usage_doc(),
    )
    def tenant_usage(request: Request, cluster_id: str, tenant_id: str) -> Response:
        """What a tenant has used, by hour: bytes in, stored and served, rows, requests to object storage."""
        asked = urlencode(params.parse_usage(request.scope["query_string"]))
        return forward("GET", f"/v1/clusters/{cluster_id}/tenants/{tenant_id}/usage?{asked}")

    @router.get(TENANT + "/quotas", operation_id="Quotas", responses=openapi.TENANT_PROBLEMS)
    def quotas(request: Request, cluster_id: str, tenant_id: str) -> Response:
        """What a tenant may use, and what it stores now."""
        params.parse_none(request.scope["query_string"])
        return forward("GET", f"/v1/clusters/{cluster_id}/tenants/{tenant_id}/quotas")

    @router.put(
        TENANT + "/quotas",
        operation_id="SetQuotas",
        responses=openapi.TENANT_PROBLEMS,
        openapi_extra=openapi.quotas_doc(),
    )
    def set_quotas(request: Request, cluster_id: str, tenant_id: str, body: Body) -> Response:
        """Say what a tenant may use: `{"requests_per_second": 50}`; what is left out is as the settings have it."""
        params.parse_none(request.scope["query_string"])
        return forward("PUT", f"/v1/clusters/{cluster_id}/tenants/{tenant_id}/quotas", body)

    return router
