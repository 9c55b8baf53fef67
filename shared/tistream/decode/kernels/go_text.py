"""Writes strings as the JSON writers of Go programs do, for messages that equal TiCDC's. Each function returns the
position after the text.

Go's writers escape control characters as `\\u0008`, also those that have a short escape in JSON, except `\\n`, `\\r`
and `\\t`. With `html`, they also escape `<`, `>`, `&`, U+2028 and U+2029. Callers ensure that the buffer has enough
room.
"""

from __future__ import annotations

import functools

import numpy as np

from tistream.decode.kernels.arrow_buffers import U8
from tistream.decode.kernels.jit import i64, inline, u64
from tistream.decode.kernels.memory import peek64
from tistream.decode.kernels.text_io import WORD, clean_until, put_raw

QUOTED_BYTES_MAX = 5  # the byte 0xFF becomes \\xff
JSON_BYTES_MAX = 6  # < becomes \u003c
_QUOTE, _BACKSLASH, _ZERO, _U, _X = 0x22, 0x5C, 0x30, 0x75, 0x78
_BLANK, _COMMA, _COLON = 0x20, 0x2C, 0x3A
_DELETE, _ASCII, _SEPARATOR_LEAD = 0x7F, 0x80, 0xE2
_ONES, _TOPS = u64(0x0101010101010101), u64(0x8080808080808080)
_BAD = -1  # no valid character
_HEX = np.frombuffer(b"0123456789abcdef", np.uint8)


def _escapes(html: bytes) -> U8:
    """A table with the escape of each byte: 0 = no escape, 1 = \\u00XX, 2 = may begin U+2028 or U+2029, else the letter
    after a backslash. `html`: further bytes that are escaped as \\u00XX."""
    out = np.zeros(256, np.uint8)
    out[:0x20] = 1
    for byte in html:
        out[byte] = 1
    for raw, letter in zip(b'"\\\n\r\t', b'"\\nrt', strict=True):
        out[raw] = letter
    out[_SEPARATOR_LEAD] = 2 if html else 0
    return out


_PLAIN, _HTML = _escapes(b""), _escapes(b"<>&")
_LETTERS = np.zeros(256, np.uint8)  # the letter after the backslash, in Go's own quoting
for _raw, _letter in zip(b'\a\b\f\n\r\t\v"\\', b'abfnrtv"\\', strict=True):
    _LETTERS[_raw] = _letter


@functools.cache
def printable() -> U8:
    """A bitmap of the code points that Go's `strconv.Quote` does not escape: letters, marks, numbers, punctuation,
    symbols and the blank. It follows Python's version of Unicode, which may have more characters than that of TiCDC's
    Go."""
    flags = np.zeros(0x110000, np.bool_)
    assigned = [*range(0x40000), *range(0xE0000, 0xF0000)]  # the other planes are unassigned or private
    flags[assigned] = [chr(code).isprintable() for code in assigned]
    bits = np.packbits(flags, bitorder="little")
    bits.flags.writeable = False
    return bits


@inline
def put_escaped(out: U8, at: int, data: U8, first: int, last: int, html: bool) -> int:
    """Write the UTF-8 text data[first:last] as a JSON string to `out` at the offset `at`. `html`: as in put_inner. The
    string has 2 bytes for the quotes, and at most 6 bytes for each byte of the text."""
    out[at] = _QUOTE
    at = put_inner(out, at + 1, data, first, last, html)
    out[at] = _QUOTE
    return at + 1


@inline
def put_inner(out: U8, at: int, data: U8, first: int, last: int, html: bool) -> int:
    """Write the UTF-8 text data[first:last] as the content of a JSON string, without its quotes. `html`: escape `<`,
    `>`, `&`, U+2028 and U+2029 too, as Go's encoder does by default."""
    while first < last:
        clean = _html_clean_until(data, first, last) if html else clean_until(data, first, last)
        at = put_raw(out, at, data, first, clean)
        first = clean + 1
        if clean == last:
            break
        escape = _HTML[data[clean]] if html else _PLAIN[data[clean]]
        if escape == 2:
            at = _put_hex(out, at, 0x2020 + i64(data[clean + 2] & 15), 4)
            first = clean + 3
        else:
            at = _put_byte(out, at, data[clean], escape)
    return at


