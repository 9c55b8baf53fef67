"""HTTP routes of reads at a point in time (docs/points-in-time.md). They parse requests, call the parts of the server
that answer them, and translate the results."""

from __future__ import annotations

import re
from collections.abc import Callable
from enum import Enum
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Query, Request
from fastapi.responses import Response, StreamingResponse

from tistream.errors import InvalidRequest
from tistream.follow.tenant_view import TenantView
from tistream.follow.tenants import Tenants
from tistream.model.ts import MAX_TS
from tistream.read.cursor import Scope
from tistream.wire.api import ChangeParts, RowParts
from tistream_api.admission import gate
from tistream_api.admission.gate import Gate
from tistream_api.encode.compression import coding_of
from tistream_api.encode.encoding import FORMATS
from tistream_api.points import point_cursor
from tistream_api.points.parts import PartReads
from tistream_api.points.point_reads import PointReads
from tistream_api.points.row_formats import MEDIA_TYPES
from tistream_api.pull.admitted import Answer
from tistream_api.pull.answer_response import AnswerResponse
from tistream_api.request import point_queries
from tistream_api.request.head_requests import is_head
from tistream_api.request.point_queries import ChangePartsQuery, DiffQuery, HistoryQuery, RowPartsQuery, RowsQuery
from tistream_api.request.raw_path import name_of
from tistream_api.routes import openapi
from tistream_api.routes.read_callers import read_caller_of, watched

TENANT = "/v1/clusters/{cluster_id}/tenants/{tenant_id}"
TABLE = TENANT + "/databases/{db}/tables/{table}"
POINTS: list[str | Enum] = ["points in time"]
_START_TS = re.compile(r"[0-9]{1,19}")


