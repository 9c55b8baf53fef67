"""Computes the order of a segment's rows (tistream.format.segment.ORDER). Whole keys are compared only if the rows are
equal in all other columns. Pure."""

from __future__ import annotations

import numpy as np
import polars as pl

from tistream.arrays import Bools, Int64s
from tistream.model.packed_sort import stable_order
from tistream.model.tidb_key import KeyKind, KeyParts


def segment_order(commit_ts: Int64s, start_ts: Int64s, parts: KeyParts, keys: pl.Series, rows: Int64s) -> Int64s:
    """The positions that sort rows by (table_id, commit_ts, start_ts, key). `commit_ts`, `start_ts` and `rows` have one
    item per change. An item of `rows` is the change's position in `parts` and `keys`."""
    order = stable_order(start_ts)
    for values in (commit_ts, parts.table_id[rows]):
        order = order[stable_order(values[order])]
    table, commit, start = (values[order] for values in (parts.table_id[rows], commit_ts, start_ts))
    tied = (table[1:] == table[:-1]) & (commit[1:] == commit[:-1]) & (start[1:] == start[:-1])
    if tied.any():
        _order_by_key(order, tied, parts, keys, rows)
    return order


def _order_by_key(order: Int64s, tied: Bools, parts: KeyParts, keys: pl.Series, rows: Int64s) -> None:
    """Sort the rows of each transaction and table by key, in place. `tied`: for each position, whether its row has the
    same transaction and table as the row before it."""
    inside = np.zeros(len(order), bool)
    inside[1:] = tied
    inside[:-1] |= tied
    places = np.flatnonzero(inside)
    begins = np.ones(len(order), bool)
    begins[1:] = ~tied
    run = np.cumsum(begins)[places]
    own = order[places]
    where = rows[own]
    is_record = parts.kind[where] == KeyKind.RECORD
    tail = np.where(is_record, parts.tail[where], np.uint64(0))
    same_run = run[1:] == run[:-1]
    if (same_run & (tail[1:] < tail[:-1])).any():
        by_tail = np.lexsort((tail, run))
        own, where, tail, is_record = own[by_tail], where[by_tail], tail[by_tail], is_record[by_tail]
    unsure = same_run & (tail[1:] == tail[:-1])  # equal numbers: compare the whole keys
    if unsure.any():
        own = own[_by_whole_key(run, keys.gather(where))]
    order[places] = own


def _by_whole_key(run: Int64s, keys: pl.Series) -> Int64s:
    frame = pl.DataFrame({"run": run, "key": keys, "at": np.arange(len(run))})
    return frame.sort("run", "key")["at"].to_numpy()
