"""HTTP routes that people use, through the console or by hand: the list of all tenants, lag over time, columns, DDL
history."""

from __future__ import annotations

from collections.abc import Iterable

from fastapi import APIRouter, Request

from tistream.follow.tenant_view import TenantView
from tistream.follow.tenants import Tenants
from tistream.model.ids import TenantKey
from tistream.wire.api import DdlPage, LagSamples, TableColumns, TenantsOverview
from tistream.wire.tokens import Grant
from tistream_api.admission import gate
from tistream_api.admission.gate import caller_of
from tistream_api.auth.access import Resource, allows, readable_parts
from tistream_api.request.queries import At, DdlBefore, LagMinutes
from tistream_api.request.raw_path import name_of
from tistream_api.routes import openapi
from tistream_api.routes.read_callers import readable
from tistream_api.status.lag_sampler import LagSampler
from tistream_api.status.overview import summary
from tistream_api.status.tenant_status import TenantStatus
from tistream_api.tenant.lists import Lists

TENANT = "/v1/clusters/{cluster_id}/tenants/{tenant_id}"


def _may_see(grants: Iterable[Grant], tenant: TenantKey) -> bool:
    resource = Resource(tenant.cluster_id, tenant.tenant_id)
    return allows(grants, "read", resource) or allows(grants, "operate", resource)


def build_insight_router(tenants: Tenants, lists: Lists, status: TenantStatus, sampler: LagSampler) -> APIRouter:
    """Build the router of read-only calls that consumers of changes do not need."""
    router = APIRouter()

    def view_of(cluster_id: str, tenant_id: str) -> TenantView:
        return tenants.view(name_of(cluster_id), name_of(tenant_id))

    @router.get(
        "/v1/tenants",
        operation_id="Overview",
        tags=["tenant"],
        responses=openapi.TENANT_PROBLEMS,
    )
    @gate.OVERVIEW
    def overview(request: Request) -> TenantsOverview:
        """The progress of every tenant that the token may read or operate, and what holds it back, from this server's
        memory. `parts` lists the single databases and tables that the token may read."""
        grants = caller_of(request).grants
        found = sorted(tenants.views().items(), key=lambda item: str(item[0]))
        views = [view for key, view in found if _may_see(grants, key)]
        unanswered = sampler.unanswered()
        pictures = ((view.route, status.glance(view, sampler.stores(view), unanswered)) for view in views)
        return TenantsOverview(
            tenants=[summary(route, picture) for route, picture in pictures], parts=readable_parts(grants)
        )

    @router.get(
        TENANT + "/lag",
        operation_id="TenantLag",
        tags=["tenant"],
        responses=openapi.TENANT_PROBLEMS,
    )
    @gate.READ_TENANT
    def tenant_lag(cluster_id: str, tenant_id: str, query: LagMinutes) -> LagSamples:
        """How many seconds each stage was behind the wall clock over the last minutes, as this server measured them."""
        return sampler.lags(view_of(cluster_id, tenant_id), query.minutes)

    @router.get(
        TENANT + "/ddl",
        operation_id="DdlHistory",
        tags=["tenant"],
        responses=openapi.LIST_PROBLEMS,
    )
    @gate.READ_TENANT
    def ddl_history(cluster_id: str, tenant_id: str, query: DdlBefore) -> DdlPage:
        """DDL events of the tenant, newest first. If `more` is true, continue below the last event's commit_ts."""
        return lists.ddl(view_of(cluster_id, tenant_id), query.before_ts, query.limit)

    @router.get(
        TENANT + "/databases/{db}/tables/{table}/schema",
        operation_id="TableSchema",
        tags=["list"],
        responses=openapi.LIST_PROBLEMS,
    )
    @gate.READ_TABLE
    def table_schema(request: Request, cluster_id: str, tenant_id: str, db: str, table: str, query: At) -> TableColumns:
        """The columns of the table, view or sequence that has this name at `ts`."""
        view = view_of(cluster_id, tenant_id)
        may_read = readable(caller_of(request).grants, view)
        return lists.schema(view, name_of(db), name_of(table), query.ts, may_read)

    return router
