"""The HTTP routes of the schema registry. They parse requests, call the Registry, and convert its results to
answers."""

from __future__ import annotations

from typing import Annotated

import orjson
from fastapi import APIRouter, Query, Request, Response

from tistream.clock import Clock
from tistream.errors import Gone, Unavailable
from tistream.model.ids import TenantKey
from tistream.model.ts import MAX_TS
from tistream.wire.schema import LogPage, SchemaStatus, SchemaView
from tistream_schema.registry import Registry
from tistream_schema.tenant_schema import TenantSchema
from tistream_schema.views import schema_view

router = APIRouter(prefix="/v1/clusters/{cluster_id}/tenants/{tenant_id}/schema")

Ts = Annotated[int, Query(ge=0, le=MAX_TS)]
WaitMs = Annotated[int, Query(ge=0, le=60_000)]


def _tenant(request: Request, cluster_id: str, tenant_id: str) -> TenantSchema:
    registry: Registry = request.app.state.registry
    return registry.tenant(TenantKey.parse(cluster_id, tenant_id))


@router.get("", operation_id="Schema")
def schema(request: Request, cluster_id: str, tenant_id: str, ts: Ts | None = None) -> SchemaView:
    """The databases, tables and columns that exist at `ts`; without `ts`, the newest ones. Raises Gone below the known
    history, and Unavailable above it."""
    with _tenant(request, cluster_id, tenant_id).reading() as history:
        if ts is None:
            ts = history.resolved_ts
        if ts < history.base_ts:
            earliest = str(history.base_ts)
            raise Gone(f"{ts} is too old: the schema is known from {earliest} on", {"earliest_ts": earliest})
        if ts > history.resolved_ts:
            raise Unavailable(f"the schema is known up to {history.resolved_ts} so far: retry once it has reached {ts}")
        return schema_view(history, ts)


@router.get("/log", operation_id="SchemaLog", response_model=LogPage)
def schema_log(
    request: Request,
    cluster_id: str,
    tenant_id: str,
    after: Annotated[int, Query(ge=0)] = 0,
    known_resolved_ts: Ts = 0,
    known_base_ts: Ts = 0,
    wait_ms: WaitMs = 0,
) -> Response:
    """The records of the schema log after number `after`, as a LogPage."""
    clock: Clock = request.app.state.clock
    read = _tenant(request, cluster_id, tenant_id).read_log(
        after,
        known_resolved_ts,
        wait_ms,
        known_base_ts=known_base_ts,
        stopping=request.app.state.stopping.is_set,
        now_ms=clock.monotonic_ms,
    )
    head = {
        "log_id": read.log_id,
        "snapshot_ts": read.snapshot_ts,
        "base_ts": read.base_ts,
        "resolved_ts": read.resolved_ts,
        "begins": read.begins,
        "next_after": read.next_after,
        "more": read.more,
    }
    # The records are JSON already.
    body = orjson.dumps(head)[:-1] + b',"records":[' + b",".join(read.lines) + b"]}"
    return Response(body, media_type="application/json")


@router.get("/status", operation_id="SchemaStatus")
def schema_status(request: Request, cluster_id: str, tenant_id: str) -> SchemaStatus:
    """The ts up to which the schema is known, and what it waits for."""
    tenant = _tenant(request, cluster_id, tenant_id)
    sizes = tenant.sizes
    return SchemaStatus(
        cluster_id=cluster_id,
        tenant_id=tenant_id,
        snapshot_ts=tenant.snapshot_ts,
        base_ts=tenant.base_ts,
        resolved_ts=tenant.resolved_ts,
        durable_ts=sizes.durable_ts or None,
        records=sizes.records,
        log_objects=sizes.log_objects,
        holds=tenant.holds,
    )
