"""Writes lines of CSV from Arrow buffers. Compiled with numba."""

from __future__ import annotations

from enum import IntEnum

import numpy as np

from tistream.decode.kernels.arrow_buffers import I64, U8
from tistream.decode.kernels.jit import i64, inline, kernel, u64
from tistream.decode.kernels.memory import carray, pointer
from tistream.decode.kernels.render_kernel import is_valid
from tistream.decode.kernels.shortest import double_digits, single_digits
from tistream.decode.kernels.text_io import put_base64, put_int, put_padded, put_raw, put_uint

VALUE_CHARS = 32  # of a number with its delimiter; a float has an exponent, so that it is short
GROWTH = 2  # the most bytes of text for each byte of a byte string
_ZERO, _POINT, _MINUS, _PLUS, _E = 0x30, 0x2E, 0x2D, 0x2B, 0x65
_LINE_FEED, _RETURN, _BACKSLASH, _N, _R = 0x0A, 0x0D, 0x5C, 0x6E, 0x72
_DOUBLE_SIGN, _SINGLE_SIGN = 0x7FFFFFFFFFFFFFFF, 0x7FFFFFFF
_DOUBLE_EXPONENT = 0x7FF << 52
_SINGLE_EXPONENT = 0xFF << 23
_POWER_MIN, _POWER_MAX = -4, 5  # Go's %v writes 1e-05 and 1e+06 with an exponent, what is between without
_HEX = np.frombuffer(b"0123456789abcdef", np.uint8)


class CellForm(IntEnum):
    """The ways in which the values of a column are written in CSV."""

    INT = 0  # int64
    UINT = 1
    SINGLE = 2
    DOUBLE = 3
    TEXT = 4
    BASE64 = 5
    HEX = 6


_INT, _UINT, _SINGLE, _DOUBLE = int(CellForm.INT), int(CellForm.UINT), int(CellForm.SINGLE), int(CellForm.DOUBLE)
_TEXT, _BASE64 = int(CellForm.TEXT), int(CellForm.BASE64)


@kernel
def text_bytes(places: I64, cells: I64, offsets: I64, rows: I64) -> int:
    """The total size in bytes of the texts and byte strings in the rows `places`. Negative places are skipped."""
    total = i64(0)
    for column in range(len(cells)):
        if cells[column] >= _TEXT:
            bounds = carray(pointer(offsets[column]), (rows[column] + 1,), np.int64)
            for place in places:
                if place >= 0:
                    total += bounds[place + 1] - bounds[place]
    return total


@kernel
def put_lines(
    ops: I64,
    places: I64,
    stamps: I64,
    heads: U8,
    head_ends: I64,
    flags: I64,
    flag_texts: U8,
    flag_ends: I64,
    cells: I64,
    values: I64,
    value_bytes: I64,
    offsets: I64,
    rows: I64,
    nulls: I64,
    null_starts: I64,
    delimiter: U8,
    quote: int,
    null_text: U8,
    terminator: U8,
    out: U8,
    out_offsets: I64,
) -> None:
    """Write one line to `out` for each place that is not negative, and nothing for the others. `out_offsets` gets
    the bounds of the lines.

    A line is the text of its operation in `heads`, then the commit_ts in `stamps` if there are any, then the text
    of its flag in `flag_texts` if there are any, then the values of the row at its place. `head_ends` and
    `flag_ends` are the ends of the texts in `heads` and `flag_texts`. `cells` are the CellForms of the columns; the
    next six arrays are those of ColumnViews. `quote` is the character around texts; 0 means that texts have no
    quotes. NULL, NaN and infinities become `null_text`.
    """
    at = i64(0)
    out_offsets[0] = 0
    for line in range(len(places)):
        row = places[line]
        if row >= 0:
            at = _put_chosen(out, at, heads, head_ends, ops[line])
            if len(stamps):
                at = put_raw(out, at, delimiter, 0, len(delimiter))
                at = put_int(out, at, stamps[line])
            if len(flag_ends):
                at = put_raw(out, at, delimiter, 0, len(delimiter))
                at = _put_chosen(out, at, flag_texts, flag_ends, flags[line])
            for column in range(len(cells)):
                at = put_raw(out, at, delimiter, 0, len(delimiter))
                if nulls[column] != 0 and not is_valid(nulls[column], null_starts[column] + row):
                    at = put_raw(out, at, null_text, 0, len(null_text))
                elif cells[column] < _TEXT:
                    at = _put_number(out, at, cells[column], values[column], row, null_text)
                else:
                    bounds = carray(pointer(offsets[column]), (rows[column] + 1,), np.int64)
                    data = carray(pointer(values[column]), (value_bytes[column],), np.uint8)
                    at = _put_text(out, at, cells[column], data, bounds[row], bounds[row + 1], quote, delimiter)
            at = put_raw(out, at, terminator, 0, len(terminator))
        out_offsets[line + 1] = at


@kernel
def interleave(old: U8, old_offsets: I64, new: U8, new_offsets: I64, out: U8, out_offsets: I64) -> None:
    """Write the old text of each event, followed by its new text, to `out`, and the bounds of the results to
    `out_offsets`."""
    at = i64(0)
    out_offsets[0] = 0
    for event in range(len(out_offsets) - 1):
        at = put_raw(out, at, old, old_offsets[event], old_offsets[event + 1])
        at = put_raw(out, at, new, new_offsets[event], new_offsets[event + 1])
        out_offsets[event + 1] = at


