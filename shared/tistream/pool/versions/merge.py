"""Merges sorted versions of keys: the newest version of each key, in key order. Pure.

A version is a row of run.SCHEMA. A table here has the rows of one run or of some segments: keys in ascending order, and
the versions of a key newest first.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from tistream.decode.kernels.arrow_buffers import flat_bytes, one_array
from tistream.decode.keys import INT_HANDLE_KEY_BYTES, int_handles, table_ids

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

STAMPS = ("key", "commit_ts", "start_ts", "op")  # the columns that decide which versions are returned


def ints(table: pa.Table, name: str) -> Ints:
    """Convert an int64 column to a numpy array."""
    out: Ints = table.column(name).to_numpy()
    return out


def key_array(table: pa.Table) -> Any:
    """The column `key` as one Arrow array."""
    return one_array(table.column("key"))


def first_of_each(keys: Any) -> Bools:
    """For keys in ascending order: whether each is the first of those that equal it. bool[n]."""
    out = np.ones(len(keys), np.bool_)
    if len(keys) > 1:
        out[1:] = pc.not_equal(keys.slice(1), keys.slice(0, len(keys) - 1)).to_numpy(zero_copy_only=False)
    return out


def newest_in(stamps: pa.Table, low: int, high: int, *, every: bool = False) -> Ints:
    """Select the rows of one table that a read needs: for each key its newest version with low < commit_ts <= high, or
    with `every` all its versions in this window. Returns row numbers, int64[m], ascending."""
    commit_ts = ints(stamps, "commit_ts")
    if len(commit_ts) and low < int(commit_ts.min()) and int(commit_ts.max()) <= high:
        at, keys = np.arange(len(commit_ts)), key_array(stamps)
    else:
        at = np.flatnonzero((commit_ts > low) & (commit_ts <= high))
        keys = key_array(stamps).take(pa.array(at))
    return at if every else at[first_of_each(keys)]


def merged(sources: Sequence[pa.Table], *, every: bool = False) -> Ints:
    """Merge several sorted tables: returns the order of their concatenated rows by key, ascending, then newest first.
    Without `every`, it contains only the newest version of each key.

    Args:
        sources: tables with at least the columns STAMPS, each sorted by key, then newest first.

    Returns:
        Indexes of rows in the concatenation of all tables, int64[m].
    """
    if len(sources) == 1:
        whole = np.arange(len(sources[0]))
        return whole if every else whole[first_of_each(key_array(sources[0]))]
    rows = pa.concat_tables([one.select(STAMPS) for one in sources])
    order = ordered(rows)
    return order if every else order[first_of_each(key_array(rows).take(pa.array(order)))]


def ordered(stamps: pa.Table) -> Ints:
    """The order that sorts rows by key, ascending, then newest first. It is fast if the rows consist of a few sorted
    sequences."""
    return _order(key_array(stamps), ints(stamps, "commit_ts"), ints(stamps, "start_ts"))


def _order(keys: Any, commit_ts: Ints, start_ts: Ints) -> Ints:
    handles = _handles(keys)
    if handles is None:
        frame = pl.DataFrame({"key": pl.from_arrow(keys), "commit_ts": -commit_ts, "start_ts": -start_ts})
        return frame.select(pl.arg_sort_by(frame.columns).cast(pl.Int64)).to_series().to_numpy()
    # A stable sort of concatenated sorted runs merges them.
    order = np.argsort(handles, kind="stable")
    ordered = handles[order]
    same = ordered[1:] == ordered[:-1]
    if same.any():
        doubled = np.zeros(len(order), np.bool_)
        doubled[1:] |= same
        doubled[:-1] |= same
        some = order[doubled]
        order[doubled] = some[np.lexsort((-start_ts[some], -commit_ts[some], handles[some]))]
    return order


def _handles(keys: Any) -> Ints | None:
    """The integer handles of keys, if all of them are record keys of one physical table with integer handles; otherwise
    None. Handles sort as their keys do, and faster."""
    flat = flat_bytes(keys)
    if not len(flat) or not (flat.lengths == INT_HANDLE_KEY_BYTES).all():
        return None
    handles, are = int_handles(keys)
    ids = table_ids(keys)
    return handles if are.all() and (ids == ids[0]).all() else None


def below(keys: Any, bound: bytes) -> int:
    """The number of keys that are below `bound`. The keys are in ascending order."""
    low, high = 0, len(keys)
    while low < high:
        middle = (low + high) // 2
        if keys[middle].as_py() < bound:
            low = middle + 1
        else:
            high = middle
    return low
