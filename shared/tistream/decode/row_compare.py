"""Whether two decoded rows show the same, without making text of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tistream.decode.arrow_buffers import I64, U8, Bools
from tistream.decode.column_views import ColumnViews
from tistream.decode.jit import inline, kernel
from tistream.decode.memory import carray, peek64, pointer
from tistream.decode.render_kernel import is_valid

_WORD = 8


def same_rows(arrays: Sequence[Any], left: I64, right: I64) -> Bools:
    """Where row `left[i]` equals row `right[i]` in every one of these columns: two nulls are equal, and so are floats
    of the same bits. The columns are those of `rows.decode_rows`."""
    out = np.ones(len(left), np.bool_)
    if len(left) and len(arrays):
        views = ColumnViews(arrays)
        _compare(
            left,
            right,
            views.values,
            views.value_bytes,
            views.offsets,
            views.rows,
            views.nulls,
            views.null_starts,
            views.widths,
            out,
        )
    return out


@kernel
def _compare(
    left: I64,
    right: I64,
    values: I64,
    value_bytes: I64,
    offsets: I64,
    rows: I64,
    nulls: I64,
    null_starts: I64,
    widths: I64,
    out: Bools,
) -> None:
    for pair in range(len(left)):
        a, b = left[pair], right[pair]
        same = True
        for column in range(len(values)):
            if nulls[column] != 0:
                there = is_valid(nulls[column], null_starts[column] + a)
                if there != is_valid(nulls[column], null_starts[column] + b):
                    same = False
                    break
                if not there:
                    continue
            if widths[column] == 0:
                bounds = carray(pointer(offsets[column]), (rows[column] + 1,), np.int64)
                data = carray(pointer(values[column]), (value_bytes[column],), np.uint8)
                same = _same_bytes(data, bounds[a], bounds[a + 1], bounds[b], bounds[b + 1])
            elif widths[column] == 4:
                singles = carray(pointer(values[column]), (rows[column],), np.uint32)
                same = singles[a] == singles[b]
            else:
                words = carray(pointer(values[column]), (rows[column],), np.int64)
                same = words[a] == words[b]
            if not same:
                break
        out[pair] = same


@inline
def _same_bytes(data: U8, first: int, last: int, other: int, other_last: int) -> bool:
    if last - first != other_last - other:
        return False
    while last - first >= _WORD:
        if peek64(data, first) != peek64(data, other):
            return False
        first += _WORD
        other += _WORD
    while first < last:
        if data[first] != data[other]:
            return False
        first += 1
        other += 1
    return True
