"""Finds the cells of the requested columns in row values, which may have format v2 (small or large) or v1.

The cell of column c and row i is at offset `start[c, i]`, with `length[c, i]` bytes. A negative length is one of the
states NULL and ABSENT. Cells of format v1 are converted to the form of v2 in a scratch buffer after the row values, so
that the kernels that decode types need to know only one form. No kernel reads outside of a row's own bytes, even if the
row is damaged.
"""

from __future__ import annotations

import numpy as np

from tistream.decode.cells.reasons import BAD_DATUM, BAD_IDS, BAD_OFFSETS, BAD_VERSION, CUT_OFF, OK, TRAILING
from tistream.decode.kernels.arrow_buffers import I64, U8
from tistream.decode.kernels.cursor_io import load_u16, load_u32, store_i64, varint_end, varint_value
from tistream.decode.kernels.jit import i64, inline, kernel

NULL = -1
ABSENT = -2

V2 = 0x80
_LARGE = 1
_HEADER_BYTES = 6
_COUNT_MAX = 0xFFFF
_EMPTY_V1 = 0

_FLAG_NULL, _FLAG_COMPACT, _FLAG_FLOAT, _FLAG_DECIMAL = 0, 2, 5, 6
_FLAG_VARINT, _FLAG_UVARINT, _FLAG_JSON, _FLAG_VECTOR = 8, 9, 10, 20

_JSON_OBJECT, _JSON_ARRAY, _JSON_LITERAL = 0x01, 0x03, 0x04
_JSON_STRING, _JSON_OPAQUE, _JSON_DURATION = 0x0C, 0x0D, 0x11

