"""Computes the net change of a window: for each row, what differs between the state before the window and the state
after it. Pure.

A row is identified by its raw key, as TiKV does. So the net change is exact for tables without a key, too. A row whose
unique values change is deleted and inserted, because another row of the window may take its old values; deletes are
written before puts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl
import pyarrow as pa

from tistream.arrays import Bools, Int64s
from tistream.decode.row_compare import same_rows
from tistream.schema.tidb.table import Column
from tistream.schema.visible import TableVersion
from tistream_changefeed.rows.handle_key import unique_columns
from tistream_changefeed.rows.row_batch import RowBatch
from tistream_changefeed.rows.window import EventWindow


@dataclass(frozen=True, slots=True)
class TableNet:
    """The net change of one table. The record batches have a field for each of `columns`, in order. `deletes`: old rows
    that must be deleted, before the others are written. `updates`: new rows that replace a row with the same unique
    values. `inserts`: new rows that replace none. `handle`: the handle key; empty if the table has none."""

    version: TableVersion
    columns: tuple[Column, ...]
    handle: tuple[Column, ...]
    deletes: pa.RecordBatch
    updates: pa.RecordBatch
    inserts: pa.RecordBatch

    def __len__(self) -> int:
        return sum(int(rows.num_rows) for rows in (self.deletes, self.updates, self.inserts))

    def chosen(self, deletes: Bools, updates: Bools, inserts: Bools) -> TableNet:
        """A part of the net change: the rows for which these masks are true."""
        return TableNet(
            self.version,
            self.columns,
            self.handle,
            *(
                rows if mask.all() else rows.filter(pa.array(mask))
                for rows, mask in ((self.deletes, deletes), (self.updates, updates), (self.inserts, inserts))
            ),
        )


@dataclass(frozen=True, slots=True)
class _Ends:
    """The first and the last event of each row: the number of the batch, and the index in it."""

    first_batch: Int64s
    first: Int64s
    last_batch: Int64s
    last: Int64s


def net(window: EventWindow) -> tuple[TableNet, ...]:
    """The net change of the events of a window, one TableNet for each of its batches that changes something.
    Updates in `window` may be whole or split (split.py); the result is the same."""
    batches = [batch for batch in window.rows if len(batch)]
    if not batches:
        return ()
    ends = _ends(batches)
    had, has = np.zeros(len(ends.first), bool), np.zeros(len(ends.first), bool)
    for number, batch in enumerate(batches):
        mine = ends.first_batch == number
        had[mine] = batch.old_at[ends.first[mine]] >= 0
        mine = ends.last_batch == number
        has[mine] = batch.new_at[ends.last[mine]] >= 0
    moved = had & has & (ends.first_batch != ends.last_batch)
    same = np.zeros(len(had), bool)
    for number, batch in enumerate(batches):
        mine = np.flatnonzero(had & has & (ends.first_batch == number) & (ends.last_batch == number))
        if len(mine):
            old, new = batch.old_at[ends.first[mine]], batch.new_at[ends.last[mine]]
            same[mine] = _equal(batch, batch.columns, old, new)
            keyed = unique_columns(batch.version.table)
            moved[mine] = ~_equal(batch, keyed, old, new) if batch.handle else True
    moved &= ~same
    out = []
    for number, batch in enumerate(batches):
        begins, ended = ends.first_batch == number, ends.last_batch == number
        deletes = batch.old_at[ends.first[begins & had & (~has | moved)]]
        updates = batch.new_at[ends.last[ended & had & has & ~moved & ~same]]
        inserts = batch.new_at[ends.last[ended & has & (~had | moved)]]
        found = TableNet(
            batch.version,
            batch.columns,
            batch.handle,
            _rows(batch, batch.old, deletes),
            _rows(batch, batch.new, updates),
            _rows(batch, batch.new, inserts),
        )
        if len(found):
            out.append(found)
    return tuple(out)


def _ends(batches: Sequence[RowBatch]) -> _Ends:
    frame = pl.DataFrame(
        {
            "raw": pl.concat([pl.Series(pl.from_arrow(batch.raw.cast(pa.large_binary()))) for batch in batches]),
            "at": np.concatenate([batch.at for batch in batches]),
            "batch": np.concatenate([np.full(len(batch), number) for number, batch in enumerate(batches)]),
            "index": np.concatenate([np.arange(len(batch)) for batch in batches]),
        }
    ).sort("at")
    found = frame.group_by("raw", maintain_order=True).agg(
        first_batch=pl.col("batch").first(),
        first=pl.col("index").first(),
        last_batch=pl.col("batch").last(),
        last=pl.col("index").last(),
    )
    return _Ends(*(found[name].to_numpy() for name in ("first_batch", "first", "last_batch", "last")))


def _equal(batch: RowBatch, columns: Sequence[Column], old: Int64s, new: Int64s) -> Bools:
    """For each i, whether row `old[i]` of the old rows equals row `new[i]` of the new rows in these columns."""
    places = [place for place, column in enumerate(batch.columns) if column in columns]
    before = [batch.old[place].take(pa.array(old)) for place in places]
    after = [batch.new[place].take(pa.array(new)) for place in places]
    return same_rows(before, after, np.arange(len(old)))


def _rows(batch: RowBatch, columns: Sequence[pa.Array], at: Int64s) -> pa.RecordBatch:
    chosen = pa.array(at, pa.int64())
    return pa.RecordBatch.from_arrays(
        [array.take(chosen) for array in columns], names=[column.name for column in batch.columns]
    )
