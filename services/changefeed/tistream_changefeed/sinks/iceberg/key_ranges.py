"""Plans how the files of a table that is mirrored change: which of them a commit writes again, and with which rows.
Pure.

Each file has the rows of a range of keys, sorted by key. A row that is deleted or updated is looked for in each file
whose range has its first key column, so ranges may overlap, and bounds may be cut short as Iceberg's are. A row that is
put goes to the file in whose range it lies, or to the one before it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa

from tistream.arrays import Bools, Int64s

_MOST = 2  # a larger file is cut; in target sizes


@dataclass(frozen=True, slots=True)
class KeyRange:
    """The bounds of the first key column in a file; None: not known."""

    low: Any
    high: Any


@dataclass(frozen=True, slots=True)
class Rewrite:
    """The rows of one file that a commit writes again, into one or more new files. `file` is the index of the file;
    None: only put rows are written. `puts` are the indexes of the put rows that belong into it."""

    file: int | None
    puts: Int64s


def rewrites(ranges: Sequence[KeyRange], deleted: pa.Array, put: pa.Array) -> list[Rewrite]:
    """Plan which files a commit rewrites, and which of them gets each put row. `ranges`: the key ranges of the present
    files. `deleted`, `put`: the first key column of the rows that the commit deletes, and of those that it inserts."""
    gone, come = pl.Series(pl.from_arrow(deleted)), pl.Series(pl.from_arrow(put))
    known = sorted(
        (number for number, one in enumerate(ranges) if one.low is not None), key=lambda number: ranges[number].low
    )
    place = _places([ranges[number].low for number in known], come)
    out: list[Rewrite] = []
    if not known and len(come):
        out.append(Rewrite(None, np.arange(len(come))))
    for number, one in enumerate(ranges):
        mine = np.flatnonzero(place == known.index(number)) if number in known else np.empty(0, np.int64)
        if len(mine) or _has(one, gone).any():
            out.append(Rewrite(number, mine))
    return out


def _places(lows: Sequence[Any], come: pl.Series) -> Int64s:
    """For each key in `come`, the index of the range that it goes to; -1 if there are no ranges. `lows`: the lower
    bounds of the ranges, ascending."""
    if not lows:
        return np.full(len(come), -1)
    found = pl.Series(lows, dtype=come.dtype).search_sorted(come, side="right").to_numpy().astype(np.int64)
    places: Int64s = np.maximum(found - 1, 0)
    return places


def _has(one: KeyRange, keys: pl.Series) -> Bools:
    inside = np.ones(len(keys), bool)
    if one.low is not None:
        inside &= _compared(keys, one.low, low=True)
    if one.high is not None:
        inside &= _compared(keys, one.high, low=False)
    return inside


def _compared(keys: pl.Series, bound: Any, *, low: bool) -> Bools:
    limit = pl.Series([bound], dtype=keys.dtype)
    found: Bools = (keys >= limit if low else keys <= limit).fill_null(value=True).to_numpy().astype(bool)
    return found


def merged(rows: pa.Table, keys: Sequence[str], deleted: Sequence[pa.Table], put: pa.Table) -> pa.Table:
    """The rows of a file after a commit, sorted by key: `rows` without the deleted ones, and with the rows `put`.
    `keys`: the names of the key columns. `deleted`: tables with the key columns of deleted rows."""
    for one in deleted:
        names = one.column_names
        index = "".join((*names, "#"))  # longer than the name of each column
        frame = pl.DataFrame(pl.from_arrow(rows.select(names))).with_row_index(index)
        gone = pl.DataFrame(pl.from_arrow(one))
        kept = frame.join(gone, on=names, how="anti", nulls_equal=True)[index].sort()
        if len(kept) < rows.num_rows:
            rows = rows.take(kept.to_arrow())
    out = pa.concat_tables([rows, put])
    order = pl.DataFrame(pl.from_arrow(out.select(list(keys)))).select(pl.arg_sort_by(*keys)).to_series()
    return out.take(order.to_arrow()).combine_chunks()


def pieces(rows: pa.Table, target_bytes: int) -> Iterator[pa.Table]:
    """Yield the rows of a file in pieces of about `target_bytes`, before compression, each for a file of its own."""
    if not rows.num_rows:
        return
    count = 1 if rows.nbytes <= _MOST * target_bytes else -(-rows.nbytes // target_bytes)
    step = -(-rows.num_rows // count)
    for start in range(0, rows.num_rows, step):
        yield rows.slice(start, step)
