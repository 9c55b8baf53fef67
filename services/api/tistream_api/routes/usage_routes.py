"""HTTP routes of tenants' usage and quotas. They are forwarded to the meta server, because only the API server has a
public port."""

from __future__ import annotations

from fastapi import APIRouter
from fastapi.responses import Response

from tistream.wire.clients.meta_client import MetaClient
from tistream.wire.usage import QuotasInfo, Usage
from tistream_api.admission.gate import OPERATE_CLUSTER, READ_TENANT
from tistream_api.request.bodies import Body
from tistream_api.request.meta_paths import at_meta
from tistream_api.request.queries import UsageHours
from tistream_api.routes import openapi

TENANT = "/v1/clusters/{cluster_id}/tenants/{tenant_id}"


def build_usage_router(meta: MetaClient) -> APIRouter:
    """Build the router of `tistream tenant usage` and `tistream tenant quotas`."""
    router = APIRouter(tags=["tenant"])

    def forward(method: str, path: str, body: bytes | None = None) -> Response:
        answer = meta.request(method, path, body)
        return Response(answer.content, answer.status_code, media_type="application/json")

    @router.get(
        TENANT + "/usage",
        operation_id="TenantUsage",
        response_model=Usage,
        responses=openapi.TENANT_PROBLEMS,
    )
    @READ_TENANT
    def tenant_usage(cluster_id: str, tenant_id: str, query: UsageHours) -> Response:
        """A tenant's usage by hour: bytes ingested, stored and served, rows, requests to object storage, and what each
        changefeed has delivered."""
        return forward("GET", f"{at_meta(cluster_id, tenant_id)}/usage?{query.text()}")

    @router.get(
        TENANT + "/quotas",
        operation_id="Quotas",
        response_model=QuotasInfo,
        responses=openapi.TENANT_PROBLEMS,
    )
    @READ_TENANT
    def quotas(cluster_id: str, tenant_id: str) -> Response:
        """A tenant's quotas, and the bytes that it stores now."""
        return forward("GET", f"{at_meta(cluster_id, tenant_id)}/quotas")

    @router.put(
        TENANT + "/quotas",
        operation_id="SetQuotas",
        response_model=QuotasInfo,
        responses=openapi.TENANT_PROBLEMS,
        openapi_extra=openapi.quotas_doc(),
    )
    @OPERATE_CLUSTER
    def set_quotas(cluster_id: str, tenant_id: str, body: Body) -> Response:
        """Set a tenant's quotas: `{"requests_per_second": 50}`; for a quota that is left out, the value in the settings
        applies."""
        return forward("PUT", f"{at_meta(cluster_id, tenant_id)}/quotas", body)

    return router
