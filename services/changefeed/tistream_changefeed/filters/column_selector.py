"""Column selectors: which columns of a table a feed sends. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from tistream.errors import InvalidRequest
from tistream.rules.column_rules import ColumnRules
from tistream.rules.table_rules import TableRules
from tistream.schema.tidb.table import Column, Table
from tistream.schema.visible import TableVersion
from tistream_changefeed.rows.handle_key import handle_columns, index_columns
from tistream_changefeed.rows.row_batch import RowBatch


@dataclass(frozen=True, slots=True)
class ColumnSelector:
    """One entry of `[[sink.column-selectors]]`: the tables that it matches, and the columns of these that are sent."""

    matcher: TableRules
    columns: ColumnRules

    def sent(self, table: Table) -> tuple[Column, ...]:
        """The columns of the table that are sent. Raises InvalidRequest if no column is left, or if the table has a
        handle key, and the columns contain neither that key nor another unique key whose columns are NOT NULL."""
        visible = table.visible_columns
        chosen = self.columns.chosen([column.name for column in visible])
        sent = tuple(column for column, included in zip(visible, chosen, strict=True) if included)
        if not sent:
            raise InvalidRequest(f"column-selectors leave no column of table {table.name!r}: include some")
        handle = handle_columns(table)
        missing = [column.name for column in handle if column not in sent]
        if missing and not _has_other_key(table, sent):
            raise InvalidRequest(
                f"column-selectors of table {table.name!r} leave out {missing[0]!r} of its key: include the primary key"
                " or a unique key whose columns are NOT NULL"
            )
        return sent


def _has_other_key(table: Table, sent: Sequence[Column]) -> bool:
    for index in table.indexes:
        columns = index_columns(table, index.name) or ()
        if index.unique and columns and all(column.not_null and column in sent for column in columns):
            return True
    return False


def selected(batch: RowBatch, columns: Sequence[Column]) -> RowBatch:
    """The batch with only these columns. Columns of the handle key that are not sent are removed from the key, too.
    Call this after filters, the split and the dispatcher, because these may use other columns."""
    places = [place for place, column in enumerate(batch.columns) if column in columns]
    return replace(
        batch,
        columns=tuple(batch.columns[place] for place in places),
        handle=tuple(column for column in batch.handle if column in columns),
        new=[batch.new[place] for place in places],
        old=[batch.old[place] for place in places],
    )


def selector_of(selectors: Sequence[ColumnSelector], version: TableVersion) -> ColumnSelector | None:
    """The first selector that matches the table; None if no selector does."""
    return next((one for one in selectors if one.matcher.matches(*version.name)), None)
