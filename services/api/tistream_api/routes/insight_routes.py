"""Routes for people, in the console and by hand: all tenants, lag over time, columns, DDL history."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from fastapi import APIRouter, Request

from tistream.model.ids import TenantKey
from tistream.wire.tokens import Grant
from tistream_api.admission import gate
from tistream_api.admission.gate import caller_of
from tistream_api.auth.access import Resource, may, parts
from tistream_api.request import params
from tistream_api.request.raw_path import name_of
from tistream_api.routes import openapi
from tistream_api.status.lag_sampler import LagSampler
from tistream_api.status.overview import summary
from tistream_api.status.tenant_status import TenantStatus
from tistream_api.tenant.lists import Lists
from tistream_api.tenant.tenant_view import TenantView
from tistream_api.tenant.tenants import Tenants

TENANT = "/v1/clusters/{cluster_id}/tenants/{tenant_id}"


def _may_see(grants: Iterable[Grant], tenant: TenantKey) -> bool:
    resource = Resource(tenant.cluster_id, tenant.tenant_id)
    return may(grants, "read", resource) or may(grants, "operate", resource)


def build_insight_router(tenants: Tenants, lists: Lists, status: TenantStatus, sampler: LagSampler) -> APIRouter:
    """The read-only routes that consumers of changes do not need."""
    router = APIRouter()

    def view_of(cluster_id: str, tenant_id: str) -> TenantView:
        return tenants.view(name_of(cluster_id), name_of(tenant_id))

    @router.get(
        "/v1/tenants",
        operation_id="Overview",
        tags=["tenant"],
        responses=openapi.TENANT_PROBLEMS,
        openapi_extra=gate.OVERVIEW.declared(),
    )
    def overview(request: Request) -> dict[str, Any]:
        """Progress and hold of every tenant that the token may read or operate, from this server's memory. `parts`:
        databases and tables that the token names, below a tenant."""
        params.parse_none(request.scope["query_string"])
        grants = caller_of(request).grants
        found = sorted(tenants.views().items(), key=lambda item: str(item[0]))
        views = [view for key, view in found if _may_see(grants, key)]
        unheard = sampler.unheard()
        pictures = ((view.route, status.glance(view, sampler.stores(view), unheard)) for view in views)
        return {"tenants": [summary(route, picture) for route, picture in pictures], "parts": parts(grants)}

    @router.get(
        TENANT + "/lag",
        operation_id="TenantLag",
        tags=["tenant"],
        responses=openapi.TENANT_PROBLEMS,
        openapi_extra=gate.READ_TENANT.declared(openapi.lag_doc()),
    )
    def tenant_lag(request: Request, cluster_id: str, tenant_id: str) -> dict[str, Any]:
        """Seconds that each stage was behind the wall clock over the last minutes, as this server measured them."""
        minutes = params.parse_lag(request.scope["query_string"])
        return sampler.lags(view_of(cluster_id, tenant_id), minutes)

    @router.get(
        TENANT + "/ddl",
        operation_id="DdlHistory",
        tags=["tenant"],
        responses=openapi.LIST_PROBLEMS,
        openapi_extra=gate.READ_TENANT.declared(openapi.ddl_doc()),
    )
    def ddl_history(request: Request, cluster_id: str, tenant_id: str) -> dict[str, Any]:
        """DDL events of the tenant, newest first. If `more` is true, continue below the last event's commit_ts."""
        before_ts, limit = params.parse_ddl(request.scope["query_string"])
        return lists.ddl(view_of(cluster_id, tenant_id), before_ts, limit)

    @router.get(
        TENANT + "/databases/{db}/tables/{table}/schema",
        operation_id="TableSchema",
        tags=["list"],
        responses=openapi.LIST_PROBLEMS,
        openapi_extra=gate.READ_TABLE.declared(openapi.list_doc()),
    )
    def table_schema(request: Request, cluster_id: str, tenant_id: str, db: str, table: str) -> dict[str, Any]:
        """Columns of the table, view or sequence that has the name at `ts`."""
        ts = params.parse_list(request.scope["query_string"])
        return lists.schema(view_of(cluster_id, tenant_id), name_of(db), name_of(table), ts)

    return router
