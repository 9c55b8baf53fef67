"""The parts of a JSON object of a row that depend on an event: all columns, or those that an update changed. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tistream.decode.cells.kinds import Kind, kind_of
from tistream.decode.json_lines import LineColumn
from tistream.decode.kernels.render_kernel import Form
from tistream.schema.tidb import table as t
from tistream.schema.tidb.table import Column
from tistream_changefeed.rows.row_batch import RowBatch
from tistream_changefeed.rows.split import changed

FLAG_BINARY = 128

Head = Callable[[Column], str]
"""The text before the value of a column, from its name on."""
Forms = Callable[[Column], Form]


def places_of(batch: RowBatch, columns: Sequence[Column]) -> list[int]:
    """The indexes of these columns in the batch."""
    return [place for place, column in enumerate(batch.columns) if column in columns]


def all_parts(
    batch: RowBatch, arrays: Sequence[Any], columns: Sequence[Column], head: Head, form: Forms, tail: str = ""
) -> list[LineColumn]:
    """The members of these columns. `tail` stands between a value and the next comma; the caller adds the last one."""
    return [
        LineColumn(
            f"{tail + ',' if number else ''}{head(batch.columns[place])}", form(batch.columns[place]), arrays[place]
        )
        for number, place in enumerate(places_of(batch, columns))
    ]


def changed_parts(
    batch: RowBatch, columns: Sequence[Column], head: Head, form: Forms, tail: str = ""
) -> list[LineColumn]:
    """The old values, as a sparse group, of the columns among these that an update changes."""
    return [
        LineColumn(f",{head(column)}", form(column), batch.old[place], tail, changed(batch, [column]))
        for place in places_of(batch, columns)
        for column in [batch.columns[place]]
    ]


def check_numbered(batch: RowBatch) -> None:
    """Check that ENUM and SET values of the batch are numbers. Raises ValueError if they were decoded as names."""
    for column, array in zip(batch.columns, batch.new, strict=True):
        if column.tp in (t.ENUM, t.SET) and str(array.type) != "uint64":
            raise ValueError(f"column {column.name}: the protocol sends numbers of ENUM and SET, not {array.type}")


def numbered_kind(column: Column) -> Kind:
    """The kind of a column in a batch in which ENUM and SET values are numbers."""
    return kind_of(column, numbered=True)


def is_bytes(column: Column, *, faults: bool) -> bool:
    """Whether the values of a string column are sent as bytes. TiCDC also does so (`faults`) for text that was declared
    with the attribute BINARY, which has a flag of byte strings."""
    return column.binary or (faults and column.tp in t.TEXTS and bool(column.flag & FLAG_BINARY))
