"""HTTP routes of restores. They parse requests, call RestoreBook and translate answers."""

from __future__ import annotations

import orjson
from fastapi import APIRouter, Request

from tistream.model.ids import TenantKey
from tistream.wire.bulk.restores import (
    ClaimedRestore,
    ClaimRestore,
    NewRestore,
    RestoreInfo,
    RestoreList,
    RestoreReport,
    RestoreTable,
    RestoreWork,
    UnfinishedRestore,
    UnfinishedRestores,
)
from tistream_meta.decide.restore_policy import Restore
from tistream_meta.restores.book import RestoreBook
from tistream_meta.routes.forwarding import OwnersRoute

router = APIRouter(route_class=OwnersRoute)
RESTORES = "/v1/clusters/{cluster_id}/tenants/{tenant_id}/restores"


@router.post(RESTORES, status_code=202, operation_id="CreateRestore")
def create_restore(request: Request, cluster_id: str, tenant_id: str, body: NewRestore) -> RestoreInfo:
    """Queue a restore. Idempotent by its id; 409 if the tenant has too many restores that are queued or running."""
    return info_of(_book(request).add(TenantKey.parse(cluster_id, tenant_id), body))


@router.get(RESTORES, operation_id="ListRestores")
def list_restores(request: Request, cluster_id: str, tenant_id: str) -> RestoreList:
    """The restores of a tenant, newest first."""
    found = _book(request).of_tenant(TenantKey.parse(cluster_id, tenant_id))
    return RestoreList(restores=[info_of(one) for one in found])


@router.get(RESTORES + "/{restore_id}", operation_id="GetRestore")
def get_restore(request: Request, cluster_id: str, tenant_id: str, restore_id: str) -> RestoreInfo:
    """One restore, with its progress."""
    return info_of(_book(request).one(TenantKey.parse(cluster_id, tenant_id), restore_id))


@router.delete(RESTORES + "/{restore_id}", operation_id="CancelRestore")
def cancel_restore(request: Request, cluster_id: str, tenant_id: str, restore_id: str) -> RestoreInfo:
    """Cancel a restore that is queued or running. The rows that it has written stay."""
    return info_of(_book(request).cancel(TenantKey.parse(cluster_id, tenant_id), restore_id))


@router.get("/upcall/v1/unfinished-restores", operation_id="UnfinishedRestores")
def unfinished_restores(request: Request) -> UnfinishedRestores:
    """The restores of all tenants that are queued or running. The ingest service deletes the plans of all others."""
    return UnfinishedRestores(
        restores=[
            UnfinishedRestore(
                cluster_id=one.tenant.cluster_id, tenant_id=one.tenant.tenant_id, restore_id=one.restore_id
            )
            for one in _book(request).unfinished()
        ]
    )


@router.post("/upcall/v1/restores/claims", operation_id="ClaimRestore")
def claim_restore(request: Request, body: ClaimRestore) -> ClaimedRestore:
    """Assign the next restore to an ingest process, if one is waiting."""
    found = _book(request).claim(body.node_id)
    if found is None:
        return ClaimedRestore(restore=None)
    key, wanted = found.tenant, NewRestore.model_validate_json(found.wanted)
    work = RestoreWork(cluster_id=key.cluster_id, tenant_id=key.tenant_id, epoch=found.epoch, wanted=wanted)
    return ClaimedRestore(restore=work)


@router.post(
    "/upcall/v1/clusters/{cluster_id}/tenants/{tenant_id}/restores/{restore_id}/reports", operation_id="ReportRestore"
)
def report_restore(
    request: Request, cluster_id: str, tenant_id: str, restore_id: str, body: RestoreReport
) -> RestoreInfo:
    """Store the progress of a restore. 409 if the claim under which it was made has ended."""
    return info_of(_book(request).report(TenantKey.parse(cluster_id, tenant_id), restore_id, body))


def info_of(one: Restore) -> RestoreInfo:
    """A restore as callers see it, without the location of its target."""
    wanted = NewRestore.model_validate_json(one.wanted)
    return RestoreInfo(
        restore_id=one.restore_id,
        state=one.state,
        ts=wanted.ts,
        target=wanted.target.kind,
        created_ms=str(one.created_ms),
        tables=[RestoreTable(**table) for table in orjson.loads(one.tables)],
        reason=one.reason,
    )


def _book(request: Request) -> RestoreBook:
    found: RestoreBook = request.app.state.restores
    return found