@inline
def _html_clean_until(data: U8, first: int, last: int) -> int:
    """The position of the first byte in data[first:last] that needs an escape with `html`, or `last`. Like
    text_io.clean_until, it tests eight bytes at a time if all of them are ASCII. `<` and `>` differ in one bit, so one
    test with that bit set finds both."""
    while True:
        while last - first >= WORD:
            word = u64(peek64(data, first))
            quotes = word ^ (_ONES * u64(_QUOTE))
            slashes = word ^ (_ONES * u64(_BACKSLASH))
            angles = (word | (_ONES * u64(2))) ^ (_ONES * u64(0x3E))
            ands = word ^ (_ONES * u64(0x26))
            hits = (word - _ONES * u64(0x20)) | (quotes - _ONES) | (slashes - _ONES) | (angles - _ONES) | (ands - _ONES)
            if (hits | word) & _TOPS:
                break
            first += WORD
        stop = min(first + WORD, last)
        while first < stop:
            escape = _HTML[data[first]]
            if escape == 1 or escape > 2 or (escape == 2 and is_separator(data, first, last)):
                return first
            first += 1
        if first == last:
            return first


@inline
def is_separator(data: U8, first: int, last: int) -> bool:
    """Whether the three bytes at `first`, of which the first is 0xE2, are U+2028 or U+2029."""
    return bool(last - first >= 3 and data[first + 1] == 0x80 and (data[first + 2] & 0xFE) == 0xA8)


@inline
def _put_byte(out: U8, at: int, byte: np.uint8, escape: np.uint8) -> int:
    if escape == 1:
        return _put_hex(out, at, i64(byte), 4)
    out[at] = _BACKSLASH
    out[at + 1] = escape
    return at + 2


@inline
def _put_hex(out: U8, at: int, code: int, digits: int) -> int:
    """Write a code point as an escape: `\\u` and 4 digits, `\\x` and 2, or `\\U` and 8."""
    out[at] = _BACKSLASH
    out[at + 1] = _X if digits == 2 else _U if digits == 4 else 0x55
    for index in range(digits):
        out[at + 2 + index] = _HEX[(code >> (4 * (digits - 1 - index))) & 15]
    return at + 2 + digits


@inline
def put_latin1(out: U8, at: int, data: U8, first: int, last: int) -> int:
    """Write the bytes data[first:last] as a JSON string in which each byte is the character whose code point is the
    byte's value. Escapes are those of put_inner with `html`."""
    out[at] = _QUOTE
    at += 1
    for index in range(first, last):
        byte = data[index]
        if byte >= _ASCII:
            out[at] = 0xC0 | (byte >> 6)
            out[at + 1] = 0x80 | (byte & 0x3F)
            at += 2
            continue
        escape = _HTML[byte]
        if escape == 0:
            out[at] = byte
            at += 1
        else:
            at = _put_byte(out, at, byte, escape)
    out[at] = _QUOTE
    return at + 1


@inline
def put_go_quoted(out: U8, at: int, data: U8, first: int, last: int, shown: U8) -> int:
    """Write the bytes data[first:last] as a JSON string that contains Go's quoting of them (`strconv.Quote` without the
    outer quotes), so that its backslashes and quotes are escaped again. `shown` is `printable()`."""
    out[at] = _QUOTE
    at += 1
    while first < last:
        byte = data[first]
        if byte < _ASCII:
            at = _put_quoted_byte(out, at, byte)
            first += 1
            continue
        code, size = _character(data, first, last)
        if code == _BAD:
            out[at] = _BACKSLASH
            at = _put_hex(out, at + 1, i64(byte), 2)
        elif (shown[code >> 3] >> (code & 7)) & 1:
            at = put_raw(out, at, data, first, first + size)
        else:
            out[at] = _BACKSLASH
            at = _put_hex(out, at + 1, code, 4 if code < 0x10000 else 8)
        first += size
    out[at] = _QUOTE
    return at + 1


