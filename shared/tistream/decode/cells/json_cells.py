"""Decodes cells (encoded values in a row, columns.Cells) of binary JSON and of vectors to JSON text (upstream-formats
4.4).

In binary JSON, the entries of an object hold offsets to their values. So in a hostile document many entries can point
to the same value, and the text can become very long. If no two entries share bytes, the text has at most EXPANSION
bytes for each byte of the document. A document whose text is longer is rejected.
"""

from __future__ import annotations

import numpy as np

from tistream.decode.cells.reasons import BAD_JSON, BAD_VECTOR
from tistream.decode.cells.time_cells import DATETIME_CHARS, DURATION_CHARS, put_duration, put_time
from tistream.decode.kernels.arrow_buffers import I64, U8, Bools
from tistream.decode.kernels.cursor_io import load_i64, load_u16, load_u32, varint_end, varint_value
from tistream.decode.kernels.jit import i64, inline, kernel, u64
from tistream.decode.kernels.text_io import (
    FLOAT_CHARS,
    INT_CHARS,
    WORD,
    put_base64,
    put_double,
    put_int,
    put_plain_single,
    put_quoted,
    put_uint,
)

EXPANSION = 6  # a control character becomes \u001f; every other value needs less text for each of its bytes
SLACK = 64
DEPTH_MAX = 100  # TiDB's own limit

_OBJECT, _ARRAY, _LITERAL = 0x01, 0x03, 0x04
_INT, _UINT, _DOUBLE, _STRING, _OPAQUE = 0x09, 0x0A, 0x0B, 0x0C, 0x0D
_DATE, _DATETIME, _TIMESTAMP, _DURATION = 0x0E, 0x0F, 0x10, 0x11
_HEADER, _KEY_ENTRY, _VALUE_ENTRY = 8, 6, 5
_FRAME = 4  # numbers in the frame of an open object or array
_PLACE, _COUNT, _NEXT, _IS_OBJECT = 0, 1, 2, 3
_EXPONENT = 0x7FF << 52
_SINGLE_EXPONENT = 0xFF << 23
_QUOTE, _COMMA, _COLON = 0x22, 0x2C, 0x3A
_ROOM = 8  # a comma and a literal, or a bracket
_FSP = 6  # times inside JSON always have six fraction digits
_LITERALS = np.frombuffer(b"null\0true\0false", np.uint8)
_OPAQUE_HEAD = np.frombuffer(b'"base64:type', np.uint8)


@kernel
def decode_json(data: U8, start: I64, length: I64, out: U8, out_offsets: I64, valid: Bools, errors: U8) -> None:
    """Write each JSON document as text to `out`, end to end. The text of row i is `out[out_offsets[i]:out_offsets[i +
    1]]`; `valid` is set to whether row i has one. `out` has room for EXPANSION times a cell's length plus SLACK bytes
    per row. Invalid cells get the error code BAD_JSON."""
    frames = np.empty(DEPTH_MAX * _FRAME, np.int64)
    at = 0
    out_offsets[0] = 0
    for row in range(len(start)):
        size = length[row]
        valid[row] = size >= 0
        if size >= 0:
            limit = at + EXPANSION * size + SLACK
            after = _put_document(data, start[row], start[row] + size, out, at, limit, frames)
            if after < 0:
                valid[row] = False
                errors[row] = BAD_JSON
            else:
                at = after
        out_offsets[row + 1] = at


