"""Versioned keys and write records as columns (upstream-formats 4.1, 4.2)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from tistream.decode.kernels.arrow_buffers import I64, U8, Bools, FlatBytes, binary_array, flat_bytes
from tistream.decode.mvcc.mvcc_kernel import gather_bytes, read_write_records, split_versioned_keys
from tistream.model.span import shown_key


@dataclass(frozen=True, slots=True)
class VersionedKeys:
    """Raw keys (large_binary) and the ts of each. Of the `write` family the ts is a commit_ts, of `default` a start_ts.
    Shapes: [n]."""

    keys: Any
    ts: I64


@dataclass(frozen=True, slots=True)
class WriteRecords:
    """Write records, shapes [n]. `kind`: PUT, DELETE, LOCK or ROLLBACK of mvcc_kernel. `rewritten`: the record was
    written again because a rollback has its key and ts; the change is the same. `txn_source`: TiDB's bits, 0 if absent.
    """

    kind: U8
    start_ts: I64
    rewritten: Bools
    txn_source: I64
    _flat: FlatBytes
    _value_at: I64
    _value_bytes: I64

    @property
    def has_value(self) -> Bools:
        """Whether each record holds its value. The value of another PUT is in the `default` family."""
        return self._value_bytes >= 0

    def values(self) -> Any:
        """The short values, large_binary[n]; null where a record holds none."""
        sizes = self._value_bytes
        out = np.empty(int(np.maximum(sizes, 0).sum()), np.uint8)
        offsets = np.empty(len(sizes) + 1, np.int64)
        gather_bytes(self._flat.data, self._value_at, sizes, out, offsets)
        return binary_array(out, offsets, self.has_value, text=False)


def versioned_keys(encoded: Any, prefix: int = 0) -> VersionedKeys:
    """Split encoded keys, a binary column, that `prefix` bytes precede (1 in SST files: `z`). Raises ValueError with
    the first malformed key."""
    flat = flat_bytes(encoded)
    out = np.empty(len(flat.data), np.uint8)
    offsets, ts = np.empty(len(flat) + 1, np.int64), np.empty(len(flat), np.int64)
    bad = split_versioned_keys(flat.data, flat.offsets, prefix, out, offsets, ts)
    if bad >= 0:
        raise ValueError(f"key {_shown(flat, bad)} is not a versioned key")
    return VersionedKeys(binary_array(out[: offsets[-1]], offsets, None, text=False), ts)


def write_records(records: Any) -> WriteRecords:
    """Parse write records, a binary column. Raises ValueError with the first malformed record."""
    flat = flat_bytes(records)
    count = len(flat)
    kind, rewritten = np.empty(count, np.uint8), np.empty(count, np.bool_)
    start_ts, value_at, value_bytes, txn_source = np.empty((4, count), np.int64)
    bad = read_write_records(flat.data, flat.offsets, kind, start_ts, value_at, value_bytes, rewritten, txn_source)
    if bad >= 0:
        raise ValueError(f"value {_shown(flat, bad)} is not a write record")
    return WriteRecords(kind, start_ts, rewritten, txn_source, flat, value_at, value_bytes)


def _shown(flat: FlatBytes, row: int) -> str:
    return shown_key(flat.data[flat.offsets[row] : flat.offsets[row + 1]].tobytes())
