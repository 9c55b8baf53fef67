"""Parses whole columns of keys: those of TiDB (tablecodec: `t{table_id}_r{handle}`, `t{table_id}_i…`, `m…`), and those
of RawKV (`r`, three bytes of the keyspace, the user's key)."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tistream.arrays import Bytes, Int64s, UInt64s

META_TABLE_ID = 0  # stands for the table id in rows of `m` keys
PREFIX_BYTES = 11  # 't', 8 bytes of table id, '_', 'r' or 'i'
TAIL_BYTES = 8
EXACT_BYTES = PREFIX_BYTES + TAIL_BYTES  # the length of a record key with an integer handle
SIGN = np.uint64(1 << 63)

_BIG_ENDIAN = np.dtype(">u8")
_RAW_PREFIX_BYTES = 4
_RECORD_MARK, _INDEX_MARK = (int.from_bytes(mark, "little") for mark in (b"_r", b"_i"))


class KeyKind(IntEnum):
    """The kinds of keys: record keys, index keys, and so on."""

    OTHER = 0
    META = 1
    RECORD = 2
    INDEX = 3
    RAW = 4


@dataclass(frozen=True, slots=True)
class KeyParts:
    """The parts of parsed keys, as arrays with one element per key.

    kind: KeyKind. table_id: the physical table id of `t` keys, `-1 - keyspace` of RAW keys, META_TABLE_ID for others.
    tail: the TAIL_BYTES after the prefix as a big-endian number, zero-padded. If two RECORD keys of one table have
    different tails, the tails have the order of the keys. exact: whether the key is a RECORD key of EXACT_BYTES, so
    that table_id and tail determine it.
    """

    kind: npt.NDArray[np.int8]
    table_id: npt.NDArray[np.int64]
    tail: npt.NDArray[np.uint64]
    exact: npt.NDArray[np.bool_]

    def __len__(self) -> int:
        return len(self.kind)

    def take(self, rows: npt.NDArray[np.int64]) -> KeyParts:
        """The parts of the keys with the indexes `rows`."""
        return KeyParts(self.kind[rows], self.table_id[rows], self.tail[rows], self.exact[rows])


def key_parts(keys: pa.Array | pa.ChunkedArray) -> KeyParts:
    """Parse every key of an array."""
    chunks = keys.chunks if isinstance(keys, pa.ChunkedArray) else [keys]
    parts = [_parts(chunk) for chunk in chunks if len(chunk)]
    if not parts:
        return KeyParts(np.zeros(0, np.int8), np.zeros(0, np.int64), np.zeros(0, np.uint64), np.zeros(0, bool))
    if len(parts) == 1:
        return parts[0]
    return KeyParts(*(np.concatenate([getattr(part, name) for part in parts]) for name in KeyParts.__slots__))


def _parts(array: pa.Array) -> KeyParts:
    heads, lengths = _heads(array)
    first, marks = heads[:, 0], _unaligned(heads, PREFIX_BYTES - 2, np.dtype("<u2"))
    kind = np.zeros(len(heads), np.int8)
    kind[first == ord("m")] = KeyKind.META
    table = first == ord("t")
    record = table & (marks == _RECORD_MARK)
    kind[record] = KeyKind.RECORD
    kind[table & (marks == _INDEX_MARK)] = KeyKind.INDEX
    ids = (_unaligned(heads, 1, _BIG_ENDIAN).astype(np.uint64) ^ SIGN).view(np.int64)
    table_id = ids if table.all() else np.where(table, ids, META_TABLE_ID)
    raw = (first == ord("r")) & (lengths >= _RAW_PREFIX_BYTES)
    if raw.any():
        kind[raw] = KeyKind.RAW
        keyspaces = (_unaligned(heads, 0, np.dtype(">u4")) & np.uint32(0xFFFFFF)).astype(np.int64)
        table_id = np.where(raw, -1 - keyspaces, table_id)
    tail = _unaligned(heads, PREFIX_BYTES, _BIG_ENDIAN).astype(np.uint64)
    return KeyParts(kind, table_id, tail, record & (lengths == EXACT_BYTES))


def key_words(keys: pa.Array) -> tuple[tuple[UInt64s, UInt64s, UInt64s], Int64s]:
    """The first EXACT_BYTES of every key, zero-padded, as three numbers in the order of the bytes: 8 bytes, 3 bytes,
    TAIL_BYTES bytes, big-endian. Also returns the lengths of the keys."""
    if not len(keys):
        nothing = np.zeros(0, np.uint64)
        return (nothing, nothing, nothing), np.zeros(0, np.int64)
    heads, lengths = _heads(keys)
    first = _unaligned(heads, 0, _BIG_ENDIAN).astype(np.uint64)
    rest = _unaligned(heads, 8, np.dtype(">u4")).astype(np.uint64) >> np.uint64(8)
    return (first, rest, _unaligned(heads, PREFIX_BYTES, _BIG_ENDIAN).astype(np.uint64)), lengths


def _unaligned(rows: Bytes, at: int, dtype: np.dtype[Any]) -> npt.NDArray[Any]:
    """Read one number at byte offset `at` of each row. The rows are EXACT_BYTES long, so the numbers are not
    aligned."""
    return np.ndarray(len(rows), dtype, rows, at, (EXACT_BYTES,))


def _heads(array: pa.Array) -> tuple[Bytes, npt.NDArray[np.int64]]:
    """Copy the first EXACT_BYTES of every key into an array of shape (n, EXACT_BYTES), zero-padded. Returns it and the
    lengths of the keys."""
    assert array.null_count == 0
    if not pa.types.is_binary(array.type):
        array = array.cast(pa.large_binary())
    _, offsets_buffer, data_buffer = array.buffers()
    wide = pa.types.is_large_binary(array.type)
    offsets = np.frombuffer(offsets_buffer, np.int64 if wide else np.int32)[
        array.offset : array.offset + len(array) + 1
    ]
    data = np.frombuffer(data_buffer, np.uint8) if data_buffer is not None else np.zeros(0, np.uint8)
    data = data[offsets[0] : offsets[-1]]
    lengths = np.diff(offsets).astype(np.int64)
    if (lengths == EXACT_BYTES).all():
        return np.ascontiguousarray(data).reshape(-1, EXACT_BYTES), lengths
    padded = np.concatenate([data, np.zeros(EXACT_BYTES, np.uint8)])
    windows = np.lib.stride_tricks.sliding_window_view(padded, EXACT_BYTES)
    out: Bytes = windows[offsets[:-1] - offsets[0]].copy()
    short = lengths < EXACT_BYTES
    if short.any():
        beyond = np.arange(EXACT_BYTES)[None, :] >= lengths[short][:, None]
        out[short] = np.where(beyond, 0, out[short])
    return out, lengths
