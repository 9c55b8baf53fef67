"""The HTTP route of SignedChanges."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends, Query, Request
from fastapi.responses import Response

from tistream.follow.tenants import Tenants
from tistream.read.cursor import Scope
from tistream.wire.signed import SignedChanges
from tistream_api.admission import gate
from tistream_api.admission.gate import Gate
from tistream_api.admission.metering import answer_meter_of
from tistream_api.request.raw_path import name_of
from tistream_api.request.signed_query import SignedQuery
from tistream_api.routes import openapi
from tistream_api.routes.point_routes import POINTS, TABLE
from tistream_api.routes.read_callers import read_caller_of, watched
from tistream_api.signed.signed_changes import SignedReads


def build_signed_router(tenants: Tenants, signed: SignedReads, guard: Gate) -> APIRouter:
    """Build the router of SignedChanges, which signs URLs of row groups. Its route must be behind the gate
    (admission/gate.py)."""
    router = APIRouter()

    @router.get(
        TABLE + "/changes/signed",
        operation_id="SignedChanges",
        tags=POINTS,
        dependencies=[Depends(watched)],
        responses=openapi.POINT_PROBLEMS,
    )
    @gate.READ_TABLE
    def signed_changes(
        request: Request,
        response: Response,
        cluster_id: str,
        tenant_id: str,
        db: str,
        table: str,
        query: Annotated[SignedQuery, Query()],
    ) -> SignedChanges:
        """Where to fetch the changes of a table from the object store: URLs that are good for some minutes, each for
        one row group of the table. The answer is about a part of the range; request the rest after its `end_ts`. The
        bytes count as served, whether or not they are fetched."""
        ask = query.parsed(request.scope["query_string"])
        view = tenants.view(name_of(cluster_id), name_of(tenant_id))
        scope = Scope(view.tenant, name_of(db), name_of(table))
        response.headers["Cache-Control"] = "no-store"
        count = answer_meter_of(request.scope).add_bytes
        return signed.changes(view, scope, ask, read_caller_of(request, guard, view), count)

    return router