@inline
def _put_document(data: U8, first: int, end: int, out: U8, at: int, limit: int, frames: I64) -> int:  # noqa: PLR0911  # each return is a way to be bad
    """Write one document as text to `out` from offset `at`. The document is the bytes [first, end) of `data`, and
    begins with its type byte. Returns the offset after the text, or -1 if the document is invalid."""
    if end - first < 2:
        return -1
    kind = i64(data[first])
    place = first + 1
    depth = 0
    top = -_FRAME
    while True:
        if limit - at < _ROOM:
            return -1
        if kind in (_OBJECT, _ARRAY):
            if depth == DEPTH_MAX or not _open(data, place, end, kind == _OBJECT, frames, depth * _FRAME):
                return -1
            out[at] = 0x7B if kind == _OBJECT else 0x5B
            at += 1
            top = depth * _FRAME
            depth += 1
        else:
            at = _put_scalar(data, kind, place, end, out, at, limit)
            if at < 0:
                return -1
        while depth > 0 and frames[top + _NEXT] == frames[top + _COUNT]:
            if at == limit:
                return -1
            out[at] = 0x7D if frames[top + _IS_OBJECT] else 0x5D
            at += 1
            depth -= 1
            top -= _FRAME
        if depth == 0:
            return at
        at = _put_key(data, out, at, limit, frames, top)
        if at < 0:
            return -1
        kind, place = _next_value(data, end, frames, top)
        if place < 0:
            return -1


@inline
def _open(data: U8, place: int, end: int, is_object: bool, frames: I64, top: int) -> bool:
    """Begin an object or array: read its count at `place`, and fill entry `top` of the stack `frames`. Returns False if
    it is invalid."""
    if end - place < _HEADER:
        return False
    count = load_u32(data, place)
    size = load_u32(data, place + 4)
    entries = count * (_VALUE_ENTRY + (_KEY_ENTRY if is_object else 0))
    if size > end - place or _HEADER + entries > size:
        return False
    frames[top + _PLACE] = place
    frames[top + _COUNT] = count
    frames[top + _NEXT] = 0
    frames[top + _IS_OBJECT] = 1 if is_object else 0
    return True


@inline
def _put_key(data: U8, out: U8, at: int, limit: int, frames: I64, top: int) -> int:
    """Write what comes before the next value of the object or array in `frames[top:]`: a comma unless it is the first
    value, and in an object the key and a colon. Returns the offset after them, or -1 if the key is invalid or does not
    fit below the offset `limit`."""
    if limit - at < _ROOM:
        return -1
    if frames[top + _NEXT] > 0:
        out[at] = _COMMA
        at += 1
    if not frames[top + _IS_OBJECT]:
        return at
    entry = frames[top + _PLACE] + _HEADER + frames[top + _NEXT] * _KEY_ENTRY
    first = load_u32(data, entry)
    size = load_u16(data, entry + 4)
    if first + size > load_u32(data, frames[top + _PLACE] + 4) or limit - at < EXPANSION * size + 3:
        return -1
    at = put_quoted(out, at, data, frames[top + _PLACE] + first, frames[top + _PLACE] + first + size)
    out[at] = _COLON
    return at + 1


@inline
def _next_value(data: U8, end: int, frames: I64, top: int) -> tuple[int, int]:
    """Read the next entry of the object or array on top of the stack. Returns (the value's type byte, its offset); the
    offset is -1 if it is outside of the document."""
    values = frames[top + _PLACE] + _HEADER + (frames[top + _COUNT] * _KEY_ENTRY if frames[top + _IS_OBJECT] else 0)
    entry = values + frames[top + _NEXT] * _VALUE_ENTRY
    frames[top + _NEXT] += 1
    kind = i64(data[entry])
    if kind == _LITERAL:
        return kind, entry + 1
    place = frames[top + _PLACE] + load_u32(data, entry + 1)
    return kind, place if place < end else i64(-1)


@inline
def _put_scalar(data: U8, kind: int, place: int, end: int, out: U8, at: int, limit: int) -> int:  # noqa: PLR0911  # each return is a way to be bad
    left = end - place
    room = limit - at
    if kind == _LITERAL:
        return _put_literal(data, place, end, out, at)
    if kind in (_STRING, _OPAQUE):
        return _put_bytes(data, kind, place, end, out, at, limit)
    if left < 8 or room < max(FLOAT_CHARS, INT_CHARS, DATETIME_CHARS + 2, DURATION_CHARS + 2):
        return -1
    bits = load_i64(data, place)
    if kind == _INT:
        return put_int(out, at, bits)
    if kind == _UINT:
        return put_uint(out, at, u64(bits))
    if kind == _DOUBLE:
        if (bits & _EXPONENT) == _EXPONENT:  # JSON has no numbers that are not finite
            return _put_word(0, 4, out, at)
        return put_double(out, at, bits, True)
    if _DATE <= kind <= _TIMESTAMP:
        out[at] = _QUOTE
        at = put_time(
            out, at + 1, (bits >> 50) & 0x3FFF, (bits >> 46) & 15, (bits >> 41) & 31, (bits >> 36) & 31,
            (bits >> 30) & 63, (bits >> 24) & 63, (bits >> 4) & 0xFFFFF, _FSP, kind == _DATE,
        )  # fmt: skip
    elif kind == _DURATION and left >= 12:
        out[at] = _QUOTE
        at = put_duration(out, at + 1, bits, _FSP)
    else:
        return -1
    if at < 0:
        return -1
    out[at] = _QUOTE
    return at + 1


