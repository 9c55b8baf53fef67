"""Plans backfills by SQL, and chooses the ts as of which each chunk is read.

The ts of a chunk is the tenant's resolved_ts in the schema registry when its job begins. The log has reached this TSO
of the upstream, so the schema of the rows is known, and tasks can take the chunk at once. The upstream must have issued
a higher TSO; otherwise it is not the tenant's cluster.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tistream.errors import InvalidRequest, Unavailable
from tistream.format.backfill.chunk_plan import ChunkPlan, table_id_of
from tistream.model.ids import TenantKey
from tistream.schema.history import History
from tistream.targets.mysql_url import MySqlUrl
from tistream.wire.bulk.backfills import BackfillRow
from tistream_ingest.sqlread import statements as sql
from tistream_ingest.sqlread.chunk_reading import SqlWork, check_identity
from tistream_ingest.sqlread.cutting import CHUNK_ROWS, cut_tables
from tistream_ingest.sqlread.read_table import ReadTable, table_now, tables_to_read
from tistream_ingest.sqlread.sql_server import SqlServer


@dataclass(frozen=True, slots=True)
class SqlBackfills:
    """Plans and prepares backfills by SQL. `history` returns a tenant's present schema history. `server` reads the
    address in a DSN file, and raises InvalidRequest if it cannot."""

    history: Callable[[TenantKey], History]
    server: Callable[[str], MySqlUrl]
    connect: Callable[[MySqlUrl], SqlServer] = SqlServer
    chunk_rows: int = CHUNK_ROWS

    def url(self, row: BackfillRow) -> MySqlUrl:
        """The address of the server that the request names. Raises InvalidRequest."""
        assert row.source.dsn_file is not None, "the meta server has checked the order"
        return self.server(row.source.dsn_file)

    def plan(self, row: BackfillRow) -> ChunkPlan:
        """Plan the backfill: divide the requested tables, as they are at the resolved_ts of the tenant's history, into
        chunks. A table whose row keys can neither be computed from SQL values nor be fetched from the server is left
        out; `refused` names it. Raises Unavailable if the caller may retry; InvalidRequest, also if the server lacks a
        table or its user may not see it."""
        history = self.history(_tenant(row))
        ts = history.resolved_ts
        assert row.snapshot_ts is not None
        if ts < row.snapshot_ts:
            raise Unavailable(f"the schema is known up to {ts}, and snapshot_ts is {row.snapshot_ts}")
        with self.connect(self.url(row)) as server:
            now = server.tso()
            if now < ts:
                raise InvalidRequest(
                    f"the server's TSO is {now}, below {ts}, which the log has reached: it is another cluster; name "
                    "the dsn_file of the tenant's own TiDB"
                )
            new_collations = server.new_collations()
            server.read_at(ts)
            tables = tables_to_read(history, ts, row.tables, new_collations=new_collations)
            refused = {one.physical_id for one in tables if _refusal(server, one) is not None}
            kept = [one for one in tables if one.physical_id not in refused]
            for one in kept:
                check_identity(server, one)
            return cut_tables(server, kept, ts, self.chunk_rows)

    def refused(self, row: BackfillRow, plan: ChunkPlan) -> str | None:
        """A text with the requested tables that the plan leaves out, each with the reason, and what to do; None if it
        leaves out no table. Raises Unavailable, InvalidRequest."""
        history = self.history(_tenant(row))
        planned = {table_id_of(span) for span in plan.spans}
        with self.connect(self.url(row)) as server:
            tables = tables_to_read(history, plan.min_ts, row.tables, new_collations=server.new_collations())
        left = {one.shown: one.encoding.reason for one in tables if one.physical_id not in planned}
        if not left:
            return None
        named = "; ".join(f"{name}: {reason}" for name, reason in sorted(left.items()))
        return f"SQL cannot read {len(left)} tables; the others are complete. Read these by br-full: {named}"

    def works(self, row: BackfillRow, plan: ChunkPlan, numbers: Sequence[int]) -> list[SqlWork]:
        """The work items for these chunks, with the present resolved_ts as base_ts. Raises Unavailable,
        InvalidRequest."""
        history = self.history(_tenant(row))
        ts = history.resolved_ts
        if ts < plan.min_ts:
            raise Unavailable(f"the schema is known up to {ts}, and the plan is as of {plan.min_ts}")
        with self.connect(self.url(row)) as server:
            new_collations = server.new_collations()
        return [
            SqlWork(
                _tenant(row),
                row.backfill_id,
                number,
                plan.spans[number],
                ts,
                table_now(history, table_id_of(plan.spans[number]), ts, new_collations=new_collations),
            )
            for number in numbers
        ]


def _refusal(server: SqlServer, table: ReadTable) -> str | None:
    """The reason why SQL cannot read a table; None if it can."""
    if table.encoding.reason is None:
        return None
    source = sql.source_of(table.database, table.name, table.partition)
    call = sql.upstream_key(table.encoding, table.database, table.name, table.partition)
    return None if server.accepts(f"SELECT {call} FROM {source} LIMIT 0") else table.encoding.reason


def _tenant(row: BackfillRow) -> TenantKey:
    return TenantKey(row.cluster_id, row.tenant_id)
