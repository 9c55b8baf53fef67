"""Reads the schema and the committed rows of tenants, for restores."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tistream.errors import Unavailable, UnknownName
from tistream.model.ids import TenantKey
from tistream.pool.versions.plan import IndexShard
from tistream.schema.history import History
from tistream.schema.visible import fold
from tistream.targets.restored_table import Name
from tistream_ingest.restore.restore_attempt import TableAtTs


@dataclass(frozen=True, slots=True)
class TenantReads:
    """Implements restore_attempt.Tenants. `history` returns a tenant's schema history. `pool` returns the ts up to
    which its pool has every row, and its shards."""

    history: Callable[[TenantKey], History]
    pool: Callable[[TenantKey], tuple[int, Sequence[IndexShard]]]

    def tables(self, tenant: TenantKey, ts: int, names: Sequence[Name]) -> list[TableAtTs]:
        """Implement Tenants.tables: the tables with these names at the ts, in the order of `names`. Raises UnknownName
        if there is no such base table at that ts, Gone if the history does not reach back to it, Unavailable."""
        history = self.history(tenant)
        databases = {database for database, _ in names}
        found = {
            (fold(database), fold(version.head.name)): version
            for database in databases
            for version in history.visible_tables(ts, database)
        }
        tables = []
        for database, table in names:
            version = found.get((fold(database), fold(table)))
            if version is None or version.head.kind != "table":
                raise UnknownName(f"no table {database}.{table} at {ts}")
            name = (version.database, version.head.name)
            tables.append(TableAtTs(name, version.stored.info(), tuple(version.head.physical_ids)))
        return tables

    def shards(self, tenant: TenantKey, ts: int) -> Sequence[IndexShard]:
        """Implement Tenants.shards: all shards of the tenant's pool, in key order. Raises Unavailable if the pool does
        not have every row that was committed up to `ts` yet."""
        reached_ts, shards = self.pool(tenant)
        if reached_ts < ts:
            raise Unavailable(f"the pool of tenant {tenant} has reached {reached_ts}, and {ts} is to be read")
        return shards
