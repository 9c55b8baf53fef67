"""What TiCDC's open protocol gets wrong in the old values of `only-output-updated-columns`. Pure.

A column that became NULL is written without its name, which makes an object that readers refuse or misread. An old
value that is zero or empty is written as null.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from tistream.arrays import Bools, Int64s
from tistream.decode.cells.kinds import Kind
from tistream.decode.json_lines import Part
from tistream.decode.kernels.arrow_buffers import validity
from tistream.schema.tidb.table import Column
from tistream_changefeed.protocols.members import Forms, Head, numbered_kind, places_of
from tistream_changefeed.rows.row_batch import RowBatch
from tistream_changefeed.rows.split import changed

_NO_DIGIT_BUT_ZERO = "^[-0:. ]*$"
_DIGITS = frozenset({Kind.DECIMAL, Kind.TIME, Kind.DURATION})
_STRINGS = frozenset({Kind.TEXT, Kind.BINARY})
_NUMBERS = frozenset({Kind.ENUM_NUMBER, Kind.SET_NUMBER})


def updated_parts(batch: RowBatch, columns: Sequence[Column], head: Head, nameless: Head, form: Forms) -> list[Part]:
    """The old values of the columns that an update changes, for a sparse group. `nameless` is a head without the name
    of the column."""
    parts: list[Part] = []
    for place in places_of(batch, columns):
        column = batch.columns[place]
        moved = changed(batch, [column])
        became_null = moved & ~_valid(batch.new[place], batch.new_at)
        old = batch.old[place]
        zero = pc.fill_null(_zero(column, old), False)
        shown = pc.if_else(zero, pa.scalar(None, old.type), old) if pc.any(zero).as_py() else old
        parts.append(Part(f",{head(column)}", form(column), shown, "}", moved & ~became_null))
        if became_null.any():
            parts.append(Part(f",{nameless(column)}", form(column), old, "", became_null))
    return parts


def _valid(array: Any, at: Int64s) -> Bools:
    """For each event, whether its element of the array is there and not null."""
    if not len(array):
        return at < 0
    return validity(array)[at] & (at >= 0)


def _zero(column: Column, array: Any) -> Any:
    """For each element, whether it is the zero of its type; of types that TiCDC does not look at, none is."""
    kind = numbered_kind(column)
    if kind in _STRINGS:
        return pc.equal(pc.binary_length(array), 0)
    if kind in _NUMBERS:
        return pc.equal(array, pa.scalar(0, array.type))
    if kind in _DIGITS:
        return pc.match_substring_regex(array, _NO_DIGIT_BUT_ZERO)
    if kind is Kind.JSON:
        return pc.is_in(array, pa.array(["0", "0.0", "-0.0"], array.type))
    if kind is Kind.VECTOR:
        return pc.equal(array, pa.scalar("[]", array.type))
    return pa.nulls(len(array), pa.bool_())
