"""Compiled loops that decode blocks of SST files: entries with incremental keys (docs/backfill.md).

They return a status instead of raising: 0, or 1 + the index of what is malformed. Every length that comes from the data
is checked here. A block is `data[starts[i]:ends[i]]`, unpacked, with its list of restart points at the end.
"""

from __future__ import annotations

from typing import Any

from tistream.decode.kernels.arrow_buffers import I64, U8
from tistream.decode.kernels.jit import i64, inline, kernel
from tistream.decode.kernels.memory import copy_bytes, peek32

TRAILER_BYTES = 8  # after each key: the type of the entry, and seven bytes of sequence number
PUT = 1  # type of an entry
CHECKSUM_BYTES = 5  # after each block: type of compression, checksum
ENTRIES, KEY_BYTES, VALUE_BYTES, LONGEST = 0, 1, 2, 3  # totals


@inline
def _varint(data: U8, at: int, end: int) -> Any:
    """Read the unsigned varint at `at`, which must end at or before `end`. Returns its value, below 2 ** 63, and the
    position after it; the position is -1 if the varint is malformed, or if `at` is negative."""
    found = i64(0)
    if at < 0:
        return found, i64(-1)
    for byte in range(min(i64(9), end - at)):
        part = i64(data[at + byte])
        found |= (part & 0x7F) << (7 * byte)
        if part < 0x80:
            return found, i64(at + byte + 1)
    return found, i64(-1)


@inline
def _entries_end(data: U8, start: int, end: int) -> int:
    """The position after the last entry of the block data[start:end]; -1 if the block is malformed, or has a form that
    is not known."""
    if end - start < 4:
        return i64(-1)
    restarts = i64(peek32(data, end - 4))
    if restarts >> 28:  # the upper bits mark other forms
        return i64(-1)
    last = end - 4 - 4 * restarts
    return last if last >= start else i64(-1)


@kernel
def measure_blocks(data: U8, starts: I64, ends: I64, totals: I64) -> int:
    """Check the entries of blocks, and add to `totals` their number, the bytes of their keys and values, and the length
    of the longest key with its trailer (LONGEST: the maximum). Returns 0, or 1 + the index of the first malformed
    block."""
    for block in range(len(starts)):
        end = _entries_end(data, starts[block], ends[block])
        if end < 0:
            return block + 1
        at, before = starts[block], i64(0)
        while at < end:
            shared, at = _varint(data, at, end)
            own, at = _varint(data, at, end)
            size, at = _varint(data, at, end)
            if at < 0 or shared > before or own > end - at or size > end - at - own or shared + own < TRAILER_BYTES:
                return block + 1
            at += own + size
            before = shared + own
            totals[ENTRIES] += 1
            totals[KEY_BYTES] += before - TRAILER_BYTES
            totals[VALUE_BYTES] += size
            totals[LONGEST] = max(totals[LONGEST], before)
    return 0


@kernel
def copy_entries(
    data: U8, starts: I64, ends: I64, scratch: U8, key_offsets: I64, keys: U8, value_offsets: I64, values: U8
) -> int:
    """Copy the entries of blocks that measure_blocks has checked: keys without trailers to `keys`, and values to
    `values`, each end to end. Fills the offsets of both; their first elements must be 0. `scratch` has room for the
    longest key. Returns 0, or 1 + the number of the first entry that is not a put."""
    row = i64(0)
    for block in range(len(starts)):
        end = _entries_end(data, starts[block], ends[block])
        at = starts[block]
        while at < end:
            shared, at = _varint(data, at, end)
            own, at = _varint(data, at, end)
            size, at = _varint(data, at, end)
            copy_bytes(scratch, shared, data, at, own)
            length = shared + own - TRAILER_BYTES
            if scratch[length] != PUT:
                return row + 1
            copy_bytes(keys, key_offsets[row], scratch, 0, length)
            copy_bytes(values, value_offsets[row], data, at + own, size)
            key_offsets[row + 1] = key_offsets[row] + length
            value_offsets[row + 1] = value_offsets[row] + size
            at += own + size
            row += 1
    return 0


@kernel
def block_places(index: U8, delta: bool, offsets: I64, sizes: I64) -> int:
    """Decode the places of data blocks from an unpacked index block, and write them to `offsets` and `sizes`. `delta`:
    whether a place that follows another one is stated as the difference of their sizes. Returns the number of blocks,
    or -1 if the index is malformed or has more blocks than fit."""
    end = _entries_end(index, 0, len(index))
    at, count = i64(0), i64(0)
    while at < end:
        shared, at = _varint(index, at, end)
        own, at = _varint(index, at, end)
        if not delta:
            _, at = _varint(index, at, end)
        if at < 0 or own > end - at or count == len(offsets):
            return -1
        at += own
        if delta and shared:
            change, at = _varint(index, at, end)
            if not count:
                return -1
            offsets[count] = offsets[count - 1] + sizes[count - 1] + CHECKSUM_BYTES
            sizes[count] = sizes[count - 1] + ((change >> 1) ^ -(change & 1))
        else:
            offsets[count], at = _varint(index, at, end)
            sizes[count], at = _varint(index, at, end)
        if at < 0:
            return -1
        count += 1
    return count if end >= 0 else -1
