"""Decodes cells (encoded values in a row, columns.Cells) of integers, years, bits and floats to numbers
(upstream-formats 4.4)."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from tistream.decode.cells.reasons import BAD_FLOAT, BAD_INTEGER
from tistream.decode.kernels.arrow_buffers import I64, U8, Bools
from tistream.decode.kernels.cursor_io import load_i64, load_i64_big, load_u16, load_u32
from tistream.decode.kernels.jit import i64, kernel

_SIGN_BIT = -(1 << 63)


@kernel
def decode_integers(data: U8, start: I64, length: I64, unsigned: bool, out: I64, valid: Bools, errors: U8) -> None:
    """Decode cells of 1, 2, 4 or 8 little-endian bytes to int64 in `out`, with sign extension unless `unsigned`.
    Unsigned values of 64 bits are reinterpreted. A row without a value is 0 in `out` and False in `valid`. Cells of
    other lengths get the error code BAD_INTEGER."""
    for row in range(len(start)):
        size = length[row]
        at = start[row]
        out[row] = 0
        valid[row] = size >= 0
        if size == 1:
            value = i64(data[at])
        elif size == 2:
            value = load_u16(data, at)
        elif size == 4:
            value = load_u32(data, at)
        elif size == 8:
            value = load_i64(data, at)
        else:
            valid[row] = False
            if size >= 0:
                errors[row] = BAD_INTEGER
            continue
        if not unsigned:
            shift = 64 - 8 * size
            value = (value << shift) >> shift
        out[row] = value


@kernel
def decode_doubles(data: U8, start: I64, length: I64, out: npt.NDArray[np.int64], valid: Bools, errors: U8) -> None:
    """Decode cells of 8 memcomparable bytes to the bits of a double in `out`. A row without a value is 0 in `out` and
    False in `valid`. Cells of other lengths get the error code BAD_FLOAT."""
    for row in range(len(start)):
        size = length[row]
        out[row] = 0
        valid[row] = size == 8
        if size != 8:
            if size >= 0:
                errors[row] = BAD_FLOAT
            continue
        bits = load_i64_big(data, start[row])
        out[row] = bits & ~_SIGN_BIT if bits < 0 else ~bits
