"""Converts rows from the form of events to cells, which are values by column id and which tistream.restore.undo_plan
compares; and back. Pure. Values keep the form of events, except integers: those of BIGINT columns are strings in
events, and a column may have become a BIGINT since. Here every integer is an int."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import orjson

from tistream.decode.handle_bytes import ROWID
from tistream.restore.undo_plan import Cells
from tistream.schema.tidb import table as t
from tistream.schema.tidb.table import Column, Table

ROWID_COLUMN = -1  # stands for _tidb_rowid, which is no column


def cells_of(columns: Sequence[Column], row: Mapping[str, Any]) -> dict[int, Any]:
    """Convert the member `row` of an event to cells (values by column id). `columns` are the visible columns of the
    event's table version."""
    return {column.id: _compared(column, row[column.name]) for column in columns}


def shown_row(cells: Cells | None, columns: Mapping[int, Column]) -> dict[str, Any] | None:
    """Convert cells to the member `row` of an event, with the column names in `columns`; None stays None."""
    if cells is None:
        return None
    return {columns[one].name: _shown(columns[one], value) for one, value in cells.items()}


def identity(table: Table, key: Mapping[str, Any]) -> str:
    """A text that identifies a row of a table, whatever its columns are called: its key, by column id."""
    return orjson.dumps(list(key_cells(table, key).items())).decode()


def key_cells(table: Table, key: Mapping[str, Any]) -> dict[int, Any]:
    """Convert the key of an event to cells. `_tidb_rowid` has the id ROWID_COLUMN."""
    if not table.key_columns:
        return {ROWID_COLUMN: int(key[ROWID])}
    return {column.id: _compared(column, key[column.name]) for column in table.key_columns}


def shown_key(table: Table, cells: Cells) -> dict[str, Any]:
    """Convert a key from cells to the form of events: the inverse of key_cells. Raises KeyError if the table's key has
    other columns."""
    if not table.key_columns:
        return {ROWID: str(cells[ROWID_COLUMN])}
    return {column.name: _shown(column, cells[column.id]) for column in table.key_columns}


def same_key_columns(tables: Iterable[Table]) -> bool:
    """Whether the keys of these versions of a table have the same columns."""
    return len({tuple(column.id for column in table.key_columns) for table in tables}) <= 1


def _compared(column: Column, value: Any) -> Any:
    return int(value) if isinstance(value, str) and column.tp in t.INTEGERS else value


def _shown(column: Column, value: Any) -> Any:
    return str(value) if isinstance(value, int) and column.tp in (t.LONGLONG, t.BIT) else value
