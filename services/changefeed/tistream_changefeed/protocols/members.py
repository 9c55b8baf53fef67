"""Writes the members of a row's JSON object that differ from event to event: the values of all columns, or those that
an update changed. Pure."""

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
    """The indexes of the batch's columns that are among `columns`, in the batch's order."""
    return [place for place, column in enumerate(batch.columns) if column in columns]


def all_parts(
    batch: RowBatch, arrays: Sequence[Any], columns: Sequence[Column], head: Head, form: Forms, tail: str = ""
) -> list[LineColumn]:
    """The JSON members of these columns, as columns of a LineWriter. `head` returns the text before a column's value,
    and `form` how the value is written. `tail` is the text between a value and the comma after it; the caller adds it
    after the last value."""
    return [
        LineColumn(
            f"{tail + ',' if number else ''}{head(batch.columns[place])}", form(batch.columns[place]), arrays[place]
        )
        for number, place in enumerate(places_of(batch, columns))
    ]


def changed_parts(
    batch: RowBatch, columns: Sequence[Column], head: Head, form: Forms, tail: str = ""
) -> list[LineColumn]:
    """The JSON members with the old values of those of `columns` that an update changes, as columns of a LineWriter. A
    line has only the members of its own update. `head` and `form` are as in `all_parts`; `tail` is the text after a
    value."""
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
    """The kind of a column in a batch whose ENUM and SET values are numbers."""
    return kind_of(column, numbered=True)


def is_bytes(column: Column, *, faults: bool) -> bool:
    """Whether the values of a string column are sent as bytes. With `faults`, also text that was declared with the
    attribute BINARY, because TiCDC confuses its flag with the flag of byte strings."""
    return column.binary or (faults and column.tp in t.TEXTS and bool(column.flag & FLAG_BINARY))
