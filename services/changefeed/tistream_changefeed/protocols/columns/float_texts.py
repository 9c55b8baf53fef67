"""FLOAT and DOUBLE columns as text, in the notations of Go's libraries."""

from __future__ import annotations

from enum import IntEnum
from typing import Any

import numpy as np

from tistream.decode.kernels.arrow_buffers import I64, U8, Bools, binary_array, numbers_of, one_array, validity
from tistream.decode.kernels.jit import i64, inline, kernel, u64
from tistream.decode.kernels.shortest import double_digits, single_digits
from tistream.decode.kernels.text_io import put_padded, put_uint

_ZERO, _POINT, _MINUS, _PLUS, _E = 0x30, 0x2E, 0x2D, 0x2B, 0x65
_DOUBLE_EXPONENT = 0x7FF << 52
_SINGLE_EXPONENT = 0xFF << 23
_DOUBLE_SIGN = 0x7FFFFFFFFFFFFFFF
_SINGLE_SIGN = 0x7FFFFFFF
_NEAR = 64  # powers of two for which `_NEAR_CHARS` are enough in every notation
_NEAR_CHARS, _FAR_CHARS = 64, 360
_NEVER = 10_000


class Notation(IntEnum):
    """When a number has an exponent, and how that looks."""

    JSON = 0  # below 1e-6 and from 1e21, `e-7` and `e+21`: debezium
    PLAIN = 1  # never: simple, canal-json
    VALUE = 2  # below 1e-4 and from 1e6, `e-05` and `e+06`: csv


_LOWEST_POWER = np.array([-6, -_NEVER, -4], np.int64)
_FIRST_POWER = np.array([21, _NEVER, 6], np.int64)
_JSON = int(Notation.JSON)


def float_texts(array: Any, notation: Notation) -> Any:
    """A large_string array with the shortest digits of a float32 or float64 array. Nulls stay null; so do numbers that
    are not finite, which TiDB does not store."""
    array = one_array(array)
    numbers = numbers_of(array)
    single = numbers.dtype == np.float32
    bits = numbers.view(np.uint32 if single else np.int64).astype(np.int64)
    valid = validity(array).copy()
    out = np.empty(text_room(bits, single) + _FAR_CHARS, np.uint8)
    offsets = np.empty(len(bits) + 1, np.int64)
    put_floats(bits, single, int(notation), valid, out, offsets)
    return binary_array(out[: offsets[-1]], offsets, None if valid.all() else valid, text=True)


@kernel
def text_room(bits: I64, single: bool) -> int:
    """An upper bound of the characters of all numbers."""
    total = i64(0)
    for row in range(len(bits)):
        power = ((bits[row] >> 23) & 0xFF) - 127 if single else ((bits[row] >> 52) & 0x7FF) - 1023
        total += _NEAR_CHARS if -_NEAR < power < _NEAR else _FAR_CHARS
    return total


@kernel
def put_floats(bits: I64, single: bool, notation: int, valid: Bools, out: U8, out_offsets: I64) -> None:
    """Write each valid number. A number that is not finite becomes invalid."""
    at = i64(0)
    out_offsets[0] = 0
    for row in range(len(bits)):
        if valid[row]:
            number = bits[row]
            exponent = _SINGLE_EXPONENT if single else _DOUBLE_EXPONENT
            if number & exponent == exponent:
                valid[row] = False
            else:
                at = _put_float(out, at, number, single, notation)
        out_offsets[row + 1] = at


@inline
def _put_float(out: U8, at: int, number: int, single: bool, notation: int) -> int:
    size = number & (_SINGLE_SIGN if single else _DOUBLE_SIGN)
    if size != number:
        out[at] = _MINUS
        at += 1
    digits, exponent = single_digits(size) if single else double_digits(size)
    if digits == 0:
        out[at] = _ZERO
        return at + 1
    count = 1
    bound = i64(10)
    while count < 18 and digits >= bound:
        count += 1
        bound *= 10
    power = count + exponent - 1
    if power < _LOWEST_POWER[notation] or power >= _FIRST_POWER[notation]:
        return _put_scientific(out, at, digits, count, power, notation)
    return _put_plain(out, at, digits, count, exponent)


@inline
def _put_plain(out: U8, at: int, digits: int, count: int, exponent: int) -> int:
    if exponent >= 0:
        at = put_uint(out, at, u64(digits))
        for _ in range(exponent):
            out[at] = _ZERO
            at += 1
        return at
    whole = count + exponent  # digits before the point
    if whole <= 0:
        out[at] = _ZERO
        out[at + 1] = _POINT
        at += 2
        for _ in range(-whole):
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
def _put_scientific(out: U8, at: int, digits: int, count: int, power: int, notation: int) -> int:
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
    if power < 10 and notation != _JSON:
        out[at] = _ZERO
        at += 1
    return put_uint(out, at, u64(power))