@inline
def _put_quoted_byte(out: U8, at: int, byte: np.uint8) -> int:
    letter = _LETTERS[byte]
    if letter != 0:
        out[at] = _BACKSLASH
        out[at + 1] = _BACKSLASH
        at += 2
        if letter in (_QUOTE, _BACKSLASH):  # the letter needs a backslash in JSON
            out[at] = _BACKSLASH
            at += 1
        out[at] = letter
        return at + 1
    if byte < _BLANK or byte == _DELETE:
        out[at] = _BACKSLASH
        return _put_hex(out, at + 1, i64(byte), 2)
    out[at] = byte
    return at + 1


@inline
def _character(data: U8, first: int, last: int) -> tuple[int, int]:
    """Decode the UTF-8 character of two to four bytes that begins at `first`, and ends at or before `last`. Returns
    (code point, number of bytes), or (_BAD, 1) if no such character begins there, as at an ASCII byte."""
    lead = i64(data[first])
    size = 2 if 0xC2 <= lead <= 0xDF else 3 if 0xE0 <= lead <= 0xEF else 4 if 0xF0 <= lead <= 0xF4 else 1
    if size == 1 or last - first < size:
        return i64(_BAD), i64(1)
    code = lead & (0xFF >> (size + 1))
    for index in range(1, size):
        byte = i64(data[first + index])
        if (byte & 0xC0) != 0x80:
            return i64(_BAD), i64(1)
        code = (code << 6) | (byte & 0x3F)
    if size == 3 and (code < 0x800 or 0xD800 <= code <= 0xDFFF):
        return i64(_BAD), i64(1)
    if size == 4 and not 0x10000 <= code <= 0x10FFFF:
        return i64(_BAD), i64(1)
    return code, i64(size)


@inline
def put_json_document(out: U8, at: int, data: U8, first: int, last: int, html: bool) -> int:
    """Write the JSON text data[first:last] as a JSON string, in the form that TiDB shows: with a blank after each colon
    and comma, and with Go's escapes in its strings. `html`: as in put_inner, but U+2028 and U+2029 are always
    escaped."""
    escapes = _HTML if html else _PLAIN
    out[at] = _QUOTE
    at += 1
    inside = False
    while first < last:
        byte = data[first]
        if inside and byte == _BACKSLASH:
            at = _put_inner_escape(out, at, data[first + 1])
            first += 2
            continue
        if byte == _QUOTE:
            inside = not inside
        if byte == _SEPARATOR_LEAD and is_separator(data, first, last):
            out[at] = _BACKSLASH
            at = _put_hex(out, at + 1, 0x2020 + i64(data[first + 2] & 15), 4)
            first += 3
            continue
        escape = escapes[byte]
        if escape in (0, 2):
            out[at] = byte
            at += 1
            if not inside and byte in (_COMMA, _COLON):
                out[at] = _BLANK
                at += 1
        else:
            at = _put_byte(out, at, byte, escape)
        first += 1
    out[at] = _QUOTE
    return at + 1


@inline
def _put_inner_escape(out: U8, at: int, letter: np.uint8) -> int:
    """Write an escape sequence that stands inside a string of a JSON document: a backslash and its letter, both escaped
    again. Returns the position after it, where the digits of \\uXXXX follow."""
    out[at] = _BACKSLASH
    out[at + 1] = _BACKSLASH
    at += 2
    if letter in (0x62, 0x66):  # \b and \f, which Go writes with digits
        out[at] = _U
        out[at + 1] = _ZERO
        out[at + 2] = _ZERO
        out[at + 3] = _ZERO
        out[at + 4] = 0x38 if letter == 0x62 else 0x63
        return at + 5
    if letter in (_QUOTE, _BACKSLASH):
        out[at] = _BACKSLASH
        at += 1
    out[at] = letter
    return at + 1
