"""Compiled loops that parse versioned keys (a memcomparable raw key and a timestamp) and write records, the entries of
TiKV's column families (upstream-formats 2.1, 8.1, 8.2).

They return a status instead of raising: 0, or 1 + the index of the first malformed row. Callers give arrays that are
large enough; every offset that comes from the data is checked here. A row is the bytes `data[at[row]:at[row] +
length[row]]`.
"""

from __future__ import annotations

from typing import Any

from tistream.decode.kernels.arrow_buffers import I64, U8
from tistream.decode.kernels.jit import i64, inline, kernel, u64
from tistream.decode.kernels.memory import copy_bytes as copy_range
from tistream.decode.kernels.memory import peek64, poke64

PUT, DELETE, LOCK, ROLLBACK = 0x50, 0x44, 0x4C, 0x52
_SHORT, _OVERLAPPED, _FENCE, _LAST_CHANGE, _SOURCE = 0x76, 0x52, 0x46, 0x6C, 0x53
_VARINT_BYTES = 10


@kernel
def key_versions(data: U8, at: I64, length: I64, raw_length: I64, ts: I64) -> int:
    """Parse versioned keys. Writes the length in bytes of each raw key to `raw_length`, and the timestamp of each key
    to `ts`. Fails for a key that is not memcomparable, and for a timestamp above 2^63 - 1. Returns 0, or 1 + the index
    of the first malformed key."""
    for row in range(len(at)):
        body = length[row] - 8
        if body < 9 or body % 9 != 0:
            return row + 1
        start = at[row]
        groups = body // 9
        for group in range(groups - 1):
            if data[start + group * 9 + 8] != 0xFF:
                return row + 1
        last = start + (groups - 1) * 9
        padding = 0xFF - i64(data[last + 8])
        if padding < 1 or padding > 8:
            return row + 1
        for byte in range(8 - padding, 8):
            if data[last + byte] != 0:
                return row + 1
        raw_length[row] = groups * 8 - padding
        found = u64(0)
        for byte in range(8):
            found = (found << u64(8)) | u64(data[start + body + byte])
        found = ~found
        if found > u64(0x7FFFFFFFFFFFFFFF):
            return row + 1
        ts[row] = i64(found)
    return 0


@kernel
def copy_raw_keys(data: U8, at: I64, rows: I64, offsets: Any, out: U8) -> None:
    """Decode the raw keys of the versioned keys with the indexes `rows` into `out`, end to end. Key rows[i] begins at
    `data[at[rows[i]]]`, and its raw key becomes `out[offsets[i]:offsets[i + 1]]`. `key_versions` must have accepted the
    keys."""
    for index in range(len(rows)):
        source = at[rows[index]]
        target = i64(offsets[index])
        left = i64(offsets[index + 1]) - target
        while left >= 8:
            poke64(out, target, peek64(data, source))
            target += 8
            left -= 8
            source += 9
        for byte in range(left):
            out[target + byte] = data[source + byte]


@kernel
def copy_bytes(data: U8, at: I64, offsets: Any, out: U8) -> None:
    """Copy one byte range for each element of `at` into `out`, end to end. Range i begins at `data[at[i]]` and becomes
    `out[offsets[i]:offsets[i + 1]]`."""
    for index in range(len(at)):
        target = i64(offsets[index])
        size = i64(offsets[index + 1]) - target
        if size > 0:
            copy_range(out, target, data, at[index], size)


@inline
def _varint(data: U8, at: int, end: int) -> Any:
    """Read the unsigned varint at `at`, which must end at or before `end`. Returns its value and the position after it;
    the position is -1 if the varint is malformed."""
    found = u64(0)
    for byte in range(min(_VARINT_BYTES, end - at)):
        part = u64(data[at + byte])
        found |= (part & u64(0x7F)) << u64(7 * byte)
        if part < u64(0x80):
            if byte == _VARINT_BYTES - 1 and part > u64(1):
                return found, i64(-1)
            return found, i64(at + byte + 1)
    return found, i64(-1)


@kernel
def parse_write_records(  # noqa: PLR0911, PLR0912 - one function, because numba's cache knows no other
    data: U8, at: I64, length: I64, kind: U8, start_ts: I64, short_at: I64, short_length: I64, source: I64
) -> int:
    """Parse write records. Writes one element for each record to `kind`, `start_ts`, `short_at` and `short_length` (the
    place of its short value in `data`; -1 and 0 without one), and `source` (its txn_source; -1 without one). Returns
    the status of the module.

    Fields after the first unknown tag are ignored, because newer versions of TiKV add fields at the end. A known field
    that is cut off is an error.
    """
    for row in range(len(at)):
        here = at[row]
        end = here + length[row]
        short_at[row], short_length[row], source[row] = -1, 0, -1
        if end - here < 2:
            return row + 1
        kind[row] = data[here]
        if data[here] != PUT and data[here] != DELETE and data[here] != LOCK and data[here] != ROLLBACK:
            return row + 1
        start, here = _varint(data, here + 1, end)
        if here < 0 or start > u64(0x7FFFFFFFFFFFFFFF):
            return row + 1
        start_ts[row] = i64(start)
        while here < end:
            tag = data[here]
            here += 1
            if tag == _SHORT:
                if here >= end or here + 1 + i64(data[here]) > end:
                    return row + 1
                short_at[row], short_length[row] = here + 1, i64(data[here])
                here += 1 + i64(data[here])
            elif tag == _OVERLAPPED:
                continue
            elif tag == _FENCE:
                here += 8
                if here > end:
                    return row + 1
            elif tag == _LAST_CHANGE:
                if here + 8 > end:
                    return row + 1
                _, here = _varint(data, here + 8, end)
                if here < 0:
                    return row + 1
            elif tag == _SOURCE:
                found, here = _varint(data, here, end)
                if here < 0 or found > u64(0x7FFFFFFFFFFFFFFF):
                    return row + 1
                source[row] = i64(found)
            else:
                break
    return 0
