"""HTTP routes of restores and undos (docs/restore.md). They parse requests, call the parts of the server that answer
them, and translate the results.

The meta server stores the restores that the platform runs, and ingest processes run them. The targets that a restore
may write to are a setting of the ingest processes. So the route asks one of them before it queues a restore.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Query, Request
from fastapi.responses import Response

from tistream.errors import InvalidRequest, Unavailable, UnknownName
from tistream.follow.tenant_view import TenantView
from tistream.follow.tenants import Tenants
from tistream.read.cursor import Scope
from tistream.wire.bulk.restores import TABLES_MAX, CheckTarget, NewRestore, RestoreInfo, RestoreList, RestoreName
from tistream.wire.clients.client import HttpClient
from tistream.wire.clients.meta_client import MetaClient
from tistream.wire.meta import Accepted
from tistream_api.admission import gate
from tistream_api.admission.gate import Gate, caller_of
from tistream_api.points.named_table import check_complete, table_at
from tistream_api.points.point_reads import PointReads
from tistream_api.points.table_definition import Definitions
from tistream_api.request import restore_body, undo_body
from tistream_api.request.bodies import Body
from tistream_api.request.definition_query import DefinitionQuery
from tistream_api.request.meta_paths import at_meta
from tistream_api.request.raw_path import name_of
from tistream_api.request.restore_body import RESTORE_ID
from tistream_api.routes import openapi
from tistream_api.routes.read_callers import read_caller_of, readable, watched
from tistream_api.undo.undo_reads import UndoReads

TENANT = "/v1/clusters/{cluster_id}/tenants/{tenant_id}"
RESTORE: list[str | Enum] = ["restore"]
RESTORES = TENANT + "/restores"


def build_restore_router(tenants: Tenants, definitions: Definitions, undos: UndoReads, guard: Gate) -> APIRouter:
    """Build the router of TableDefinition and UndoTransactions. Its routes must be behind the gate
    (admission/gate.py)."""
    router = APIRouter()

    def view_of(cluster_id: str, tenant_id: str) -> TenantView:
        return tenants.view(name_of(cluster_id), name_of(tenant_id))

    @router.get(
        TENANT + "/databases/{db}/tables/{table}/definition",
        operation_id="TableDefinition",
        tags=RESTORE,
        responses=openapi.LIST_PROBLEMS,
    )
    @gate.READ_TABLE
    def table_definition(
        request: Request,
        cluster_id: str,
        tenant_id: str,
        db: str,
        table: str,
        query: Annotated[DefinitionQuery, Query()],
    ) -> dict[str, Any]:
        """TiDB's TableInfo, as JSON, of the table that had this name at `ts`."""
        ts = query.parsed(request.scope["query_string"])
        view = view_of(cluster_id, tenant_id)
        may_read = readable(caller_of(request).grants, view)
        return definitions.definition(view, Scope(view.tenant, name_of(db), name_of(table)), ts, may_read)

    @router.post(
        TENANT + "/undos",
        operation_id="UndoTransactions",
        tags=RESTORE,
        responses=openapi.POINT_PROBLEMS,
        openapi_extra=openapi.json_doc(undo_body.SCHEMA, optional=True),
    )
    @gate.READ_TENANT
    def undo_transactions(
        request: Request,
        cluster_id: str,
        tenant_id: str,
        body: Body,  # before `watched`, which takes what follows the body
        _: Annotated[None, Depends(watched)],
    ) -> dict[str, Any]:
        """Plan the undo of transactions: the rows that would change back, and the conflicts. With mode sql also the
        statements. Nothing is changed."""
        ask = undo_body.undo_request(body)
        view = view_of(cluster_id, tenant_id)
        return undos.undo(view, ask, read_caller_of(request, guard, view))

    return router


