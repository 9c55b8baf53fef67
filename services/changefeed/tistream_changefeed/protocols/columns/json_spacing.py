"""Writes JSON documents as TiDB shows them: with a space after each comma and colon, and with Go's escapes."""

from __future__ import annotations

from typing import Any

import numpy as np

from tistream.decode.kernels.arrow_buffers import I64, U8, binary_array, flat_bytes, one_array, validity
from tistream.decode.kernels.go_text import is_separator
from tistream.decode.kernels.jit import i64, inline, kernel
from tistream.decode.kernels.text_io import put_raw

_QUOTE, _BACKSLASH, _COMMA, _COLON, _SPACE = 0x22, 0x5C, 0x2C, 0x3A, 0x20
_GROWTH = 3  # the most bytes of text for each byte: \b becomes \u0008
_B, _F, _SEPARATOR_LEAD = 0x62, 0x66, 0xE2
_CODES = np.frombuffer(b"\\u0008\\u000c\\u2028\\u2029", np.uint8)
_CODE = 6  # bytes of one of them


def spaced(documents: Any) -> Any:
    """Write JSON documents as TiDB shows them. The decoder writes them without the spaces after `:` and `,`, with the
    escapes `\\b` and `\\f`, and with U+2028 and U+2029 as they are; TiDB writes these four as `\\u0008` and so on.
    Returns a large_string array. Nulls stay null."""
    array = one_array(documents)
    flat = flat_bytes(array)
    out = np.empty(_GROWTH * len(flat.data) + 1, np.uint8)
    offsets = np.empty(len(flat) + 1, np.int64)
    put_spaced(flat.data, flat.offsets, out, offsets)
    return binary_array(out[: offsets[-1]], offsets, validity(array) if array.null_count else None, text=True)


@kernel
def put_spaced(data: U8, starts: I64, out: U8, out_offsets: I64) -> None:
    """Write each document `data[starts[i]:starts[i + 1]]` as TiDB shows it to `out`, and the bounds of the results to
    `out_offsets`. `out` has room for _GROWTH times the bytes."""
    at = i64(0)
    out_offsets[0] = 0
    for row in range(len(starts) - 1):
        inside = False  # of a string
        place, end = starts[row], starts[row + 1]
        while place < end:
            byte = data[place]
            code, size = _coded(data, place, end)
            if code >= 0:
                at = put_raw(out, at, _CODES, code * _CODE, code * _CODE + _CODE)
                place += size
                continue
            out[at] = byte
            at += 1
            place += 1
            if byte == _QUOTE:
                inside = not inside
            elif byte == _BACKSLASH and place < end:
                out[at] = data[place]
                at += 1
                place += 1
            elif not inside and byte in (_COMMA, _COLON):
                out[at] = _SPACE
                at += 1
        out_offsets[row + 1] = at


@inline
def _coded(data: U8, place: int, end: int) -> tuple[int, int]:
    """Whether one of the four begins at `place` that TiDB writes as a code. Returns (the number of its code in _CODES,
    its bytes), or (-1, 0)."""
    byte = data[place]
    if byte == _BACKSLASH and place + 1 < end:
        if data[place + 1] == _B:
            return i64(0), i64(2)
        if data[place + 1] == _F:
            return i64(1), i64(2)
    elif byte == _SEPARATOR_LEAD and is_separator(data, place, end):
        return i64(2 + (data[place + 2] & 1)), i64(3)
    return i64(-1), i64(0)
