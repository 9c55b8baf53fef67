"""HTTP surface of the API server (design.md 5). Parses, calls, translates; decides nothing."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Request
from fastapi.responses import Response, StreamingResponse

from tistream.wire.meta_client import MetaClient
from tistream_api import openapi, params
from tistream_api.cursor import Scope
from tistream_api.encoding import FORMATS
from tistream_api.lists import Lists
from tistream_api.operator_routes import build_operator_router
from tistream_api.pulls import Pulls
from tistream_api.raw_path import name_of
from tistream_api.tenant_status import TenantStatus
from tistream_api.tenant_view import TenantView
from tistream_api.tenants import Tenants

Call = Callable[..., Response]
PULL: list[str | Enum] = ["pull"]
TENANT = "/v1/clusters/{cluster_id}/tenants/{tenant_id}"


def build_router(tenants: Tenants, pulls: Pulls, lists: Lists, status: TenantStatus, meta: MetaClient) -> APIRouter:
    """Every route of the API server."""
    router = APIRouter()
    _add_pulls(router, tenants, pulls)
    _add_lists(router, tenants, lists)
    _add_status(router, tenants, status)
    _add_forwarded(router, meta)
    router.include_router(build_operator_router(meta))
    return router


def _view(tenants: Tenants, cluster_id: str, tenant_id: str) -> TenantView:
    return tenants.view(name_of(cluster_id), name_of(tenant_id))


async def _body(request: Request) -> bytes:
    return await request.body()


Body = Annotated[bytes, Depends(_body)]


def _query(request: Request) -> bytes:
    query: bytes = request.scope["query_string"]
    return query


def _add_pulls(router: APIRouter, tenants: Tenants, pulls: Pulls) -> None:
    def answer(request: Request, view: TenantView, *names: str) -> Response:
        asked = params.parse_pull(_query(request))
        scope = Scope(view.tenant, *map(name_of, names))
        return StreamingResponse(iter(pulls.answer(view, scope, asked)), media_type=FORMATS[asked.format].media_type)

    def pull_route(path: str, operation_id: str) -> Callable[[Call], Call]:
        return router.get(
            TENANT + path,
            operation_id=operation_id,
            tags=PULL,
            response_class=StreamingResponse,
            responses=openapi.PULL_PROBLEMS,
            openapi_extra=openapi.pull_doc(),
        )

    @pull_route("/databases/{db}/tables/{table}/changes", "PullTable")
    def pull_table(request: Request, cluster_id: str, tenant_id: str, db: str, table: str) -> Response:
        """Changes of whatever table bears the name at each time."""
        return answer(request, _view(tenants, cluster_id, tenant_id), db, table)

    @pull_route("/databases/{db}/changes", "PullDB")
    def pull_db(request: Request, cluster_id: str, tenant_id: str, db: str) -> Response:
        """Changes of the tables that are in the database at each time."""
        return answer(request, _view(tenants, cluster_id, tenant_id), db)

    @pull_route("/changes", "PullTenant")
    def pull_tenant(request: Request, cluster_id: str, tenant_id: str) -> Response:
        """Changes of every table."""
        return answer(request, _view(tenants, cluster_id, tenant_id))


def _add_lists(router: APIRouter, tenants: Tenants, lists: Lists) -> None:
    @router.get(
        TENANT + "/databases",
        operation_id="ListDBs",
        tags=["list"],
        responses=openapi.LIST_PROBLEMS,
        openapi_extra=openapi.list_doc(),
    )
    def list_dbs(request: Request, cluster_id: str, tenant_id: str) -> dict[str, Any]:
        """Databases at a time."""
        ts = params.parse_list(_query(request))
        return lists.databases(_view(tenants, cluster_id, tenant_id), ts)

    @router.get(
        TENANT + "/databases/{db}/tables",
        operation_id="ListTables",
        tags=["list"],
        responses=openapi.LIST_PROBLEMS,
        openapi_extra=openapi.list_doc(),
    )
    def list_tables(request: Request, cluster_id: str, tenant_id: str, db: str) -> dict[str, Any]:
        """Base tables of a database at a time."""
        ts = params.parse_list(_query(request))
        return lists.tables(_view(tenants, cluster_id, tenant_id), name_of(db), ts)


def _add_status(router: APIRouter, tenants: Tenants, status: TenantStatus) -> None:
    @router.get(TENANT + "/status", operation_id="TenantStatus", tags=["tenant"], responses=openapi.TENANT_PROBLEMS)
    def tenant_status(request: Request, cluster_id: str, tenant_id: str) -> dict[str, Any]:
        """How far the tenant can be read, and what holds it."""
        params.parse_none(_query(request))
        return status.status(_view(tenants, cluster_id, tenant_id))

    @router.get(
        TENANT + "/placement", operation_id="TenantPlacement", tags=["tenant"], responses=openapi.TENANT_PROBLEMS
    )
    def tenant_placement(request: Request, cluster_id: str, tenant_id: str) -> dict[str, Any]:
        """Which node holds each of the tenant's tasks and stores, and what it waits for."""
        params.parse_none(_query(request))
        return status.placement(_view(tenants, cluster_id, tenant_id))

    @router.get(
        TENANT + "/coverage",
        operation_id="Coverage",
        tags=["tenant"],
        responses=openapi.TENANT_PROBLEMS,
        openapi_extra=openapi.coverage_doc(),
    )
    def coverage(request: Request, cluster_id: str, tenant_id: str) -> dict[str, Any]:
        """Slices of a key range: up to which entry of which region's log they are covered."""
        start, end = params.parse_coverage(_query(request))
        return status.coverage(_view(tenants, cluster_id, tenant_id), start, end)


