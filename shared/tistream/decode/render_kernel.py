"""The kernel that writes decoded columns as JSON objects, row by row, straight from Arrow's buffers."""

from __future__ import annotations

from enum import IntEnum

import numpy as np

from tistream.decode.arrow_buffers import I64, U8
from tistream.decode.jit import i64, inline, kernel, u64
from tistream.decode.memory import carray, pointer
from tistream.decode.text_io import put_base64, put_double, put_int, put_quoted, put_raw, put_single, put_uint

_QUOTE = 0x22
_DOUBLE_EXPONENT = 0x7FF << 52
_SINGLE_EXPONENT = 0xFF << 23


class Form(IntEnum):
    """How a value is written."""

    INT = 0  # int64, a number
    UINT = 1  # uint64, a number
    INT_TEXT = 2  # int64, a quoted number
    UINT_TEXT = 3
    SINGLE = 4
    DOUBLE = 5
    ESCAPED = 6  # text
    QUOTED = 7  # text that needs no escape: digits and punctuation of numbers and times
    RAW = 8  # JSON text
    BASE64 = 9


_INT, _UINT, _INT_TEXT, _UINT_TEXT, _SINGLE, _DOUBLE, _ESCAPED, _QUOTED, _RAW, _BASE64 = (int(form) for form in Form)
_NULL = np.frombuffer(b"null", np.uint8)


@kernel
def render(
    rows: int,
    forms: I64,
    values: I64,
    value_bytes: I64,
    offsets: I64,
    nulls: I64,
    null_starts: I64,
    heads: U8,
    head_ends: I64,
    brackets: bool,
    out: U8,
    out_offsets: I64,
) -> None:
    """Write `rows` objects (or, without `brackets`, bare values) to `out`, which the caller made large enough.

    Column c has its values at address `values[c]` (`value_bytes[c]` of them), and if it is of bytes its int64
    offsets at `offsets[c]`; `nulls[c]` is the address of its validity bits (0: no nulls), whose first one is number
    `null_starts[c]`. `heads` holds for each column what comes before its value, such as `,"name":`.
    """
    at = 0
    out_offsets[0] = 0
    for row in range(rows):
        if brackets:
            out[at] = 0x7B
            at += 1
        head = 0
        for column in range(len(forms)):
            at = put_raw(out, at, heads, head, head_ends[column])
            head = head_ends[column]
            if nulls[column] != 0 and not _is_valid(nulls[column], null_starts[column] + row):
                at = put_raw(out, at, _NULL, 0, 4)
            elif forms[column] <= _DOUBLE:
                at = _put_number(out, at, forms[column], values[column], row)
            else:
                bounds = carray(pointer(offsets[column]), (rows + 1,), np.int64)
                data = carray(pointer(values[column]), (value_bytes[column],), np.uint8)
                at = _put_bytes(out, at, forms[column], data, bounds[row], bounds[row + 1])
        if brackets:
            out[at] = 0x7D
            at += 1
        out_offsets[row + 1] = at


@inline
def _is_valid(address: int, bit: int) -> bool:
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
