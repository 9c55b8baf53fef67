"""HTTP routes of restores and undos (docs/restore.md). They parse, call and translate."""

from __future__ import annotations

from enum import Enum
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Query, Request

from tistream_api.admission import gate
from tistream_api.admission.gate import Gate
from tistream_api.points.table_definition import Definitions
from tistream_api.read.cursor import Scope
from tistream_api.request import undo_body
from tistream_api.request.bodies import Body
from tistream_api.request.definition_query import DefinitionQuery
from tistream_api.request.raw_path import name_of
from tistream_api.routes import openapi
from tistream_api.routes.asking import asking_of, watched
from tistream_api.tenant.tenant_view import TenantView
from tistream_api.tenant.tenants import Tenants
from tistream_api.undo.undo_reads import Undos

TENANT = "/v1/clusters/{cluster_id}/tenants/{tenant_id}"
RESTORE: list[str | Enum] = ["restore"]


def build_restore_router(tenants: Tenants, definitions: Definitions, undos: Undos, guard: Gate) -> APIRouter:
    """TableDefinition and UndoTransactions, to be included behind the gate."""
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
        """The TableInfo JSON of TiDB that was in force for the table with this name at `ts`."""
        ts = query.asked(request.scope["query_string"])
        view = view_of(cluster_id, tenant_id)
        return definitions.definition(view, Scope(view.tenant, name_of(db), name_of(table)), ts)

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
        """Plan the undo of transactions: what would change back, and what cannot. With mode sql also the statements.
        Changes nothing."""
        ask = undo_body.undo_ask(body)
        view = view_of(cluster_id, tenant_id)
        return undos.undo(view, ask, asking_of(request, guard, view))

    return router
