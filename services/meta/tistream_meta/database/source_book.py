"""Sources in the meta database: part of the repository."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, TypeVar

from sqlalchemy import ColumnElement, Connection

from tistream.model.ids import TenantKey
from tistream_meta.audit import shown
from tistream_meta.database import audit_log, source_rows, store_rows, tenant_rows
from tistream_meta.database.transactions import Transactions
from tistream_meta.decide.model import Source, Tenant

T = TypeVar("T")


class Write(Protocol):
    """A transaction as the owner. Raises Fenced, Unavailable."""

    def __call__(self, body: Callable[[Connection], T]) -> T: ...


class SourceBook:
    """Each call is a transaction of its own, and raises as the repository's do."""

    def __init__(self, transactions: Transactions, write: Write, now_ms: ColumnElement[int]) -> None:
        self._transactions, self._write, self._now_ms = transactions, write, now_ms

    def every(self) -> tuple[tuple[Source, Tenant], ...]:
        """The sources of all tenants, with their tenants."""

        def body(connection: Connection) -> tuple[tuple[Source, Tenant], ...]:
            tenants = {one.key: one for one in tenant_rows.every(connection)}
            return tuple((one, tenants[one.tenant]) for one in source_rows.every(connection) if one.tenant in tenants)

        return self._transactions.run(body)

    def of_tenant(self, key: TenantKey) -> tuple[Tenant, tuple[Source, ...], frozenset[int]]:
        """A tenant, its sources (removed ones too), and the ids of the stores that push to it. Raises UnknownName."""

        def body(connection: Connection) -> tuple[Tenant, tuple[Source, ...], frozenset[int]]:
            stores = frozenset(
                one.store_id for one in store_rows.every(connection) if one.tenant == key and one.retired_ts is None
            )
            return tenant_rows.one(connection, key), source_rows.of_tenant(connection, key), stores

        return self._transactions.run(body)

    def add(
        self, key: TenantKey, kind: str, url: str, snapshot: tuple[str, str | None], upstream_id: str
    ) -> tuple[Source, bool]:
        """Add a source. Idempotent. Returns it, and whether it is new. Raises UnknownName, AlreadyDiffers."""

        def body(connection: Connection) -> tuple[Source, bool]:
            source, new = source_rows.add(connection, key, kind, url, snapshot, upstream_id, self._now_ms)
            if new:
                audit_log.note(connection, self._now_ms, shown.source(source), None, shown.of_source(source))
            return source, new

        return self._write(body)

    def remove(self, key: TenantKey, source_id: str) -> Source:
        """Remove a source. Raises UnknownName."""

        def body(connection: Connection) -> Source:
            source = source_rows.remove(connection, key, source_id, self._now_ms)
            audit_log.note(connection, self._now_ms, shown.source(source), shown.of_source(source), None)
            return source

        return self._write(body)