@inline
def _put_chosen(out: U8, at: int, texts: U8, ends: I64, chosen: int) -> int:
    return put_raw(out, at, texts, ends[chosen - 1] if chosen > 0 else i64(0), ends[chosen])


@inline
def _put_number(out: U8, at: int, cell: int, address: int, row: int, null_text: U8) -> int:
    if cell == _SINGLE:
        bits = i64(carray(pointer(address), (row + 1,), np.uint32)[row])
        if bits & _SINGLE_EXPONENT == _SINGLE_EXPONENT:
            return put_raw(out, at, null_text, 0, len(null_text))
        digits, exponent = single_digits(bits & _SINGLE_SIGN)
        return _put_float(out, at, bits > _SINGLE_SIGN, digits, exponent)
    value = carray(pointer(address), (row + 1,), np.int64)[row]
    if cell == _DOUBLE:
        if value & _DOUBLE_EXPONENT == _DOUBLE_EXPONENT:
            return put_raw(out, at, null_text, 0, len(null_text))
        digits, exponent = double_digits(value & _DOUBLE_SIGN)
        return _put_float(out, at, value < 0, digits, exponent)
    if cell == _INT:
        return put_int(out, at, value)
    return put_uint(out, at, u64(value))


@inline
def _put_float(out: U8, at: int, negative: bool, digits: int, exponent: int) -> int:
    """Write the number digits * 10^exponent at `out[at]` as Go's %v does: with an exponent below 1e-4 and from 1e6 on.
    Returns the position after it."""
    if negative:
        out[at] = _MINUS
        at += 1
    if digits == 0:
        out[at] = _ZERO
        return at + 1
    count = 1
    bound = i64(10)
    while count < 18 and digits >= bound:
        count += 1
        bound *= 10
    power = count + exponent - 1
    if power < _POWER_MIN or power > _POWER_MAX:
        return _put_scientific(out, at, digits, count, power)
    if exponent >= 0:
        at = put_uint(out, at, u64(digits))
        for _ in range(exponent):
            out[at] = _ZERO
            at += 1
        return at
    if power < 0:
        out[at] = _ZERO
        out[at + 1] = _POINT
        at += 2
        for _ in range(-1 - power):
            out[at] = _ZERO
            at += 1
        return put_padded(out, at, digits, count)
    scale = i64(1)
    for _ in range(-exponent):
        scale *= 10
    at = put_uint(out, at, u64(digits // scale))
    out[at] = _POINT
    return put_padded(out, at + 1, digits % scale, -exponent)


@inline
def _put_scientific(out: U8, at: int, digits: int, count: int, power: int) -> int:
    scale = i64(1)
    for _ in range(count - 1):
        scale *= 10
    out[at] = _ZERO + digits // scale
    at += 1
    if count > 1:
        out[at] = _POINT
        at = put_padded(out, at + 1, digits % scale, count - 1)
    out[at] = _E
    out[at + 1] = _MINUS if power < 0 else _PLUS
    at += 2
    power = abs(power)
    if power < 10:
        out[at] = _ZERO
        at += 1
    return put_uint(out, at, u64(power))


@inline
def _put_text(out: U8, at: int, cell: int, data: U8, first: int, last: int, quote: int, delimiter: U8) -> int:
    if cell == _TEXT and quote == 0:
        return _put_escaped(out, at, data, first, last, delimiter)
    if quote:
        out[at] = quote
        at += 1
    if cell == _TEXT:
        for place in range(first, last):
            byte = data[place]
            out[at] = byte
            at += 1
            if byte == quote:
                out[at] = byte
                at += 1
    elif cell == _BASE64:
        at = put_base64(out, at, data, first, last)
    else:
        for place in range(first, last):
            out[at] = _HEX[data[place] >> 4]
            out[at + 1] = _HEX[data[place] & 15]
            at += 2
    if quote:
        out[at] = quote
        at += 1
    return at


@inline
def _put_escaped(out: U8, at: int, data: U8, first: int, last: int, delimiter: U8) -> int:
    """Write the text `data[first:last]` at `out[at]` without quotes, with a backslash before line ends, backslashes and
    delimiters. Returns the position after it."""
    escaped = i64(0)  # bytes of a delimiter that are still to be escaped
    for place in range(first, last):
        byte = data[place]
        if escaped == 0 and _starts_with(data, place, last, delimiter):
            escaped = len(delimiter)
        if escaped > 0 or byte in (_LINE_FEED, _RETURN, _BACKSLASH):
            out[at] = _BACKSLASH
            at += 1
        if escaped > 0:
            escaped -= 1
        out[at] = _N if byte == _LINE_FEED else _R if byte == _RETURN else byte
        at += 1
    return at


@inline
def _starts_with(data: U8, place: int, last: int, prefix: U8) -> bool:
    if len(prefix) > last - place:
        return False
    same = True
    for index in range(len(prefix)):
        same = same and data[place + index] == prefix[index]
    return same
