"""Kernels that parse the SQL text of times, durations and decimals (upstream-formats 4.4)."""

from __future__ import annotations

import numpy as np

from tistream.decode.kernels.arrow_buffers import I64, U8, Bools
from tistream.decode.kernels.jit import i64, inline, kernel

_MINUS, _PLUS, _POINT, _COLON, _DASH, _SPACE, _T = 0x2D, 0x2B, 0x2E, 0x3A, 0x2D, 0x20, 0x54
_MICROS_DIGITS = 6
_WORD_DIGITS = 9
_GROUP_BYTES = np.array([0, 1, 1, 2, 2, 3, 3, 4, 4, 4], np.int64)
_DATE_CHARS, _CLOCK_CHARS = 10, 8


@inline
def _digits(data: U8, at: int, end: int) -> int:
    """Parse the decimal number in the bytes [at, end) of `data`. Returns -1 unless it consists of 1 to 18 digits."""
    if not 0 < end - at <= 18:
        return -1
    value = i64(0)
    for index in range(at, end):
        digit = i64(data[index]) - 0x30
        if not 0 <= digit <= 9:
            return -1
        value = value * 10 + digit
    return value


@inline
def _micros(data: U8, at: int, end: int) -> int:
    """Parse a fraction of a second, `.ffffff`, in the bytes [at, end) of `data`, which may be empty. Returns
    microseconds, or -1 if it is malformed."""
    if at == end:
        return 0
    count = end - at - 1
    if data[at] != _POINT or not 0 < count <= _MICROS_DIGITS:
        return -1
    value = _digits(data, at + 1, end)
    if value < 0:
        return -1
    for _ in range(_MICROS_DIGITS - count):
        value *= 10
    return value


@inline
def _packed_time(data: U8, at: int, end: int) -> int:
    if end - at < _DATE_CHARS or data[at + 4] != _DASH or data[at + 7] != _DASH:
        return -1
    year, month, day = _digits(data, at, at + 4), _digits(data, at + 5, at + 7), _digits(data, at + 8, at + 10)
    if year < 0 or not 0 <= month <= 12 or not 0 <= day <= 31:
        return -1
    date = ((year * 13 + month) << 5 | day) << 41
    at += _DATE_CHARS
    if at == end:
        return date
    if end - at < 1 + _CLOCK_CHARS or data[at] not in (_SPACE, _T) or data[at + 3] != _COLON or data[at + 6] != _COLON:
        return -1
    hour, minute = _digits(data, at + 1, at + 3), _digits(data, at + 4, at + 6)
    second, micro = _digits(data, at + 7, at + 9), _micros(data, at + 9, end)
    if not 0 <= hour <= 23 or not 0 <= minute <= 59 or not 0 <= second <= 59 or micro < 0:
        return -1
    return date | (hour << 12 | minute << 6 | second) << 24 | micro


@kernel
def parse_times(data: U8, offsets: I64, present: Bools, out: I64) -> int:
    """Parse `YYYY-MM-DD[ HH:MM:SS[.f]]` to packed times in `out`; a row that is not present gets 0. Returns the index
    of the first malformed row, or -1."""
    for row in range(len(out)):
        out[row] = _packed_time(data, offsets[row], offsets[row + 1]) if present[row] else 0
        if out[row] < 0:
            return row
    return -1


@inline
def _clock_nanos(data: U8, at: int, end: int) -> int:
    """Parse `H…:MM:SS[.f]` in the bytes [at, end) of `data`. Returns nanoseconds, or -1 if it is malformed."""
    colon = at
    while colon < end and data[colon] != _COLON:
        colon += 1
    if end - colon < 6 or data[colon + 3] != _COLON:
        return -1
    hours, minutes = _digits(data, at, colon), _digits(data, colon + 1, colon + 3)
    seconds, micro = _digits(data, colon + 4, colon + 6), _micros(data, colon + 6, end)
    if not 0 <= hours <= 838 or not 0 <= minutes <= 59 or not 0 <= seconds <= 59 or micro < 0:
        return -1
    return (((hours * 60 + minutes) * 60 + seconds) * 1_000_000 + micro) * 1_000


@kernel
def parse_durations(data: U8, offsets: I64, present: Bools, out: I64) -> int:
    """Parse `[-]H…:MM:SS[.f]` to signed nanoseconds in `out`; a row that is not present gets 0. Returns the index of
    the first malformed row, or -1."""
    for row in range(len(out)):
        out[row] = 0
        if not present[row]:
            continue
        at, end = offsets[row], offsets[row + 1]
        negative = at < end and data[at] == _MINUS
        value = _clock_nanos(data, at + 1 if negative else at, end)
        if value < 0:
            return row
        out[row] = -value if negative else value
    return -1


@inline
def _put_decimal(data: U8, at: int, end: int, whole: int, fraction: int, digits: U8, out: U8, to: int) -> bool:  # noqa: PLR0912  # sign, two parts, words
    negative = at < end and data[at] == _MINUS
    if negative or (at < end and data[at] == _PLUS):
        at += 1
    point = at
    while point < end and data[point] != _POINT:
        point += 1
    while at < point and data[at] == 0x30:
        at += 1
    if point - at > whole or end - point - 1 > fraction or (point == end and at > end):
        return False
    digits[:] = 0
    for index in range(at, point):
        digits[whole - (point - at) + index - at] = data[index] - 0x30
    for index in range(point + 1, end):
        digits[whole + index - point - 1] = data[index] - 0x30
    zero = True
    for index in range(whole + fraction):
        if digits[index] > 9:
            return False
        zero = zero and digits[index] == 0
    mask = 0xFF if negative and not zero else 0
    out[to], out[to + 1] = whole + fraction, fraction
    to += 2
    first = to
    place = 0
    for part in range(2):
        left = whole if part == 0 else fraction
        while left > 0:
            count = min(left, _WORD_DIGITS)
            if part == 0 and left % _WORD_DIGITS:
                count = left % _WORD_DIGITS
            word = i64(0)
            for index in range(place, place + count):
                word = word * 10 + digits[index]
            size = _GROUP_BYTES[count]
            for index in range(size):
                out[to + index] = (word >> (8 * (size - 1 - index)) & 0xFF) ^ mask
            to += size
            place += count
            left -= count
    out[first] ^= 0x80
    return True


@kernel
def parse_decimals(data: U8, offsets: I64, present: Bools, whole: int, fraction: int, size: int, out: U8) -> int:
    """Parse decimals, and encode them in `out` as cells of `size` bytes, one after the other: precision, fraction,
    MySQL's binary decimal. A decimal has at most `whole` digits before the point and `fraction` after it. Return the
    first row that is malformed or does not fit, or -1."""
    digits = np.zeros(whole + fraction, np.uint8)
    for row in range(len(offsets) - 1):
        if present[row] and not _put_decimal(
            data, offsets[row], offsets[row + 1], whole, fraction, digits, out, row * size
        ):
            return row
    return -1
