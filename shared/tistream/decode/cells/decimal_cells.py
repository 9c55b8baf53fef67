"""Decodes cells (encoded values in a row, columns.Cells) of decimals to text with the column's number of fraction
digits (upstream-formats 4.4). json_text.py puts quotes around it."""

from __future__ import annotations

import numpy as np

from tistream.decode.cells.locate import decimal_bytes
from tistream.decode.cells.reasons import BAD_DECIMAL
from tistream.decode.kernels.arrow_buffers import I64, U8, Bools
from tistream.decode.kernels.jit import i64, inline, kernel, u64
from tistream.decode.kernels.text_io import put_padded, put_uint

PRECISION_MAX = 65
FRACTION_MAX = 30
TEXT_MAX = 1 + PRECISION_MAX + 1 + 1 + FRACTION_MAX  # sign, digits, a digit that rounding adds, point, padding
_ZERO, _POINT, _MINUS = 0x30, 0x2E, 0x2D
_WORD_DIGITS = 9
_SMALL_DIGITS = 18
_GROUP_BYTES = np.array([0, 1, 1, 2, 2, 3, 3, 4, 4, 4], np.uint8)
_FIRST_GROUP = np.array([0, *((d - 1) % 9 + 1 for d in range(1, PRECISION_MAX + 1))], np.uint8)
_TENS = 10 ** np.arange(_WORD_DIGITS + 1, dtype=np.int64)
_HEADER_BYTES = 2


@kernel
def decode_decimals(
    data: U8, start: I64, length: I64, scale: int, out: U8, out_offsets: I64, valid: Bools, errors: U8
) -> None:
    """Write each decimal as text to `out`, end to end, with `scale` fraction digits, rounded half away from zero.
    `scale` -1 keeps the stored digits.

    The kernel writes `out`, `out_offsets`, `valid` and `errors`. `out` must have room for TEXT_MAX bytes per row;
    the text of row i is `out[out_offsets[i]:out_offsets[i + 1]]`. `valid` is set to whether row i has one:
    not without a cell, nor if it is invalid. An invalid cell gets the error code BAD_DECIMAL.
    """
    digits = np.zeros(PRECISION_MAX + 1, np.uint8)  # digits[0] takes the carry
    at = 0
    out_offsets[0] = 0
    for row in range(len(start)):
        size = length[row]
        valid[row] = size >= 0
        if size >= 0:
            after = _put_cell(data, start[row], size, scale, digits, out, at)
            if after < 0:
                valid[row] = False
                errors[row] = BAD_DECIMAL
            else:
                at = after
        out_offsets[row + 1] = at


@inline
def _put_cell(data: U8, start: int, size: int, scale: int, digits: U8, out: U8, at: int) -> int:
    if size < _HEADER_BYTES:
        return -1
    precision = i64(data[start])
    fraction = i64(data[start + 1])
    if not 0 < precision <= PRECISION_MAX or fraction > min(precision, FRACTION_MAX):
        return -1
    if size != _HEADER_BYTES + decimal_bytes(precision, fraction):
        return -1
    negative = (data[start + _HEADER_BYTES] & 0x80) == 0
    keep = fraction if scale < 0 else scale
    if keep == fraction and precision - fraction <= _SMALL_DIGITS and fraction <= _SMALL_DIGITS:
        return _put_small(data, start + _HEADER_BYTES, precision - fraction, fraction, negative, out, at)
    if not _read_digits(data, start + _HEADER_BYTES, precision - fraction, fraction, negative, digits):
        return -1
    first = _round(digits, precision, fraction, keep)
    return _put_digits(digits, first, precision - fraction, fraction, keep, negative, out, at)


@inline
def _put_small(data: U8, place: int, whole: int, fraction: int, negative: bool, out: U8, at: int) -> int:
    """Write a decimal that needs no rounding, and whose whole part (`whole` digits) and fraction (`fraction` digits)
    have at most _SMALL_DIGITS digits each, as nearly all decimals do. Its digits begin at `place` in `data`. Returns
    the offset after the text, or -1 if the decimal is invalid."""
    mask = i64(0xFF if negative else 0)
    flip = i64(0x80)
    parts = (i64(0), i64(0))
    for part in range(2):
        left = whole if part == 0 else fraction
        value = i64(0)
        while left > 0:
            count = _group_digits(left, part == 0)
            word = i64(0)
            for _ in range(i64(_GROUP_BYTES[count])):
                word = (word << 8) | (i64(data[place]) ^ mask ^ flip)
                flip = i64(0)
                place += 1
            if word >= _TENS[count]:
                return -1
            value = value * _TENS[count] + word
            left -= count
        parts = (parts[1], value)
    if negative and (parts[0] | parts[1]) != 0:
        out[at] = _MINUS
        at += 1
    at = put_uint(out, at, u64(parts[0]))
    if fraction == 0:
        return at
    out[at] = _POINT
    return put_padded(out, at + 1, parts[1], fraction)


@inline
def _group_digits(left: int, leading: bool) -> int:
    """The number of digits in the next four-byte word (nine, or fewer in the short word), if `left` digits are left.
    The short word is the first one of a whole part and the last one of a fraction (`leading`: of a whole part)."""
    return i64(_FIRST_GROUP[left]) if leading else min(left, _WORD_DIGITS)


@inline
def _read_digits(data: U8, at: int, whole: int, fraction: int, negative: bool, digits: U8) -> bool:
    """Read the digits of a binary decimal, which begin at `at` in `data`, into digits[1:], one per element, and set
    digits[0] to 0. There are `whole` digits before the point and `fraction` digits after it. Returns False if a word's
    value has more digits than the word stands for."""
    mask = i64(0xFF if negative else 0)
    flip = i64(0x80)
    digits[0] = 0
    place = 1
    for part in range(2):
        left = whole if part == 0 else fraction
        while left > 0:
            count = _group_digits(left, part == 0)
            word = i64(0)
            for _ in range(i64(_GROUP_BYTES[count])):
                word = (word << 8) | (i64(data[at]) ^ mask ^ flip)
                flip = i64(0)
                at += 1
            for index in range(count - 1, -1, -1):
                digits[place + index] = word % 10
                word //= 10
            if word != 0:
                return False
            place += count
            left -= count
    return True


@inline
def _round(digits: U8, precision: int, fraction: int, keep: int) -> int:
    """Round half up to `keep` fraction digits, in place. The caller must ignore the digits after them. Returns the
    index of the first digit: 0 if the carry added a digit, else 1."""
    if keep >= fraction:
        return 1
    place = precision - fraction + keep  # the last digit kept; 0 is the carry's place
    if digits[place + 1] < 5:
        return 1
    while digits[place] == 9:
        digits[place] = 0
        place -= 1
    digits[place] += 1
    return 0 if place == 0 else 1


@inline
def _put_digits(digits: U8, first: int, whole: int, fraction: int, keep: int, negative: bool, out: U8, at: int) -> int:
    kept = min(fraction, keep)
    zero = True
    for index in range(first, 1 + whole + kept):
        if digits[index] != 0:
            zero = False
            break
    if negative and not zero:
        out[at] = _MINUS
        at += 1
    while first < whole and digits[first] == 0:
        first += 1
    if first > whole:  # no digit before the point
        out[at] = _ZERO
        at += 1
    for index in range(first, whole + 1):
        out[at] = _ZERO + digits[index]
        at += 1
    if keep > 0:
        out[at] = _POINT
        at += 1
    for index in range(kept):
        out[at + index] = _ZERO + digits[whole + 1 + index]
    for index in range(kept, keep):
        out[at + index] = _ZERO
    return at + max(keep, 0)
