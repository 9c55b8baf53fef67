"""What a reader wants of the events of a tenant: tables, operations, columns, and rows by an expression. Pure."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

import numpy as np
import pyarrow as pa

from tistream.arrays import Bools, Int64s
from tistream.decode.cells.kinds import arrow_type, kind_of
from tistream.errors import InvalidRequest
from tistream.filters.expression import Expression
from tistream.filters.key_ranges import HandleRange, handle_ranges
from tistream.near import did_you_mean
from tistream.rules.column_rules import ColumnRules
from tistream.rules.rule_list import split_rules
from tistream.rules.table_rules import TableRules
from tistream.schema.ddl_event import DdlEvent
from tistream.schema.tidb.table import Column, Table
from tistream.schema.visible import Name, fold

OPERATIONS = ("insert", "update", "delete")
_FITTED_KEPT = 256
PARAMETERS = ("tables", "operations", "columns", "where")

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class EventChoice:
    """A filter of row events. `text` has the four parameters as the user wrote them; filters with equal texts are
    equal. A part that is None restricts nothing.

    An event is chosen if its operation is one of `operations`, and `where` is true of its row or of its old row. So a
    row that no longer fulfils `where` is noticed. A change of a key is a delete and an insert, as in the events.
    """

    text: tuple[str | None, ...]
    tables: TableRules | None = field(default=None, compare=False)
    operations: frozenset[str] | None = field(default=None, compare=False)
    columns: ColumnRules | None = field(default=None, compare=False)
    where: Expression | None = field(default=None, compare=False)
    # By the columns of `where` in a table: the error if their types do not fit.
    _fitting: dict[tuple[Column, ...], str | None] = field(default_factory=dict, compare=False, repr=False)
    _fitted: set[Hashable] = field(default_factory=set, compare=False, repr=False)  # keys that check_once has passed

    @classmethod
    def parse(
        cls, tables: str | None, operations: str | None, columns: str | None, where: str | None
    ) -> EventChoice | None:
        """Parse the four parameters; None if all of them are. `tables` and `columns` are rules, with commas between.
        Raises InvalidRequest, which names the parameter."""
        text = (tables, operations, columns, where)
        if text == (None,) * len(PARAMETERS):
            return None
        return cls(
            text,
            _parsed("tables", tables, lambda one: TableRules.parse(_rules(one, "shop.*,!shop.secret"))),
            _parsed("operations", operations, _operations),
            _parsed("columns", columns, lambda one: ColumnRules.parse(_rules(one, "id,total"))),
            _parsed("where", where, Expression.parse),
        )

    def includes(self, name: Name) -> bool:
        """Whether the rules include a table of this name."""
        return self.tables is None or self.tables.matches(*name)

    def sends(self, event: DdlEvent) -> bool:
        """Whether a DDL event is chosen: if the rules include a name that it involves or, for a DDL of a database, any
        table that the database may have."""
        if self.tables is None:
            return True
        if not event.table:
            return self.tables.matches_schema(event.database)
        named = [name for name in event.involved if name[1]] or [(event.database, event.table)]
        return bool(self.tables.chosen(named).any())

    def shown(self, table: Table) -> tuple[Column, ...]:
        """The columns of a table that its rows are sent with."""
        visible = table.visible_columns
        if self.columns is None:
            return visible
        chosen = self.columns.chosen([column.name for column in visible])
        return tuple(column for column, included in zip(visible, chosen, strict=True) if included)

    def needed(self, table: Table) -> tuple[Column, ...]:
        """The columns whose values are sent, or decide which rows are sent. These are all visible columns of the table
        if no rule restricts columns, or if the table lacks a column that `where` uses."""
        if self.columns is None:
            return table.visible_columns
        try:
            used = () if self.where is None else self.where.columns(table)
        except InvalidRequest:
            return table.visible_columns
        shown = self.shown(table)
        return tuple(column for column in table.visible_columns if column in shown or column in used)

    def check(self, table: Table) -> None:
        """Check that `where` can be evaluated for the rows of a table. Raises InvalidRequest, which names the
        parameter."""
        if self.where is None:
            return
        try:
            used = self.where.columns(table)
            if used not in self._fitting:
                self._fitting[used] = self._unfit(table)
            reason = self._fitting[used]
        except InvalidRequest as error:
            reason = str(error)
        if reason is not None:
            raise InvalidRequest(f"where: {reason}", {"parameter": "where"})

    def check_once(self, key: Hashable, tables: Callable[[], Iterable[Table]]) -> None:
        """Check that `where` can be evaluated for the rows of all tables. `tables` is called once for each key. Raises
        the error of `check`."""
        if self.where is None or key in self._fitted:
            return
        for table in tables():
            self.check(table)
        if len(self._fitted) >= _FITTED_KEPT:
            self._fitted.clear()
        self._fitted.add(key)

    def check_columns(self, *tables: Callable[[], Iterable[Table]]) -> None:
        """Check that each rule of `columns` without wildcards names a column of one of the tables. The functions, which
        return tables, are called in turn as long as a name is missing. If they return no table, nothing is checked.
        Raises InvalidRequest, whose text proposes a similar name."""
        if self.columns is None:
            return
        names: list[str] = []
        missing = self.columns.literals
        for some in tables:
            found = (column.name for table in some() for column in table.visible_columns)
            names = list(dict.fromkeys([*names, *found]))
            known = {fold(name) for name in names}
            missing = [name for name in missing if name not in known]
            if not missing:
                return
        if names:
            raise InvalidRequest(
                f"columns: no table of this call has a column {missing[0]!r}{did_you_mean(missing[0], names)}: "
                "correct it, or leave it out",
                {"parameter": "columns"},
            )

    def keys(self, table: Table) -> tuple[HandleRange, ...] | None:
        """The ranges of handles outside of which no row can fulfil `where`; None: any row can."""
        return None if self.where is None else handle_ranges(self.where, table)

    def true_of(self, table: Table, columns: Sequence[Column], arrays: Sequence[pa.Array], at: Int64s) -> Bools:
        """Evaluate `where` for rows of a table. `arrays` has an array with the decoded values of each of `columns`;
        `at`: for each event, the index of its row in them, or -1 for an event without a row, which gives False. Without
        `where`, every row gives True. Raises InvalidRequest if the table lacks a column, or its type does not fit."""
        out: Bools = at >= 0
        there = np.flatnonzero(out)
        if self.where is None or not len(there):
            return out
        used = self.where.columns(table)
        rows = pa.array(at[there])
        out[there] = self.where.true_of(used, [arrays[columns.index(one)].take(rows) for one in used], len(there))
        return out

    def _unfit(self, table: Table) -> str | None:
        assert self.where is not None
        try:
            self.where.fits(table, lambda column: pa.array([], arrow_type(kind_of(column))))
        except InvalidRequest as error:
            return str(error)
        return None


def _parsed(parameter: str, text: str | None, parse: Callable[[str], T]) -> T | None:
    if text is None:
        return None
    try:
        return parse(text)
    except InvalidRequest as error:
        raise InvalidRequest(f"{parameter}: {error}", {"parameter": parameter}) from None


def _rules(text: str, right: str) -> list[str]:
    found = split_rules(text)
    if not found:
        raise InvalidRequest(f"{text[:80]!r} has no rule: write {right}, for example")
    return found


def _operations(text: str) -> frozenset[str]:
    found = [one.strip().lower() for one in text.split(",")]
    unknown = [one for one in found if one not in OPERATIONS]
    if unknown:
        raise InvalidRequest(
            f"{unknown[0][:80]!r} is not an operation{did_you_mean(unknown[0], OPERATIONS)}: use "
            f"{', '.join(OPERATIONS)}"
        )
    return frozenset(found)
