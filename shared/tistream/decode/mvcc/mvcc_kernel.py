"""Compiled loops over versioned keys and write records, whole columns at once (upstream-formats 2.1, 4.1, 4.2)."""

from __future__ import annotations

from tistream.decode.kernels.arrow_buffers import I64, U8, Bools
from tistream.decode.kernels.cursor_io import load_i64_big, varint_end, varint_value
from tistream.decode.kernels.jit import i64, inline, kernel

TS_BYTES = 8
GROUP = 8
MARKER = 0xFF
PUT, DELETE, LOCK, ROLLBACK = 0x50, 0x44, 0x4C, 0x52
_SHORT, _OVERLAPPED, _FENCE, _LAST_CHANGE, _SOURCE = 0x76, 0x52, 0x46, 0x6C, 0x53


@kernel
def split_versioned_keys(data: U8, offsets: I64, prefix: int, out: U8, out_offsets: I64, ts: I64) -> int:
    """Decode memcomparable keys that `prefix` bytes precede and eight bytes of `~ts` follow. Return the first row that
    is malformed, -1 if every row is valid. `out` has room for all of `data`."""
    used = 0
    out_offsets[0] = 0
    for row in range(len(offsets) - 1):
        at, end = offsets[row] + prefix, offsets[row + 1] - TS_BYTES
        if at > end:
            return row
        pad = 0
        while pad == 0:
            if end - at <= GROUP:
                return row
            pad = MARKER - data[at + GROUP]
            if pad > GROUP:
                return row
            for index in range(GROUP):
                if index < GROUP - pad:
                    out[used] = data[at + index]
                    used += 1
                elif data[at + index] != 0:
                    return row
            at += GROUP + 1
        if at != end:
            return row
        ts[row] = ~load_i64_big(data, end)
        out_offsets[row + 1] = used
    return -1


@kernel
def read_write_records(
    data: U8, offsets: I64, kind: U8, start_ts: I64, value_at: I64, value_bytes: I64, rewritten: Bools, txn_source: I64
) -> int:
    """Parse write records. Return the first row that is malformed, -1 if every row is valid.

    `value_at` and `value_bytes` are the place of the short value in `data`; -1 without one. `rewritten`: the record
    has a GC fence. An unknown tag ends a record, as TiKV's own reader has it.
    """
    for row in range(len(offsets) - 1):
        at, end = offsets[row], offsets[row + 1]
        value_at[row] = -1
        value_bytes[row] = -1
        rewritten[row] = False
        txn_source[row] = 0
        after = varint_end(data, at + 1, end)
        if after < 0 or not _is_kind(data[at]):
            return row
        kind[row] = data[at]
        start_ts[row] = varint_value(data, at + 1, after, False)
        at = after
        while at < end:
            at = _read_option(data, at, end, row, value_at, value_bytes, rewritten, txn_source)
            if at < 0 or at > end:
                return row
    return -1


@inline
def _is_kind(byte: int) -> bool:
    return byte in (PUT, DELETE, LOCK, ROLLBACK)


@inline
def _read_option(
    data: U8, at: int, end: int, row: int, value_at: I64, value_bytes: I64, rewritten: Bools, txn_source: I64
) -> int:
    """Read the option at `at`. Return the position after it; -1 or beyond `end` if the option is cut short."""
    tag = data[at]
    at += 1
    if tag == _SHORT:
        size = i64(data[at]) if at < end else end
        value_at[row] = at + 1
        value_bytes[row] = size
        return at + 1 + size
    if tag == _OVERLAPPED:
        return at
    if tag == _FENCE:
        rewritten[row] = True
        return at + TS_BYTES
    if tag == _LAST_CHANGE:
        return varint_end(data, at + TS_BYTES, end)
    if tag == _SOURCE:
        after = varint_end(data, at, end)
        if after >= 0:
            txn_source[row] = varint_value(data, at, after, False)
        return after
    return end


@kernel
def gather_bytes(data: U8, at: I64, size: I64, out: U8, out_offsets: I64) -> None:
    """Copy the byte strings `data[at[i]:at[i] + size[i]]` end to end; a negative size is an empty string. `out` has
    room for all of them."""
    used = 0
    out_offsets[0] = 0
    for row in range(len(at)):
        for index in range(size[row]):
            out[used + index] = data[at[row] + index]
        if size[row] > 0:
            used += size[row]
        out_offsets[row + 1] = used
