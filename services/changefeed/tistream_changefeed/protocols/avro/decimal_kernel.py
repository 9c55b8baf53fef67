"""Converts decimals to the bytes of Avro's logical type `decimal`: the unscaled number, big endian, in two's
complement. Compiled with numba."""

from __future__ import annotations

from typing import Any

import numpy as np

from tistream.decode.kernels.arrow_buffers import I64, U8, binary_array, flat_bytes, one_array, validity
from tistream.decode.kernels.jit import i64, inline, kernel, u64

_LIMBS = 9  # of 32 bits: 81 digits, more than DECIMAL(65) with 30 digits of a larger scale behind it
_LIMB_BYTES = 4
_NUMBER_BYTES = _LIMBS * _LIMB_BYTES
_ZERO, _NINE, _POINT, _MINUS = 0x30, 0x39, 0x2E, 0x2D
_LOW = u64(0xFFFFFFFF)
_TEN = u64(10)
_SHIFT = u64(32)
_BITS = u64(8)
_BYTE = u64(0xFF)
_ONE = u64(1)


def unscaled_bytes(decimals: Any, scale: int) -> Any:
    """Convert decimal texts such as `-1.50` to a large_binary array of the unscaled numbers at this scale. Digits
    beyond the scale are dropped, as TiCDC does. Nulls stay null."""
    flat = flat_bytes(decimals)
    out = np.empty(len(flat) * _NUMBER_BYTES, np.uint8)
    offsets = np.zeros(len(flat) + 1, np.int64)
    put_unscaled(flat.data, flat.offsets, scale, out, offsets)
    array = one_array(decimals)
    return binary_array(out[: offsets[-1]], offsets, validity(array) if array.null_count else None, text=False)


@kernel
def put_unscaled(data: U8, starts: I64, scale: int, out: U8, out_offsets: I64) -> None:
    """Convert each decimal text `data[starts[i]:starts[i + 1]]` to its unscaled number, and write that to `out` with
    the fewest bytes that keep its sign. `out_offsets` gets the bounds of the results. An empty text, which stands for a
    null, gets no bytes."""
    limbs = np.zeros(_LIMBS, np.uint64)  # 32 bits each, the lowest first
    at = 0
    for row in range(len(starts) - 1):
        first, last = starts[row], starts[row + 1]
        if first == last:
            out_offsets[row + 1] = at
            continue
        negative = data[first] == _MINUS
        limbs[:] = u64(0)
        used = 1
        fraction = i64(-1)  # digits behind the point so far; -1 before the point
        for place in range(first, last):
            byte = data[place]
            if byte == _POINT:
                fraction = 0
            elif _ZERO <= byte <= _NINE and fraction < scale:
                used = _append_digit(limbs, used, u64(byte - _ZERO))
                if fraction >= 0:
                    fraction += 1
        for _ in range(scale - max(fraction, 0)):
            used = _append_digit(limbs, used, u64(0))
        if negative:
            _negate(limbs)
        at = _put_shortest(limbs, out, at)
        out_offsets[row + 1] = at


@inline
def _append_digit(limbs: Any, used: int, digit: Any) -> int:
    """Multiply the number in `limbs` by ten and add the digit, in place. Returns the number of limbs that are in use
    afterwards."""
    carry = digit
    for index in range(used):
        value = limbs[index] * _TEN + carry
        limbs[index] = value & _LOW
        carry = value >> _SHIFT
    if carry != u64(0) and used < _LIMBS:
        limbs[used] = carry
        return used + 1
    return used


@inline
def _negate(limbs: Any) -> None:
    carry = _ONE
    for index in range(_LIMBS):
        value = (limbs[index] ^ _LOW) + carry
        limbs[index] = value & _LOW
        carry = value >> _SHIFT


@inline
def _put_shortest(limbs: Any, out: U8, at: int) -> int:
    """Write the bytes of the number in `limbs`, without leading bytes that only repeat its sign. Returns the position
    after the last byte."""
    sign = _BYTE if limbs[_LIMBS - 1] >> u64(31) else u64(0)
    skipping = True
    for place in range(_NUMBER_BYTES):
        number = _NUMBER_BYTES - 1 - place
        byte = _byte_of(limbs, number)
        if skipping and number > 0:
            below = _byte_of(limbs, number - 1)
            if byte == sign and (below >> u64(7)) == (sign & _ONE):
                continue
        skipping = False
        out[at] = np.uint8(byte)
        at += 1
    return at


@inline
def _byte_of(limbs: Any, number: int) -> Any:
    return (limbs[number // _LIMB_BYTES] >> (_BITS * u64(number % _LIMB_BYTES))) & _BYTE