# The bytes of d decimal digits: 4 for each 9 digits, and (r + 1) / 2 for the r remaining ones.
_DIGIT_BYTES = np.array([d // 9 * 4 + (d % 9 + 1) // 2 for d in range(256)], np.uint8)


@kernel
def locate(data: U8, offsets: I64, wanted: I64, scratch: U8, start: I64, length: I64, errors: U8) -> int:
    """Find the cells of the columns `wanted` in every row. Fills `start` and `length`, both of shape [wanted, rows].
    Returns the number of scratch bytes in use.

    Row i is `data[offsets[i]:offsets[i + 1]]`. `wanted` are ascending column ids. `errors[i]` receives the reason code
    of a row that cannot be parsed, whose cells are NULL. `scratch` needs twice the bytes of the v1 rows; the position
    of a cell there is `len(data)` plus its offset.
    """
    used = 0
    slots = np.empty(_COUNT_MAX, np.int64)  # for each not-null id of the row `like`: its index in `wanted`, or -1
    states = np.empty(len(wanted), np.int64)  # for each wanted id of that row: NULL or ABSENT
    like = i64(-1)  # the start of the last parsed header, which is reused because most rows have the same one
    for row in range(len(offsets) - 1):
        at, end = offsets[row], offsets[row + 1]
        code = OK
        if at < end and data[at] == V2:
            if like < 0 or not _same_header(data, like, at, end):
                code = _parse_header(data, at, end, wanted, slots, states)
                like = at if code == OK else i64(-1)
            if code == OK:
                for column in range(len(wanted)):
                    length[column, row] = states[column]
                    start[column, row] = 0
                code = _place_cells(data, at, end, slots, start, length, row)
        else:
            for column in range(len(wanted)):
                length[column, row] = ABSENT
                start[column, row] = 0
            if at == end:
                code = CUT_OFF
            elif data[at] == _FLAG_VARINT:
                code, used = _locate_v1(data, at, end, wanted, scratch, used, start, length, row)
            elif data[at] != _EMPTY_V1 or end != at + 1:
                code = BAD_VERSION
        if code != OK:
            errors[row] = code
            for column in range(len(wanted)):
                length[column, row] = NULL
                start[column, row] = 0
    return used


@inline
def _same_header(data: U8, like: int, at: int, end: int) -> bool:
    """Whether the row at `at` has the same flags, counts and column ids as the valid row at `like`. Then its header
    needs no parsing."""
    if end - at < _HEADER_BYTES or load_u16(data, at) != load_u16(data, like):
        return False
    if load_u32(data, at + 2) != load_u32(data, like + 2):
        return False
    size = (load_u16(data, at + 2) + load_u16(data, at + 4)) * (4 if data[at + 1] & _LARGE else 1)
    if end - at < _HEADER_BYTES + size:
        return False
    for index in range(_HEADER_BYTES, _HEADER_BYTES + size):  # noqa: SIM110  # kernels have no generators
        if data[at + index] != data[like + index]:
            return False
    return True


@inline
def _parse_header(data: U8, at: int, end: int, wanted: I64, slots: I64, states: I64) -> int:
    if end - at < _HEADER_BYTES:
        return CUT_OFF
    id_bytes = 4 if data[at + 1] & _LARGE else 1
    filled = load_u16(data, at + 2)
    nulls = load_u16(data, at + 4)
    ids = at + _HEADER_BYTES
    if ids + (filled + nulls) * id_bytes > end:
        return CUT_OFF
    for column in range(len(wanted)):
        states[column] = ABSENT
    column = 0
    last = i64(-1)
    for index in range(filled + nulls):
        if index == filled:
            column = 0
            last = i64(-1)
        found = load_u32(data, ids + index * 4) if id_bytes == 4 else i64(data[ids + index])
        if found <= last:
            return BAD_IDS
        last = found
        while column < len(wanted) and wanted[column] < found:
            column += 1
        hit = column < len(wanted) and wanted[column] == found
        if index < filled:
            slots[index] = column if hit else -1
        elif hit:
            states[column] = NULL
    return OK


@inline
def _place_cells(data: U8, at: int, end: int, slots: I64, start: I64, length: I64, row: int) -> int:
    """Find the cells of the v2 row data[at:end], and write their places to column `row` of `start` and `length`. After
    the column ids come the ends of the cells, then their bytes. `slots` is the result of parsing the header: for each
    cell, the index of its column in `start` and `length`, or -1 if the column was not requested. Returns a reason code;
    OK if the row is valid."""
    flags = data[at + 1]
    large = (flags & _LARGE) != 0
    filled = load_u16(data, at + 2)
    ends = at + _HEADER_BYTES + (filled + load_u16(data, at + 4)) * (4 if large else 1)
    values = ends + filled * (4 if large else 2)
    if values > end:
        return CUT_OFF
    cell = values
    for index in range(filled):
        cell_end = values + (load_u32(data, ends + index * 4) if large else load_u16(data, ends + index * 2))
        if cell_end < cell or cell_end > end:
            return BAD_OFFSETS
        column = slots[index]
        if column >= 0:
            start[column, row] = cell
            length[column, row] = cell_end - cell
        cell = cell_end
    return TRAILING if cell != end and (flags & ~_LARGE) == 0 else OK


@inline
def _locate_v1(
    data: U8, at: int, end: int, wanted: I64, scratch: U8, used: int, start: I64, length: I64, row: int
) -> tuple[int, int]:
    """Find the cells of the v1 row data[at:end], and write their places to column `row` of `start` and `length`. The
    row is a sequence of pairs: a column id (flag 8 and a varint), and a datum in value encoding. `used` scratch bytes
    are in use before the call. Returns (reason code, scratch bytes in use afterwards)."""
    while at < end:
        after_id = varint_end(data, at + 1, end)
        if data[at] != _FLAG_VARINT or after_id < 0 or after_id >= end:
            return BAD_DATUM, used
        found = varint_value(data, at + 1, after_id, True)
        after = _datum_end(data, after_id, end)
        if after < 0:
            return BAD_DATUM, used
        column = np.searchsorted(wanted, found)
        if column < len(wanted) and wanted[column] == found:
            flag = data[after_id]
            if flag == _FLAG_NULL:
                length[column, row] = NULL
            elif flag in (_FLAG_VARINT, _FLAG_UVARINT):
                store_i64(scratch, used, varint_value(data, after_id + 1, after, flag == _FLAG_VARINT))
                start[column, row] = len(data) + used
                length[column, row] = 8
                used += 8
            else:
                skip = after_id + 1
                if flag == _FLAG_COMPACT:
                    skip = varint_end(data, skip, end)
                start[column, row] = skip
                length[column, row] = after - skip
        at = after
    return OK, used


@inline
def _datum_end(data: U8, at: int, end: int) -> int:
    """The offset after the datum (an encoded value) whose flag byte is at `at`; -1 if it is truncated or its flag is
    unknown."""
    flag = data[at]
    body = at + 1
    if flag == _FLAG_NULL:
        return body
    if flag in (_FLAG_VARINT, _FLAG_UVARINT):
        return varint_end(data, body, end)
    size = i64(-1)
    if flag == _FLAG_FLOAT:
        size = 8
    elif flag == _FLAG_COMPACT:
        body = varint_end(data, body, end)
        if body >= 0:
            size = varint_value(data, at + 1, body, True)
    elif flag == _FLAG_DECIMAL and end - body >= 2:
        digits = decimal_bytes(i64(data[body]), i64(data[body + 1]))
        size = 2 + digits if digits >= 0 else -1
    elif flag == _FLAG_JSON and body < end:
        size = _json_bytes(data, body, end)
    elif flag == _FLAG_VECTOR and end - body >= 4:
        size = 4 + 4 * load_u32(data, body)
    if size < 0 or size > end - body:
        return -1
    return body + size


@inline
def decimal_bytes(precision: int, fraction: int) -> int:
    """The length in bytes of a binary decimal without its two header bytes; -1 if precision and fraction are
    invalid."""
    if not 0 <= fraction <= precision < len(_DIGIT_BYTES):
        return -1
    return i64(_DIGIT_BYTES[precision - fraction]) + i64(_DIGIT_BYTES[fraction])


@inline
def _json_bytes(data: U8, at: int, end: int) -> int:
    """The length in bytes of the JSON cell that begins at `at` and ends at or before `end`, type byte included; -1 if
    its header is cut off."""
    kind = data[at]
    if kind in (_JSON_OBJECT, _JSON_ARRAY):
        return 1 + load_u32(data, at + 5) if end - at >= 9 else -1
    if kind in (_JSON_STRING, _JSON_OPAQUE):
        first = at + (2 if kind == _JSON_OPAQUE else 1)
        after = varint_end(data, first, end)
        if after < 0:
            return -1
        size = varint_value(data, first, after, False)
        return after - at + size if 0 <= size <= end - after else -1
    if kind == _JSON_LITERAL:
        return 2
    return 13 if kind == _JSON_DURATION else 9
