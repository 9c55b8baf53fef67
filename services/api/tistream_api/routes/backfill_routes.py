"""HTTP routes of backfills (docs/backfill.md). They parse requests, call the parts of the server that answer them, and
translate the results."""

from __future__ import annotations

import re
from collections.abc import Callable

from fastapi import APIRouter
from fastapi.responses import Response

from tistream.errors import UnknownName
from tistream.follow.tenant_view import TenantView
from tistream.model.ids import TenantKey
from tistream.wire.bulk.backfills import (
    BackfillInfo,
    BackfillList,
    BackfillRow,
    BackfillStarted,
    BackfillSummary,
    StartBackfill,
)
from tistream.wire.clients.meta_client import MetaClient
from tistream_api.admission import gate
from tistream_api.request.bodies import Body, read
from tistream_api.request.meta_paths import at_meta
from tistream_api.request.raw_path import name_of
from tistream_api.routes import openapi
from tistream_api.routes.pull_routes import TENANT
from tistream_api.status.backfill_progress import BackfillProgress, summary

_BACKFILL = re.compile(r"b[1-9][0-9]{0,8}")
BACKFILLS = TENANT + "/backfills"


def build_backfill_router(
    meta: MetaClient, progress: BackfillProgress, view_of: Callable[[TenantKey], TenantView]
) -> APIRouter:
    """Build the router of backfills. Its routes must be behind the gate (admission/gate.py). Starting a backfill
    requires a grant for the platform, because its URL is read with the platform's own credentials."""
    router = APIRouter(tags=["tenant"])

    @router.post(
        BACKFILLS,
        operation_id="StartBackfill",
        response_model=BackfillStarted,
        status_code=202,
        responses=openapi.BACKFILL_PROBLEMS,
        openapi_extra=openapi.backfill_doc(),
    )
    @gate.OPERATE_PLATFORM
    def start_backfill(cluster_id: str, tenant_id: str, body: Body) -> Response:
        """Start a backfill: it adds the rows that tables had before the tenant's changes began. If a backfill with the
        same source and tables runs, the answer has that one. Returns 422, with the reason, if the source cannot be read
        for this tenant."""
        order = read(StartBackfill, body)
        path = f"{at_meta(cluster_id, tenant_id)}/backfills"
        answer = meta.request("POST", path, order.model_dump_json(exclude_unset=True).encode())
        return Response(answer.content, answer.status_code, media_type="application/json")

    @router.get(BACKFILLS, operation_id="ListBackfills", responses=openapi.TENANT_PROBLEMS)
    @gate.OPERATE_TENANT
    def list_backfills(cluster_id: str, tenant_id: str) -> BackfillList:
        """The backfills of a tenant, newest first."""
        key = TenantKey.parse(name_of(cluster_id), name_of(tenant_id))
        return BackfillList(backfills=list(map(summary, meta.backfills_of(key.cluster_id, key.tenant_id).backfills)))

    @router.get(BACKFILLS + "/{backfill_id}", operation_id="GetBackfill", responses=openapi.TENANT_PROBLEMS)
    @gate.OPERATE_TENANT
    def get_backfill(cluster_id: str, tenant_id: str, backfill_id: str) -> BackfillInfo:
        """One backfill, with the progress of each of its tables."""
        key = TenantKey.parse(name_of(cluster_id), name_of(tenant_id))
        row = meta.backfill(key.cluster_id, key.tenant_id, _id(backfill_id))
        return progress.of(view_of(key), row)

    @router.delete(BACKFILLS + "/{backfill_id}", operation_id="CancelBackfill", responses=openapi.CANCEL_PROBLEMS)
    @gate.OPERATE_TENANT
    def cancel_backfill(cluster_id: str, tenant_id: str, backfill_id: str) -> BackfillSummary:
        """Cancel a backfill: no more of its chunks are written or applied. The tenant keeps the rows that were applied.
        Returns 409 if it has finished or failed."""
        answer = meta.request("DELETE", f"{at_meta(cluster_id, tenant_id)}/backfills/{_id(backfill_id)}")
        return summary(BackfillRow.model_validate_json(answer.content))

    return router


def _id(text: str) -> str:
    name = name_of(text)
    if not _BACKFILL.fullmatch(name):
        raise UnknownName(
            f"there is no backfill {name[:80]!r}: an id has the form {_BACKFILL.pattern}; ListBackfills has the ids"
        )
    return name
