"""Stores the slices of a task, together with the watermark rows that wait, as arrays; cuts and copies them, and
converts them to the tables of a manifest. Pure."""

from __future__ import annotations

from typing import Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tistream.arrays import Int64s
from tistream.model.span import KeySpan
from tistream_sorter.watermark.slice_cuts import RegionSlices, SliceCuts, int64s, whole
from tistream_sorter.watermark.slice_work import CoveredSlices
from tistream_sorter.watermark.watermark_rows import WaitingRows, Watermark

NO_REGION = -1
NO_STORE = -1

SLICES = pa.schema(
    [pa.field("start_key", pa.binary()), pa.field("end_key", pa.binary())]
    + [pa.field(name, pa.int64()) for name in ("region_id", "region_version", "index", "resolved_ts", "store_id")]
)


class SliceArrays:
    """The slices of one task's span, in key order and without holes, and the watermark rows that wait. Copies share
    their arrays until one of them is written (copy on write)."""

    def __init__(self, span: KeySpan, snapshot_ts: int) -> None:
        """Create the slices of a new task: one slice without a region, with resolved_ts `snapshot_ts`."""
        self.span = span
        self._waiting = WaitingRows.of([])  # each bound of a waiting row is also a cut
        self._cuts = SliceCuts(pa.array([span.start], pa.binary()), span.end)
        self._region = np.array([NO_REGION], np.int64)
        self._version = np.zeros(1, np.int64)
        self._index = np.zeros(1, np.int64)
        self._resolved = np.array([snapshot_ts], np.int64)
        self._store = np.array([NO_STORE], np.int64)
        self._own: set[str] = set()  # names of the arrays that no copy shares
        self._places: RegionSlices | None = None
        self._runs: CoveredSlices | None = None
        self._touched = np.zeros(1, bool)  # by slice: whether it has changed since the waiting rows were last retried
        self._changes = 0  # number of changes by the current file

    @property
    def waiting(self) -> list[Watermark]:
        """The watermark rows that wait, sorted by span, region and log index."""
        return self._waiting.rows

    def __len__(self) -> int:
        return len(self._cuts)

    def copy(self) -> Self:
        """A copy that changes independently."""
        other = object.__new__(type(self))
        other.__dict__ |= self.__dict__
        other._own = set()
        self._own.clear()
        return other

    def _waiting_runs(self) -> tuple[Int64s, Int64s]:
        """For each waiting row, the consecutive slices `[first, beyond)` that it covers. Cached until the rows or the
        cuts change."""
        runs = self._runs
        if runs is None or runs.waiting is not self._waiting or runs.cuts is not self._cuts:
            found = self._cuts.slices_of(self._waiting.start, self._waiting.end)
            runs = self._runs = CoveredSlices(self._waiting, self._cuts, *found)
        return runs.first, runs.beyond

    # -- the array of slices --------------------------------------------------------------------------------------

    _ARRAYS = ("_region", "_version", "_index", "_resolved", "_store")

    def _values(self, at: int) -> tuple[int, int, int, int, int]:
        return (
            int(self._region[at]),
            int(self._version[at]),
            int(self._index[at]),
            int(self._resolved[at]),
            int(self._store[at]),
        )

    def _set(self, name: str, at: int | Int64s, values: int | Int64s) -> None:
        """Write values to the array `name`. If copies share the array, it is copied first."""
        array: Int64s = getattr(self, name)
        same = array[at] == values
        if same if isinstance(at, int) else np.all(same):
            return
        if name not in self._own:
            array = array.copy()
            setattr(self, name, array)
            self._own.add(name)
        array[at] = values
        if name == "_region":
            self._places = None

    def _cut(self, keys: pa.Array) -> None:
        """Cut the slices at all of these keys."""
        if (found := self._cuts.with_keys(keys)) is not None:
            self._replace(*found)

    def _coalesce(self) -> None:
        """Join neighbouring slices with equal values, except at the bound of a waiting row, where the cut would be
        needed again."""
        same = np.ones(len(self) - 1, bool)
        for name in self._ARRAYS[:-1]:
            values = getattr(self, name)
            same &= values[1:] == values[:-1]
        at = np.flatnonzero(same) + 1
        if len(self._waiting) and len(at):
            bounds = pa.concat_arrays([self._waiting.start, self._waiting.end])
            wanted = pc.is_in(self._cuts.starts.take(pa.array(at)), value_set=bounds)
            at = at[~wanted.to_numpy(zero_copy_only=False)]
        if len(at):
            keep = np.ones(len(self), bool)
            keep[at] = False
            self._replace(self._cuts.kept(keep), np.flatnonzero(keep))

    def _replace(self, cuts: SliceCuts, source: Int64s) -> None:
        """Change the cuts between slices. `source`: for each new slice, the present slice from which it takes its
        values."""
        self._cuts, self._places, self._touched = cuts, None, self._touched[source]
        for name in self._ARRAYS:
            setattr(self, name, getattr(self, name)[source])
        self._own = set(self._ARRAYS)

    # -- durable form ---------------------------------------------------------------------------------------------

    def to_tables(self) -> tuple[pa.Table, pa.Table]:
        """Convert the slices and the waiting rows to the tables SLICES and WAITING of a manifest."""
        values = [pa.array(getattr(self, name)) for name in self._ARRAYS]
        slices = pa.Table.from_arrays([self._cuts.starts, self._cuts.ends, *values], schema=SLICES)
        self._own.clear()  # the table shares the arrays from now on
        return slices, self._waiting.to_table()

    @classmethod
    def from_tables(cls, span: KeySpan, slices: pa.Table, waiting: pa.Table) -> Self:
        """Rebuild the slices from the tables that to_tables returned."""
        out = cls(span, 0)
        out._cuts = SliceCuts(whole(slices, "start_key"), span.end)
        assert out._cuts.start_of(0) == span.start
        for name, column in zip(cls._ARRAYS, SLICES.names[2:], strict=True):
            setattr(out, name, int64s(slices, column))
        out._touched = np.zeros(len(out._cuts), bool)
        out._waiting = WaitingRows.from_table(waiting)
        out._cut(pa.concat_arrays([out._waiting.start, out._waiting.end]))
        return out
