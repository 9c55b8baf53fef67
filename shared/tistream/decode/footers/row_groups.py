"""A compiled loop that checks the row groups of a Parquet footer, and copies what pyarrow needs of them. It reads only
what `scan` has found."""

from __future__ import annotations

from typing import Any

from tistream.decode.kernels.arrow_buffers import I64, U8
from tistream.decode.kernels.footer_places import (
    BINARY,
    FILE_OFFSET,
    FOREIGN,
    GROUP_CHUNKS,
    HIGH,
    I16,
    I32,
    I64_,
    LIST,
    LOW,
    META,
    PLACE,
    PLAIN,
    STRUCT,
    number_at,
    varint,
    zigzag,
)
from tistream.decode.kernels.jit import i64, inline, kernel
from tistream.decode.kernels.memory import copy_bytes

# Columns of what `check_groups` finds of each column chunk
START, LENGTH, UNPACKED, VALUES, PLAIN_BYTES, LOW_START, LOW_END, HIGH_START, HIGH_END, FOUND = range(10)
RANGE_START, RANGE_LENGTH, ALL_UNPACKED, ALL_DECODED, ROWS, SUMS = range(6)  # and of each row group

_MAGIC_BYTES, _LAST_CODEC, _LAST_ENCODING = 4, 7, 9  # the last ones are LZ4_RAW, BYTE_STREAM_SPLIT
_MOST = (1 << 63) - 1


@inline
def _is_int(row: I64, slot: int) -> bool:
    return bool(I16 <= row[slot * PLACE] <= I64_)


@inline
def _list_of(data: U8, row: I64, slot: int, element: int) -> Any:
    """Read the head of the value at place `slot` of `row`, which should be a list of elements of the Thrift type
    `element`. Returns (the number of elements, the offset of the first one); the number is -1 if the value is not such
    a list. An empty list may be of any type."""
    if row[slot * PLACE] != LIST:
        return i64(-1), i64(0)
    at = row[slot * PLACE + 1]
    head = i64(data[at])
    count, at = head >> 4, at + 1
    if count == 15:
        raw, at, _ = varint(data, at)
        count = i64(raw)
    return (count if count == 0 or head & 15 == element else i64(-1)), i64(at)


@inline
def _same_path(data: U8, at: int, count: int, paths: U8, ends: I64, first: int, last: int) -> bool:
    """Whether the `count` names at offset `at` of `data` equal the names with the numbers from `first` to below `last`
    in `paths`. Name i of `paths` ends at `ends[i]`."""
    if count != last - first:
        return False
    for name in range(first, last):
        begin = ends[name - 1] if name else 0
        raw, at, _ = varint(data, at)
        length = i64(raw)
        if length != ends[name] - begin:
            return False
        for byte in range(length):
            if data[at + byte] != paths[begin + byte]:
                return False
        at += length
    return True


@inline
def _encodings_known(data: U8, at: int, count: int) -> bool:
    for _ in range(count):
        raw, at, _ = varint(data, at)
        if not 0 <= zigzag(raw) <= _LAST_ENCODING:
            return False
    return True


@inline
def _check_chunk(  # noqa: PLR0911, PLR0912  # each return is a way to be bad
    data: U8, row: I64, rows: int, end: int, leaf: Any, paths: U8, path_ends: I64, first: int, found: Any
) -> bool:
    """Check a column chunk against its leaf of the schema, and write what is known of it to `found`. Returns whether it
    is sound. `row` has the places of the chunk's values, and `rows` is the number of rows of its row group. `first` is
    the number of the first name of the leaf's path; `leaf`, `paths`, `path_ends` and `end`: as in check_groups."""
    if row[FOREIGN * PLACE]:
        return False
    if row[META * PLACE] != STRUCT:
        return False
    for slot in (1, 4, 5, 6, 7, 9):
        if not _is_int(row, slot):
            return False
    count, at = _list_of(data, row, 3, BINARY)
    if count < 0 or (row[11 * PLACE] and not _is_int(row, 11)):
        return False
    if number_at(data, row[PLACE + 1]) != leaf[1]:
        return False
    if not _same_path(data, at, count, paths, path_ends, first, leaf[0]):
        return False
    if not 0 <= number_at(data, row[4 * PLACE + 1]) <= _LAST_CODEC:
        return False
    count, at = _list_of(data, row, 2, I32)
    if count < 0:
        return False
    if not _encodings_known(data, at, count):
        return False
    values, unpacked = number_at(data, row[5 * PLACE + 1]), number_at(data, row[6 * PLACE + 1])
    length, start = number_at(data, row[7 * PLACE + 1]), number_at(data, row[9 * PLACE + 1])
    found[VALUES], found[LENGTH], found[UNPACKED] = values, length, unpacked
    if values < 0 or (leaf[2] and values != rows) or length < 0 or unpacked < 0:
        return False
    if row[11 * PLACE]:
        dictionary = number_at(data, row[11 * PLACE + 1])
        if dictionary:  # some writers store 0 if there is no dictionary
            start = min(start, dictionary)
        else:
            row[11 * PLACE] = 0
    found[START] = start
    if length and (start < _MAGIC_BYTES or start > end or length > end - start):
        return False
    found[LOW_START] = found[HIGH_START] = -1
    if row[12 * PLACE]:
        if row[12 * PLACE] != STRUCT:
            return False
        if row[LOW * PLACE] and row[HIGH * PLACE]:
            if row[LOW * PLACE] != BINARY or row[HIGH * PLACE] != BINARY:
                return False
            found[LOW_START], found[LOW_END] = row[LOW * PLACE + 1], row[LOW * PLACE + 2]
            found[HIGH_START], found[HIGH_END] = row[HIGH * PLACE + 1], row[HIGH * PLACE + 2]
    if row[PLAIN * PLACE] == I64_:
        found[PLAIN_BYTES] = max(i64(0), number_at(data, row[PLAIN * PLACE + 1]))
    return True


