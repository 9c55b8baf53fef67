"""Reads and writes the rows of stores. Every function runs inside a transaction of the repository."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import ColumnElement, Connection, Row, and_, bindparam, delete, insert, select, update

from tistream.errors import UnknownName
from tistream.model.ids import TenantKey
from tistream_meta.database import tables
from tistream_meta.decide.model import Store


def every(connection: Connection) -> tuple[Store, ...]:
    """All stores of all tenants, ordered by cluster, tenant and id."""
    stores = tables.stores
    rows = connection.execute(select(stores).order_by(stores.c.cluster_id, stores.c.tenant_id, stores.c.store_id))
    return tuple(map(_store, rows))


def retire(connection: Connection, tenant: TenantKey, store_id: int, through_ts: int) -> Store | None:
    """Mark a store as retired; its files up to `through_ts` will be deleted. Returns None if it was retired before.
    Raises UnknownName."""
    stores, values = tables.stores, {"dispatcher_node": None, "retired_ts": through_ts}
    known = connection.execute(select(stores).where(_is_key(tenant, store_id))).one_or_none()
    if known is None:
        names = connection.execute(
            select(stores.c.store_id)
            .where(stores.c.cluster_id == tenant.cluster_id, stores.c.tenant_id == tenant.tenant_id)
            .order_by(stores.c.store_id)
        ).scalars()
        there = ", ".join(map(str, names)) or "none"
        raise UnknownName(f"tenant {tenant} has no store {store_id}: it has {there}")
    if known.retired_ts is not None:
        return None
    connection.execute(update(stores).where(_is_key(tenant, store_id)).values(**values))
    return Store(tenant, store_id, None, through_ts)


def forget(connection: Connection, tenant: TenantKey, store_id: int) -> None:
    """Delete the row of a retired store."""
    stores = tables.stores
    connection.execute(delete(stores).where(_is_key(tenant, store_id), stores.c.retired_ts.is_not(None)))


def _is_key(tenant: TenantKey, store_id: int) -> ColumnElement[bool]:
    stores = tables.stores
    return and_(
        stores.c.cluster_id == tenant.cluster_id, stores.c.tenant_id == tenant.tenant_id, stores.c.store_id == store_id
    )


def _store(row: Row[Any]) -> Store:
    return Store(TenantKey(row.cluster_id, row.tenant_id), row.store_id, row.dispatcher_node, row.retired_ts)


def assign_stores(connection: Connection, given: Sequence[Store], now_ms: ColumnElement[int]) -> None:
    """Assign stores to dispatchers: update the rows that exist and insert the others. The caller may not know which
    rows exist, because an earlier answer of the database may have been lost."""
    stores = tables.stores
    known = {
        (tenant, store_id)
        for tenant in {store.tenant for store in given}
        for store_id in connection.execute(
            select(stores.c.store_id).where(
                stores.c.cluster_id == tenant.cluster_id, stores.c.tenant_id == tenant.tenant_id
            )
        ).scalars()
    }
    moved = [_values(store) for store in given if store.key in known]
    new = [_values(store) for store in given if store.key not in known]
    if moved:
        connection.execute(
            update(stores)
            .where(
                stores.c.cluster_id == bindparam("of_cluster"),
                stores.c.tenant_id == bindparam("of_tenant"),
                stores.c.store_id == bindparam("of_store"),
            )
            .values(dispatcher_node=bindparam("node")),
            moved,
        )
    if new:
        connection.execute(
            insert(stores).values(
                cluster_id=bindparam("of_cluster"),
                tenant_id=bindparam("of_tenant"),
                store_id=bindparam("of_store"),
                dispatcher_node=bindparam("node"),
                discovered_ms=now_ms,
            ),
            new,
        )


def _values(store: Store) -> dict[str, str | int | None]:
    return {
        "of_cluster": store.tenant.cluster_id,
        "of_tenant": store.tenant.tenant_id,
        "of_store": store.store_id,
        "node": store.dispatcher_node,
    }