def _add_forwarded(router: APIRouter, meta: MetaClient) -> None:
    """What the meta server answers; the API's is the one public port."""

    def forward(method: str, path: str, body: bytes | None = None) -> Response:
        answer = meta.request(method, path, body)
        return Response(answer.content, answer.status_code, media_type="application/json")

    @router.post(
        "/v1/clusters/{cluster_id}/tenants",
        operation_id="CreateTenant",
        tags=["tenant"],
        status_code=201,
        responses=openapi.CREATE_PROBLEMS,
        openapi_extra=openapi.create_doc(),
    )
    def create_tenant(request: Request, cluster_id: str, body: Body) -> Response:
        """Register a tenant: `{"tenant_id": "acme"}`, and how long its rows are kept: `"retention_ms": "604800000"`;
        with a key of its own: `"kms_key_id": "arn:…"`."""
        params.parse_none(_query(request))
        return forward("POST", f"/v1/clusters/{cluster_id}/tenants", body)

    @router.put(
        TENANT + "/retention",
        operation_id="SetRetention",
        tags=["tenant"],
        responses=openapi.TENANT_PROBLEMS,
        openapi_extra=openapi.json_doc({"retention_ms": openapi.RETENTION}),
    )
    def set_retention(request: Request, cluster_id: str, tenant_id: str, body: Body) -> Response:
        """How long a tenant's rows are kept after their commit: `{"retention_ms": "604800000"}`; null: for ever."""
        params.parse_none(_query(request))
        return forward("PUT", f"/v1/clusters/{cluster_id}/tenants/{tenant_id}/retention", body)

    @router.put(
        TENANT + "/encryption",
        operation_id="SetEncryption",
        tags=["tenant"],
        responses=openapi.TENANT_PROBLEMS,
        openapi_extra=openapi.json_doc({"kms_key_id": openapi.KMS_KEY_ID}),
    )
    def set_encryption(request: Request, cluster_id: str, tenant_id: str, body: Body) -> Response:
        """What a tenant's new objects are encrypted with: `{"kms_key_id": "arn:…"}` (SSE-KMS); null: no key of its
        own."""
        params.parse_none(_query(request))
        return forward("PUT", f"/v1/clusters/{cluster_id}/tenants/{tenant_id}/encryption", body)

    @router.get(
        "/v1/clusters/{cluster_id}/tenants",
        operation_id="ListTenants",
        tags=["tenant"],
        responses=openapi.TENANT_PROBLEMS,
    )
    def list_tenants(request: Request, cluster_id: str) -> Response:
        """A cluster's tenants."""
        params.parse_none(_query(request))
        return forward("GET", f"/v1/clusters/{cluster_id}/tenants")

    @router.post(
        "/v1/notifications",
        operation_id="Notify",
        tags=["tenant"],
        status_code=202,
        responses=openapi.NOTIFY_PROBLEMS,
        openapi_extra=openapi.body_doc("cluster_id", "tenant_id", "store_id", "ts"),
    )
    def notify(request: Request, body: Body) -> Response:
        """Announce a file: `{"cluster_id", "tenant_id", "store_id", "ts"}`, all strings."""
        params.parse_none(_query(request))
        return forward("POST", "/v1/notifications", body)
