"""Converts the entries of a log backup to complete changes: it drops repeats, and fills in long values and old values.
Pure, on whole columns.

A change is identified by (key, commit_ts). The log repeats changes when a region's leader moves, and when TiKV rewrites
a record; such repeats are equal. If changes are sorted by (key, commit_ts), the old value of a change is the value of
the change before it. For the first change of a key, it is the value of the key's newest version in the pool.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from tistream.errors import InvariantBroken
from tistream.logbackup.entries import CHANGES
from tistream.logbackup.kernels import I64
from tistream.model.span import shown_key
from tistream.model.tidb_key import KeyKind, key_parts

ROWS = pa.schema(
    [
        pa.field("key", pa.binary(), nullable=False),
        pa.field("commit_ts", pa.int64(), nullable=False),
        pa.field("start_ts", pa.int64(), nullable=False),
        pa.field("op", pa.int8(), nullable=False),
        pa.field("value", pa.binary()),
        pa.field("old_value", pa.binary()),
        pa.field("txn_source", pa.int64()),
    ]
)


def kept(table: pa.Table, start: bytes, end: bytes, *, keep_index: bool) -> pa.Table:
    """Keep the rows of the shard's span, start <= key < end (an empty end is unbounded), without index entries unless
    `keep_index`."""
    keep = np.ones(table.num_rows, np.bool_)
    if not keep_index:
        keep &= key_parts(table["key"]).kind != KeyKind.INDEX
    if start:
        keep &= pc.greater_equal(table["key"], pa.scalar(start, pa.binary())).to_numpy()
    if end:
        keep &= pc.less(table["key"], pa.scalar(end, pa.binary())).to_numpy()
    return table if keep.all() else table.filter(pa.array(keep))


def distinct(tables: list[pa.Table]) -> pa.Table:
    """Sort changes (entries.CHANGES) by (key, commit_ts), and drop repeats. The result has a single Arrow chunk. Raises
    InvariantBroken if two entries of one (key, commit_ts) are different changes."""
    whole = pa.concat_tables([CHANGES.empty_table(), *tables]).combine_chunks()
    frame = _frame(whole.select(["key", "commit_ts", "start_ts", "op"]))
    order = frame.select(pl.arg_sort_by("key", "commit_ts"))["key"]
    frame = frame[order]
    before = frame.select(pl.all().shift(1))
    again = ((frame["key"] == before["key"]) & (frame["commit_ts"] == before["commit_ts"])).fill_null(False)
    if again.any():
        other = again & ((frame["start_ts"] != before["start_ts"]) | (frame["op"] != before["op"]))
        if other.any():
            one = frame.filter(other).row(0, named=True)
            raise InvariantBroken(
                30, f"key {shown_key(one['key'])} has two different changes at commit_ts {one['commit_ts']}"
            )
        order = order.filter(~again)
    return whole.take(pa.array(order.to_numpy())).combine_chunks()


def long_starts(changes: pa.Table) -> I64:
    """The start_ts of the changes whose values are in the `default` column family, sorted and distinct."""
    frame = _frame(changes.select(["start_ts", "long"])).filter("long")
    return np.unique(frame["start_ts"].to_numpy())


def with_values(changes: pa.Table, values: pa.Table) -> pa.Table:
    """Fill in the values of the puts whose column `long` is true. `values` has them: the entries of the log's `default`
    column family, with the schema entries.VALUES; repeats are allowed. Raises InvariantBroken if a value is missing,
    because the log's checkpoint promises that it exists."""
    frame = _frame(changes)
    if not frame["long"].any():
        return changes
    there = _frame(values).unique(["key", "start_ts"], keep="any").rename({"value": "long_value"})
    joined = frame.join(there, on=["key", "start_ts"], how="left", maintain_order="left")
    lost = joined.filter(pl.col("long") & pl.col("long_value").is_null())
    if lost.height:
        one = lost.row(0, named=True)
        raise InvariantBroken(
            31,
            f"{lost.height} values are not in the log although its checkpoint covers their commits; the first is of "
            f"key {shown_key(one['key'])}, start_ts {one['start_ts']}, commit_ts {one['commit_ts']}",
        )
    filled = pl.when("long").then("long_value").otherwise("value").alias("value")
    return joined.with_columns(filled).select(CHANGES.names).to_arrow().cast(CHANGES)


def with_old_values(changes: pa.Table, newest: Callable[[pa.Array], pa.Array]) -> pa.Table:
    """Add old values to changes, which are sorted and distinct. Returns the schema ROWS. `newest` looks up the values
    of sorted, distinct keys just before the window; null where a key did not exist."""
    key, value = _one(changes["key"]), _one(changes["value"])
    keys = pl.Series("key", pl.from_arrow(key), pl.Binary())
    first = (keys != keys.shift(1)).fill_null(True).to_numpy()
    older = newest(key.take(pa.array(np.flatnonzero(first))))
    rows = len(keys)
    before = np.where(first, rows + np.cumsum(first) - 1, np.arange(rows) - 1)
    old = pa.concat_arrays([value, older]).take(pa.array(before))
    columns = [_one(changes[name]) for name in ("commit_ts", "start_ts", "op")]
    return pa.Table.from_arrays([key, *columns, value, old, _one(changes["txn_source"])], schema=ROWS)


def in_order(rows: pa.Table) -> pa.Table:
    """Sort ROWS by (commit_ts, start_ts, key). The input is in key order, so a stable sort by the timestamps
    suffices."""
    order = np.lexsort((rows["start_ts"].to_numpy(), rows["commit_ts"].to_numpy()))
    return rows.combine_chunks().take(pa.array(order))


def _one(column: pa.ChunkedArray) -> pa.Array:
    """Convert a column to a single Arrow array."""
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()


def _frame(table: pa.Table) -> pl.DataFrame:
    found = pl.from_arrow(table)
    assert isinstance(found, pl.DataFrame)
    return found
