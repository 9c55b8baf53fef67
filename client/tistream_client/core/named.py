"""A tenant and a table by their names, and the arguments of their reads. Each client defines the objects that the reads
return."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from tistream_client.core import calls
from tistream_client.core.arguments import KeyLike
from tistream_client.core.calls import ChangesCall
from tistream_client.core.points import RowsQuery
from tistream_client.core.scope import Scope
from tistream_client.core.times import EARLIEST, NOW, Clock, TimeLike

ChangesT = TypeVar("ChangesT")
RowsT = TypeVar("RowsT")


@dataclass(frozen=True, slots=True)
class Reads(Generic[ChangesT, RowsT]):
    """The parts of a client that its methods for reads share: its clock, and functions that build the objects which the
    methods return. `changes` and `rows` get the checked arguments of a call."""

    clock: Clock
    changes: Callable[[ChangesCall], ChangesT]
    rows: Callable[[RowsQuery], RowsT]


class TenantReads(Generic[ChangesT, RowsT]):
    """Reads one tenant, which is one TiDB with its databases."""

    def __init__(self, reads: Reads[ChangesT, RowsT], scope: Scope) -> None:
        self._reads = reads
        self._scope = scope

    def __repr__(self) -> str:
        return f"Tenant({self._scope})"

    def table(self, database: str, table: str | None = None) -> TableReads[ChangesT, RowsT]:
        """A table by its name: `table("shop", "orders")`, or `table("shop.orders")`."""
        return TableReads(self._reads, calls.table_scope(self._scope, database, table))

    def changes(
        self,
        database: str | None = None,
        table: str | None = None,
        *,
        since: TimeLike = EARLIEST,
        until: TimeLike | None = None,
        cursor: str | None = None,
        columns: Sequence[str] | None = None,
        events: str = "all",
        page_size: int | None = None,
        tables: Sequence[str] | None = None,
        operations: Sequence[str] | None = None,
        where: str | None = None,
    ) -> ChangesT:
        """The changes of a table, of a database or of the tenant after `since`, up to and with `until`.

        `since` and `until` are an age (`"10m"`), a datetime with a zone, ISO 8601, a TSO, or `"now"`; `since` may be
        `"earliest"`. Without `until` a read ends at what was resolved when it began. `cursor` is that of an earlier
        page, and replaces `since`. `columns` are those of `row` and `old_row`; None: all. `events`: `"all"`, `"rows"`
        or `"ddl"`. `page_size`: the maximum number of events in a page; None: 10 000, or 100 000 as record batches. The
        call itself reads nothing: requests are sent when the result is iterated or converted.

        The server filters: `where="total > 100"` is a SQL expression that the row or the old row fulfils, `operations`
        are some of `"insert"`, `"update"`, `"delete"`, and `tables=["shop.*", "!shop.secret"]` are TiCDC's rules.

        Raises WrongArgument for an argument that cannot be used.
        """
        call = calls.changes_call(
            calls.changes_scope(self._scope, database, table),
            self._reads.clock,
            since=since,
            until=until,
            cursor=cursor,
            columns=columns,
            events=events,
            page_size=page_size,
            tables=tables,
            operations=operations,
            where=where,
        )
        return self._reads.changes(call)

    def rows(
        self,
        database: str,
        table: str | None = None,
        *,
        at: TimeLike = NOW,
        columns: Sequence[str] | None = None,
        key: KeyLike | None = None,
        from_key: KeyLike | None = None,
        to_key: KeyLike | None = None,
        page_size: int | None = None,
        where: str | None = None,
    ) -> RowsT:
        """The rows of a table as of the time `at`. Without `table`, `database` names both: `"shop.orders"`. `key={"id":
        1}` is one row; `from_key` (inclusive) and `to_key` (exclusive) are a range. `where="total > 100"` is a SQL
        expression, by which the server selects rows. `columns` None: all. `page_size`: the maximum number of rows in a
        page; None: 100 000. The call itself reads nothing: requests are sent when the result is iterated or converted.
        Raises WrongArgument for an argument that cannot be used."""
        query = calls.rows_query(
            calls.table_scope(self._scope, database, table),
            self._reads.clock,
            at=at,
            columns=columns,
            key=key,
            from_key=from_key,
            to_key=to_key,
            page_size=page_size,
            where=where,
        )
        return self._reads.rows(query)


class TableReads(Generic[ChangesT, RowsT]):
    """A table of a tenant, by its name. Its methods are those of TenantReads, without the arguments that name the
    table."""

    def __init__(self, reads: Reads[ChangesT, RowsT], scope: Scope) -> None:
        self._tenant = TenantReads(reads, scope.whole_tenant)
        self._database, self._table = scope.database or "", scope.table or ""

    def __repr__(self) -> str:
        return f"Table({self._database}.{self._table})"

    def changes(
        self,
        *,
        since: TimeLike = EARLIEST,
        until: TimeLike | None = None,
        cursor: str | None = None,
        columns: Sequence[str] | None = None,
        events: str = "all",
        page_size: int | None = None,
        operations: Sequence[str] | None = None,
        where: str | None = None,
    ) -> ChangesT:
        """The changes of the table: see TenantReads.changes."""
        return self._tenant.changes(
            self._database,
            self._table,
            since=since,
            until=until,
            cursor=cursor,
            columns=columns,
            events=events,
            page_size=page_size,
            operations=operations,
            where=where,
        )

    def rows(
        self,
        *,
        at: TimeLike = NOW,
        columns: Sequence[str] | None = None,
        key: KeyLike | None = None,
        from_key: KeyLike | None = None,
        to_key: KeyLike | None = None,
        page_size: int | None = None,
        where: str | None = None,
    ) -> RowsT:
        """The rows of the table: see TenantReads.rows."""
        return self._tenant.rows(
            self._database,
            self._table,
            at=at,
            columns=columns,
            key=key,
            from_key=from_key,
            to_key=to_key,
            page_size=page_size,
            where=where,
        )

    def at(self, at: TimeLike) -> RowsT:
        """All rows as of a time."""
        return self.rows(at=at)
