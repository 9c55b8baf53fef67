"""Inserts spaces into JSON documents as TiDB does: one after each comma and colon."""

from __future__ import annotations

from typing import Any

import numpy as np

from tistream.decode.kernels.arrow_buffers import I64, U8, binary_array, flat_bytes, one_array, validity
from tistream.decode.kernels.jit import i64, kernel

_QUOTE, _BACKSLASH, _COMMA, _COLON, _SPACE = 0x22, 0x5C, 0x2C, 0x3A, 0x20


def spaced(documents: Any) -> Any:
    """Add the spaces after `:` and `,` to JSON documents, because the decoder writes them without spaces. Returns a
    large_string array. Nulls stay null."""
    array = one_array(documents)
    flat = flat_bytes(array)
    out = np.empty(2 * len(flat.data) + 1, np.uint8)
    offsets = np.empty(len(flat) + 1, np.int64)
    put_spaced(flat.data, flat.offsets, out, offsets)
    return binary_array(out[: offsets[-1]], offsets, validity(array) if array.null_count else None, text=True)


@kernel
def put_spaced(data: U8, starts: I64, out: U8, out_offsets: I64) -> None:
    """Write each document `data[starts[i]:starts[i + 1]]` with the spaces to `out`, and the bounds of the results to
    `out_offsets`. `out` has room for twice the bytes."""
    at = i64(0)
    out_offsets[0] = 0
    for row in range(len(starts) - 1):
        inside = False  # of a string
        place = starts[row]
        while place < starts[row + 1]:
            byte = data[place]
            out[at] = byte
            at += 1
            place += 1
            if byte == _QUOTE:
                inside = not inside
            elif inside and byte == _BACKSLASH and place < starts[row + 1]:
                out[at] = data[place]
                at += 1
                place += 1
            elif not inside and (byte in (_COMMA, _COLON)):
                out[at] = _SPACE
                at += 1
        out_offsets[row + 1] = at
