"""HTTP routes of a tenant's sources. The meta server stores the list; the ingest processes report the status of each
source."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from fastapi import APIRouter
from fastapi.responses import Response

from tistream.errors import UnknownName
from tistream.model.ids import TenantKey
from tistream.wire.bulk.sources import SourceInfo, SourceRow, SourceStatus
from tistream.wire.clients.meta_client import MetaClient
from tistream_api.admission import gate
from tistream_api.request.bodies import Body
from tistream_api.request.meta_paths import at_meta
from tistream_api.request.raw_path import name_of
from tistream_api.routes import openapi
from tistream_api.routes.pull_routes import TENANT

_SOURCE = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,62}")


def build_source_router(meta: MetaClient, statuses: Callable[[TenantKey], Sequence[SourceStatus]]) -> APIRouter:
    """Build the router of sources. Its routes must be behind the gate (admission/gate.py). `statuses` returns the
    statuses that the ingest processes report. Adding a source requires a grant for the platform, because its URL is
    read with the platform's own credentials."""
    router = APIRouter(tags=["tenant"])

    @router.post(
        TENANT + "/sources",
        operation_id="AddSource",
        response_model=SourceRow,
        status_code=201,
        responses=openapi.SOURCE_PROBLEMS,
        openapi_extra=openapi.source_doc(),
    )
    @gate.OPERATE_PLATFORM
    def add_source(cluster_id: str, tenant_id: str, body: Body) -> Response:
        """Make a TiKV log backup the source of a tenant. Returns 409 if the tenant has another source, and 422, with
        the reason, if the bucket cannot be read as a log backup."""
        answer = meta.request("POST", f"{at_meta(cluster_id, tenant_id)}/sources", body)
        return Response(answer.content, answer.status_code, media_type="application/json")

    @router.get(
        TENANT + "/sources",
        operation_id="ListSources",
        responses=openapi.TENANT_PROBLEMS,
    )
    @gate.OPERATE_TENANT
    def list_sources(cluster_id: str, tenant_id: str) -> list[SourceInfo]:
        """The sources of a tenant, each with its progress and what it waits for."""
        key = TenantKey.parse(name_of(cluster_id), name_of(tenant_id))
        rows = meta.sources_of(key.cluster_id, key.tenant_id).sources
        known = {one.info.source_id: one.info for one in statuses(key)} if rows else {}
        unknown = (SourceInfo(source_id=row.source_id, kind=row.kind, state="starting") for row in rows)
        return [known.get(one.source_id, one) for one in unknown]

    @router.delete(
        TENANT + "/sources/{source_id}",
        operation_id="RemoveSource",
        response_model=SourceRow,
        responses=openapi.TENANT_PROBLEMS,
    )
    @gate.OPERATE_PLATFORM
    def remove_source(cluster_id: str, tenant_id: str, source_id: str) -> Response:
        """Remove a source. If some of its changes are being pushed at the moment, they still arrive. The tenant keeps
        all changes that were pushed."""
        name = name_of(source_id)
        if not _SOURCE.fullmatch(name):
            raise UnknownName(
                f"there is no source {name[:80]!r}: an id has the form {_SOURCE.pattern}; ListSources has the ids"
            )
        answer = meta.request("DELETE", f"{at_meta(cluster_id, tenant_id)}/sources/{name}")
        return Response(answer.content, answer.status_code, media_type="application/json")

    return router
