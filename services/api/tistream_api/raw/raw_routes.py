"""HTTP routes of RawKV. They parse requests, call the parts of the server that answer them, and translate the
results."""

from __future__ import annotations

from dataclasses import replace

from fastapi import APIRouter, Depends, Request
from fastapi.responses import Response, StreamingResponse

from tistream.follow.tenant_view import TenantView
from tistream.follow.tenants import Tenants
from tistream.wire.changes import RawValue
from tistream_api.admission import gate
from tistream_api.admission.gate import Gate
from tistream_api.encode.compression import coding_of
from tistream_api.encode.encoding import FORMATS
from tistream_api.points.point_reads import PointReads
from tistream_api.pull.start import Pulls
from tistream_api.raw.raw_queries import RawPull, RawValueOf
from tistream_api.raw.raw_value import RawKey, answer
from tistream_api.request.head_requests import is_head
from tistream_api.request.raw_path import name_of
from tistream_api.routes import openapi
from tistream_api.routes.point_routes import streamed
from tistream_api.routes.pull_routes import PULL, TENANT
from tistream_api.routes.read_callers import read_caller_of, watched


def build_raw_router(tenants: Tenants, pulls: Pulls, points: PointReads, guard: Gate) -> APIRouter:
    """Build the router of PullRaw and RawValue. Its routes must be behind the gate (admission/gate.py)."""
    router = APIRouter(tags=PULL)

    def view_of(cluster_id: str, tenant_id: str) -> TenantView:
        return tenants.view(name_of(cluster_id), name_of(tenant_id))

    @router.get(
        TENANT + "/raw/changes",
        operation_id="PullRaw",
        response_class=StreamingResponse,
        dependencies=[Depends(watched)],
        responses=openapi.PULL_PROBLEMS,
        openapi_extra=openapi.pull_doc(),
    )
    @gate.READ_TENANT
    def pull_raw(request: Request, cluster_id: str, tenant_id: str, query: RawPull) -> Response:
        """Changes of RawKV, in the order of their timestamps. The expiry of a value gives no event: readers must apply
        `expire_at`."""
        view = view_of(cluster_id, tenant_id)
        params = query.parsed(coding_of(request.headers.get("accept-encoding"), query.format))
        if is_head(request.scope):  # it does not wait
            params = replace(params, wait_ms=0)
        asking = read_caller_of(request, guard, view)
        found = pulls.answer(
            view, query.scope(view.tenant), params, asking.still, asking.rows, asking.has_slot, None, asking.gone
        )
        return streamed(request, found, params.coding, FORMATS[params.format].media_type)

    @router.get(
        TENANT + "/raw/value",
        operation_id="RawValue",
        dependencies=[Depends(watched)],
        responses=openapi.POINT_PROBLEMS,
    )
    @gate.READ_TENANT
    def read_raw_value(request: Request, cluster_id: str, tenant_id: str, query: RawValueOf) -> RawValue:
        """The value that a key of RawKV had at a time; 404 if it had no value, or the value had expired."""
        view = view_of(cluster_id, tenant_id)
        return answer(points, view, RawKey(query.keyspace, query.key), query.ts, read_caller_of(request, guard, view))

    return router
