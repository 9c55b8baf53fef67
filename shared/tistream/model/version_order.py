"""Sorts versions of keys by (key, ts). Pure, on whole columns.

The first bytes of keys are compared as numbers (tidb_key.key_words). Whole keys are compared only if these are equal
and the keys are longer, or are of different lengths.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import polars as pl
import pyarrow as pa

from tistream.arrays import Bools, Int64s
from tistream.model.packed_sort import stable_order
from tistream.model.tidb_key import EXACT_BYTES, key_words


@dataclass(frozen=True, slots=True)
class VersionOrder:
    """rows: row numbers in ascending order of (key, ts, row number). same_key: for each item of `rows`, whether its key
    is the key of the item before it; False for the first."""

    rows: Int64s
    same_key: Bools


def version_order(keys: pa.Array, ts: Int64s) -> VersionOrder:
    """Compute the order of versions. `keys` is a binary array without nulls, `ts` has the timestamp of each."""
    words, lengths = key_words(keys)
    rows = stable_order(ts)
    for word in reversed(words):
        rows = rows[stable_order(word[rows])]
    alike, same = (np.zeros(len(ts), np.bool_) for _ in range(2))
    alike[1:] = True
    for word in words:
        found = word[rows]
        alike[1:] &= found[1:] == found[:-1]
    length = lengths[rows]
    same[1:] = alike[1:] & (length[1:] == length[:-1]) & (length[1:] <= EXACT_BYTES)
    unsure = alike & ~same
    if unsure.any():
        _by_whole_key(rows, same, np.cumsum(~alike), unsure, keys, ts)
    return VersionOrder(rows, same)


def _by_whole_key(rows: Int64s, same: Bools, run: Int64s, unsure: Bools, keys: pa.Array, ts: Int64s) -> None:
    """Correct `rows` and `same`, in place, in the runs that have an unsure row. `run`: for each item of `rows`, the
    number of its run, in which all first bytes are equal."""
    marked = np.zeros(int(run[-1]) + 1, np.bool_)
    marked[run[unsure]] = True
    places = np.flatnonzero(marked[run])
    own = rows[places]
    found = pl.from_arrow(keys.take(pa.array(own)))
    frame = pl.DataFrame({"run": run[places], "key": found, "ts": ts[own], "at": np.arange(len(own))})
    frame = frame.sort("run", "key", "ts", "at")
    rows[places] = own[frame["at"].to_numpy()]
    again = (frame["key"] == frame["key"].shift(1)) & (frame["run"] == frame["run"].shift(1))
    same[places] = again.fill_null(False).to_numpy()
