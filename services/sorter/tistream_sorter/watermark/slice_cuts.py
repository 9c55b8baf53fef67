"""The bounds of a task's slices (cuts), and lookups from keys and watermark rows to slices. Pure.

The values of slices change with every file, but their cuts only at splits and merges of regions. So cuts are immutable
and shared by all copies, and their lookup structures are built once.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from tistream.arrays import Bools, Int64s

_FEW = 256  # below this number, keys are not sorted before the search
_SINGLE = 8  # below this number, keys are looked up one by one: a vectorized search has a high fixed cost


@dataclass(frozen=True)
class SliceCuts:
    """The start keys of the slices, in order. Each slice ends where the next one begins, and the last one at `end`
    (empty: plus infinity)."""

    starts: pa.Array
    end: bytes

    def __len__(self) -> int:
        return len(self.starts)

    @cached_property
    def ends(self) -> pa.Array:
        """The end keys of the slices."""
        return pa.concat_arrays([self.starts.slice(1), pa.array([self.end], pa.binary())])

    def start_of(self, at: int) -> bytes:
        """The start key of the slice at this position."""
        key: bytes = self.starts[at].as_py()
        return key

    def end_of(self, at: int) -> bytes:
        """The end key of the slice at this position."""
        return self.start_of(at + 1) if at + 1 < len(self) else self.end

    def overlapping(self, start: bytes, end: bytes) -> range:
        """The positions of the slices that a span of keys overlaps."""
        first, last = self._holding_one(start), self._holding_one(end)
        inside = last if not end or self.start_of(last) != end else last - 1
        return range(max(first, 0), (inside if end else len(self) - 1) + 1)

    def slices_of(self, starts: pa.Array, ends: pa.Array) -> tuple[Int64s, Int64s]:
        """For each span of keys, the consecutive slices `[first, beyond)` that it covers. The ends of a span must be
        cuts, or the `end` of the last slice."""
        first = self.holding(starts)
        unbounded = pc.equal(pc.binary_length(ends), 0).to_numpy(zero_copy_only=False)
        last_end = pc.equal(ends, pa.scalar(self.end, pa.binary())).to_numpy(zero_copy_only=False)
        return first, np.where(unbounded | last_end, len(self), self.holding(ends))

    def with_keys(self, keys: pa.Array) -> tuple[SliceCuts, Int64s] | None:
        """Add cuts at these keys. Returns the new cuts, and for each new slice the position of the old slice that
        contains it. None if every key is a cut already or lies outside."""
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
        return SliceCuts(pa.concat_arrays([self.starts, added]).take(pa.array(order)), self.end), source

    def kept(self, keep: Bools) -> SliceCuts:
        """Remove all cuts but those that the mask `keep` selects; each slice then ends where the next one begins."""
        return SliceCuts(self.starts.filter(pa.array(keep)), self.end)

    def holding(self, keys: pa.Array) -> Int64s:
        """The position of the slice that holds each key: -1 for keys below the first slice, the last slice for keys
        beyond the end."""
        if len(keys) < _SINGLE:
            return np.array([self._holding_one(key) for key in keys.to_pylist()], np.int64)
        wanted = pl.Series(keys)
        if len(wanted) < _FEW:
            return self._sorted.search_sorted(wanted, side="right").to_numpy().astype(np.int64) - 1
        order = wanted.arg_sort()  # sorted keys use the CPU's caches better
        out = np.empty(len(wanted), np.int64)
        out[order.to_numpy()] = self._sorted.search_sorted(wanted.gather(order), side="right").to_numpy()
        return out - 1

    def _holding_one(self, key: bytes) -> int:
        return bisect_right(range(len(self)), key, key=self.start_of) - 1

    @cached_property
    def _sorted(self) -> pl.Series:
        return pl.Series(self.starts)


class RegionSlices:
    """Finds slices for watermark rows by region. The result is cached for each store, because successive files of a
    store have rows of the same regions. It is valid as long as no slice changes its region or its bounds."""

    def __init__(self, cuts: SliceCuts, regions: Int64s) -> None:
        """`regions`: the region of each slice. The array must not change afterwards."""
        self._cuts, self._regions = cuts, regions
        self._by_region: tuple[Int64s, Int64s] | None = None
        self._known: dict[int, _Known] = {}

    def of(self, rows: pa.Table, store_id: int) -> tuple[Int64s, Bools]:
        """For each row (start_key, end_key, region_id), the position of a slice of its region; of any slice if the
        region has none. The second array says whether that slice has exactly the row's span and region, and no other
        row has the same slice."""
        region = int64s(rows, "region_id")
        lookup = _Lookup(whole(rows, "start_key"), whole(rows, "end_key"), region)
        known = self._known.get(store_id)
        if known is None or not known.lookup.same(lookup):
            known = self._known[store_id] = self._found(lookup)
        return known.at, known.fits

    def _found(self, lookup: _Lookup) -> _Known:
        if self._by_region is None:
            order = np.argsort(self._regions, kind="stable")
            self._by_region = order, self._regions[order]
        places, ids = self._by_region
        order = np.argsort(lookup.region, kind="stable")
        at = np.empty(len(order), np.int64)
        at[order] = places[np.minimum(np.searchsorted(ids, lookup.region[order]), len(ids) - 1)]
        fits = self._regions[at] == lookup.region
        chosen = pa.array(at)
        fits &= pc.equal(self._cuts.starts.take(chosen), lookup.start).to_numpy(zero_copy_only=False)
        fits &= pc.equal(self._cuts.ends.take(chosen), lookup.end).to_numpy(zero_copy_only=False)
        met = np.sort(at)
        again = met[1:][met[1:] == met[:-1]]
        return _Known(lookup, at, fits & ~np.isin(at, again) if len(again) else fits)


@dataclass(frozen=True, slots=True)
class _Lookup:
    start: pa.Array
    end: pa.Array
    region: Int64s

    def same(self, other: _Lookup) -> bool:
        return (
            np.array_equal(self.region, other.region)
            and self.start.equals(other.start)
            and bool(self.end.equals(other.end))
        )


@dataclass(frozen=True, slots=True)
class _Known:
    lookup: _Lookup
    at: Int64s
    fits: Bools


def int64s(table: pa.Table, name: str) -> Int64s:
    """A column of int64 as an array. The column must not have nulls."""
    column = whole(table, name)
    assert column.null_count == 0, name
    return np.asarray(column.to_numpy(zero_copy_only=False), np.int64)


def whole(table: pa.Table, name: str) -> pa.Array:
    """A column as one array. It is copied only if it has several chunks."""
    column = table[name]
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
