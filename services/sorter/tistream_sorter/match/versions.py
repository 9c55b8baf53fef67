"""Orders the versions of rows by key, newest first (tistream.format.run.ORDER), and finds the newest of each key. Pure.
Two numbers determine a record key with an integer handle, so most keys are ordered as numbers. Whole keys are compared
only where the numbers are equal, or where keys have an unknown form."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from tistream.arrays import Int64s
from tistream.format import segment
from tistream.model.packed_sort import stable_order
from tistream.model.tidb_key import KeyKind, KeyParts, key_parts

Bools = npt.NDArray[np.bool_]


def version_order(keys: pa.ChunkedArray, commit_ts: Int64s) -> Int64s:
    """The row numbers in the order of (key, commit_ts descending)."""
    parts = key_parts(keys)
    if not bool(((parts.kind == KeyKind.RECORD) | (parts.kind == KeyKind.INDEX)).all()):
        return _by_whole_key(_series(keys), commit_ts)
    order = stable_order(-commit_ts)
    order = order[stable_order(parts.tail[order])]
    group = parts.table_id * 2 + (parts.kind == KeyKind.RECORD)  # index keys of a table are before its records
    order = order[stable_order(group[order])]
    _order_unsure(order, parts, group, keys, commit_ts)
    return order


def first_of_key(keys: pa.ChunkedArray) -> Bools:
    """For each row of a sorted column of keys, whether it is the first with its key."""
    out = np.ones(len(keys), bool)
    if len(keys) > 1:
        whole = keys.combine_chunks()
        same = pc.equal(whole.slice(1), whole.slice(0, len(whole) - 1))
        out[1:] = ~same.to_numpy(zero_copy_only=False)
    return out


def folded(rows: pa.Table) -> pa.Table:
    """Select the newest version of each key, from rows in the order of `version_order`. Keys whose newest version is a
    delete are left out."""
    puts = rows.column("op").to_numpy() == segment.OP_PUT
    return rows.filter(pa.array(first_of_key(rows.column("key")) & puts))


def _order_unsure(order: Int64s, parts: KeyParts, group: Int64s, keys: pa.ChunkedArray, commit_ts: Int64s) -> None:
    """Order rows by whole key, in place, where equal numbers do not prove equal keys."""
    tail, groups, exact = parts.tail[order], group[order], parts.exact[order]
    tied = (tail[1:] == tail[:-1]) & (groups[1:] == groups[:-1])
    begins = np.ones(len(order), bool)
    begins[1:] = ~tied
    run = np.cumsum(begins) - 1
    sure = np.logical_and.reduceat(exact, np.flatnonzero(begins)) if len(order) else exact
    places = np.flatnonzero(~sure[run] if len(order) else exact)
    several = np.bincount(run)[run[places]] > 1 if len(places) else np.zeros(0, bool)
    places = places[several]
    if not len(places):
        return
    own = order[places]
    frame = pl.DataFrame(
        {
            "run": run[places],
            "key": _series(keys.take(pa.array(own))),
            "age": -commit_ts[own],
            "at": np.arange(len(own)),
        }
    )
    order[places] = own[frame.sort("run", "key", "age")["at"].to_numpy()]


def _by_whole_key(keys: pl.Series, commit_ts: Int64s) -> Int64s:
    frame = pl.DataFrame({"key": keys, "age": -commit_ts, "at": np.arange(len(commit_ts))})
    return frame.sort("key", "age")["at"].to_numpy()


def _series(keys: pa.ChunkedArray) -> pl.Series:
    found = pl.from_arrow(keys)
    assert isinstance(found, pl.Series)
    return found