@inline
def _put_count(out: U8, at: int, count: int) -> int:
    """Write the head of a list of `count` structs at `at`. Returns the offset after it."""
    if count < 15:
        out[at] = count << 4 | STRUCT
        return i64(at + 1)
    out[at] = 0xF0 | STRUCT
    at += 1
    while count > 127:
        out[at] = count & 127 | 128
        at += 1
        count >>= 7
    out[at] = count
    return i64(at + 1)


@inline
def _put_field(out: U8, at: int, data: U8, row: I64, slot: int, step: int) -> int:
    """Copy the number or list at place `slot` of `row`, as the field whose number is `step` higher than that of the
    field before it. Returns the offset after it."""
    start, end = row[slot * PLACE + 1], row[slot * PLACE + 2]
    out[at] = step << 4 | row[slot * PLACE]
    copy_bytes(out, at + 1, data, start, end - start)
    return i64(at + 1 + end - start)


@inline
def _put_chunk(out: U8, at: int, data: U8, row: I64) -> int:
    """Write a column chunk with only those fields that a reader of row groups needs. Returns the offset after it."""
    before = i64(0)
    if _is_int(row, FILE_OFFSET):
        at = _put_field(out, at, data, row, FILE_OFFSET, 2)
        before = i64(2)
    out[at] = (3 - before) << 4 | STRUCT
    at += 1
    before = i64(0)
    for slot in (1, 2, 3, 4, 5, 6, 7, 9, 11):
        if row[slot * PLACE]:
            at = _put_field(out, at, data, row, slot, slot - before)
            before = i64(slot)
    out[at] = out[at + 1] = 0
    return i64(at + 2)


@inline
def _add_chunk(sums: Any, found: Any) -> bool:
    """Add the chunk `found` to the totals `sums` of its row group, in place: the bytes, and the range of the file that
    contains all chunks. Returns False if a total would not fit into an int64."""
    decoded = max(found[UNPACKED], found[PLAIN_BYTES])
    if found[UNPACKED] > _MOST - sums[ALL_UNPACKED] or decoded > _MOST - sums[ALL_DECODED]:
        return False
    sums[ALL_UNPACKED] += found[UNPACKED]
    sums[ALL_DECODED] += decoded
    if found[LENGTH]:
        first, last = found[START], found[START] + found[LENGTH]
        if sums[RANGE_LENGTH]:
            last = max(last, sums[RANGE_START] + sums[RANGE_LENGTH])
            first = min(first, sums[RANGE_START])
        sums[RANGE_START], sums[RANGE_LENGTH] = first, last - first
    return True


@kernel
def check_groups(
    data: U8,
    groups: Any,
    chunks: Any,
    leaves: Any,
    paths: U8,
    path_ends: I64,
    end: int,
    found: Any,
    sums: Any,
    out: U8,
) -> int:
    """Check row groups, and write the list of them for pyarrow to `out`, with only the fields that a reader needs.

    `groups` and `chunks` are what `scan` has written. `leaves` has a row for each leaf of the schema: the number of
    names in the paths up to its own, its physical type, and whether it is not repeated. The names are in `paths`; name
    i ends at `path_ends[i]`. `end`: the offset in the file at which its pages must end. What was found is written to
    `found`, a row for each column chunk, and to `sums`, a row for each row group. Returns the number of bytes in `out`,
    or -1 if a row group is not sound.
    """
    at = _put_count(out, 0, len(groups))
    for number in range(len(groups)):
        group = groups[number]
        begin = group[GROUP_CHUNKS]
        count, _ = _list_of(data, group, 1, STRUCT)
        if count < 0 or not _is_int(group, 3):
            return -1
        rows = number_at(data, group[3 * PLACE + 1])
        sums[number, ROWS] = rows
        if rows < 0 or count != len(leaves):
            return -1
        sums[number, RANGE_START] = _MAGIC_BYTES
        out[at] = 1 << 4 | LIST
        at = _put_count(out, at + 1, count)
        first = i64(0)
        for leaf in range(count):
            row = chunks[begin + leaf]
            some = found[begin + leaf]
            if not _check_chunk(data, row, rows, end, leaves[leaf], paths, path_ends, first, some):
                return -1
            if not _add_chunk(sums[number], some):
                return -1
            first = leaves[leaf, 0]
            at = _put_chunk(out, at, data, row)
        before = i64(1)
        if _is_int(group, 2):
            at = _put_field(out, at, data, group, 2, 1)
            before = i64(2)
        at = _put_field(out, at, data, group, 3, 3 - before)
        out[at] = 0
        at += 1
    return at