@inline
def _put_literal(data: U8, place: int, end: int, out: U8, at: int) -> int:
    literal = data[place] if place < end else np.uint8(255)
    if literal > 2:
        return -1
    if literal == 2:
        return _put_word(10, 5, out, at)
    return _put_word(5 if literal == 1 else 0, 4, out, at)


@inline
def _put_word(first: int, size: int, out: U8, at: int) -> int:
    for index in range(size):
        out[at + index] = _LITERALS[first + index]
    return at + size


@inline
def _put_bytes(data: U8, kind: int, place: int, end: int, out: U8, at: int, limit: int) -> int:
    """Write a string as a JSON string, or an opaque value as the JSON string `base64:type{N}:{base64}`. The value
    begins at `place` in `data`, after its type byte `kind`. Returns the offset after the text, or -1 if the value is
    invalid or the text does not fit below the offset `limit`."""
    first = varint_end(data, place + (1 if kind == _OPAQUE else 0), end)
    if first < 0:
        return -1
    size = varint_value(data, place + (1 if kind == _OPAQUE else 0), first, False)
    if not 0 <= size <= end - first:
        return -1
    if kind == _STRING:
        if limit - at < EXPANSION * size + 2:
            return -1
        return put_quoted(out, at, data, first, first + size)
    if limit - at < len(_OPAQUE_HEAD) + WORD + (size + 2) // 3 * 4:
        return -1
    for index in range(len(_OPAQUE_HEAD)):
        out[at + index] = _OPAQUE_HEAD[index]
    at = put_uint(out, at + len(_OPAQUE_HEAD), u64(data[place]))
    out[at] = _COLON
    at = put_base64(out, at + 1, data, first, first + size)
    out[at] = _QUOTE
    return at + 1


@kernel
def decode_vectors(data: U8, start: I64, length: I64, out: U8, out_offsets: I64, valid: Bools, errors: U8) -> None:
    """Write each vector as `[1,2.5]` to `out`, end to end, with the shortest float32 digits and without exponents. The
    text of row i is `out[out_offsets[i]:out_offsets[i + 1]]`; `valid` is set to whether row i has one. `out` has room
    for PLAIN_SINGLE_CHARS + 1 bytes for each 4 bytes of a cell, and 2 bytes per row. Invalid cells get the error code
    BAD_VECTOR."""
    at = 0
    out_offsets[0] = 0
    for row in range(len(start)):
        size = length[row]
        valid[row] = size >= 0
        if size >= 0:
            after = _put_vector(data, start[row], size, out, at)
            if after < 0:
                valid[row] = False
                errors[row] = BAD_VECTOR
            else:
                at = after
        out_offsets[row + 1] = at


@inline
def _put_vector(data: U8, place: int, size: int, out: U8, at: int) -> int:
    if size < 4 or size != 4 + 4 * load_u32(data, place):
        return -1
    out[at] = 0x5B
    at += 1
    for number in range(place + 4, place + size, 4):
        bits = load_u32(data, number)
        if (bits & _SINGLE_EXPONENT) == _SINGLE_EXPONENT:
            return -1
        if number > place + 4:
            out[at] = _COMMA
            at += 1
        at = put_plain_single(out, at, bits)
    out[at] = 0x5D
    return at + 1