def build_platform_restore_router(
    tenants: Tenants, points: PointReads, meta: MetaClient, http: HttpClient, new_id: Callable[[], str]
) -> APIRouter:
    """Build the router of restores that the platform runs. Its routes must be behind the gate (admission/gate.py).
    `new_id` returns 32 hexadecimal digits. Beginning a restore requires a grant for the platform, because its target is
    written with the platform's own credentials."""
    router = APIRouter(tags=RESTORE)

    @router.post(
        RESTORES,
        operation_id="CreateRestore",
        response_model=RestoreInfo,
        status_code=202,
        responses=openapi.RESTORE_PROBLEMS,
        openapi_extra=openapi.json_doc(restore_body.SCHEMA, required=["scope", "ts", "target"]),
    )
    @gate.OPERATE_PLATFORM
    def create_restore(cluster_id: str, tenant_id: str, body: Body) -> Response:
        """Restore tables as of a ts into Parquet, SQL files or a server. The platform runs it. Returns 422 if no
        setting of the ingest service allows the target."""
        ask, ts = restore_body.restore_request(body)
        view = tenants.view(name_of(cluster_id), name_of(tenant_id))
        view.wait_fresh()
        at = points.times.readable(view, "ts", ts)
        names = _tables(points, view, Scope(view.tenant, ask.scope.database, ask.scope.table), at)
        urls = tenants.services("ingest")
        if not urls:
            raise Unavailable("no ingest process runs, and one must run the restore: start one (docs/restore.md)")
        http.send("POST", f"{urls[0]}/v1/restores/checks", CheckTarget(target=ask.target), Accepted)
        wanted = NewRestore(restore_id=new_id(), ts=str(at), tables=names, target=ask.target, if_exists=ask.if_exists)
        path = f"{at_meta(cluster_id, tenant_id)}/restores"
        answer = meta.request("POST", path, wanted.model_dump_json().encode())
        return Response(answer.content, answer.status_code, media_type="application/json")

    @router.get(RESTORES, operation_id="ListRestores", response_model=RestoreList, responses=openapi.TENANT_PROBLEMS)
    @gate.OPERATE_TENANT
    def list_restores(cluster_id: str, tenant_id: str) -> Response:
        """The restores of a tenant, newest first."""
        answer = meta.request("GET", f"{at_meta(cluster_id, tenant_id)}/restores")
        return Response(answer.content, answer.status_code, media_type="application/json")

    @router.get(
        RESTORES + "/{restore_id}",
        operation_id="GetRestore",
        response_model=RestoreInfo,
        responses=openapi.TENANT_PROBLEMS,
    )
    @gate.OPERATE_TENANT
    def get_restore(cluster_id: str, tenant_id: str, restore_id: str) -> Response:
        """The progress of a restore: the number of its rows, of the rows that are written, and the checksum once the
        target was compared."""
        answer = meta.request("GET", _one(cluster_id, tenant_id, restore_id))
        return Response(answer.content, answer.status_code, media_type="application/json")

    @router.delete(
        RESTORES + "/{restore_id}",
        operation_id="CancelRestore",
        response_model=RestoreInfo,
        responses=openapi.TENANT_PROBLEMS,
    )
    @gate.OPERATE_PLATFORM
    def cancel_restore(cluster_id: str, tenant_id: str, restore_id: str) -> Response:
        """Cancel a restore that is queued or running. The rows that it has written stay in the target."""
        answer = meta.request("DELETE", _one(cluster_id, tenant_id, restore_id))
        return Response(answer.content, answer.status_code, media_type="application/json")

    return router


def _one(cluster_id: str, tenant_id: str, restore_id: str) -> str:
    name = name_of(restore_id)
    if not RESTORE_ID.fullmatch(name):
        raise UnknownName(
            f"there is no restore {name[:80]!r}: an id has the form {RESTORE_ID.pattern}; ListRestores has the ids"
        )
    return f"{at_meta(cluster_id, tenant_id)}/restores/{name}"


def _tables(points: PointReads, view: TenantView, scope: Scope, ts: int) -> list[RestoreName]:
    """The base tables of the scope at `ts`. Raises UnknownName, Gone, NotComplete, TableImported, InvalidRequest,
    Unavailable."""
    if scope.table is not None:
        versions = [table_at(view.source, scope, ts, None)]
    else:
        if scope.database is not None and view.source.tables(ts, scope.database) is None:
            raise UnknownName(f"there is no database {scope.database} at {ts}: ListDBs with this ts has the names")
        versions = [one for one in view.source.tables_at(ts, scope) if one.head.kind == "table"]
    if not versions:
        raise UnknownName(f"the scope has no table at {ts}: ListTables with this ts has the names")
    if len(versions) > TABLES_MAX:
        raise InvalidRequest(
            f"scope: {len(versions)} tables, and a restore has at most {TABLES_MAX}: name single "
            f"{'databases' if scope.database is None else 'tables'}",
            {"parameter": "scope"},
        )
    check_complete(view.source, points.pool_reads(view, ts), versions, ts)
    return [RestoreName(database=one.database, table=one.head.name) for one in versions]
