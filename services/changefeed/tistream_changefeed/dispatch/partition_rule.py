"""Computes the partition of each row event from a rule of TiCDC: a hash of the table's name, of an index, of columns,
or of the commit_ts. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
import pyarrow as pa

from tistream.arrays import Int64s
from tistream.decode.cells.kinds import Kind, kind_of
from tistream.decode.kernels.column_views import ColumnViews
from tistream.errors import InvalidRequest
from tistream.filters.elements import numbers
from tistream.schema.tidb import table as t
from tistream.schema.tidb.table import Column, Table
from tistream.schema.visible import TableVersion, fold
from tistream_changefeed.dispatch.crc_kernel import Form, crc_of, xor_columns
from tistream_changefeed.protocols.columns.json_spacing import spaced
from tistream_changefeed.rows.handle_key import handle_columns, index_columns
from tistream_changefeed.rows.row_batch import RowBatch


class PartitionBy(StrEnum):
    """The facts about a row event on which its partition can depend."""

    TABLE = "table"
    INDEX = "index-value"
    COLUMNS = "columns"
    TS = "ts"


_NAMES = {
    "default": PartitionBy.TABLE,
    "table": PartitionBy.TABLE,
    "index-value": PartitionBy.INDEX,
    "rowid": PartitionBy.INDEX,  # its deprecated name
    "columns": PartitionBy.COLUMNS,
    "ts": PartitionBy.TS,
}
_FORMS = {
    Kind.ENUM: Form.UINT,
    Kind.SET: Form.UINT,
    Kind.INT: Form.INT,
    Kind.UINT: Form.UINT,
    Kind.FLOAT: Form.SINGLE,
    Kind.DOUBLE: Form.DOUBLE,
}


class UnfitTable(InvalidRequest):
    """Raised if a table lacks the index or a column that its partition rule names, or if such a column is virtual or
    hidden."""

    code = "unfit-table"
    http_status = 422


@dataclass(frozen=True, slots=True)
class PartitionRule:
    """A rule that chooses the partition of a row event. `index` names the index that PartitionBy.INDEX hashes; None
    means the handle key. `columns` are the columns that PartitionBy.COLUMNS hashes."""

    by: PartitionBy = PartitionBy.TABLE
    index: str | None = None
    columns: tuple[str, ...] = ()

    @classmethod
    def named(cls, name: str, index: str | None = None, columns: Sequence[str] = ()) -> PartitionRule:
        """The rule with this name in a configuration. Unknown names mean PartitionBy.TABLE, as in TiCDC. Raises
        InvalidRequest if an index or columns are given that the rule does not use, or if the rule `columns` gets no
        columns."""
        by = _NAMES.get(name.lower(), PartitionBy.TABLE)
        if index and by is not PartitionBy.INDEX:
            raise InvalidRequest(f"partition = {name!r} uses no index: remove index = {index!r}, or use 'index-value'")
        if columns and by is not PartitionBy.COLUMNS:
            raise InvalidRequest(f"partition = {name!r} uses no columns: remove them, or use 'columns'")
        if by is PartitionBy.COLUMNS and not columns:
            raise InvalidRequest("partition = 'columns' needs a list of columns, for example columns = ['id']")
        return cls(by, index or None, tuple(columns))

    @staticmethod
    def known(name: str) -> bool:
        """Whether TiCDC knows a rule of this name."""
        return name.lower() in _NAMES

    def hashed(self, version: TableVersion) -> tuple[Column, ...]:
        """The columns of the table whose values are hashed to determine the partition. Raises UnfitTable if the
        table lacks the index or a column, or if a column is virtual or hidden, because its values are not in
        the changes."""
        table = version.table
        match self.by:
            case PartitionBy.TABLE | PartitionBy.TS:
                return ()
            case PartitionBy.INDEX:
                found = handle_columns(table) if self.index is None else index_columns(table, self.index)
                if found is None:
                    raise UnfitTable(
                        f"table {'.'.join(version.name)} has no unique index {self.index!r}, which partition ="
                        " 'index-value' names: create it, or let the dispatcher name another"
                    )
            case PartitionBy.COLUMNS:
                found = _columns(table, self.columns, ".".join(version.name))
        unknown = next((column.name for column in found if not column.visible), None)
        if unknown is not None:
            raise UnfitTable(
                f"column {unknown!r} of table {'.'.join(version.name)} is virtual or hidden, so its values are not in"
                " the changes: let the dispatcher name other columns"
            )
        return found

    def hashes(self, batch: RowBatch) -> Int64s:
        """A number for each event, not negative; modulo the number of partitions it is the event's partition. An event
        is hashed by its new row, or a delete by its old one. Raises UnfitTable."""
        if self.by is PartitionBy.TS:
            return batch.commit_ts
        out = np.full(len(batch), crc_of(*batch.version.name), np.int64)
        columns = self.hashed(batch.version)
        places = [batch.columns.index(column) for column in columns]
        for side, at in ((batch.new, batch.new_at), (batch.old, np.where(batch.new_at < 0, batch.old_at, -1))):
            events = np.flatnonzero(at >= 0)
            if len(events) and places:
                arrays, forms = _texts([(batch.columns[place], side[place]) for place in places])
                names = self._spelled(batch.version.table, columns)
                xor_columns(out, events, at[events], names, forms, ColumnViews(arrays))
        return out

    def partitions(self, batch: RowBatch, count: int) -> Int64s:
        """The partition of each event, if the topic has `count` partitions. Raises UnfitTable."""
        return self.hashes(batch) % count

    def _spelled(self, table: Table, columns: Sequence[Column]) -> list[str]:
        """The names of the columns with the upper and lower case in which they are hashed: that of the index definition
        if the rule names an index, otherwise that of the table."""
        if self.by is PartitionBy.INDEX and self.index is not None:
            for index in table.indexes:
                if index.public and (index.unique or index.primary) and index.name.lower() == self.index.lower():
                    spelled = {part.offset: part.name for part in index.columns}
                    return [spelled[column.offset] for column in columns]
        return [column.name for column in columns]


def _columns(table: Table, names: Sequence[str], shown: str) -> tuple[Column, ...]:
    by_name = {fold(column.name): column for column in table.columns if column.public}
    missing = [name for name in names if fold(name) not in by_name]
    if missing:
        raise UnfitTable(
            f"table {shown} has no column {missing[0]!r}, which partition = 'columns' names: let the dispatcher match"
            " only tables that have it"
        )
    return tuple(by_name[fold(name)] for name in names)


def _texts(columns: Sequence[tuple[Column, pa.Array]]) -> tuple[list[pa.Array], list[Form]]:
    """Returns (the values of each column, how they are converted to the text that is hashed). ENUM and SET values are
    returned as numbers, and JSON documents as TiDB shows them."""
    arrays = [_hashed(column, array) for column, array in columns]
    return arrays, [_FORMS.get(kind_of(column), Form.BYTES) for column, _ in columns]


def _hashed(column: Column, array: pa.Array) -> pa.Array:
    if column.tp in (t.ENUM, t.SET):
        return numbers(column, array)
    return spaced(array) if kind_of(column) is Kind.JSON else array
