"""The rows of sources. Every function runs inside a transaction of the repository. A removed source keeps its row,
because a later one must be of the same upstream cluster."""

from __future__ import annotations

from typing import Any

from sqlalchemy import ColumnElement, Connection, Row, and_, insert, select, update

from tistream.errors import AlreadyDiffers, UnknownName
from tistream.model.ids import TenantKey
from tistream_meta.database import tables, tenant_rows
from tistream_meta.decide.model import Source

_SOURCES = tables.sources


def of_tenant(connection: Connection, key: TenantKey) -> tuple[Source, ...]:
    """The sources of a tenant in the order in which they were added, removed ones too."""
    rows = connection.execute(select(_SOURCES).where(_of(key)))
    return tuple(sorted(map(_source, rows), key=lambda one: int(one.source_id.rpartition("-")[2])))


def every(connection: Connection) -> tuple[Source, ...]:
    """The sources of all tenants, without removed ones."""
    order = (_SOURCES.c.cluster_id, _SOURCES.c.tenant_id, _SOURCES.c.source_id)
    return tuple(
        map(_source, connection.execute(select(_SOURCES).where(_SOURCES.c.removed_ms.is_(None)).order_by(*order)))
    )


def add(
    connection: Connection,
    key: TenantKey,
    kind: str,
    url: str,
    snapshot: tuple[str, str | None],
    upstream_id: str,
    now_ms: ColumnElement[int],
) -> tuple[Source, bool]:
    """Insert a source. Returns it, and whether it is new. Raises UnknownName, and AlreadyDiffers if the tenant has
    another source."""
    tenant_rows.one(connection, key)
    known = of_tenant(connection, key)
    for one in known:
        if one.removed:
            continue
        if (one.kind, one.url, (one.snapshot_kind, one.snapshot_url)) == (kind, url, snapshot):
            return one, False
        raise AlreadyDiffers(f"tenant {key} has the source {one.source_id} ({one.kind} {one.url}): remove it first")
    source = Source(key, f"log-{len(known) + 1}", kind, url, *snapshot, upstream_id)
    connection.execute(
        insert(_SOURCES).values(
            cluster_id=key.cluster_id,
            tenant_id=key.tenant_id,
            source_id=source.source_id,
            kind=kind,
            url=url,
            snapshot_kind=snapshot[0],
            snapshot_url=snapshot[1],
            upstream_id=upstream_id,
            created_ms=now_ms,
        )
    )
    return source, True


def remove(connection: Connection, key: TenantKey, source_id: str, now_ms: ColumnElement[int]) -> Source:
    """Mark a source as removed. Raises UnknownName."""
    there = {one.source_id: one for one in of_tenant(connection, key) if not one.removed}
    if source_id not in there:
        names = ", ".join(sorted(there)) or "none"
        raise UnknownName(f"tenant {key} has no source {source_id[:80]!r}; there are: {names}")
    connection.execute(update(_SOURCES).where(_of(key), _SOURCES.c.source_id == source_id).values(removed_ms=now_ms))
    return there[source_id]


def _of(key: TenantKey) -> ColumnElement[bool]:
    return and_(_SOURCES.c.cluster_id == key.cluster_id, _SOURCES.c.tenant_id == key.tenant_id)


def _source(row: Row[Any]) -> Source:
    return Source(
        TenantKey(row.cluster_id, row.tenant_id),
        row.source_id,
        row.kind,
        row.url,
        row.snapshot_kind,
        row.snapshot_url,
        row.upstream_id,
        row.removed_ms is not None,
    )
