"""The rows of stores. Inside a transaction of the repository's."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import ColumnElement, Connection, bindparam, insert, select, update

from tistream.model.ids import TenantKey
from tistream_meta import tables
from tistream_meta.model import Store


def every(connection: Connection) -> tuple[Store, ...]:
    """By cluster, tenant and id."""
    stores = tables.stores
    rows = connection.execute(select(stores).order_by(stores.c.cluster_id, stores.c.tenant_id, stores.c.store_id))
    return tuple(Store(TenantKey(row.cluster_id, row.tenant_id), row.store_id, row.dispatcher_node) for row in rows)


def give(connection: Connection, given: Sequence[Store], now_ms: ColumnElement[int]) -> None:
    """Insert or update. Who asks need not know which: an earlier answer of the database may have been lost."""
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
