"""Decodes the entries (keys and values) of a slice to Arrow columns. A slice is a byte range of a log backup's data
file, with the entries of one region and column family (metadata.Slice): `write` slices give committed changes,
`default` slices give values.

`write` slices hold commits, locks and rollbacks; only puts and deletes with a commit_ts are changes. A commit record
that TiKV rewrote later (options `R`, `F`) repeats the same change. Slices of type delete have physical deletes (garbage
collection, removed rollbacks), which no SQL statement has made: callers do not read them.

The argument `plain` is the result of `unpacked`: the slice's entries, uncompressed.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import zstandard

from tistream.decode.mvcc import mvcc_kernel as mvcc
from tistream.errors import CorruptObject
from tistream.logbackup.kernels import I64, U8, entry_places
from tistream.logbackup.metadata import Slice
from tistream.model.ts import Window

OP_PUT, OP_DELETE = 1, 2
WINDOW_LOG_MAX = 27  # zstd's window, 128 MiB: the most that the zstd command accepts by default

# `value` is null for deletes and for `long` puts, whose value is an entry of `default` at (key, start_ts).
CHANGES = pa.schema(
    [
        pa.field("key", pa.binary(), nullable=False),
        pa.field("commit_ts", pa.int64(), nullable=False),
        pa.field("start_ts", pa.int64(), nullable=False),
        pa.field("op", pa.int8(), nullable=False),
        pa.field("value", pa.binary()),
        pa.field("long", pa.bool_(), nullable=False),
        pa.field("txn_source", pa.int64()),
    ]
)
VALUES = pa.schema(
    [
        pa.field("key", pa.binary(), nullable=False),
        pa.field("start_ts", pa.int64(), nullable=False),
        pa.field("value", pa.binary(), nullable=False),
    ]
)


def unpacked(slice_: Slice, stored: bytes) -> bytes:
    """Decompress the bytes of a slice, `stored`, as the data file has them. Raises CorruptObject unless the result has
    the size and SHA-256 that the metadata states.

    The output is limited to the size in the metadata, because TiKV's zstd frames do not state the size of their
    content.
    """
    if len(stored) != slice_.length:
        raise CorruptObject(slice_.shown, f"{len(stored)} bytes instead of {slice_.length}: the object is cut off")
    plain = _decompressed(slice_, stored) if slice_.compressed else stored
    if len(plain) != slice_.plain:
        raise CorruptObject(slice_.shown, f"unpacks to {len(plain)} bytes; its metadata states {slice_.plain}")
    if hashlib.sha256(plain).digest() != slice_.sha256:
        raise CorruptObject(slice_.shown, "fails its SHA-256")
    return plain


def _decompressed(slice_: Slice, stored: bytes) -> bytes:
    reader = zstandard.ZstdDecompressor(max_window_size=1 << WINDOW_LOG_MAX)
    try:
        return bytes(reader.decompress(stored, max_output_size=slice_.plain))
    except zstandard.ZstdError as error:
        raise CorruptObject(slice_.shown, f"is not a zstd frame of {slice_.plain} bytes: {error}") from error


@dataclass(frozen=True, slots=True)
class _Keys:
    """The entries of a slice, with parsed keys: the slice's bytes `data`, and for each entry the positions of its key
    and value in `data`, and its ts."""

    data: U8
    key_at: I64
    raw_length: I64
    ts: I64
    value_at: I64
    value_length: I64

    def raw(self, rows: I64) -> pa.Array:
        """Decode the raw keys of the entries with the indexes `rows`."""
        offsets = _offsets(self.raw_length[rows])
        out = np.empty(offsets[-1], np.uint8)
        mvcc.copy_raw_keys(self.data, self.key_at, rows, offsets, out)
        return _binary(offsets, out)


def changes(slice_: Slice, plain: bytes, window: Window) -> pa.Table:
    """Decode the changes of a `write` slice with commit_ts in the window. Returns a table with the schema CHANGES, in
    the slice's order.

    Raises CorruptObject if entries are malformed or outside of the bounds that the metadata states.
    """
    keys = _keys(slice_, plain)
    found = _commits(slice_, keys, window)
    rows, put = found.rows, found.put
    short = put & (found.short_at >= 0)
    offsets = _offsets(np.where(short, found.short_length, 0))
    out = np.empty(offsets[-1], np.uint8)
    mvcc.copy_bytes(keys.data, found.short_at, offsets, out)
    raw = keys.raw(rows)
    _check_bounds(slice_, raw)
    return pa.Table.from_arrays(
        [
            raw,
            pa.array(keys.ts[rows]),
            pa.array(found.start_ts),
            pa.array(np.where(put, OP_PUT, OP_DELETE).astype(np.int8)),
            _binary(offsets, out, ~short),
            pa.array(put & ~short),
            pa.array(found.txn_source, mask=found.txn_source < 0),
        ],
        schema=CHANGES,
    )


def values(slice_: Slice, plain: bytes, start_ts: I64) -> pa.Table:
    """Decode the values of a `default` slice whose start_ts is in `start_ts`, which is sorted. Returns a table with the
    schema VALUES. Raises CorruptObject."""
    keys = _keys(slice_, plain)
    if len(start_ts):
        at = np.minimum(np.searchsorted(start_ts, keys.ts), len(start_ts) - 1)
        rows = np.flatnonzero(start_ts[at] == keys.ts)
    else:
        rows = np.zeros(0, np.int64)
    offsets = _offsets(keys.value_length[rows])
    out = np.empty(offsets[-1], np.uint8)
    mvcc.copy_bytes(keys.data, keys.value_at[rows], offsets, out)
    return pa.Table.from_arrays([keys.raw(rows), pa.array(keys.ts[rows]), _binary(offsets, out)], schema=VALUES)


def commit_sizes(slice_: Slice, plain: bytes, window: Window) -> tuple[I64, I64, I64]:
    """Read the sizes of the changes of a `write` slice in the window. Returns (commit_ts, bytes of key and short value,
    1 if the value is in `default` and 0 otherwise), each int64[n]. Raises CorruptObject."""
    keys = _keys(slice_, plain)
    found = _commits(slice_, keys, window)
    size = keys.raw_length[found.rows] + found.short_length
    return keys.ts[found.rows], size, (found.put & (found.short_at < 0)).astype(np.int64)


def shown_keys(slice_: Slice, plain: bytes, most: int) -> list[tuple[bytes, int]]:
    """The first keys of a slice with their timestamps, at most `most`, to be displayed to a person. Raises
    CorruptObject."""
    keys = _keys(slice_, plain)
    rows = np.arange(min(most, slice_.entries))
    return list(zip(keys.raw(rows).to_pylist(), keys.ts[rows].tolist(), strict=True))


@dataclass(frozen=True, slots=True)
class _Commits:
    """The puts and deletes of a slice with a commit_ts in a window. `rows` are the indexes of their entries; the other
    arrays have one element for each of them."""

    rows: I64
    put: np.ndarray[tuple[int], np.dtype[np.bool_]]
    start_ts: I64
    short_at: I64
    short_length: I64
    txn_source: I64


def _commits(slice_: Slice, keys: _Keys, window: Window) -> _Commits:
    count = slice_.entries
    kind, source = np.empty(count, np.uint8), np.empty(count, np.int64)
    start_ts, short_at, short_length = (np.empty(count, np.int64) for _ in range(3))
    status = mvcc.parse_write_records(
        keys.data, keys.value_at, keys.value_length, kind, start_ts, short_at, short_length, source
    )
    _check(slice_, status, "write record")
    put = kind == mvcc.PUT
    rows = np.flatnonzero((put | (kind == mvcc.DELETE)) & (keys.ts > window.low) & (keys.ts <= window.high))
    return _Commits(rows, put[rows], start_ts[rows], short_at[rows], short_length[rows], source[rows])


def _check_bounds(slice_: Slice, raw: pa.Array) -> None:
    """Check that all keys lie within the bounds that the metadata states. The bounds decide which shards read the
    slice, so a key outside of them would be lost."""
    found = pc.min_max(raw).as_py()
    if found["min"] is not None and (found["min"] < slice_.low or found["max"] > slice_.high):
        raise CorruptObject(slice_.shown, "holds a key outside of the bounds that its metadata states")


def _keys(slice_: Slice, plain: bytes) -> _Keys:
    data = np.frombuffer(plain, np.uint8)
    count = slice_.entries
    key_at, key_length, value_at, value_length, raw_length, ts = (np.empty(count, np.int64) for _ in range(6))
    _check(slice_, entry_places(data, key_at, key_length, value_at, value_length), "framing")
    _check(slice_, mvcc.key_versions(data, key_at, key_length, raw_length, ts), "key")
    if int(ts.min()) < slice_.min_ts or int(ts.max()) > slice_.max_ts:
        raise CorruptObject(slice_.shown, "holds a timestamp outside of the bounds that its metadata states")
    return _Keys(data, key_at, raw_length, ts, value_at, value_length)


def _check(slice_: Slice, status: int, what: str) -> None:
    if status:
        raise CorruptObject(slice_.shown, f"the {what} of entry {status - 1} of {slice_.entries} is malformed")


def _offsets(lengths: I64) -> I64:
    out = np.zeros(len(lengths) + 1, np.int64)
    np.cumsum(lengths, out=out[1:])
    return out


def _binary(offsets: I64, data: U8, null: np.ndarray[tuple[int], np.dtype[np.bool_]] | None = None) -> pa.Array:
    """Build a binary array over `data`. The bytes of a slice are below 2 GiB, so 32-bit offsets suffice."""
    validity = None
    if null is not None and null.any():
        validity = pa.py_buffer(np.packbits(~null, bitorder="little").tobytes())
    buffers = [validity, pa.py_buffer(offsets.astype(np.int32)), pa.py_buffer(data)]
    return pa.Array.from_buffers(pa.binary(), len(offsets) - 1, buffers)
