"""Applies the filter of a pull before rows are read: checks it, and says which row groups and columns are not needed.
tistream.read.filtered selects events. Pure except for reads of the source."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

from tistream.errors import InvalidRequest
from tistream.filters.event_choice import EventChoice
from tistream.filters.key_ranges import HandleRange
from tistream.format.segment import OP_DELETE, OP_PUT
from tistream.model.ts import Window
from tistream.near import did_you_mean
from tistream.pool.versions.plan import record_prefix
from tistream.read.chosen_scope import ChosenScope
from tistream.read.cursor import Scope
from tistream.read.plan import GroupRef
from tistream.read.source import TenantSource
from tistream.read.source_contract import GroupStatistics, ScanSource
from tistream.schema.tidb.table import Column, Table
from tistream.schema.visible import TableVersion, fold

TableHandles = tuple[Table, Sequence[HandleRange] | None]


@dataclass(frozen=True, slots=True)
class NamedTables:
    """The tables of a pull with `tables` (TableChoice): those in its database that the rules include."""

    choice: EventChoice
    database: str | None  # in lower case

    def chosen(self, versions: Sequence[TableVersion]) -> Sequence[bool]:
        """For each version, whether the pull reads its rows."""
        assert self.choice.tables is not None
        included = self.choice.tables.chosen([one.name for one in versions]).tolist()
        return [taken and self.database in (None, one.folded[0]) for one, taken in zip(versions, included, strict=True)]


def scope_of(scope: Scope, choice: EventChoice | None) -> Scope:
    """The scope that a pull scans: `scope`, restricted to the tables that the filter names with `tables`, so that no
    row groups of other tables are read. Without such a filter, `scope` itself."""
    if choice is None or choice.tables is None:
        return scope
    database = None if scope.database is None else fold(scope.database)
    return ChosenScope(scope.tenant, scope.database, None, NamedTables(choice, database))


def check_choice(choice: EventChoice, source: TenantSource, scope: Scope, window: Window, *, begins: bool) -> None:
    """Check that tables and columns that a filter names exist, and that `where` can be evaluated for the tables at the
    window's low end or, if a pull begins there and no table exists there, at its high end. `begins`: the pull begins
    with a ts, not with a cursor; only then names that no object has in the window are refused. Raises InvalidRequest,
    which names the parameter and the near name."""
    if begins and choice.tables is not None:
        check_databases(choice, scope)
        for database, table in choice.tables.literals:
            _check_table(source, scope, window, database, table)
    key = scope, source.steady_key(window.low)

    def first_tables() -> list[Table]:
        found = _tables(choice, source, scope, window.low)
        return _tables(choice, source, scope, window.high) if begins and not found else found

    choice.check_once((key, begins), first_tables)
    if begins and choice.columns is not None:
        choice.check_columns(
            lambda: _tables(choice, source, scope, window.high),
            lambda: _tables(choice, source, scope, window.low),
            lambda: _of_choice(choice, source.tables_within(window, scope)),
        )


def check_databases(choice: EventChoice, scope: Scope) -> None:
    """Check that the tables that a filter names are in the database of `scope`, if it has one. No schema can change the
    result. Raises InvalidRequest, which names the parameter."""
    if choice.tables is None or scope.database is None:
        return
    for database, table in choice.tables.literals:
        if database != fold(scope.database):
            raise _wrong_rule(database, table, f"is not in database {scope.database}, which this call reads")


def _tables(choice: EventChoice, source: TenantSource, scope: Scope, ts: int) -> list[Table]:
    return _of_choice(choice, source.tables_at(ts, scope))


def _of_choice(choice: EventChoice, versions: Sequence[TableVersion]) -> list[Table]:
    return [version.table for version in versions if choice.includes(version.name)]


def _check_table(source: TenantSource, scope: Scope, window: Window, database: str, table: str) -> None:
    if source.name_exists(Scope(scope.tenant, database, table), window.low, window.high):
        return
    names = [f"{version.database}.{version.head.name}" for version in source.tables_at(window.high, scope)]
    near = did_you_mean(f"{database}.{table}", names)
    raise _wrong_rule(database, table, f"does not exist from {window.low} to {window.high}{near}")


def _wrong_rule(database: str, table: str, reason: str) -> InvalidRequest:
    return InvalidRequest(f"tables: {database}.{table} {reason}: correct the rule", {"parameter": "tables"})


@dataclass(frozen=True, slots=True)
class NeededBy:
    """The columns that a filtered pull needs (row_events.Needed)."""

    choice: EventChoice

    def __call__(self, version: TableVersion) -> Sequence[Column]:
        """The columns of a table whose values are decoded."""
        return self.choice.needed(version.table)


class Outside:
    """Excludes row groups by their statistics (source_contract.Excluded): row groups of keys for which `where` cannot
    be true, and row groups that give no event of the selected operations. Each scan has its own instance, which is not
    thread-safe."""

    def __init__(self, choice: EventChoice, scope: Scope, source: ScanSource) -> None:
        self._choice, self._scope, self._source = choice, scope, source
        self._window: Window | None = None
        # For each physical id in this window: its tables, with the handles that `where` selects. None: no row group of
        # the id can be excluded.
        self._known: dict[int, list[TableHandles] | None] = {}

    @property
    def key(self) -> Hashable:
        """Implement Excluded.key: equal for instances that exclude the same row groups."""
        return self._choice, self._scope

    def __call__(self, group: GroupRef, window: Window) -> bool:
        """Whether it is certain that no row of the group in the window gives an event that the filter selects."""
        physical_id = group.info.table_id_min
        if physical_id != group.info.table_id_max:
            return False  # rows of several small tables
        if window != self._window:
            self._window, self._known = window, {}
        if physical_id not in self._known:
            self._known[physical_id] = self._tables(physical_id, window)
        tables = self._known[physical_id]
        if tables is None:
            return False
        statistics = self._source.statistics(group)
        return all(
            _other_keys(statistics, physical_id, ranges) or self._other_operations(statistics, table)
            for table, ranges in tables
        )

    def _tables(self, physical_id: int, window: Window) -> list[TableHandles] | None:
        found = self._source.shapes(self._scope, [physical_id], window)
        versions = [one.version.table for one in found.intervals.get(physical_id, ()) if one.version is not None]
        try:
            for table in versions:
                self._choice.check(table)
        except InvalidRequest:
            return None  # its rows end the answer, so they are read
        tables: list[TableHandles] = [(table, self._choice.keys(table)) for table in versions]
        unbounded = self._choice.operations is None and any(ranges is None for _, ranges in tables)
        return None if unbounded or physical_id in found.unknown else tables

    def _other_operations(self, statistics: GroupStatistics, table: Table) -> bool:
        wanted = self._choice.operations
        if wanted is None or statistics.ops is None:
            return False
        if statistics.ops == (OP_DELETE, OP_DELETE):
            return "delete" not in wanted
        # A put is also the delete of another key, unless the handle is the key.
        fixed = table.key_columns == table.handle_columns and not table.is_common_handle
        return statistics.ops == (OP_PUT, OP_PUT) and wanted == {"delete"} and fixed


def _other_keys(statistics: GroupStatistics, physical_id: int, ranges: Sequence[HandleRange] | None) -> bool:
    if ranges is None or statistics.keys is None:
        return False
    first, last = statistics.keys
    prefix = record_prefix(physical_id)
    return not any(prefix + one.low <= last and (one.high is None or first < prefix + one.high) for one in ranges)
