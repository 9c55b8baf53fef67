"""Joins what the log has of a window: repeats drop out, long values and old values are filled in. Pure, vectorised.

A change is identified by (key, commit_ts). The log repeats changes after each leader move, and as records that were
rewritten; all of them are equal. In the order of (key, commit_ts) a change's old value is the value of the row before
it, or, for the first change of a key in the window, that of its newest version in the pool.
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
    """The rows with start <= key < end (empty: unbounded), without index entries unless `keep_index`."""
    frame = _frame(table)
    if not keep_index and frame.height:
        frame = frame.filter(pl.Series(key_parts(table["key"]).kind != KeyKind.INDEX))
    if start:
        frame = frame.filter(pl.col("key") >= pl.lit(start))
    if end:
        frame = frame.filter(pl.col("key") < pl.lit(end))
    return frame.to_arrow().cast(table.schema)


def distinct(tables: list[pa.Table]) -> pa.Table:
    """Changes (entries.CHANGES) sorted by (key, commit_ts), each once.

    Raises InvariantBroken if two entries of one (key, commit_ts) are different changes.
    """
    frame = _frame(pa.concat_tables([CHANGES.empty_table(), *tables])).sort("key", "commit_ts")
    if frame.height < 2:
        return _table(frame)
    again = ((frame["key"] == frame["key"].shift(1)) & (frame["commit_ts"] == frame["commit_ts"].shift(1))).fill_null(
        False
    )
    other = again & ((frame["start_ts"] != frame["start_ts"].shift(1)) | (frame["op"] != frame["op"].shift(1)))
    if other.any():
        one = frame.filter(other).row(0, named=True)
        raise InvariantBroken(
            30, f"key {shown_key(one['key'])} has two different changes at commit_ts {one['commit_ts']}"
        )
    return _table(frame.filter(~again))


def long_starts(changes: pa.Table) -> I64:
    """The start_ts of changes whose value is in `default`, sorted and distinct."""
    frame = _frame(changes.select(["start_ts", "long"])).filter("long")
    return np.unique(frame["start_ts"].to_numpy())


def with_values(changes: pa.Table, values: pa.Table) -> pa.Table:
    """Fill in the values of `long` puts from entries of `default` (entries.VALUES), which may repeat.

    Raises InvariantBroken if a value is missing: the checkpoint has promised it.
    """
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
    """The changes (sorted and distinct) as ROWS. `newest` gives the values of sorted, distinct keys just before the
    window, null where it does not exist."""
    keys = pl.Series("key", pl.from_arrow(changes["key"].combine_chunks()), pl.Binary())
    first = (keys != keys.shift(1)).fill_null(True).to_numpy()
    value = changes["value"].combine_chunks()
    rows = np.arange(len(keys))
    before = value.take(pa.array(rows - 1, mask=first))
    at = np.flatnonzero(first)
    older = newest(changes["key"].combine_chunks().take(pa.array(at)))
    place = np.cumsum(first) - 1
    from_pool = older.take(pa.array(place, mask=~first))
    old = pc.coalesce(before, from_pool)  # at each row at most one of them is not null
    return pa.Table.from_arrays(
        [
            changes["key"].combine_chunks(),
            changes["commit_ts"].combine_chunks(),
            changes["start_ts"].combine_chunks(),
            changes["op"].combine_chunks(),
            value,
            old,
            changes["txn_source"].combine_chunks(),
        ],
        schema=ROWS,
    )


def in_order(rows: pa.Table) -> pa.Table:
    """ROWS sorted by (commit_ts, start_ts, key)."""
    return _frame(rows).sort("commit_ts", "start_ts", "key").to_arrow().cast(ROWS)


def _frame(table: pa.Table) -> pl.DataFrame:
    found = pl.from_arrow(table)
    assert isinstance(found, pl.DataFrame)
    return found


def _table(frame: pl.DataFrame) -> pa.Table:
    return frame.to_arrow().cast(CHANGES)
