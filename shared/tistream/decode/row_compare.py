"""Compares rows that were decoded to Arrow columns, without rendering them as text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tistream.decode.kernels.arrow_buffers import I64, U8, Bools
from tistream.decode.kernels.column_views import ColumnViews
from tistream.decode.kernels.jit import inline, kernel
from tistream.decode.kernels.memory import carray, peek64, pointer
from tistream.decode.kernels.render_kernel import is_valid

_WORD = 8


def same_rows(left: Sequence[Any], right: Sequence[Any], rows: I64) -> Bools:
    """For each i, whether row `rows[i]` of `left` equals row `rows[i]` of `right` in every column. Two nulls are equal,
    and so are floats with the same bits. The columns have the form that `rows.decode_rows` returns."""
    out = np.ones(len(rows), np.bool_)
    if len(rows) and len(left):
        a, b = ColumnViews(left), ColumnViews(right)
        _compare(
            rows,
            a.widths,
            a.values,
            a.value_bytes,
            a.offsets,
            a.rows,
            a.nulls,
            a.null_starts,
            b.values,
            b.value_bytes,
            b.offsets,
            b.rows,
            b.nulls,
            b.null_starts,
            out,
        )
    return out


@kernel
def _compare(
    chosen: I64,
    widths: I64,
    values: I64,
    value_bytes: I64,
    offsets: I64,
    rows: I64,
    nulls: I64,
    null_starts: I64,
    other_values: I64,
    other_value_bytes: I64,
    other_offsets: I64,
    other_rows: I64,
    other_nulls: I64,
    other_null_starts: I64,
    out: Bools,
) -> None:
    for number in range(len(chosen)):
        row = chosen[number]
        same = True
        for column in range(len(values)):
            here = nulls[column] == 0 or is_valid(nulls[column], null_starts[column] + row)
            there = other_nulls[column] == 0 or is_valid(other_nulls[column], other_null_starts[column] + row)
            if not here or not there:
                same = here == there
            elif widths[column] == 0:
                bounds = carray(pointer(offsets[column]), (rows[column] + 1,), np.int64)
                other_bounds = carray(pointer(other_offsets[column]), (other_rows[column] + 1,), np.int64)
                data = carray(pointer(values[column]), (value_bytes[column],), np.uint8)
                other_data = carray(pointer(other_values[column]), (other_value_bytes[column],), np.uint8)
                size = bounds[row + 1] - bounds[row]
                same = size == other_bounds[row + 1] - other_bounds[row] and _same_bytes(
                    data, bounds[row], other_data, other_bounds[row], size
                )
            elif widths[column] == 4:
                singles = carray(pointer(values[column]), (rows[column],), np.uint32)
                same = singles[row] == carray(pointer(other_values[column]), (other_rows[column],), np.uint32)[row]
            else:
                words = carray(pointer(values[column]), (rows[column],), np.int64)
                same = words[row] == carray(pointer(other_values[column]), (other_rows[column],), np.int64)[row]
            if not same:
                break
        out[number] = same


@inline
def _same_bytes(data: U8, first: int, other_data: U8, other: int, size: int) -> bool:
    for at in range(0, size - _WORD + 1, _WORD):
        if peek64(data, first + at) != peek64(other_data, other + at):
            return False
    for at in range(size // _WORD * _WORD, size):  # noqa: SIM110  # kernels have no generators
        if data[first + at] != other_data[other + at]:
            return False
    return True
