"""HTTP routes of pulls, lists and status (design.md 5). They parse requests, call the parts of the server that answer
them, and translate the results; they decide nothing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from enum import Enum

import orjson
from fastapi import APIRouter, Depends, Request
from fastapi.responses import Response, StreamingResponse

from tistream.follow.tenant_view import TenantView
from tistream.follow.tenants import Tenants
from tistream.model.tenant_kind import TenantKind
from tistream.read.cursor import Scope
from tistream.wire.api import DatabaseList, TableNames, TenantPlacement, TenantProgress
from tistream.wire.clients.meta_client import MetaClient
from tistream.wire.meta import Accepted, Notification, TenantInfo, TenantList
from tistream.wire.sorter import Coverage
from tistream_api.admission import gate
from tistream_api.admission.gate import Gate, caller_of, slot_of
from tistream_api.admission.metering import answer_meter_of
from tistream_api.auth.access import Resource, allows, allows_part
from tistream_api.encode.compression import coding_of
from tistream_api.encode.encoding import FORMATS
from tistream_api.points import point_cursor
from tistream_api.points.point_reads import PointReads
from tistream_api.pull.answer_response import AnswerResponse
from tistream_api.pull.start import Pulls, check_kind
from tistream_api.request.bodies import Body, read
from tistream_api.request.head_requests import is_head
from tistream_api.request.meta_paths import at_meta
from tistream_api.request.queries import AnyPullQuery, At, CoverageRange, Pull, TablePull
from tistream_api.request.raw_path import name_of
from tistream_api.routes import openapi
from tistream_api.routes.point_routes import squashed
from tistream_api.routes.read_callers import readable, watched
from tistream_api.status.tenant_status import TenantStatus
from tistream_api.tenant.lists import Lists

Call = Callable[..., Response]
PULL: list[str | Enum] = ["pull"]
TENANT = "/v1/clusters/{cluster_id}/tenants/{tenant_id}"


def build_router(
    tenants: Tenants,
    pulls: Pulls,
    points: PointReads,
    lists: Lists,
    status: TenantStatus,
    meta: MetaClient,
    guard: Gate,
) -> APIRouter:
    """Build the router of pulls, lists and status, and of the calls that are forwarded to the meta server. Its routes
    must be behind the gate (admission/gate.py)."""
    router = APIRouter()
    _add_pulls(router, tenants, pulls, points, guard)
    _add_lists(router, tenants, lists)
    _add_status(router, tenants, status)
    _add_forwarded(router, meta)
    return router


def _view(tenants: Tenants, cluster_id: str, tenant_id: str) -> TenantView:
    return tenants.view(name_of(cluster_id), name_of(tenant_id))


def _add_pulls(router: APIRouter, tenants: Tenants, pulls: Pulls, points: PointReads, guard: Gate) -> None:
    squash = squashed(points, guard)

    def answer(request: Request, query: AnyPullQuery, view: TenantView, *names: str) -> Response:
        check_kind(view, TenantKind.TIDB)
        inside = query.cursor is not None and point_cursor.is_snapshot(query.cursor)
        if query.squash or query.snapshot is not None or inside:
            return squash(request, view, Scope(view.tenant, *map(name_of, names)))
        scope = Scope(view.tenant, *map(name_of, names))
        still, meter = guard.still(caller_of(request)), answer_meter_of(request.scope)
        params = query.parsed(coding_of(request.headers.get("accept-encoding"), query.format))
        headers = {"Vary": "Accept-Encoding"} | ({"Content-Encoding": params.coding} if params.coding else {})
        media_type = FORMATS[params.format].media_type
        may_read = readable(caller_of(request).grants, view)
        has_slot, gone = slot_of(request).end, request.state.gone.is_set
        if is_head(request.scope):  # a HEAD request does not wait, and serves no rows
            params = replace(params, wait_ms=0)
            pulls.answer(view, scope, params, still, has_slot=has_slot, may_read=may_read, gone=gone).close()
            return StreamingResponse(iter(()), headers=headers, media_type=media_type)
        pulled = pulls.answer(view, scope, params, still, meter.add_rows, has_slot, may_read, gone)
        return AnswerResponse(pulled, headers=headers, media_type=media_type)

    def pull_route(path: str, operation_id: str) -> Callable[[Call], Call]:
        return router.get(
            TENANT + path,
            operation_id=operation_id,
            tags=PULL,
            response_class=StreamingResponse,
            dependencies=[Depends(watched)],
            responses=openapi.PULL_PROBLEMS,
            openapi_extra=openapi.pull_doc(),
        )

    @pull_route("/databases/{db}/tables/{table}/changes", "PullTable")
    @gate.READ_TABLE
    def pull_table(
        request: Request, cluster_id: str, tenant_id: str, db: str, table: str, query: TablePull
    ) -> Response:
        """Changes of a table by its name. At each time, these are the changes of the table that has this name then."""
        return answer(request, query, _view(tenants, cluster_id, tenant_id), db, table)

    @pull_route("/databases/{db}/changes", "PullDB")
    @gate.READ_DATABASE
    def pull_db(request: Request, cluster_id: str, tenant_id: str, db: str, query: Pull) -> Response:
        """Changes of the tables of a database. At each time, these are the changes of the tables that are in it
        then."""
        return answer(request, query, _view(tenants, cluster_id, tenant_id), db)

    @pull_route("/changes", "PullTenant")
    @gate.READ_TENANT
    def pull_tenant(request: Request, cluster_id: str, tenant_id: str, query: Pull) -> Response:
        """Changes of every table of the tenant."""
        return answer(request, query, _view(tenants, cluster_id, tenant_id))


def _add_lists(router: APIRouter, tenants: Tenants, lists: Lists) -> None:
    @router.get(
        TENANT + "/databases",
        operation_id="ListDBs",
        tags=["list"],
        responses=openapi.LIST_PROBLEMS,
    )
    @gate.LIST_DATABASES
    def list_dbs(request: Request, cluster_id: str, tenant_id: str, query: At) -> DatabaseList:
        """The databases that exist at a time, without those in which the token may read nothing."""
        found = lists.databases(_view(tenants, cluster_id, tenant_id), query.ts)
        grants, tenant = caller_of(request).grants, (name_of(cluster_id), name_of(tenant_id))
        shown = [name for name in found.databases if allows_part(grants, "read", Resource(*tenant, name))]
        return DatabaseList(ts=found.ts, databases=shown)

    @router.get(
        TENANT + "/databases/{db}/tables",
        operation_id="ListTables",
        tags=["list"],
        responses=openapi.LIST_PROBLEMS,
    )
    @gate.LIST_TABLES
    def list_tables(request: Request, cluster_id: str, tenant_id: str, db: str, query: At) -> TableNames:
        """The base tables that a database has at a time, without those that the token may not read."""
        grants, view = caller_of(request).grants, _view(tenants, cluster_id, tenant_id)
        found = lists.tables(view, name_of(db), query.ts, readable(grants, view))
        database = (name_of(cluster_id), name_of(tenant_id), name_of(db))
        shown = [table for table in found.tables if allows(grants, "read", Resource(*database, table.name))]
        return TableNames(ts=found.ts, database=found.database, tables=shown)


def _add_status(router: APIRouter, tenants: Tenants, status: TenantStatus) -> None:
    @router.get(
        TENANT + "/status",
        operation_id="TenantStatus",
        tags=["tenant"],
        responses=openapi.TENANT_PROBLEMS,
    )
    @gate.READ_TENANT
    def tenant_status(cluster_id: str, tenant_id: str) -> TenantProgress:
        """The tenant's progress, and what holds it back."""
        return status.status(_view(tenants, cluster_id, tenant_id))

    @router.get(
        TENANT + "/placement",
        operation_id="TenantPlacement",
        tags=["tenant"],
        responses=openapi.TENANT_PROBLEMS,
    )
    @gate.READ_TENANT
    def tenant_placement(cluster_id: str, tenant_id: str) -> TenantPlacement:
        """The node that holds each of the tenant's tasks and stores, and what the task or store waits for."""
        return status.placement(_view(tenants, cluster_id, tenant_id))

    @router.get(
        TENANT + "/coverage",
        operation_id="Coverage",
        tags=["tenant"],
        responses=openapi.TENANT_PROBLEMS,
    )
    @gate.READ_TENANT
    def coverage(cluster_id: str, tenant_id: str, query: CoverageRange) -> Coverage:
        """The slices of a key range, which are its parts with a progress of their own. Each has the log index of its
        region up to which the platform has all changes."""
        return status.coverage(_view(tenants, cluster_id, tenant_id), query.start_key, query.end_key)


