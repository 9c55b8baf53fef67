"""Divides matched rows above the window by transaction. The rows of a large transaction are written as a segment at
once, and all others as a READY part. Pure."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tistream.format import segment
from tistream.model.tidb_key import key_parts
from tistream_sorter.match.contracts import wide

ORDERED = wide(segment.SCHEMA)


def value_bytes(table: pa.Table) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """The bytes of value and old_value together, for each row."""
    total = np.zeros(table.num_rows, np.int64)
    for name in ("value", "old_value"):
        lengths = pc.fill_null(pc.binary_length(table[name]), 0)
        total += np.asarray(lengths.combine_chunks().to_numpy(zero_copy_only=False), np.int64)
    return total


def split(ready: pa.Table, bytes_min: int) -> tuple[list[pa.Table], pa.Table]:
    """Divide rows by transaction. Returns one table for each commit_ts whose rows have at least `bytes_min` bytes of
    values, and a table of the other rows, each in input order."""
    if not ready.num_rows:
        return [], ready
    commit_ts, place = np.unique(ready["commit_ts"].to_numpy(), return_inverse=True)
    total = np.bincount(place, weights=value_bytes(ready), minlength=len(commit_ts))
    heavy = np.flatnonzero(total >= bytes_min)
    if not len(heavy):
        return [], ready
    if len(commit_ts) == 1:
        return [ready], ready.slice(0, 0)
    sealed = [ready.filter(pa.array(place == number)) for number in heavy.tolist()]
    return sealed, ready.filter(pa.array(~np.isin(place, heavy)))


def in_order(rows: pa.Table) -> pa.Table:
    """Convert to segment.SCHEMA (binary columns wide) and sort by segment.ORDER. `rows` may lack the column
    table_id."""
    named = rows if "table_id" in rows.column_names else rows.append_column("table_id", _table_ids(rows))
    columns = named.select(segment.SCHEMA.names).cast(ORDERED)
    return columns.sort_by([(name, "ascending") for name in segment.ORDER])


def _table_ids(rows: pa.Table) -> pa.Array:
    return pa.array(key_parts(rows["key"]).table_id)
