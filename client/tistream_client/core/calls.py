"""Checks the arguments of the clients' methods, and converts them to queries. Both clients use it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from tistream_client.core import arguments
from tistream_client.core.arguments import KeyLike
from tistream_client.core.errors import WrongArgument
from tistream_client.core.points import Key, Range, RowsQuery
from tistream_client.core.pull import PullQuery, RawQuery
from tistream_client.core.scope import Scope
from tistream_client.core.times import EARLIEST, NOW, Clock, TimeLike, ts_of
from tistream_client.core.ts import MAX_TS

EVENTS_A_PAGE = 10_000
ROWS_A_PAGE = 100_000


def tenant_scope(cluster: str | int, tenant: str) -> Scope:
    """The scope of a tenant. Raises WrongArgument if one of the ids is not valid."""
    return Scope(arguments.platform_id("cluster", cluster), arguments.platform_id("tenant", tenant))


def table_scope(tenant: Scope, database: str, table: str | None) -> Scope:
    """The scope of a table in the tenant. If `table` is None, `database` names both: `"shop.orders"`. Raises
    WrongArgument if a name is not valid."""
    return Scope(tenant.cluster, tenant.tenant, *arguments.table_name(database, table))


def database_scope(tenant: Scope, database: str) -> Scope:
    """The scope of a database in the tenant. Raises WrongArgument if the name is not valid."""
    return Scope(tenant.cluster, tenant.tenant, arguments.name("database", database, '"shop"'))


def changes_scope(tenant: Scope, database: str | None, table: str | None) -> Scope:
    """The scope of a pull: the tenant if `database` is None, the database if `table` is None, and otherwise the table.
    Raises WrongArgument if the names are not valid."""
    if database is None:
        if table is not None:
            raise WrongArgument("database", f"is missing beside table {table!r}", 'changes("shop", "orders")')
        return tenant
    return database_scope(tenant, database) if table is None else table_scope(tenant, database, table)


@dataclass(frozen=True, slots=True)
class ChangesCall:
    """The checked arguments of `changes`. `page_size` None: the default of the method that reads."""

    query: PullQuery
    page_size: int | None

    def of_events(self, *, follow: bool) -> PullQuery:
        """The query of a pull whose pages have events. With `follow`, raises WrongArgument if the call has an end."""
        _check_end(self.query.until, follow)
        return self._sized(EVENTS_A_PAGE, self.query.events)

    def of_rows(self, *, follow: bool) -> PullQuery:
        """The query of a pull whose pages have the rows of one table as Arrow. Raises WrongArgument if the call names
        no table or only DDL events, or has an end although `follow` is set."""
        _check_end(self.query.until, follow)
        if self.query.scope.table is None:
            raise WrongArgument("table", "is missing, and an Arrow stream has one table", 'changes("shop", "orders")')
        if self.query.events == "ddl":
            raise WrongArgument("events", 'is "ddl", and an Arrow stream has rows', 'pages(), or events="rows"')
        return self._sized(ROWS_A_PAGE, "rows")

    def at(self, cursor: str | None) -> ChangesCall:
        """A copy that begins at `cursor`; None: this object itself."""
        return self if cursor is None else replace(self, query=replace(self.query, cursor=cursor))

    def _sized(self, default: int, events: str) -> PullQuery:
        return replace(self.query, events=events, page_size=self.page_size or default)


def changes_call(
    scope: Scope,
    clock: Clock,
    *,
    since: TimeLike,
    until: TimeLike | None,
    cursor: str | None,
    columns: Sequence[str] | None,
    events: str,
    page_size: int | None,
    tables: Sequence[str] | None,
    operations: Sequence[str] | None,
    where: str | None,
) -> ChangesCall:
    """Check the arguments of `changes`. Raises WrongArgument."""
    rules = arguments.table_rules(tables)
    if rules is not None and scope.table is not None:
        raise WrongArgument("tables", f"is given beside table {scope.table!r}", 'changes("shop", tables=["shop.or*"])')
    if page_size is not None:
        arguments.page_size(page_size)
    low, high = _between(since, until, cursor, clock)
    query = PullQuery(
        scope,
        low,
        high,
        cursor,
        arguments.column_names(columns),
        arguments.events_kind(events),
        EVENTS_A_PAGE,
        rules,
        arguments.operation_kinds(operations),
        arguments.condition(where),
    )
    return ChangesCall(query, page_size)


@dataclass(frozen=True, slots=True)
class RawCall:
    """The checked arguments of `raw_changes`. `page_size` None: the default of the method that reads."""

    query: RawQuery
    page_size: int | None

    def of(self, default: int, *, follow: bool) -> RawQuery:
        """The query of a pull. Its pages have at most `default` events if `page_size` is None. With `follow`, raises
        WrongArgument if the call has an end."""
        _check_end(self.query.until, follow)
        return replace(self.query, page_size=self.page_size or default)

    def at(self, cursor: str | None) -> RawCall:
        """A copy that begins at `cursor`; None: this object itself."""
        return self if cursor is None else replace(self, query=replace(self.query, cursor=cursor))


def raw_call(
    scope: Scope,
    clock: Clock,
    *,
    since: TimeLike,
    until: TimeLike | None,
    cursor: str | None,
    keyspace: int | None,
    start_key: bytes | None,
    end_key: bytes | None,
    page_size: int | None,
) -> RawCall:
    """Check the arguments of `raw_changes`. Raises WrongArgument."""
    if page_size is not None:
        arguments.page_size(page_size)
    low, high = _between(since, until, cursor, clock)
    first, last = arguments.raw_key("start_key", start_key), arguments.raw_key("end_key", end_key)
    if keyspace is None and (first or last):
        raise WrongArgument("keyspace", "is missing beside a range of keys", 'keyspace=0, start_key=b"a"')
    if last and last <= first:
        raise WrongArgument("end_key", "does not lie above start_key", 'start_key=b"a", end_key=b"b"')
    query = RawQuery(scope, low, high, cursor, arguments.keyspace_id(keyspace), first, last, EVENTS_A_PAGE)
    return RawCall(query, page_size)


def _between(
    since: TimeLike, until: TimeLike | None, cursor: str | None, clock: Clock
) -> tuple[int | None, int | None]:
    """Convert the times of a pull to TSO: (since, None: the earliest; until, None: none is given). Checks the cursor
    too. Raises WrongArgument if an argument is not valid, or if `until` lies before `since`."""
    if cursor is not None:
        arguments.name("cursor", cursor, "the cursor of a page, or None")
    low = None if since == EARLIEST else ts_of("since", since, clock)
    high = None if until is None else ts_of("until", until, clock)
    if low is not None and high is not None and cursor is None and high < low:
        raise WrongArgument("until", f"{until!r} lies before since {since!r}", 'since="2h", until="1h"')
    return low, high


def _check_end(until: int | None, follow: bool) -> None:
    if follow and until is not None:
        raise WrongArgument("until", "is given, and a read that follows has no end", "changes(…, until=…).pages()")


def rows_query(
    scope: Scope,
    clock: Clock,
    *,
    at: TimeLike,
    columns: Sequence[str] | None,
    key: KeyLike | None,
    from_key: KeyLike | None,
    to_key: KeyLike | None,
    page_size: int | None,
    where: str | None,
) -> RowsQuery:
    """Check the arguments of `rows`. Raises WrongArgument."""
    if key is not None and (from_key is not None or to_key is not None):
        raise WrongArgument(
            "key", "names one row, and is given beside a range", 'key={"id": 1}, or from_key= and to_key='
        )
    return RowsQuery(
        scope,
        None if at == NOW else ts_of("at", at, clock),
        arguments.column_names(columns),
        arguments.key_of_row("key", key),
        arguments.key_of_row("from_key", from_key),
        arguments.key_of_row("to_key", to_key),
        ROWS_A_PAGE if page_size is None else arguments.page_size(page_size),
        arguments.condition(where),
    )


def range_of(since: TimeLike, until: TimeLike, clock: Clock) -> Range:
    """Convert the times of a read to a Range of TSO. Raises WrongArgument if one of them is not a time, or if `until`
    lies before `since`."""
    low = None if since == EARLIEST else ts_of("since", since, clock)
    high = None if until == NOW else ts_of("until", until, clock)
    if low is not None and high is not None and high < low:
        raise WrongArgument("until", f"{until!r} lies before since {since!r}", 'since="2h", until="1h"')
    return Range(low, high)


def row_key(key: KeyLike) -> Key:
    """Check the key of a row, and return a copy of it. Raises WrongArgument if it is None, or not a key."""
    found = arguments.key_of_row("key", key)
    if found is None:
        raise WrongArgument("key", "is None", 'key={"id": 1}')
    return found


def page_of_events(page_size: int | None) -> int:
    """Check the maximum number of events in a page, and return it; None becomes EVENTS_A_PAGE. Raises WrongArgument."""
    return EVENTS_A_PAGE if page_size is None else arguments.page_size(page_size)


def transaction_ts(start_ts: int) -> int:
    """Check the start_ts of a transaction, and return it. Raises WrongArgument if it is not a TSO above 0."""
    if isinstance(start_ts, bool) or not isinstance(start_ts, int) or not 0 < start_ts <= MAX_TS:
        raise WrongArgument("start_ts", f"is {start_ts!r}", "the start_ts of an event")
    return start_ts


def at_ts(at: TimeLike, clock: Clock) -> int | None:
    """Convert the time of a list to a TSO; None for `"now"`, which means the newest ts. Raises WrongArgument if it is
    not a time."""
    return None if at == NOW else ts_of("at", at, clock)
