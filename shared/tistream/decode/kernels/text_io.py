"""Writes numbers, strings and base64 as text into a buffer at an offset. Each function returns the offset after the
text.

Callers ensure that the buffer has enough room.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tistream.decode.kernels.arrow_buffers import U8
from tistream.decode.kernels.jit import i64, inline, u64
from tistream.decode.kernels.memory import copy_bytes, peek64, poke16, poke64, trailing_zeros
from tistream.decode.kernels.shortest import double_digits, single_digits

INT_CHARS = 20  # -9223372036854775808
FLOAT_CHARS = 36  # sign, "0.", 14 zeros, 17 digits; with an exponent at most 24
PLAIN_SINGLE_CHARS = 56  # sign, "0.", 44 zeros, 9 digits
_ZERO, _POINT, _MINUS, _QUOTE, _BACKSLASH = 0x30, 0x2E, 0x2D, 0x22, 0x5C
_PLAIN_MAX = 15  # TiDB prints 1e15 and 1e-16 with an exponent, and numbers between them without
_PAIRS = np.frombuffer("".join(f"{n:02d}" for n in range(100)).encode(), np.uint16)
_BASE64 = np.frombuffer(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/", np.uint8)
_HEX = np.frombuffer(b"0123456789abcdef", np.uint8)


WORD = 8
_EIGHT_DIGITS = u64(100_000_000)
_ZEROS = u64(0x3030303030303030)
_LAST_DIGIT = u64(1 << 56)  # the last of eight digits, which is written even if it is zero
_ONES = u64(0x0101010101010101)
_TOPS = u64(0x8080808080808080)


def _escapes() -> U8:
    """A table with the JSON escape of each byte: 0 = no escape, 1 = \\u00XX, else the letter that follows a
    backslash."""
    out = np.zeros(256, np.uint8)
    out[:0x20] = 1
    for raw, letter in zip(b'"\\\b\f\n\r\t', b'"\\bfnrt', strict=True):
        out[raw] = letter
    return out


_ESCAPES = _escapes()
ESCAPED_BYTES_MAX = 6  # \u001f


@inline
def put_pair(out: U8, at: int, value: int) -> None:
    """Write a number below 100 to `out` as two digits, at the offset `at`."""
    poke16(out, at, _PAIRS[value])


@inline
def put_uint(out: U8, at: int, value: np.uint64) -> int:
    """Write the decimal digits of an unsigned 64-bit number to `out` at the offset `at`. Returns the offset after them.
    At least WORD bytes of `out` are overwritten, even for fewer digits."""
    if value < _EIGHT_DIGITS:
        return _put_first(out, at, value)
    high = value // _EIGHT_DIGITS
    if high < _EIGHT_DIGITS:
        at = _put_first(out, at, high)
    else:
        at = _put_first(out, at, high // _EIGHT_DIGITS)
        poke64(out, at, i64(_eight_digits(high % _EIGHT_DIGITS) | _ZEROS))
        at += WORD
    poke64(out, at, i64(_eight_digits(value % _EIGHT_DIGITS) | _ZEROS))
    return at + WORD


@inline
def _put_first(out: U8, at: int, value: np.uint64) -> int:
    """Write a number below 10^8 without leading zeros. Overwrites WORD bytes of `out`; returns the offset after the
    digits."""
    digits = _eight_digits(value)
    skipped: int = trailing_zeros(digits | _LAST_DIGIT) >> 3
    poke64(out, at, i64((digits | _ZEROS) >> u64(8 * skipped)))
    return at + WORD - skipped


@inline
def _eight_digits(value: np.uint64) -> Any:
    """The eight digits of a number below 10^8, one per byte, the first digit in the lowest byte.

    The number is split into halves, quarters and single digits, with all parts in one word. Divisions are done as
    multiplications, which are exact in this range.
    """
    tenthousands = value // u64(10_000)
    halves = tenthousands | ((value - tenthousands * u64(10_000)) << u64(32))
    hundreds = ((halves * u64(10_486)) >> u64(20)) & u64(0x0000007F0000007F)
    quarters = hundreds | ((halves - hundreds * u64(100)) << u64(16))
    tens = ((quarters * u64(103)) >> u64(10)) & u64(0x000F000F000F000F)
    return tens | ((quarters - tens * u64(10)) << u64(8))


@inline
def put_int(out: U8, at: int, value: int) -> int:
    """Write a signed integer to `out` at the offset `at`. Returns the offset after the text. Overwrites bytes after it,
    as put_uint does."""
    if value < 0:
        out[at] = _MINUS
        return put_uint(out, at + 1, u64(0) - u64(value))
    return put_uint(out, at, u64(value))


@inline
def put_padded(out: U8, at: int, value: int, width: int) -> int:
    """Write the last `width` digits of a number that is not negative, padded with zeros. Returns the offset after them,
    `at + width`."""
    left = u64(value)
    hundred = u64(100)
    place = at + width
    while place - 2 >= at:
        rest = left // hundred
        place -= 2
        put_pair(out, place, i64(left - rest * hundred))
        left = rest
    if place > at:
        out[at] = _ZERO + i64(left % u64(10))
    return at + width


@inline
def put_double(out: U8, at: int, bits: int, point: bool) -> int:
    """Write a finite double, given its bits, with the shortest digits and in TiDB's notation. With `point`, whole
    numbers without an exponent get `.0`. Returns the offset after the text."""
    if bits < 0:
        out[at] = _MINUS
        at += 1
        bits &= 0x7FFFFFFFFFFFFFFF
    digits, exponent = double_digits(bits)
    return _put_decimal(out, at, digits, exponent, point)


@inline
def put_single(out: U8, at: int, bits: int) -> int:
    """Write a finite float32, given its bits, with the shortest digits and in TiDB's notation. Returns the offset after
    the text."""
    if bits & 0x80000000:
        out[at] = _MINUS
        at += 1
        bits &= 0x7FFFFFFF
    digits, exponent = single_digits(bits)
    return _put_decimal(out, at, digits, exponent, False)


@inline
def put_plain_single(out: U8, at: int, bits: int) -> int:
    """Write a finite float32, given its bits, with the shortest digits and never with an exponent, as TiDB writes the
    numbers of a vector. Returns the offset after the text, which has at most PLAIN_SINGLE_CHARS bytes."""
    if bits & 0x80000000:
        out[at] = _MINUS
        at += 1
        bits &= 0x7FFFFFFF
    digits, exponent = single_digits(bits)
    return put_plain(out, at, digits, count_digits(digits), exponent if digits != 0 else i64(0), False)


@inline
def _put_decimal(out: U8, at: int, digits: int, exponent: int, point: bool) -> int:
    if digits == 0:
        exponent = 0
    count = count_digits(digits)
    whole = count + exponent
    if whole > _PLAIN_MAX or whole < 1 - _PLAIN_MAX:
        at = put_mantissa(out, at, digits, count)
        out[at] = 0x65  # e
        return put_int(out, at + 1, whole - 1)
    return put_plain(out, at, digits, count, exponent, point)


@inline
def count_digits(digits: int) -> int:
    """The number of decimal digits of a number, from 1 to 18."""
    count = 1
    bound = i64(10)
    while count < 18 and digits >= bound:
        count += 1
        bound *= 10
    return count


@inline
def put_plain(out: U8, at: int, digits: int, count: int, exponent: int, point: bool) -> int:
    """Write digits * 10^exponent without an exponent. `count` is the number of digits. With `point`, whole numbers get
    `.0`. Returns the offset after the text."""
    whole = count + exponent  # digits before the point
    if exponent >= 0:
        at = put_uint(out, at, u64(digits))
        for _ in range(exponent):
            out[at] = _ZERO
            at += 1
        if point:
            out[at] = _POINT
            out[at + 1] = _ZERO
            at += 2
        return at
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
def put_mantissa(out: U8, at: int, digits: int, count: int) -> int:
    """Write the number `digits`, which has `count` decimal digits, with a decimal point after the first digit if there
    are several. Returns the offset after the text."""
    scale = i64(1)
    for _ in range(count - 1):
        scale *= 10
    out[at] = _ZERO + digits // scale
    at += 1
    if count > 1:
        out[at] = _POINT
        at = put_padded(out, at + 1, digits % scale, count - 1)
    return at


@inline
def put_raw(out: U8, at: int, data: U8, first: int, last: int) -> int:
    """Copy data[first:last] to `out` at the offset `at`. Returns the offset after the copy."""
    copy_bytes(out, at, data, first, last - first)
    return at + last - first


@inline
def put_quoted(out: U8, at: int, data: U8, first: int, last: int) -> int:
    """Write the UTF-8 text data[first:last] as a JSON string to `out` at the offset `at`. Returns the offset after it.
    The string has 2 bytes for the quotes, and at most ESCAPED_BYTES_MAX bytes for each byte of the text."""
    out[at] = _QUOTE
    at += 1
    while first < last:
        clean = clean_until(data, first, last)
        copy_bytes(out, at, data, first, clean - first)
        at += clean - first
        if clean < last:
            at = _put_escape(out, at, data[clean])
        first = clean + 1
    out[at] = _QUOTE
    return at + 1


@inline
def clean_until(data: U8, first: int, last: int) -> int:
    """The position of the first byte in data[first:last] that needs an escape in JSON, or `last`. Tests eight bytes at
    a time for bytes below 0x20, `"` and a backslash.

    How it tests: a subtraction sets the top bit of each byte that is smaller than the number subtracted. A byte above
    0x7F has its top bit set before, so it is masked out. A borrow changes only the bytes after the one that causes it,
    so the lowest marked byte is always one that needs an escape.
    """
    while last - first >= WORD:
        word = u64(peek64(data, first))
        quotes = word ^ (_ONES * u64(_QUOTE))
        backslashes = word ^ (_ONES * u64(_BACKSLASH))
        hits = (word - _ONES * u64(0x20)) | (quotes - _ONES) | (backslashes - _ONES)
        if hits & ~word & _TOPS:
            break
        first += WORD
    while first < last and _ESCAPES[data[first]] == 0:
        first += 1
    return first


@inline
def _put_escape(out: U8, at: int, byte: np.uint8) -> int:
    escape = _ESCAPES[byte]
    out[at] = _BACKSLASH
    if escape != 1:
        out[at + 1] = escape
        return at + 2
    out[at + 1] = 0x75  # u
    out[at + 2] = _ZERO
    out[at + 3] = _ZERO
    out[at + 4] = _HEX[byte >> 4]
    out[at + 5] = _HEX[byte & 15]
    return at + 6


@inline
def put_base64(out: U8, at: int, data: U8, first: int, last: int) -> int:
    """Write the base64 of data[first:last], with padding, to `out` at the offset `at`: 4 bytes for each group of up to
    3 bytes. Returns the offset after it."""
    index = first
    while last - index >= 3:
        word = (i64(data[index]) << 16) | (i64(data[index + 1]) << 8) | i64(data[index + 2])
        out[at] = _BASE64[word >> 18]
        out[at + 1] = _BASE64[(word >> 12) & 63]
        out[at + 2] = _BASE64[(word >> 6) & 63]
        out[at + 3] = _BASE64[word & 63]
        at += 4
        index += 3
    if index == last:
        return at
    word = i64(data[index]) << 16
    if last - index == 2:
        word |= i64(data[index + 1]) << 8
    out[at] = _BASE64[word >> 18]
    out[at + 1] = _BASE64[(word >> 12) & 63]
    out[at + 2] = _BASE64[(word >> 6) & 63] if last - index == 2 else 0x3D
    out[at + 3] = 0x3D
    return at + 4
