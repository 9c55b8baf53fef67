"""HTTP routes of backfills. They parse requests, call the book and translate answers."""

from __future__ import annotations

from fastapi import APIRouter, Request

from tistream.errors import UnknownName
from tistream.model.ids import TenantKey
from tistream.wire.bulk.backfills import BackfillRow, BackfillRows, BackfillStarted, EndBackfill, StartBackfill
from tistream_meta.backfills.backfill_book import BackfillBook
from tistream_meta.backfills.backfill_rules import BackfillRules
from tistream_meta.routes.forwarding import OwnersRoute

router = APIRouter(route_class=OwnersRoute)
BACKFILLS = "/v1/clusters/{cluster_id}/tenants/{tenant_id}/backfills"


@router.post(BACKFILLS, status_code=202, operation_id="StartBackfill")
def start_backfill(request: Request, cluster_id: str, tenant_id: str, body: StartBackfill) -> BackfillStarted:
    """Start a backfill. 400 if the request is malformed, 422 if the source cannot be read for this tenant."""
    rules: BackfillRules = request.app.state.backfill_rules
    return BackfillStarted(backfill_id=rules.start(TenantKey.parse(cluster_id, tenant_id), body))


@router.get(BACKFILLS, operation_id="ListBackfills")
def list_backfills(request: Request, cluster_id: str, tenant_id: str) -> BackfillRows:
    """The backfills of a tenant, newest first."""
    return BackfillRows(backfills=_book(request).of_tenant(TenantKey.parse(cluster_id, tenant_id)))


@router.get(BACKFILLS + "/{backfill_id}", operation_id="GetBackfill")
def get_backfill(request: Request, cluster_id: str, tenant_id: str, backfill_id: str) -> BackfillRow:
    """One backfill."""
    key = TenantKey.parse(cluster_id, tenant_id)
    for one in _book(request).of_tenant(key):
        if one.backfill_id == backfill_id:
            return one
    raise UnknownName(f"tenant {key} has no backfill {backfill_id[:80]!r}: `tistream backfill list` has the ids")


@router.delete(BACKFILLS + "/{backfill_id}", operation_id="CancelBackfill")
def cancel_backfill(request: Request, cluster_id: str, tenant_id: str, backfill_id: str) -> BackfillRow:
    """Cancel a backfill: no more of its chunks are written or applied. Chunks that were applied stay."""
    return _book(request).end(TenantKey.parse(cluster_id, tenant_id), backfill_id, "cancelled")


@router.get("/upcall/v1/backfills", operation_id="RunningBackfills")
def running_backfills(request: Request) -> BackfillRows:
    """The backfills of all tenants that run, for sorters and the ingest service."""
    return BackfillRows(backfills=_book(request).running())


@router.get("/upcall/v1/ended-backfills", operation_id="EndedBackfills")
def ended_backfills(request: Request) -> BackfillRows:
    """The backfills of all tenants that have ended. The ingest service deletes their objects."""
    return BackfillRows(backfills=_book(request).ended())


@router.put(
    "/upcall/v1/clusters/{cluster_id}/tenants/{tenant_id}/backfills/{backfill_id}/end", operation_id="EndBackfill"
)
def end_backfill(request: Request, cluster_id: str, tenant_id: str, backfill_id: str, body: EndBackfill) -> BackfillRow:
    """Record that a backfill has finished or failed. Idempotent; 409 if it has ended in another way."""
    return _book(request).end(TenantKey.parse(cluster_id, tenant_id), backfill_id, body.state, body.reason)


def _book(request: Request) -> BackfillBook:
    book: BackfillBook = request.app.state.backfills
    return book
