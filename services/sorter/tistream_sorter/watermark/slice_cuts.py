"""Where the slices of a task begin and end: keys in order, without holes, and how rows find their slices. Pure.

A map of slices changes its numbers at every file and its cuts only at splits and merges. So cuts are immutable and
shared by all copies of a map, and what it takes to look something up in them is made once.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

Int64s = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

_FEW = 256  # keys that are not worth sorting
_SINGLE = 8  # keys that are not worth a search of all at once, which costs more than its steps


@dataclass(frozen=True)
class Cuts:
    """The slices' start keys in order; each slice ends where the next begins, the last at `end` (empty: +infinity)."""

    starts: pa.Array
    end: bytes

    def __len__(self) -> int:
        return len(self.starts)

    @cached_property
    def ends(self) -> pa.Array:
        """The slices' end keys."""
        return pa.concat_arrays([self.starts.slice(1), pa.array([self.end], pa.binary())])

    def start_of(self, at: int) -> bytes:
        """Where slice `at` begins."""
        key: bytes = self.starts[at].as_py()
        return key

    def end_of(self, at: int) -> bytes:
        """Where slice `at` ends."""
        return self.start_of(at + 1) if at + 1 < len(self) else self.end

    def overlapping(self, start: bytes, end: bytes) -> range:
        """The slices that a span of keys overlaps."""
        first, last = self._holding_one(start), self._holding_one(end)
        inside = last if not end or self.start_of(last) != end else last - 1
        return range(max(first, 0), (inside if end else len(self) - 1) + 1)

    def rows_of(self, starts: pa.Array, ends: pa.Array) -> tuple[Int64s, Int64s]:
        """Per span the run of slices `[first, beyond)` that it covers; the spans' bounds are cuts, or the last end."""
        first = self.holding(starts)
        unbounded = pc.equal(pc.binary_length(ends), 0).to_numpy(zero_copy_only=False)
        last_end = pc.equal(ends, pa.scalar(self.end, pa.binary())).to_numpy(zero_copy_only=False)
        return first, np.where(unbounded | last_end, len(self), self.holding(ends))

    def with_keys(self, keys: pa.Array) -> tuple[Cuts, Int64s] | None:
        """The cuts with those keys added, and for each new slice the old one that it is a part of. None if all of the
        keys are cuts already, or lie outside."""
        wanted = pc.unique(keys)
        at = self.holding(wanted)
        new = (at >= 0) & ~pc.equal(self.starts.take(pa.array(np.maximum(at, 0))), wanted).to_numpy(
            zero_copy_only=False
        )
        if self.end:
            new &= pc.less(wanted, pa.scalar(self.end, pa.binary())).to_numpy(zero_copy_only=False)
        if not new.any():
            return None
        added = wanted.filter(pa.array(new))
        added = added.take(pc.array_sort_indices(added))
        parts = self.holding(added)
        order = np.insert(np.arange(len(self)), parts + 1, len(self) + np.arange(len(added)))
        source = np.insert(np.arange(len(self)), parts + 1, parts)
        return Cuts(pa.concat_arrays([self.starts, added]).take(pa.array(order)), self.end), source

    def kept(self, keep: Bools) -> Cuts:
        """Only those slices, each reaching up to the next."""
        return Cuts(self.starts.filter(pa.array(keep)), self.end)

    def holding(self, keys: pa.Array) -> Int64s:
        """Per key the slice that holds it; -1 below the first, the last beyond the end."""
        if len(keys) < _SINGLE:
            return np.array([self._holding_one(key) for key in keys.to_pylist()], np.int64)
        wanted = pl.Series(keys)
        if len(wanted) < _FEW:
            return self._sorted.search_sorted(wanted, side="right").to_numpy().astype(np.int64) - 1
        order = wanted.arg_sort()  # neighbours are found where the last one was: the rest is in no cache
        out = np.empty(len(wanted), np.int64)
        out[order.to_numpy()] = self._sorted.search_sorted(wanted.gather(order), side="right").to_numpy()
        return out - 1

    def _holding_one(self, key: bytes) -> int:
        return bisect_right(range(len(self)), key, key=self.start_of) - 1

    @cached_property
    def _sorted(self) -> pl.Series:
        return pl.Series(self.starts)


class Places:
    """Which slice a store's watermark rows are about: found by region, and remembered from file to file, since a store
    tells of the same regions every time. Holds for as long as no slice changes its region or its bounds."""

    def __init__(self, cuts: Cuts, regions: Int64s) -> None:
        """`regions` by slice; not changed afterwards."""
        self._cuts, self._regions = cuts, regions
        self._by_region: tuple[Int64s, Int64s] | None = None
        self._known: dict[int, _Known] = {}

    def of(self, rows: pa.Table, store_id: int) -> tuple[Int64s, Bools]:
        """Per row (start_key, end_key, region_id) a slice, and whether it is of that very span and region and met by no
        other of the rows."""
        region = int64s(rows, "region_id")
        asked = _Asked(whole(rows, "start_key"), whole(rows, "end_key"), region)
        known = self._known.get(store_id)
        if known is None or not known.asked.same(asked):
            known = self._known[store_id] = self._found(asked)
        return known.at, known.fits

    def _found(self, asked: _Asked) -> _Known:
        if self._by_region is None:
            order = np.argsort(self._regions, kind="stable")
            self._by_region = order, self._regions[order]
        places, ids = self._by_region
        order = np.argsort(asked.region, kind="stable")
        at = np.empty(len(order), np.int64)
        at[order] = places[np.minimum(np.searchsorted(ids, asked.region[order]), len(ids) - 1)]
        fits = self._regions[at] == asked.region
        taken = pa.array(at)
        fits &= pc.equal(self._cuts.starts.take(taken), asked.start).to_numpy(zero_copy_only=False)
        fits &= pc.equal(self._cuts.ends.take(taken), asked.end).to_numpy(zero_copy_only=False)
        met = np.sort(at)
        again = met[1:][met[1:] == met[:-1]]
        return _Known(asked, at, fits & ~np.isin(at, again) if len(again) else fits)


@dataclass(frozen=True, slots=True)
class _Asked:
    start: pa.Array
    end: pa.Array
    region: Int64s

    def same(self, other: _Asked) -> bool:
        return (
            np.array_equal(self.region, other.region)
            and self.start.equals(other.start)
            and bool(self.end.equals(other.end))
        )


@dataclass(frozen=True, slots=True)
class _Known:
    asked: _Asked
    at: Int64s
    fits: Bools


def int64s(table: pa.Table, name: str) -> Int64s:
    """A column without nulls."""
    column = whole(table, name)
    assert column.null_count == 0, name
    return np.asarray(column.to_numpy(zero_copy_only=False), np.int64)


def whole(table: pa.Table, name: str) -> pa.Array:
    """A column in one piece; not copied, if it is."""
    column = table[name]
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