def build_point_router(tenants: Tenants, points: PointReads, guard: Gate) -> APIRouter:
    """Build the router of the reads of one table, and of GetTransaction. Its routes must be behind the gate
    (admission/gate.py)."""
    router = APIRouter()
    parts = PartReads(points)

    def view_of(cluster_id: str, tenant_id: str) -> TenantView:
        return tenants.view(name_of(cluster_id), name_of(tenant_id))

    def scope_of(view: TenantView, db: str, table: str) -> Scope:
        return Scope(view.tenant, name_of(db), name_of(table))

    @router.get(
        TABLE + "/rows",
        operation_id="ListRows",
        tags=POINTS,
        response_class=StreamingResponse,
        dependencies=[Depends(watched)],
        responses=openapi.POINT_PROBLEMS,
        openapi_extra=openapi.rows_doc(MEDIA_TYPES),
    )
    @gate.READ_TABLE
    def list_rows(
        request: Request, cluster_id: str, tenant_id: str, db: str, table: str, query: Annotated[RowsQuery, Query()]
    ) -> Response:
        """The rows as of `ts` of the table that has this name at `ts`, in the order of raw keys."""
        ask = query.parsed(request.scope["query_string"])
        view = view_of(cluster_id, tenant_id)
        coding = coding_of(request.headers.get("accept-encoding"), ask.format)
        asking = read_caller_of(request, guard, view)
        found = points.rows(view, scope_of(view, db, table), ask, asking, coding)
        return streamed(request, found, coding, MEDIA_TYPES[ask.format])

    @router.get(
        TABLE + "/rows/parts",
        operation_id="RowParts",
        tags=POINTS,
        dependencies=[Depends(watched)],
        responses=openapi.POINT_PROBLEMS,
    )
    @gate.READ_TABLE
    def row_parts(
        request: Request, cluster_id: str, tenant_id: str, db: str, table: str, query: Annotated[RowPartsQuery, Query()]
    ) -> RowParts:
        """Where to cut the rows as of `ts` into parts for several readers. Read each part with its `cursor` and
        `until`, and with the same range of keys."""
        ask = query.parsed(request.scope["query_string"])
        view = view_of(cluster_id, tenant_id)
        return parts.rows(view, scope_of(view, db, table), ask, read_caller_of(request, guard, view))

    @router.get(
        TABLE + "/changes/parts",
        operation_id="ChangeParts",
        tags=POINTS,
        dependencies=[Depends(watched)],
        responses=openapi.POINT_PROBLEMS,
    )
    @gate.READ_TABLE
    def change_parts(
        request: Request,
        cluster_id: str,
        tenant_id: str,
        db: str,
        table: str,
        query: Annotated[ChangePartsQuery, Query()],
    ) -> ChangeParts:
        """Where to cut the changes of a table into parts for several readers. Pull each part with its `start_ts` and
        `end_ts`."""
        ask = query.parsed(request.scope["query_string"])
        view = view_of(cluster_id, tenant_id)
        return parts.changes(view, scope_of(view, db, table), ask, read_caller_of(request, guard, view))

    @router.get(
        TABLE + "/history",
        operation_id="RowHistory",
        tags=POINTS,
        dependencies=[Depends(watched)],
        responses=openapi.POINT_PROBLEMS,
    )
    @gate.READ_TABLE
    def row_history(
        request: Request, cluster_id: str, tenant_id: str, db: str, table: str, query: Annotated[HistoryQuery, Query()]
    ) -> dict[str, Any]:
        """The versions of one row, newest first. If `next_to` is not null, continue with it as `to`."""
        ask = query.parsed(request.scope["query_string"])
        view = view_of(cluster_id, tenant_id)
        return points.history(view, scope_of(view, db, table), ask, read_caller_of(request, guard, view))

    @router.get(
        TENANT + "/transactions/{start_ts}",
        operation_id="GetTransaction",
        tags=POINTS,
        response_class=StreamingResponse,
        dependencies=[Depends(watched)],
        responses=openapi.POINT_PROBLEMS,
        openapi_extra=openapi.lines_doc(),
    )
    @gate.READ_TENANT
    def get_transaction(request: Request, cluster_id: str, tenant_id: str, start_ts: str) -> Response:
        """Every row event of one transaction, of all tables."""
        if not _START_TS.fullmatch(start_ts) or int(start_ts) > MAX_TS:
            raise InvalidRequest(
                f"start_ts {start_ts[:40]!r} is not a decimal number from 0 to {MAX_TS}: events have it as start_ts",
                {"parameter": "start_ts"},
            )
        view = view_of(cluster_id, tenant_id)
        coding = coding_of(request.headers.get("accept-encoding"), "ndjson")
        found = points.transaction(view, int(start_ts), read_caller_of(request, guard, view), coding)
        return streamed(request, found, coding, FORMATS["ndjson"].media_type)

    @router.get(
        TABLE + "/diff",
        operation_id="DiffTable",
        tags=POINTS,
        response_class=StreamingResponse,
        dependencies=[Depends(watched)],
        responses=openapi.POINT_PROBLEMS,
        openapi_extra=openapi.events_doc(),
    )
    @gate.READ_TABLE
    def diff_table(
        request: Request, cluster_id: str, tenant_id: str, db: str, table: str, query: Annotated[DiffQuery, Query()]
    ) -> Response:
        """The differences of a table between two timestamps: one event for each key that differs, shown by the table's
        definition at `to`."""
        ask = query.parsed(request.scope["query_string"])
        view = view_of(cluster_id, tenant_id)
        coding = coding_of(request.headers.get("accept-encoding"), ask.format)
        asking = read_caller_of(request, guard, view)
        found = points.diff(view, scope_of(view, db, table), ask, asking, coding)
        return streamed(request, found, coding, FORMATS[ask.format].media_type)

    return router


def streamed(request: Request, found: Answer, coding: str | None, media_type: str) -> Response:
    """Convert an answer to a streaming response. For a HEAD request only its headers are sent."""
    headers = {"Vary": "Accept-Encoding"} | ({"Content-Encoding": coding} if coding else {})
    if is_head(request.scope):
        found.close()
        return StreamingResponse(iter(()), headers=headers, media_type=media_type)
    return AnswerResponse(found, headers=headers, media_type=media_type)


Squash = Callable[[Request, TenantView, Scope], Response]


def squashed(points: PointReads, guard: Gate) -> Squash:
    """Make a function that answers a pull with squash=true, or with a snapshot."""

    def answer(request: Request, view: TenantView, scope: Scope) -> Response:
        query = request.scope["query_string"]
        snapshot = point_queries.snapshot_request(query, point_cursor.is_snapshot)
        if snapshot is not None:
            coding = coding_of(request.headers.get("accept-encoding"), "ndjson")
            begun = points.snapshot(view, scope, snapshot, read_caller_of(request, guard, view), coding)
            return streamed(request, begun, coding, FORMATS["ndjson"].media_type)
        ask = point_queries.squash_request(query)
        coding = coding_of(request.headers.get("accept-encoding"), ask.format)
        found = points.squash(view, scope, ask, read_caller_of(request, guard, view), coding)
        return streamed(request, found, coding, FORMATS[ask.format].media_type)

    return answer
