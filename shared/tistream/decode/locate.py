"""Where each wanted column's cell lies in each row value: format v2 small and large, and v1.

A cell is `start[c, i]`, `length[c, i]` in the bytes that it is to be read from; a negative length is one of the
states below. Cells of format v1 are brought into v2's form in a scratch buffer behind the row values, so that the
kernels for types know one form only. Nothing outside a row's own bytes is ever read, whatever they say.
"""

from __future__ import annotations

import numpy as np

from tistream.decode.arrow_buffers import I64, U8
from tistream.decode.cursor_io import load_u16, load_u32, store_i64, varint_end, varint_value
from tistream.decode.jit import inline, kernel
from tistream.decode.reasons import BAD_DATUM, BAD_IDS, BAD_OFFSETS, BAD_VERSION, CUT_OFF, OK, TRAILING

NULL = -1
ABSENT = -2

V2 = 0x80
_LARGE = 1
_CHECKSUM = 2
_HEADER_BYTES = 6
_EMPTY_V1 = 0

_FLAG_NULL, _FLAG_COMPACT, _FLAG_FLOAT, _FLAG_DECIMAL = 0, 2, 5, 6
_FLAG_VARINT, _FLAG_UVARINT, _FLAG_JSON, _FLAG_VECTOR = 8, 9, 10, 20

_JSON_OBJECT, _JSON_ARRAY, _JSON_LITERAL = 0x01, 0x03, 0x04
_JSON_STRING, _JSON_OPAQUE, _JSON_DURATION = 0x0C, 0x0D, 0x11


@kernel
def locate(data: U8, offsets: I64, wanted: I64, scratch: U8, start: I64, length: I64, errors: U8) -> int:
    """Fill start and length, both [wanted, rows]; `wanted` are ascending column ids. Returns the scratch bytes used.

    `errors[i]` gets a reason; the cells of such a row are NULL. Scratch needs twice the bytes of the v1 rows.
    """
    used = 0
    for row in range(len(offsets) - 1):
        at, end = offsets[row], offsets[row + 1]
        for column in range(len(wanted)):
            length[column, row] = ABSENT
            start[column, row] = 0
        if at == end:
            code = CUT_OFF
        elif data[at] == V2:
            code = _locate_v2(data, at, end, wanted, start, length, row)
        elif data[at] == _FLAG_VARINT:
            code, used = _locate_v1(data, at, end, wanted, scratch, used, start, length, row)
        elif data[at] == _EMPTY_V1 and end == at + 1:
            code = OK
        else:
            code = BAD_VERSION
        if code != OK:
            errors[row] = code
            for column in range(len(wanted)):
                length[column, row] = NULL
    return used


@inline
def _locate_v2(data: U8, at: int, end: int, wanted: I64, start: I64, length: I64, row: int) -> int:
    if end - at < _HEADER_BYTES:
        return CUT_OFF
    flags = data[at + 1]
    large = (flags & _LARGE) != 0
    filled = load_u16(data, at + 2)
    nulls = load_u16(data, at + 4)
    id_bytes = 4 if large else 1
    ends_at = at + _HEADER_BYTES + (filled + nulls) * id_bytes
    values_at = ends_at + filled * (4 if large else 2)
    if values_at > end:
        return CUT_OFF
    ids_at = at + _HEADER_BYTES
    column = 0
    last_id = -1
    cell = values_at
    for index in range(filled):
        if large:
            found = load_u32(data, ids_at + index * 4)
            cell_end = values_at + load_u32(data, ends_at + index * 4)
        else:
            found = np.int64(data[ids_at + index])
            cell_end = values_at + load_u16(data, ends_at + index * 2)
        if found <= last_id:
            return BAD_IDS
        if cell_end < cell or cell_end > end:
            return BAD_OFFSETS
        while column < len(wanted) and wanted[column] < found:
            column += 1
        if column < len(wanted) and wanted[column] == found:
            start[column, row] = cell
            length[column, row] = cell_end - cell
        last_id = found
        cell = cell_end
    if cell != end and (flags & ~_LARGE) == 0:
        return TRAILING
    return _mark_nulls(data, ids_at + filled * id_bytes, nulls, large, wanted, length, row)


@inline
def _mark_nulls(data: U8, ids_at: int, nulls: int, large: bool, wanted: I64, length: I64, row: int) -> int:
    column = 0
    last_id = -1
    for index in range(nulls):
        if large:
            found = load_u32(data, ids_at + index * 4)
        else:
            found = np.int64(data[ids_at + index])
        if found <= last_id:
            return BAD_IDS
        last_id = found
        while column < len(wanted) and wanted[column] < found:
            column += 1
        if column < len(wanted) and wanted[column] == found and length[column, row] == ABSENT:
            length[column, row] = NULL
    return OK


@inline
def _locate_v1(
    data: U8, at: int, end: int, wanted: I64, scratch: U8, used: int, start: I64, length: I64, row: int
) -> tuple[int, int]:
    """Pairs of a column id (flag 8 and a varint) and a datum in value encoding."""
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
    """The position after the datum whose flag is at `at`; -1 if it is cut off or unknown."""
    flag = data[at]
    body = at + 1
    if flag == _FLAG_NULL:
        return body
    if flag in (_FLAG_VARINT, _FLAG_UVARINT):
        return varint_end(data, body, end)
    size = np.int64(-1)
    if flag == _FLAG_FLOAT:
        size = 8
    elif flag == _FLAG_COMPACT:
        body = varint_end(data, body, end)
        if body >= 0:
            size = varint_value(data, at + 1, body, True)
    elif flag == _FLAG_DECIMAL and end - body >= 2:
        size = 2 + decimal_bytes(np.int64(data[body]), np.int64(data[body + 1]))
    elif flag == _FLAG_JSON and body < end:
        size = _json_bytes(data, body, end)
    elif flag == _FLAG_VECTOR and end - body >= 4:
        size = 4 + 4 * load_u32(data, body)
    if size < 0 or size > end - body:
        return -1
    return body + size


@inline
def decimal_bytes(precision: int, fraction: int) -> int:
    """The length of a binary decimal: 4 bytes for 9 digits, and (d + 1) / 2 for d < 9 left over. Negative if bad."""
    whole = precision - fraction
    if whole < 0:
        return -1000
    return whole // 9 * 4 + (whole % 9 + 1) // 2 + fraction // 9 * 4 + (fraction % 9 + 1) // 2


@inline
def _json_bytes(data: U8, at: int, end: int) -> int:
    """The length of a JSON cell, type byte included; -1 if it is cut off."""
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