def _add_forwarded(router: APIRouter, meta: MetaClient) -> None:
    """Add the routes that are forwarded to the meta server, because only the API server has a public port."""

    def forward(method: str, path: str, body: bytes | None = None) -> Response:
        answer = meta.request(method, path, body)
        return Response(answer.content, answer.status_code, media_type="application/json")

    @router.post(
        "/v1/clusters/{cluster_id}/tenants",
        operation_id="CreateTenant",
        response_model=TenantInfo,
        tags=["tenant"],
        status_code=201,
        responses=openapi.CREATE_PROBLEMS,
        openapi_extra=openapi.create_doc(),
    )
    @gate.OPERATE_CLUSTER
    def create_tenant(cluster_id: str, body: Body) -> Response:
        """Register a tenant: `{"tenant_id": "acme"}`. Optional: `"retention_ms": "604800000"`, the time for which rows
        are kept; `"kms_key_id": "arn:…"`, an encryption key of its own; `"index_keys": true` keeps index entries;
        `"kind": "raw"` for RawKV."""
        return forward("POST", at_meta(cluster_id), body)

    @router.put(
        TENANT + "/retention",
        operation_id="SetRetention",
        response_model=TenantInfo,
        tags=["tenant"],
        responses=openapi.TENANT_PROBLEMS,
        openapi_extra=openapi.json_doc({"retention_ms": openapi.RETENTION}),
    )
    @gate.OPERATE_TENANT
    def set_retention(cluster_id: str, tenant_id: str, body: Body) -> Response:
        """Set how long a tenant's rows are kept after their commit: `{"retention_ms": "604800000"}`; null: forever."""
        return forward("PUT", f"{at_meta(cluster_id, tenant_id)}/retention", body)

    @router.put(
        TENANT + "/encryption",
        operation_id="SetEncryption",
        response_model=TenantInfo,
        tags=["tenant"],
        responses=openapi.TENANT_PROBLEMS,
        openapi_extra=openapi.json_doc({"kms_key_id": openapi.KMS_KEY_ID}),
    )
    @gate.OPERATE_CLUSTER
    def set_encryption(cluster_id: str, tenant_id: str, body: Body) -> Response:
        """Set the encryption of a tenant's new objects: `{"kms_key_id": "arn:…"}` (SSE-KMS); null: no key of its own.
        Requires operate on the cluster, because the platform may use other tenants' keys, too."""
        return forward("PUT", f"{at_meta(cluster_id, tenant_id)}/encryption", body)

    @router.get(
        "/v1/clusters/{cluster_id}/tenants",
        operation_id="ListTenants",
        response_model=TenantList,
        tags=["tenant"],
        responses=openapi.TENANT_PROBLEMS,
    )
    @gate.LIST_TENANTS
    def list_tenants(request: Request, cluster_id: str) -> Response:
        """A cluster's tenants: those that the token may read or operate."""
        answer = meta.request("GET", at_meta(cluster_id))
        found, grants = orjson.loads(answer.content), caller_of(request).grants
        shown = []
        for tenant in found["tenants"]:
            resource = Resource(tenant["cluster_id"], tenant["tenant_id"])
            if allows(grants, "read", resource) or allows(grants, "operate", resource):
                shown.append(tenant)
        return Response(orjson.dumps({**found, "tenants": shown}), media_type="application/json")

    @router.post(
        "/v1/notifications",
        operation_id="Notify",
        response_model=Accepted,
        tags=["tenant"],
        status_code=202,
        responses=openapi.NOTIFY_PROBLEMS,
        openapi_extra=openapi.body_doc("cluster_id", "tenant_id", "store_id", "ts"),
    )
    @gate.PUSH
    def notify(body: Body) -> Response:
        """Announce a change file that was pushed: `{"cluster_id", "tenant_id", "store_id", "ts"}`, all strings."""
        # Serialized again from what the gate has read, so that no member is interpreted in two ways.
        return forward("POST", "/v1/notifications", read(Notification, body).model_dump_json().encode())
