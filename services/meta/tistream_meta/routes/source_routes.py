"""HTTP routes of sources. They parse requests, call SourceRules and translate answers."""

from __future__ import annotations

from fastapi import APIRouter, Request

from tistream.model.ids import TenantKey
from tistream.wire.bulk.sources import AddSource, SourceRow, SourceRows
from tistream_meta.backfills.backfill_book import BackfillBook
from tistream_meta.decide import source_policy
from tistream_meta.decide.model import Source, Tenant
from tistream_meta.routes.forwarding import OwnersRoute
from tistream_meta.tenants.source_rules import SourceRules

router = APIRouter(route_class=OwnersRoute)
SOURCES = "/v1/clusters/{cluster_id}/tenants/{tenant_id}/sources"


@router.post(SOURCES, status_code=201, operation_id="AddSource")
def add_source(request: Request, cluster_id: str, tenant_id: str, body: AddSource) -> SourceRow:
    """Make a log backup the source of a tenant. Idempotent; 409 if the tenant has another source, 422 if this one
    cannot be used."""
    key = TenantKey.parse(cluster_id, tenant_id)
    rules = _rules(request)
    source = rules.add(key, body)
    return _row(source, rules.repository.sources.of_tenant(key)[0])


@router.get(SOURCES, operation_id="ListSources")
def list_sources(request: Request, cluster_id: str, tenant_id: str) -> SourceRows:
    """The sources of a tenant."""
    tenant, sources, _ = _rules(request).repository.sources.of_tenant(TenantKey.parse(cluster_id, tenant_id))
    return SourceRows(sources=[_row(one, tenant) for one in sources if not one.removed])


@router.delete(SOURCES + "/{source_id}", operation_id="RemoveSource")
def remove_source(request: Request, cluster_id: str, tenant_id: str, source_id: str) -> SourceRow:
    """Remove a source. Its ingest process sees this when it next looks at the list of sources; a release (a step that
    makes change files) that has begun by then still ends."""
    key = TenantKey.parse(cluster_id, tenant_id)
    rules = _rules(request)
    source = rules.remove(key, source_id)
    return _row(source, rules.repository.sources.of_tenant(key)[0])


@router.get("/upcall/v1/sources", operation_id="AllSources")
def all_sources(request: Request) -> SourceRows:
    """The sources of all tenants, for the ingest service."""
    book: BackfillBook = request.app.state.backfills
    backfills = book.of_tenants()
    found = _rules(request).repository.sources.every()
    return SourceRows(
        sources=[
            _row(source, tenant).model_copy(
                update={"rows_wait": source_policy.rows_wait(source, backfills.get(source.tenant, ()))}
            )
            for source, tenant in found
        ]
    )


def _rules(request: Request) -> SourceRules:
    found: SourceRules = request.app.state.source_rules
    return found


def _row(source: Source, tenant: Tenant) -> SourceRow:
    return SourceRow(
        cluster_id=source.tenant.cluster_id,
        tenant_id=source.tenant.tenant_id,
        source_id=source.source_id,
        kind=source.kind,
        url=source.url,
        snapshot_kind=source.snapshot_kind,
        snapshot_url=source.snapshot_url,
        snapshot_ts=tenant.snapshot_ts,
        index_keys=tenant.index_keys,
        paused=tenant.paused or tenant.erasing or tenant.delete_at_ms is not None,
    )
