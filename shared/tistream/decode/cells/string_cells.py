"""Decodes cells (encoded values in a row, columns.Cells) of strings, blobs, enums and sets, and validates UTF-8."""

from __future__ import annotations

import numpy as np

from tistream.decode.cells.reasons import BAD_SET
from tistream.decode.kernels.arrow_buffers import I64, U8, Bools
from tistream.decode.kernels.jit import i64, inline, kernel, u64
from tistream.decode.kernels.memory import copy_bytes, peek64
from tistream.decode.kernels.text_io import put_raw

_COMMA = 0x2C
_TOPS = u64(0x8080808080808080).astype(np.int64)


@kernel
def gather_bytes(data: U8, start: I64, length: I64, out: U8, out_offsets: I64, valid: Bools) -> None:
    """Copy the bytes of all cells to `out`, one after the other. Fills their offsets, and which rows have a cell."""
    at = 0
    out_offsets[0] = 0
    for row in range(len(start)):
        size = length[row]
        valid[row] = size >= 0
        if size > 0:
            copy_bytes(out, at, data, start[row], size)
            at += size
        out_offsets[row + 1] = at


@kernel
def is_ascii(data: U8) -> bool:
    """Whether every byte is ASCII (at most 0x7F)."""
    words = len(data) // 8 * 8
    seen = i64(0)
    for at in range(0, words, 8):
        seen |= peek64(data, at)
    for at in range(words, len(data)):
        seen |= i64(data[at]) << 56
    return bool((seen & _TOPS) == 0)


@kernel
def count_not_utf8(data: U8, offsets: I64, bad: Bools) -> int:
    """Mark the strings that are not valid UTF-8 in `bad`, and return their number."""
    count = 0
    for row in range(len(offsets) - 1):
        bad[row] = not _is_utf8(data, offsets[row], offsets[row + 1])
        if bad[row]:
            count += 1
    return count


@inline
def _is_utf8(data: U8, at: int, end: int) -> bool:  # noqa: PLR0912  # Unicode's own table of lead bytes
    while at < end:
        lead = data[at]
        if lead < 0x80:
            at += 1
            continue
        low, high = 0x80, 0xBF
        if 0xC2 <= lead <= 0xDF:
            more = 1
        elif 0xE0 <= lead <= 0xEF:
            more = 2
            if lead == 0xE0:
                low = 0xA0
            elif lead == 0xED:
                high = 0x9F
        elif 0xF0 <= lead <= 0xF4:
            more = 3
            if lead == 0xF0:
                low = 0x90
            elif lead == 0xF4:
                high = 0x8F
        else:
            return False
        if at + more >= end or not low <= data[at + 1] <= high:
            return False
        for index in range(2, more + 1):
            if (data[at + index] & 0xC0) != 0x80:
                return False
        at += more + 1
    return True


@kernel
def elements_length(indexes: I64, present: Bools, is_set: bool, offsets: I64, valid: Bools, errors: U8) -> int:
    """Return an upper bound of the bytes that `put_elements` will write for these values, and fill `valid`: which of
    them can be written. `indexes` has ENUM's numbers or SET's bits. `offsets` are those of the element names. A SET
    value with a bit that stands for no element gets the error code BAD_SET."""
    total = 0
    count = len(offsets) - 1
    for row in range(len(indexes)):
        valid[row] = present[row]
        if not present[row]:
            continue
        value = indexes[row]
        if not is_set:
            if 1 <= value <= count:
                total += offsets[value] - offsets[value - 1]
            continue
        if count < 64 and (value < 0 or value >> count != 0):
            valid[row] = False
            errors[row] = BAD_SET
            continue
        for bit in range(count):
            if (value >> bit) & 1:
                total += offsets[bit + 1] - offsets[bit] + 1
    return total


@kernel
def put_elements(indexes: I64, valid: Bools, is_set: bool, names: U8, offsets: I64, out: U8, out_offsets: I64) -> None:
    """Write the text of each value to `out`, end to end: that of row i is `out[out_offsets[i]:out_offsets[i + 1]]`, and
    is empty if the row is not valid. `indexes` has ENUM's numbers or SET's bits; element i of the column has the name
    `names[offsets[i]:offsets[i + 1]]`. ENUM: the name of the element with that number, counted from 1; empty for an
    unknown number. SET: the names of the elements whose bits are set, separated by commas."""
    at = 0
    out_offsets[0] = 0
    count = len(offsets) - 1
    for row in range(len(indexes)):
        value = indexes[row]
        if not valid[row]:
            pass
        elif not is_set:
            if 1 <= value <= count:
                at = put_raw(out, at, names, offsets[value - 1], offsets[value])
        else:
            first = at
            for bit in range(count):
                if (value >> bit) & 1:
                    if at != first:
                        out[at] = _COMMA
                        at += 1
                    at = put_raw(out, at, names, offsets[bit], offsets[bit + 1])
        out_offsets[row + 1] = at
