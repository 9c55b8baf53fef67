"""Kernels that write many cells into record keys and row values of format v2 (upstream-formats 3.1, 4.1)."""

from __future__ import annotations

from tistream.decode.kernels.arrow_buffers import I64, U8
from tistream.decode.kernels.jit import kernel
from tistream.decode.kernels.memory import copy_bytes

_GROUP = 8
_MARKER = 0xFF
_SPACE = 0x20
_HEADER = 6
_V2 = 0x80
_SMALL_ID, _SMALL_END = 0xFF, 0xFFFF


@kernel
def grouped_ends(data: U8, start: I64, length: I64, trim: bool, kept: I64, offsets: I64) -> None:
    """Compute the offsets at which `put_groups` will write the datums, the encoded values in a record key. Value i
    begins at `data[start[i]]` and has `length[i]` bytes. `kept` receives the length of each value in bytes; if `trim`,
    it leaves out trailing spaces. Datum i will be `out[offsets[i]:offsets[i + 1]]`."""
    offsets[0] = 0
    for row in range(len(start)):
        size = length[row]
        while trim and size > 0 and data[start[row] + size - 1] == _SPACE:
            size -= 1
        kept[row] = size
        offsets[row + 1] = offsets[row] + 1 + (size // _GROUP + 1) * (_GROUP + 1)


@kernel
def put_groups(data: U8, start: I64, kept: I64, flag: int, offsets: I64, out: U8) -> None:
    """Write the first `kept[i]` bytes of each value as a memcomparable datum: the byte `flag`, then groups of 8 bytes,
    each with a marker byte. `kept` and `offsets` are those of `grouped_ends`. `out` must be filled with zeros."""
    for row in range(len(start)):
        at, left, to = start[row], kept[row], offsets[row]
        out[to] = flag
        to += 1
        while True:
            size = min(left, _GROUP)
            if size > 0:
                copy_bytes(out, to, data, at, size)
            out[to + _GROUP] = _MARKER - (_GROUP - size)
            to += _GROUP + 1
            at += size
            left -= size
            if size < _GROUP:
                break


@kernel
def key_ends(length: I64, prefix: int, shortest: int, offsets: I64) -> None:
    """Compute the offsets at which `put_keys` will write the record keys. A key is a prefix of `prefix` bytes and its
    datums (encoded values), padded to `shortest` bytes. The shape of `length` is [row, datum]."""
    offsets[0] = 0
    for row in range(len(length)):
        handle = 0
        for datum in range(length.shape[1]):
            handle += length[row, datum]
        offsets[row + 1] = offsets[row] + prefix + max(handle, shortest)


@kernel
def put_keys(prefix: U8, data: U8, start: I64, length: I64, offsets: I64, out: U8) -> None:
    """Write keys: the prefix and the datums of each row. Datum d of row r has `length[r, d]` bytes of `data` from
    `start[r, d]` on. `offsets` are those of `key_ends`. `out` must be filled with zeros, which pad short handles."""
    for row in range(len(length)):
        to = offsets[row]
        copy_bytes(out, to, prefix, 0, len(prefix))
        to += len(prefix)
        for datum in range(length.shape[1]):
            if length[row, datum] > 0:
                copy_bytes(out, to, data, start[row, datum], length[row, datum])
            to += length[row, datum]


@kernel
def row_ends(ids: I64, length: I64, offsets: I64) -> None:
    """Compute the offsets at which `put_rows` will write the row values. The shape of `length`, the bytes of each cell,
    is [row, column]; a negative length means NULL. `ids` has the ids of the columns, ascending."""
    offsets[0] = 0
    wide_ids = len(ids) > 0 and ids[-1] > _SMALL_ID
    for row in range(len(length)):
        filled, total = 0, 0
        for column in range(len(ids)):
            if length[row, column] >= 0:
                filled += 1
                total += length[row, column]
        if wide_ids or total > _SMALL_END:
            offsets[row + 1] = offsets[row] + _HEADER + 4 * len(ids) + 4 * filled + total
        else:
            offsets[row + 1] = offsets[row] + _HEADER + len(ids) + 2 * filled + total


@kernel
def put_rows(ids: I64, data: U8, start: I64, length: I64, offsets: I64, out: U8) -> None:  # the format's two widths
    """Write row values of format v2: the header, the ids of the columns that have a value, the ids of those that are
    NULL, the ends of the cells, and the cells. The cell of row r and column c has `length[r, c]` bytes of `data` from
    `start[r, c]` on. `ids`, `length` and `offsets` are those of `row_ends`."""
    wide_ids = len(ids) > 0 and ids[-1] > _SMALL_ID
    for row in range(len(length)):
        filled, total = 0, 0
        for column in range(len(ids)):
            if length[row, column] >= 0:
                filled += 1
                total += length[row, column]
        large = wide_ids or total > _SMALL_END
        width, end_width = (4, 4) if large else (1, 2)
        at = offsets[row]
        nulls = len(ids) - filled
        out[at] = _V2
        out[at + 1] = 1 if large else 0
        out[at + 2], out[at + 3] = filled & 0xFF, filled >> 8
        out[at + 4], out[at + 5] = nulls & 0xFF, nulls >> 8
        id_at = at + _HEADER
        null_at = id_at + width * filled
        end_at = null_at + width * nulls
        first = end_at + end_width * filled
        to = first
        for column in range(len(ids)):
            size = length[row, column]
            place = id_at if size >= 0 else null_at
            for index in range(width):
                out[place + index] = (ids[column] >> (8 * index)) & 0xFF
            if size < 0:
                null_at += width
                continue
            id_at += width
            if size > 0:
                copy_bytes(out, to, data, start[row, column], size)
            to += size
            for index in range(end_width):
                out[end_at + index] = ((to - first) >> (8 * index)) & 0xFF
            end_at += end_width
