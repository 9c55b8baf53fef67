"""Event filters: which row events and DDL events of some tables a feed leaves out. Pure.

A filter sees a change of a row as it was committed, before a key update is split into a delete and an insert. So
`ignore-event = ["delete"]` keeps the delete half of a key update, and update expressions see key updates. TiCDC filters
after the split.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from tistream.arrays import Bools, Int64s
from tistream.decode.cells.kinds import arrow_type, kind_of
from tistream.errors import InvalidRequest
from tistream.filters.expression import Expression
from tistream.rules.pattern import Pattern, compiled
from tistream.rules.table_rules import TableRules
from tistream.schema.ddl_event import DdlEvent
from tistream.schema.tidb.table import Column, Table
from tistream.schema.visible import fold
from tistream_changefeed.filters.event_kinds import ignored_rows, ignores_ddl
from tistream_changefeed.rows.row_batch import RowBatch
from tistream_changefeed.rows.split import DELETE, INSERT, UPDATE, changed, kinds

REGEX_CHARS_MAX = 1_024


@dataclass(frozen=True, slots=True)
class EventFilter:
    """One entry of `[[filter.event-filters]]`. A change of a row of a table that `matcher` matches is left out if
    its kind is in `ignored`, if the expression for its kind is true for it, or if it is an update that changes only
    columns in `only_columns`. An expression is None if the entry does not have it. A DDL is left out if its kind is
    in `ignored`, or one of the patterns `sql` matches its statement."""

    matcher: TableRules
    ignored: frozenset[str] = frozenset()  # event_kinds.parse_kinds
    sql: tuple[Pattern, ...] = ()
    insert: Expression | None = None
    update_old: Expression | None = None
    update_new: Expression | None = None
    delete: Expression | None = None
    only_columns: tuple[str, ...] = ()  # an update that changes no others is left out

    def check(self, table: Table) -> None:
        """Check that the table has every column that the expressions and `only_columns` name, and that the
        types fit the expressions. Raises InvalidRequest."""
        for expression in (self.insert, self.update_old, self.update_new, self.delete):
            if expression is not None:
                expression.fits(table, lambda column: pa.array([], arrow_type(kind_of(column))))
        known = {fold(column.name) for column in table.columns if column.public}
        missing = [name for name in self.only_columns if fold(name) not in known]
        if missing:
            raise InvalidRequest(
                f"ignore-update-only-columns: table {table.name!r} has no column {missing[0]!r}: name columns that "
                "it has"
            )

    def rows(self, batch: RowBatch) -> tuple[Bools, Bools]:
        """Apply the filter to the changes of a table that it matches. Returns two masks. The first says whether a
        change is left out. The second says whether a change is an update whose old row the sink does not have, because
        the filter leaves out every insert of that row and every update to it: such an update must be sent as an insert.
        Raises InvalidRequest if the table lacks a column of an expression."""
        kind = kinds(batch)
        out = np.isin(kind, ignored_rows(self.ignored))
        update = kind == UPDATE
        for expression, chosen, old in (
            (self.insert, kind == INSERT, False),
            (self.update_old, update, True),
            (self.update_new, update, False),
            (self.delete, kind == DELETE, True),
        ):
            out |= _true_of(expression, batch, chosen & ~out, old=old)
        if self.only_columns:
            ignored = {fold(name) for name in self.only_columns}
            others = [column for column in batch.columns if fold(column.name) not in ignored]
            out |= update & ~changed(batch, others)
        fresh = np.zeros(len(batch), dtype=bool)
        if self.insert is not None and self.update_new is not None:
            kept = update & ~out
            fresh = _true_of(self.insert, batch, kept, old=True)
            fresh &= _true_of(self.update_new, batch, fresh, old=True)
        return out, fresh

    def columns(self, table: Table) -> list[Column]:
        """The columns of a table whose values decide which changes are left out. Raises InvalidRequest if the table
        lacks a column of an expression."""
        if self.only_columns:
            return list(table.visible_columns)
        chosen = (self.insert, self.update_old, self.update_new, self.delete)
        return [column for one in chosen if one is not None for column in one.columns(table)]

    def ignores(self, event: DdlEvent) -> bool:
        """Whether this DDL event, of a table that the filter matches, is left out."""
        return ignores_ddl(self.ignored, event) or any(bool(one.matches([event.query])[0]) for one in self.sql)


def parse_sql(texts: Sequence[str]) -> tuple[Pattern, ...]:
    """Compile the regular expressions of `ignore-sql`, which match any part of a statement. Raises InvalidRequest if
    one is invalid or longer than REGEX_CHARS_MAX."""
    for text in texts:
        if len(text) > REGEX_CHARS_MAX:
            raise InvalidRequest(
                f"ignore-sql {text[:40]!r}… has {len(text)} characters: at most {REGEX_CHARS_MAX} are accepted"
            )
    return tuple(compiled(text, folded=False) for text in texts)


def _true_of(expression: Expression | None, batch: RowBatch, chosen: Bools, *, old: bool) -> Bools:
    """For each event, whether the mask `chosen` selects it and the expression is true of its old or its new row."""
    out = np.zeros(len(batch), dtype=bool)
    events = np.flatnonzero(chosen)
    if expression is None or not len(events):
        return out
    columns = expression.columns(batch.version.table)
    side, at = (batch.old, batch.old_at) if old else (batch.new, batch.new_at)
    out[events] = expression.true_of(columns, _values(batch, columns, side, at[events]), len(events))
    return out


def _values(batch: RowBatch, columns: Sequence[Column], side: Sequence[pa.Array], at: Int64s) -> list[pa.Array]:
    rows = pa.array(at)
    return [side[batch.columns.index(column)].take(rows) for column in columns]


def as_inserts(batch: RowBatch, fresh: Bools) -> RowBatch:
    """The batch with some updates, selected by the mask `fresh`, converted to inserts."""
    return replace(batch, old_at=np.where(fresh, -1, batch.old_at)) if fresh.any() else batch
