"""Joins the entries of a backup's SST files to rows (upstream-formats 8; docs/backfill.md). Pure.

A full backup has one version of each key: a put in the column family `write`, under `z` + memcomparable key +
`~commit_ts`. A short value is in that entry. A longer value is in the family `default`, under the same key with
`~start_ts`. Both families are in key order, so the entries of `default` come in the order in which their values are
needed.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tistream.decode.keys import is_record_key
from tistream.decode.mvcc.mvcc_kernel import PUT
from tistream.decode.mvcc.mvcc_records import VersionedKeys, WriteRecords, versioned_keys, write_records
from tistream.format.backfill.base_chunk import SCHEMA
from tistream.model.span import shown_key

PREFIX_BYTES = 1  # `z`, RocksDB's prefix of data keys


class SstMismatch(ValueError):
    """Raised if the SST files contradict each other, or have entries that no full backup has."""


class RowJoiner:
    """Joins one pair of SST files, batch by batch in key order. `base_ts`: the end_version of the backup."""

    def __init__(self, base_ts: int) -> None:
        self._base_ts = base_ts
        self._last: bytes | None = None
        self.entries = 0  # write records so far

    def lacking(self, keys: pa.Array, records: pa.Array) -> Batch:
        """Parse the next batch of `write` entries. The result may lack long values, which are in `default`. Raises
        SstMismatch for a malformed entry, a record that is not a put, a commit_ts above base_ts, or keys that do not
        ascend."""
        try:
            found, parsed = versioned_keys(keys, PREFIX_BYTES), write_records(records)
        except ValueError as error:
            raise SstMismatch(str(error)) from error
        self.entries += len(found.ts)
        for wrong, what in (
            (parsed.kind != PUT, "has a write record that is not a put"),
            (found.ts > self._base_ts, f"was committed above the backup's ts {self._base_ts}"),
        ):
            if wrong.any():
                raise SstMismatch(f"key {shown_key(found.keys[int(np.argmax(wrong))].as_py())} {what}")
        self._check_order(found.keys)
        return Batch(found, parsed)

    def _check_order(self, keys: Any) -> None:
        if not len(keys):
            return
        if self._last is not None:
            keys = pa.concat_arrays([pa.array([self._last], pa.large_binary()), keys])
        at: int = pc.index(pc.less(keys.slice(0, len(keys) - 1), keys.slice(1)), False).as_py()
        if at >= 0:
            raise SstMismatch(f"key {shown_key(keys[at + 1].as_py())} is not above the key before it")
        self._last = keys[-1].as_py()


class Batch:
    """A parsed batch of `write` entries; `missing` is the number of its values that must be read from `default`."""

    def __init__(self, keys: VersionedKeys, records: WriteRecords) -> None:
        self._keys = keys
        self._records = records
        self._absent = ~records.has_value
        self.missing = int(self._absent.sum())

    def rows(self, default_keys: pa.Array, default_values: pa.Array) -> pa.Table:
        """The batch's rows whose keys are record keys, as columns of base_chunk.SCHEMA. The caller passes the next
        `missing` entries of `default`. Raises SstMismatch if these are not the values of this batch."""
        values = self._records.values()
        if self.missing:
            values = self._filled(values, default_keys, default_values)
        table = pa.table({"key": self._keys.keys, "value": values, "commit_ts": pa.array(self._keys.ts)})
        of_rows = is_record_key(self._keys.keys)
        return (table if of_rows.all() else table.filter(pa.array(of_rows))).cast(SCHEMA)

    def _filled(self, values: Any, default_keys: pa.Array, default_values: pa.Array) -> Any:
        wanted = self._keys.keys.filter(pa.array(self._absent))
        start_ts = self._records.start_ts[self._absent]
        try:
            found = versioned_keys(default_keys, PREFIX_BYTES)
        except ValueError as error:
            raise SstMismatch(str(error)) from error
        count = len(found.ts)
        same = pc.equal(found.keys, wanted.slice(0, count)).to_numpy(zero_copy_only=False)
        same &= found.ts == start_ts[:count]
        if count < self.missing or not same.all():
            at = count if same.all() else int(np.argmin(same))
            key = shown_key(wanted[at].as_py())
            raise SstMismatch(f"the value of key {key} at start_ts {start_ts[at]} is not in the default file")
        at_row = np.full(len(self._absent), -1, np.int64)
        at_row[self._absent] = np.arange(count)
        picked = default_values.take(pa.array(at_row, mask=at_row < 0))
        return pc.if_else(pa.array(self._absent), picked.cast(pa.large_binary()), values)
