"""Writing numbers, strings and base64 as text at a position. Callers see to the room; each returns the new position."""

from __future__ import annotations

from typing import Any

import numpy as np

from tistream.decode.arrow_buffers import U8
from tistream.decode.jit import i64, inline, u64
from tistream.decode.memory import copy_bytes, peek64, poke16, poke64, trailing_zeros
from tistream.decode.shortest import double_digits, single_digits

INT_CHARS = 20  # -9223372036854775808
FLOAT_CHARS = 36  # sign, "0.", 14 zeros, 17 digits; with an exponent at most 24
_ZERO, _POINT, _MINUS, _QUOTE, _BACKSLASH = 0x30, 0x2E, 0x2D, 0x22, 0x5C
_PLAIN_MAX = 15  # TiDB prints 1e15 and 1e-16 with an exponent, anything between without
_PAIRS = np.frombuffer("".join(f"{n:02d}" for n in range(100)).encode(), np.uint16)
_BASE64 = np.frombuffer(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/", np.uint8)
_HEX = np.frombuffer(b"0123456789abcdef", np.uint8)


WORD = 8
_EIGHT_DIGITS = u64(100_000_000)
_ZEROS = u64(0x3030303030303030)
_LAST_DIGIT = u64(1 << 56)  # of eight: it is shown, be it zero
_ONES = u64(0x0101010101010101)
_TOPS = u64(0x8080808080808080)


def _escapes() -> U8:
    """For each byte: 0 = as it is, 1 = \\u00XX, else the letter that follows a backslash."""
    out = np.zeros(256, np.uint8)
    out[:0x20] = 1
    for raw, letter in zip(b'"\\\b\f\n\r\t', b'"\\bfnrt', strict=True):
        out[raw] = letter
    return out


_ESCAPES = _escapes()
ESCAPED_BYTES_MAX = 6  # \u001f


@inline
def put_pair(out: U8, at: int, value: int) -> None:
    """Two digits of a number below 100."""
    poke16(out, at, _PAIRS[value])


@inline
def put_uint(out: U8, at: int, value: np.uint64) -> int:
    """Decimal digits of 64 unsigned bits. Writes WORD bytes at least, however few digits there are."""
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
    """A number below 10^8 without leading zeros."""
    digits = _eight_digits(value)
    skipped: int = trailing_zeros(digits | _LAST_DIGIT) >> 3
    poke64(out, at, i64((digits | _ZEROS) >> u64(8 * skipped)))
    return at + WORD - skipped


@inline
def _eight_digits(value: np.uint64) -> Any:
    """The digits of a number below 10^8, one a byte, the first one lowest: halves, quarters, then single digits, all
    at once, each division a multiplication that is exact for numbers so small."""
    tenthousands = value // u64(10_000)
    halves = tenthousands | ((value - tenthousands * u64(10_000)) << u64(32))
    hundreds = ((halves * u64(10_486)) >> u64(20)) & u64(0x0000007F0000007F)
    quarters = hundreds | ((halves - hundreds * u64(100)) << u64(16))
    tens = ((quarters * u64(103)) >> u64(10)) & u64(0x000F000F000F000F)
    return tens | ((quarters - tens * u64(10)) << u64(8))


@inline
def put_int(out: U8, at: int, value: int) -> int:
    """A signed integer."""
    if value < 0:
        out[at] = _MINUS
        return put_uint(out, at + 1, u64(0) - u64(value))
    return put_uint(out, at, u64(value))


@inline
def put_padded(out: U8, at: int, value: int, width: int) -> int:
    """The last `width` digits of a number that is not negative, zeros in front."""
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
    """A finite double by its bits, shortest; whole numbers get `.0` if `point`. TiDB's own choice of notation."""
    if bits < 0:
        out[at] = _MINUS
        at += 1
        bits &= 0x7FFFFFFFFFFFFFFF
    digits, exponent = double_digits(bits)
    return _put_decimal(out, at, digits, exponent, point)


@inline
def put_single(out: U8, at: int, bits: int) -> int:
    """A finite float32 by its bits, shortest digits of the float32."""
    if bits & 0x80000000:
        out[at] = _MINUS
        at += 1
        bits &= 0x7FFFFFFF
    digits, exponent = single_digits(bits)
    return _put_decimal(out, at, digits, exponent, False)


@inline
def _put_decimal(out: U8, at: int, digits: int, exponent: int, point: bool) -> int:
    if digits == 0:
        exponent = 0
    count = 1
    bound = i64(10)
    while count < 18 and digits >= bound:
        count += 1
        bound *= 10
    whole = count + exponent  # digits before the point
    if whole > _PLAIN_MAX or whole < 1 - _PLAIN_MAX:
        return _put_scientific(out, at, digits, count, whole - 1)
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
def _put_scientific(out: U8, at: int, digits: int, count: int, power: int) -> int:
    scale = i64(1)
    for _ in range(count - 1):
        scale *= 10
    out[at] = _ZERO + digits // scale
    at += 1
    if count > 1:
        out[at] = _POINT
        at = put_padded(out, at + 1, digits % scale, count - 1)
    out[at] = 0x65  # e
    return put_int(out, at + 1, power)


@inline
def put_raw(out: U8, at: int, data: U8, first: int, last: int) -> int:
    """Bytes as they are."""
    copy_bytes(out, at, data, first, last - first)
    return at + last - first


@inline
def put_quoted(out: U8, at: int, data: U8, first: int, last: int) -> int:
    """A JSON string of UTF-8 bytes: at most 2 + 6 bytes for each."""
    out[at] = _QUOTE
    at += 1
    while first < last:
        clean = _clean_until(data, first, last)
        copy_bytes(out, at, data, first, clean - first)
        at += clean - first
        if clean < last:
            at = _put_escape(out, at, data[clean])
        first = clean + 1
    out[at] = _QUOTE
    return at + 1


@inline
def _clean_until(data: U8, first: int, last: int) -> int:
    """The first byte that needs an escape, or `last`. Eight bytes at a time: which are below 0x20, `"` or a backslash.

    Subtracting from each byte borrows into its top bit where it was smaller; a byte above 0x7F has the bit itself and
    is left out. A borrow from a hit can only mark bytes behind it, so the lowest mark is right.
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
    """Base64 with padding: 4 bytes for each 3 begun."""
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
