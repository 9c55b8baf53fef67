"""The kernel that renders lines of JSON from Arrow buffers. A line may combine rows of several tables."""

from __future__ import annotations

from enum import IntEnum

import numpy as np

from tistream.decode.kernels.arrow_buffers import I64, U8
from tistream.decode.kernels.jit import i64, inline, kernel, u64
from tistream.decode.kernels.memory import carray, pointer
from tistream.decode.kernels.text_io import (
    ESCAPED_BYTES_MAX,
    put_base64,
    put_double,
    put_int,
    put_quoted,
    put_raw,
    put_single,
    put_uint,
)

_QUOTE = 0x22
_DOUBLE_EXPONENT = 0x7FF << 52
_SINGLE_EXPONENT = 0xFF << 23


class Form(IntEnum):
    """The JSON form of a column's values."""

    INT = 0  # int64 as a number
    UINT = 1  # uint64 as a number
    INT_TEXT = 2  # int64 as a quoted number
    UINT_TEXT = 3
    SINGLE = 4
    DOUBLE = 5
    ESCAPED = 6  # text, with escapes
    QUOTED = 7  # text without characters to escape: digits and punctuation of numbers and times
    RAW = 8  # JSON text
    BASE64 = 9


# Columns of the kernel's array `groups`, which has one row per group.
FIRST_TEXT, FIRST_COLUMN, END_COLUMN, BRACKETS, SILENT, ITSELF = range(6)
GROUP_FACTS = 6

_INT, _UINT, _INT_TEXT, _UINT_TEXT, _SINGLE, _DOUBLE, _ESCAPED, _QUOTED, _RAW, _BASE64 = (int(form) for form in Form)
_NULL = np.frombuffer(b"null", np.uint8)


@kernel
def render(
    first: int,
    last: int,
    groups: I64,
    places: I64,
    forms: I64,
    values: I64,
    value_bytes: I64,
    offsets: I64,
    rows: I64,
    nulls: I64,
    null_starts: I64,
    texts: U8,
    text_ends: I64,
    line_bytes: int,
    out: U8,
    out_offsets: I64,
) -> tuple[int, int]:
    """Write the lines [first, last) to `out` until it is full. Return (the first line not written, the bytes that it
    needs), or (last, 0).

    A line consists of its groups in order and the last text. Group g begins with its first text. Its columns follow,
    each after a text, with the values of row `places[g, line]` (ITSELF: of row `line`). For a negative place the group
    is `null`, or empty (SILENT). `line_bytes` is an upper bound of a line's length without its byte strings.
    """
    at = 0
    out_offsets[0] = 0
    for line in range(first, last):
        if line_bytes > len(out) - at:
            return line, line_bytes + _bytes_bound(line, groups, places, forms, offsets, rows)
        for group in range(len(groups)):
            text = groups[group, FIRST_TEXT]
            at = _put_text(out, at, texts, text_ends, text)
            row = line if groups[group, ITSELF] else places[group, line]
            if row < 0:
                if not groups[group, SILENT]:
                    at = put_raw(out, at, _NULL, 0, 4)
                continue
            if groups[group, BRACKETS]:
                out[at] = 0x7B
                at += 1
            for column in range(groups[group, FIRST_COLUMN], groups[group, END_COLUMN]):
                text += 1
                at = _put_text(out, at, texts, text_ends, text)
                if nulls[column] != 0 and not is_valid(nulls[column], null_starts[column] + row):
                    at = put_raw(out, at, _NULL, 0, 4)
                elif forms[column] <= _DOUBLE:
                    at = _put_number(out, at, forms[column], values[column], row)
                else:
                    bounds = carray(pointer(offsets[column]), (rows[column] + 1,), np.int64)
                    size = bounds[row + 1] - bounds[row]
                    if line_bytes + size * (ESCAPED_BYTES_MAX if forms[column] == _ESCAPED else 2) > len(out) - at:
                        return line, line_bytes + _bytes_bound(line, groups, places, forms, offsets, rows)
                    data = carray(pointer(values[column]), (value_bytes[column],), np.uint8)
                    at = _put_bytes(out, at, forms[column], data, bounds[row], bounds[row + 1])
            if groups[group, BRACKETS]:
                out[at] = 0x7D
                at += 1
        at = _put_text(out, at, texts, text_ends, len(text_ends) - 1)
        out_offsets[line - first + 1] = at
    return last, 0


@inline
def _bytes_bound(line: int, groups: I64, places: I64, forms: I64, offsets: I64, rows: I64) -> int:
    """An upper bound of the bytes that a line's byte strings take as text."""
    total = i64(0)
    for group in range(len(groups)):
        row = line if groups[group, ITSELF] else places[group, line]
        if row >= 0:
            for column in range(groups[group, FIRST_COLUMN], groups[group, END_COLUMN]):
                if forms[column] >= _ESCAPED:
                    bounds = carray(pointer(offsets[column]), (rows[column] + 1,), np.int64)
                    size = bounds[row + 1] - bounds[row]
                    total += size * (ESCAPED_BYTES_MAX if forms[column] == _ESCAPED else 2)
    return total


@inline
def _put_text(out: U8, at: int, texts: U8, text_ends: I64, text: int) -> int:
    return put_raw(out, at, texts, text_ends[text - 1] if text > 0 else i64(0), text_ends[text])


@inline
def is_valid(address: int, bit: int) -> bool:
    """Whether a bit of a validity bitmap is set."""
    bits = carray(pointer(address), ((bit >> 3) + 1,), np.uint8)
    return bool((bits[bit >> 3] >> (bit & 7)) & 1)


@inline
def _put_number(out: U8, at: int, form: int, address: int, row: int) -> int:
    if form == _SINGLE:
        bits = i64(carray(pointer(address), (row + 1,), np.uint32)[row])
        if (bits & _SINGLE_EXPONENT) == _SINGLE_EXPONENT:
            return put_raw(out, at, _NULL, 0, 4)
        return put_single(out, at, bits)
    value = carray(pointer(address), (row + 1,), np.int64)[row]
    if form == _DOUBLE:
        if (value & _DOUBLE_EXPONENT) == _DOUBLE_EXPONENT:
            return put_raw(out, at, _NULL, 0, 4)
        return put_double(out, at, value, False)
    quoted = form in (_INT_TEXT, _UINT_TEXT)
    if quoted:
        out[at] = _QUOTE
        at += 1
    if form in (_INT, _INT_TEXT):
        at = put_int(out, at, value)
    else:
        at = put_uint(out, at, u64(value))
    if quoted:
        out[at] = _QUOTE
        at += 1
    return at


@inline
def _put_bytes(out: U8, at: int, form: int, data: U8, first: int, last: int) -> int:
    if form == _ESCAPED:
        return put_quoted(out, at, data, first, last)
    if form == _RAW:
        return put_raw(out, at, data, first, last)
    out[at] = _QUOTE
    if form == _QUOTED:
        at = put_raw(out, at + 1, data, first, last)
    else:
        at = put_base64(out, at + 1, data, first, last)
    out[at] = _QUOTE
    return at + 1
