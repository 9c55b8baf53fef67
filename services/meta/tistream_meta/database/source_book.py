"""The sources of tenants in the meta database. A removed source keeps its row, because a later source must be of the
same upstream cluster."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from sqlalchemy import ColumnElement, Connection, Row, and_, insert, select, update

from tistream.errors import AlreadyDiffers, UnknownName
from tistream.model.ids import TenantKey
from tistream_meta.audit import shown
from tistream_meta.database import audit_log, store_rows, tables, tenant_rows
from tistream_meta.database.audit_log import Write
from tistream_meta.database.transactions import Transactions
from tistream_meta.decide.model import Source, Tenant

T = TypeVar("T")

_SOURCES = tables.sources


class StoredSources:
    """Reads and writes the sources in the meta database. Each call is a transaction of its own, and raises the errors
    of the repository's calls."""

    def __init__(self, transactions: Transactions, write: Write, now_ms: ColumnElement[int]) -> None:
        self._transactions, self._write, self._now_ms = transactions, write, now_ms

    def every(self) -> tuple[tuple[Source, Tenant], ...]:
        """The sources of all tenants, each with its tenant. Removed sources are left out."""

        def body(connection: Connection) -> tuple[tuple[Source, Tenant], ...]:
            tenants = {one.key: one for one in tenant_rows.every(connection)}
            return tuple((one, tenants[one.tenant]) for one in _every(connection) if one.tenant in tenants)

        return self._transactions.run(body)

    def of_tenant(self, key: TenantKey) -> tuple[Tenant, tuple[Source, ...], frozenset[int]]:
        """Returns (the tenant, its sources including removed ones, the ids of the stores that push to it). Raises
        UnknownName."""

        def body(connection: Connection) -> tuple[Tenant, tuple[Source, ...], frozenset[int]]:
            stores = frozenset(
                one.store_id for one in store_rows.every(connection) if one.tenant == key and one.retired_ts is None
            )
            return tenant_rows.one(connection, key), _of_tenant(connection, key), stores

        return self._transactions.run(body)

    def add(
        self,
        key: TenantKey,
        kind: str,
        url: str,
        snapshot: tuple[str, str | None],
        upstream_id: str,
        also: Callable[[Connection], None] = lambda _: None,
    ) -> tuple[Source, bool]:
        """Add a source. `snapshot`: the kind of the place from which the tenant's schema comes, and its URL (None: the
        kind has none). `upstream_id`: the id of the upstream cluster that writes the log backup. Idempotent. Returns
        (the source, whether it is new). If it is new, `also` is called in the same transaction. Raises UnknownName, and
        AlreadyDiffers if the tenant has another source."""

        def body(connection: Connection) -> tuple[Source, bool]:
            source, new = _add(connection, key, kind, url, snapshot, upstream_id, self._now_ms)
            if new:
                audit_log.note(connection, self._now_ms, shown.source(source), None, shown.of_source(source))
                also(connection)
            return source, new

        return self._write(body)

    def remove(self, key: TenantKey, source_id: str) -> Source:
        """Mark a source as removed, and return it. Raises UnknownName if the tenant has no such source, or it was
        removed before."""

        def body(connection: Connection) -> Source:
            source = _remove(connection, key, source_id, self._now_ms)
            audit_log.note(connection, self._now_ms, shown.source(source), shown.of_source(source), None)
            return source

        return self._write(body)


def _of_tenant(connection: Connection, key: TenantKey) -> tuple[Source, ...]:
    """The sources of a tenant including removed ones, in the order in which they were added."""
    rows = connection.execute(select(_SOURCES).where(_of(key)))
    return tuple(sorted(map(_source, rows), key=lambda one: int(one.source_id.rpartition("-")[2])))


def _every(connection: Connection) -> tuple[Source, ...]:
    """The sources of all tenants, without removed ones, in the order of tenant and source id."""
    order = (_SOURCES.c.cluster_id, _SOURCES.c.tenant_id, _SOURCES.c.source_id)
    return tuple(
        map(_source, connection.execute(select(_SOURCES).where(_SOURCES.c.removed_ms.is_(None)).order_by(*order)))
    )


def _add(
    connection: Connection,
    key: TenantKey,
    kind: str,
    url: str,
    snapshot: tuple[str, str | None],
    upstream_id: str,
    now_ms: ColumnElement[int],
) -> tuple[Source, bool]:
    """Insert a source. Returns (the source, whether it is new). Raises UnknownName, and AlreadyDiffers if the tenant
    has another source."""
    tenant_rows.one(connection, key)
    known = _of_tenant(connection, key)
    for one in known:
        if one.removed:
            continue
        if (one.kind, one.url, (one.snapshot_kind, one.snapshot_url)) == (kind, url, snapshot):
            return one, False
        raise AlreadyDiffers(
            f"tenant {key} has the source {one.source_id} ({one.kind} {one.url}), and may have one: remove it first "
            "(`tistream source remove`)"
        )
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


def _remove(connection: Connection, key: TenantKey, source_id: str, now_ms: ColumnElement[int]) -> Source:
    """Mark a source as removed. Raises UnknownName."""
    there = {one.source_id: one for one in _of_tenant(connection, key) if not one.removed}
    if source_id not in there:
        names = ", ".join(sorted(there)) or "none"
        raise UnknownName(f"tenant {key} has no source {source_id[:80]!r}: it has {names}")
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
