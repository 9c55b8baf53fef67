"""Computes CRC-32 (IEEE) of column names and values, as TiCDC does to hash rows to partitions. Compiled with numba."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from enum import IntEnum

import numpy as np

from tistream.arrays import Int64s
from tistream.decode.kernels.arrow_buffers import I64, U8
from tistream.decode.kernels.column_views import ColumnViews
from tistream.decode.kernels.jit import i64, inline, kernel, u64
from tistream.decode.kernels.memory import carray, peek64, pointer
from tistream.decode.kernels.render_kernel import is_valid
from tistream.decode.kernels.shortest import double_digits, single_digits
from tistream.decode.kernels.text_io import put_int, put_padded, put_uint

_WORD = 8
_ALL = 0xFFFFFFFF
_ZERO, _POINT, _MINUS = 0x30, 0x2E, 0x2D
_TEXT_ROOM = 384  # a double without exponent: sign, "0.", 323 zeros, 17 digits
_SINGLE_EXPONENT, _DOUBLE_EXPONENT = 0x7F800000, 0x7FF0000000000000


class Form(IntEnum):
    """The ways in which a column's value becomes the text that is hashed."""

    BYTES = 0  # the bytes of a text or binary value
    INT = 1  # decimal digits of an int64
    UINT = 2  # decimal digits of a uint64
    SINGLE = 3  # shortest digits of a float32, never with an exponent; 0 for NaN and infinities
    DOUBLE = 4  # the same of a float64


def _tables() -> I64:
    """The lookup tables of the slicing-by-8 algorithm: row k has the CRC of each byte followed by k zero bytes."""
    out = np.zeros((_WORD, 256), np.int64)
    for byte in range(256):
        value = byte
        for _ in range(8):
            value = (value >> 1) ^ (0xEDB88320 if value & 1 else 0)
        out[0, byte] = value
    for row in range(1, _WORD):
        out[row] = (out[row - 1] >> 8) ^ out[0][out[row - 1] & 0xFF]
    return out


_TABLES = _tables()


def crc_of(*parts: str) -> int:
    """The CRC-32 of the UTF-8 bytes of these texts, joined without a separator."""
    return zlib.crc32("".join(parts).encode())


def xor_columns(
    hashes: Int64s, events: Int64s, rows: Int64s, names: Sequence[str], forms: Sequence[Form], views: ColumnViews
) -> None:
    """XOR the CRC-32 of (name, value) of every column whose value is not NULL into `hashes`. Event `events[i]` has its
    values in row `rows[i]` of the columns. `names`, `forms` and `views` have one element for each column. Hashes are
    unsigned 32-bit numbers."""
    prefixes = np.array([crc_of(name) for name in names], np.int64)
    _xor(
        hashes,
        events,
        rows,
        prefixes,
        np.array(forms, np.int64),
        views.values,
        views.value_bytes,
        views.offsets,
        views.rows,
        views.nulls,
        views.null_starts,
    )


@kernel
def _xor(
    hashes: I64,
    events: I64,
    chosen: I64,
    prefixes: I64,
    forms: I64,
    values: I64,
    value_bytes: I64,
    offsets: I64,
    rows: I64,
    nulls: I64,
    null_starts: I64,
) -> None:
    text = np.empty(_TEXT_ROOM, np.uint8)
    for column in range(len(forms)):
        form, nulls_at, begins = forms[column], nulls[column], null_starts[column]
        prefix = prefixes[column]
        if form == 0:
            bounds = carray(pointer(offsets[column]), (rows[column] + 1,), np.int64)
            data = carray(pointer(values[column]), (value_bytes[column],), np.uint8)
            for number in range(len(chosen)):
                row = chosen[number]
                if nulls_at == 0 or is_valid(nulls_at, begins + row):
                    hashes[events[number]] ^= _crc(prefix, data, bounds[row], bounds[row + 1])
        else:
            for number in range(len(chosen)):
                row = chosen[number]
                if nulls_at == 0 or is_valid(nulls_at, begins + row):
                    size = _put(text, form, values[column], row)
                    hashes[events[number]] ^= _crc(prefix, text, i64(0), size)


@inline
def _put(out: U8, form: int, address: int, row: int) -> int:
    if form == 3:
        single = i64(carray(pointer(address), (row + 1,), np.uint32)[row])
        magnitude = single & 0x7FFFFFFF
        if (single & _SINGLE_EXPONENT) == _SINGLE_EXPONENT:
            out[0] = _ZERO
            return 1
        digits, exponent = single_digits(magnitude) if magnitude else (i64(0), i64(0))
        return _put_plain(out, single != magnitude, digits, exponent)
    value = carray(pointer(address), (row + 1,), np.int64)[row]
    if form == 1:
        return put_int(out, i64(0), value)
    if form == 2:
        return put_uint(out, i64(0), u64(value))
    magnitude = value & 0x7FFFFFFFFFFFFFFF
    if (value & _DOUBLE_EXPONENT) == _DOUBLE_EXPONENT:
        out[0] = _ZERO
        return 1
    digits, exponent = double_digits(magnitude) if magnitude else (i64(0), i64(0))
    return _put_plain(out, value < 0, digits, exponent)


@inline
def _put_plain(out: U8, negative: bool, digits: int, exponent: int) -> int:
    """Write the number digits * 10^exponent to the start of `out`, without an exponent, as Go's strconv does with
    format 'f'. Returns the number of bytes."""
    at = i64(0)
    if negative:
        out[0] = _MINUS
        at += 1
    count, bound = i64(1), i64(10)
    while count < 18 and digits >= bound:
        count += 1
        bound *= 10
    if exponent >= 0:
        at = put_uint(out, at, u64(digits))
        for _ in range(exponent):
            out[at] = _ZERO
            at += 1
        return at
    if count + exponent <= 0:
        out[at] = _ZERO
        out[at + 1] = _POINT
        at += 2
        for _ in range(-(count + exponent)):
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
def _crc(prefix: int, data: U8, first: int, last: int) -> int:
    """The CRC of a text that begins with a part whose CRC is `prefix`, and continues with `data[first:last]`."""
    state = prefix ^ _ALL
    at = first
    while at + _WORD <= last:
        word = peek64(data, at)
        low, high = (word & _ALL) ^ state, (word >> 32) & _ALL
        state = (
            _TABLES[7, low & 0xFF]
            ^ _TABLES[6, (low >> 8) & 0xFF]
            ^ _TABLES[5, (low >> 16) & 0xFF]
            ^ _TABLES[4, low >> 24]
            ^ _TABLES[3, high & 0xFF]
            ^ _TABLES[2, (high >> 8) & 0xFF]
            ^ _TABLES[1, (high >> 16) & 0xFF]
            ^ _TABLES[0, high >> 24]
        )
        at += _WORD
    while at < last:
        state = _TABLES[0, (state ^ i64(data[at])) & 0xFF] ^ (state >> 8)
        at += 1
    return state ^ _ALL
