"""Parses the entries of TiKV's column families `write` and `default` to columns: raw keys, timestamps and write records
(upstream-formats 8.1, 8.2)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from tistream.decode.kernels.arrow_buffers import I64, U8, Bools, FlatBytes, binary_array, flat_bytes
from tistream.decode.mvcc.mvcc_kernel import copy_bytes, copy_raw_keys, key_versions, parse_write_records
from tistream.model.span import shown_key


@dataclass(frozen=True, slots=True)
class VersionedKeys:
    """Raw keys (large_binary[n]) and the ts of each (int64[n]): a commit_ts in the `write` column family, a start_ts in
    `default`."""

    keys: Any
    ts: I64


@dataclass(frozen=True, slots=True)
class WriteRecords:
    """Parsed write records, as arrays of shape [n]. `kind`: PUT, DELETE, LOCK or ROLLBACK of mvcc_kernel. `txn_source`:
    TiDB's bits, 0 if absent."""

    kind: U8
    start_ts: I64
    txn_source: I64
    _flat: FlatBytes
    _value_at: I64
    _value_bytes: I64

    @property
    def has_value(self) -> Bools:
        """For each record, whether it holds a value itself. If a PUT does not, its value is in the `default` column
        family."""
        return self._value_at >= 0

    def values(self) -> Any:
        """The values that records hold themselves (short values), large_binary[n]; null where a record holds none."""
        offsets = _offsets(self._value_bytes)
        out = np.empty(offsets[-1], np.uint8)
        copy_bytes(self._flat.data, self._value_at, offsets, out)
        return binary_array(out, offsets, self.has_value, text=False)


def versioned_keys(encoded: Any, prefix: int = 0) -> VersionedKeys:
    """Split encoded keys, a binary column, into raw keys and timestamps. `prefix` bytes precede each key (1 in SST
    files: `z`). Raises ValueError, whose text has the first malformed key."""
    flat = flat_bytes(encoded)
    at, length = flat.offsets[:-1] + prefix, flat.lengths - prefix
    raw_length, ts = np.empty((2, len(flat)), np.int64)
    if status := key_versions(flat.data, at, length, raw_length, ts):
        raise ValueError(f"key {_shown(flat, status - 1)} is not a versioned key")
    offsets = _offsets(raw_length)
    out = np.empty(offsets[-1], np.uint8)
    copy_raw_keys(flat.data, at, np.arange(len(flat)), offsets, out)
    return VersionedKeys(binary_array(out, offsets, None, text=False), ts)


def write_records(records: Any) -> WriteRecords:
    """Parse write records, a binary column. Raises ValueError, whose text has the first malformed record."""
    flat = flat_bytes(records)
    kind = np.empty(len(flat), np.uint8)
    start_ts, value_at, value_bytes, txn_source = np.empty((4, len(flat)), np.int64)
    if status := parse_write_records(
        flat.data, flat.offsets[:-1], flat.lengths, kind, start_ts, value_at, value_bytes, txn_source
    ):
        raise ValueError(f"value {_shown(flat, status - 1)} is not a write record")
    return WriteRecords(kind, start_ts, np.maximum(txn_source, 0), flat, value_at, value_bytes)


def _offsets(lengths: I64) -> I64:
    out = np.zeros(len(lengths) + 1, np.int64)
    np.cumsum(lengths, out=out[1:])
    return out


def _shown(flat: FlatBytes, row: int) -> str:
    return shown_key(flat.data[flat.offsets[row] : flat.offsets[row + 1]].tobytes())
