"""Decodes the entries (keys and values) of slices to Arrow columns. A slice is a byte range of a log backup's data
file, with the entries of one region and column family (metadata.Slice): `write` slices give committed changes,
`default` slices give values. Slices are small, therefore a call decodes several.

`write` slices hold commits, locks and rollbacks; only puts and deletes with a commit_ts are changes. A commit record
that TiKV rewrote later (options `R`, `F`) repeats the same change. Slices of type delete have physical deletes (garbage
collection, removed rollbacks), which no SQL statement has made: callers do not read them.

An `Unpacked` is a slice with the result of `unpacked`: its entries, uncompressed. All slices of a call have less than
2 GiB, so 32-bit offsets suffice.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

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

Unpacked = tuple[Slice, bytes]

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


class Unpacker:
    """Decompresses slices. The output is limited to the size in the metadata, because TiKV's zstd frames do not state
    the size of their content. Not thread-safe."""

    def __init__(self) -> None:
        self._zstd = zstandard.ZstdDecompressor(max_window_size=1 << WINDOW_LOG_MAX)

    def unpacked(self, slice_: Slice, stored: bytes | memoryview, *, checked: bool = True) -> bytes:
        """Decompress the bytes of a slice, `stored`, as the data file has them. Raises CorruptObject unless the result
        has the size and, if `checked`, the SHA-256 that the metadata states."""
        if len(stored) != slice_.length:
            reason = f"{len(stored)} bytes instead of {slice_.length}: the object is cut off"
            raise CorruptObject(slice_.shown, reason)
        plain = self._decompressed(slice_, stored) if slice_.compressed else bytes(stored)
        if len(plain) != slice_.plain:
            raise CorruptObject(slice_.shown, f"unpacks to {len(plain)} bytes; its metadata states {slice_.plain}")
        if checked and hashlib.sha256(plain).digest() != slice_.sha256:
            raise CorruptObject(slice_.shown, "fails its SHA-256")
        return plain

    def _decompressed(self, slice_: Slice, stored: bytes | memoryview) -> bytes:
        try:
            return bytes(self._zstd.decompress(stored, max_output_size=slice_.plain))
        except zstandard.ZstdError as error:
            raise CorruptObject(slice_.shown, f"is not a zstd frame of {slice_.plain} bytes: {error}") from error


@dataclass(frozen=True, slots=True)
class _Keys:
    """The entries of slices, with parsed keys: the slices' bytes `data`, for each slice the number of its first entry
    (and at the end the number of all), and for each entry the positions of its key and value in `data`, and its ts."""

    slices: Sequence[Slice]
    first: I64
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


def changes(held: Sequence[Unpacked], window: Window) -> pa.Table:
    """Decode the changes of `write` slices with commit_ts in the window. Returns a table with the schema CHANGES, in
    the order of slices.

    Raises CorruptObject if entries are malformed or outside of the bounds that the metadata states.
    """
    keys = _keys(held)
    found = _commits(keys, window)
    rows, put = found.rows, found.put
    short = put & (found.short_at >= 0)
    offsets = _offsets(np.where(short, found.short_length, 0))
    out = np.empty(offsets[-1], np.uint8)
    mvcc.copy_bytes(keys.data, found.short_at, offsets, out)
    raw = keys.raw(rows)
    _check_bounds(keys, rows, raw)
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


def values(held: Sequence[Unpacked], start_ts: I64) -> pa.Table:
    """Decode the values of `default` slices whose start_ts is in `start_ts`, which is sorted. Returns a table with the
    schema VALUES. Raises CorruptObject."""
    keys = _keys(held)
    if len(start_ts):
        at = np.minimum(np.searchsorted(start_ts, keys.ts), len(start_ts) - 1)
        rows = np.flatnonzero(start_ts[at] == keys.ts)
    else:
        rows = np.zeros(0, np.int64)
    offsets = _offsets(keys.value_length[rows])
    out = np.empty(offsets[-1], np.uint8)
    mvcc.copy_bytes(keys.data, keys.value_at[rows], offsets, out)
    return pa.Table.from_arrays([keys.raw(rows), pa.array(keys.ts[rows]), _binary(offsets, out)], schema=VALUES)


def commit_sizes(held: Sequence[Unpacked], window: Window) -> tuple[I64, I64, I64]:
    """Read the sizes of the changes of `write` slices in the window. Returns (commit_ts, bytes of key and short value,
    1 if the value is in `default` and 0 otherwise), each int64[n]. Raises CorruptObject."""
    keys = _keys(held)
    found = _commits(keys, window)
    size = keys.raw_length[found.rows] + found.short_length
    return keys.ts[found.rows], size, (found.put & (found.short_at < 0)).astype(np.int64)


def shown_keys(slice_: Slice, plain: bytes, most: int) -> list[tuple[bytes, int]]:
    """The first entries of a slice, at most `most`: (raw key, ts) for each, to be displayed to a person. `plain` is the
    unpacked slice. Raises CorruptObject."""
    keys = _keys([(slice_, plain)])
    rows = np.arange(min(most, slice_.entries))
    return list(zip(keys.raw(rows).to_pylist(), keys.ts[rows].tolist(), strict=True))


@dataclass(frozen=True, slots=True)
class _Commits:
    """The puts and deletes of slices with a commit_ts in a window. `rows` are the indexes of their entries; the other
    arrays have one element for each of them."""

    rows: I64
    put: np.ndarray[tuple[int], np.dtype[np.bool_]]
    start_ts: I64
    short_at: I64
    short_length: I64
    txn_source: I64


def _commits(keys: _Keys, window: Window) -> _Commits:
    count = len(keys.ts)
    kind, source = np.empty(count, np.uint8), np.empty(count, np.int64)
    start_ts, short_at, short_length = (np.empty(count, np.int64) for _ in range(3))
    status = mvcc.parse_write_records(
        keys.data, keys.value_at, keys.value_length, kind, start_ts, short_at, short_length, source
    )
    _check(keys.slices, keys.first, status, "write record")
    put = kind == mvcc.PUT
    rows = np.flatnonzero((put | (kind == mvcc.DELETE)) & (keys.ts > window.low) & (keys.ts <= window.high))
    return _Commits(rows, put[rows], start_ts[rows], short_at[rows], short_length[rows], source[rows])


def _check_bounds(keys: _Keys, rows: I64, raw: pa.Array) -> None:
    """Check that the raw keys lie within the bounds that the metadata of their slices states. `raw` has the key of each
    entry in `rows`, which ascend. The bounds decide which shards read the slice, so a key outside of them would be
    lost. Raises CorruptObject."""
    bounds = np.searchsorted(rows, keys.first).tolist()
    for slice_, (start, end) in zip(keys.slices, pairwise(bounds), strict=True):
        found = pc.min_max(raw.slice(start, end - start)).as_py()
        if found["min"] is not None and (found["min"] < slice_.low or found["max"] > slice_.high):
            raise CorruptObject(slice_.shown, "holds a key outside of the bounds that its metadata states")


def _keys(held: Sequence[Unpacked]) -> _Keys:
    slices = [slice_ for slice_, _ in held]
    data = np.frombuffer(held[0][1] if len(held) == 1 else b"".join(plain for _, plain in held), np.uint8)
    first = _offsets(np.array([one.entries for one in slices], np.int64))
    ends = np.cumsum([len(plain) for _, plain in held], dtype=np.int64)
    key_at, key_length, value_at, value_length, raw_length, ts = (np.empty(first[-1], np.int64) for _ in range(6))
    status = entry_places(data, ends, first, key_at, key_length, value_at, value_length)
    _check(slices, first, status, "framing")
    _check(slices, first, mvcc.key_versions(data, key_at, key_length, raw_length, ts), "key")
    lowest, highest = (function.reduceat(ts, first[:-1]) for function in (np.minimum, np.maximum))
    for slice_, low, high in zip(slices, lowest.tolist(), highest.tolist(), strict=True):
        if low < slice_.min_ts or high > slice_.max_ts:
            raise CorruptObject(slice_.shown, "holds a timestamp outside of the bounds that its metadata states")
    return _Keys(slices, first, data, key_at, raw_length, ts, value_at, value_length)


def _check(slices: Sequence[Slice], first: I64, status: int, what: str) -> None:
    if status:
        number = int(np.searchsorted(first, status - 1, side="right")) - 1
        one, entry = slices[number], status - 1 - int(first[number])
        raise CorruptObject(one.shown, f"the {what} of entry {entry} of {one.entries} is malformed")


def _offsets(lengths: I64) -> I64:
    out = np.zeros(len(lengths) + 1, np.int64)
    np.cumsum(lengths, out=out[1:])
    return out


def _binary(offsets: I64, data: U8, null: np.ndarray[tuple[int], np.dtype[np.bool_]] | None = None) -> pa.Array:
    """Build a binary array over `data`."""
    validity = None
    if null is not None and null.any():
        validity = pa.py_buffer(np.packbits(~null, bitorder="little").tobytes())
    buffers = [validity, pa.py_buffer(offsets.astype(np.int32)), pa.py_buffer(data)]
    return pa.Array.from_buffers(pa.binary(), len(offsets) - 1, buffers)
