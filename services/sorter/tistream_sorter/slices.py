"""When a watermark counts: a task's span cut into slices (design.md 3). Pure.

A slice knows `(region, version, index, resolved_ts)`: up to which entry of which region's log everything that
concerns its keys has arrived, and its counted watermark. A WATERMARK row is taken slice by slice:

* its version is lower than the slice's: an older epoch, whose log is behind. It may raise resolved_ts, no more;
* else it *connects* if (a) it is of the slice's region and begins at or before the slice's next index, or
  (b) its version is higher and `after` names the slice's region at an index that the slice has reached, or
  (c) it carries a scan whose `base_ts` the slice's resolved_ts has reached;
* else it waits, changes nothing, and tries again after every change of its slice.

In steady state each row meets exactly one slice of the same region, version and span: that path is arrays only.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tistream.model.span import KeySpan
from tistream_sorter.slice_history import History
from tistream_sorter.watermark import Watermark, from_table, joined, row_at, to_table

NO_REGION = -1
NO_STORE = -1

Int64s = npt.NDArray[np.int64]

SLICES = pa.schema(
    [pa.field("start_key", pa.binary()), pa.field("end_key", pa.binary())]
    + [pa.field(name, pa.int64()) for name in ("region_id", "region_version", "index", "resolved_ts", "store_id")]
)


@dataclass(frozen=True, slots=True)
class SliceState:
    """One slice, for people and for tests."""

    start: bytes
    end: bytes
    region_id: int
    region_version: int
    index: int
    resolved_ts: int
    store_id: int


class SliceMap:
    """The slices of one task's span, in key order, without holes; and the rows that wait.

    Mutable; `copy()` before trying something that may not be committed.
    """

    def __init__(self, span: KeySpan, snapshot_ts: int) -> None:
        """A new task: one slice, covered by nobody's log up to `snapshot_ts`."""
        self.span = span
        self._starts: list[bytes] = [span.start]
        self._region = np.array([NO_REGION], np.int64)
        self._version = np.zeros(1, np.int64)
        self._index = np.zeros(1, np.int64)
        self._resolved = np.array([snapshot_ts], np.int64)
        self._store = np.array([NO_STORE], np.int64)
        self.waiting: list[Watermark] = []
        self._arrow: tuple[pa.Array, pa.Array] | None = None

    # -- what it says ---------------------------------------------------------------------------------------------

    def watermark(self) -> int:
        """The task's watermark: the minimum over its slices."""
        return int(self._resolved.min())

    def __len__(self) -> int:
        return len(self._starts)

    def states(self, only: KeySpan | None = None) -> list[SliceState]:
        """The slices, clipped to `only` where it is given."""
        out = []
        for at in range(len(self._starts)) if only is None else self._overlapping(only.start, only.end):
            piece = KeySpan(self._starts[at], self._end(at))
            clipped = piece if only is None else piece.clip(only)
            assert clipped is not None
            out.append(SliceState(clipped.start, clipped.end, *self._values(at)))
        return out

    def lowest(self) -> SliceState:
        """The slice that holds the watermark."""
        at = int(self._resolved.argmin())
        return SliceState(self._starts[at], self._end(at), *self._values(at))

    def waits_for(self, row: Watermark) -> str:
        """Why `row` does not connect to the first of its slices, in words."""
        at = self._overlapping(row.start, row.end)[0]
        region, version, index, resolved, _ = self._values(at)
        if row.base_ts is not None:
            return f"the scan from {row.base_ts}, but these keys are covered only up to {resolved}"
        if row.region_id == region:
            return f"region {region} log index {index + 1}..{row.first_index - 1}"
        named = dict(row.after)
        if row.region_version > version and region in named:
            return f"region {region} log index {index + 1}..{named[region]}"
        what = "a scan or the log before it" if region == NO_REGION else f"what follows region {region} index {index}"
        return f"{what}; region {row.region_id} version {row.region_version} begins at index {row.first_index}"

    # -- taking rows ----------------------------------------------------------------------------------------------

    def copy(self) -> SliceMap:
        """An independent map."""
        other = object.__new__(SliceMap)
        other.span, other._starts, other.waiting = self.span, list(self._starts), list(self.waiting)
        other._region, other._version = self._region.copy(), self._version.copy()
        other._index, other._resolved, other._store = self._index.copy(), self._resolved.copy(), self._store.copy()
        other._arrow = self._arrow
        return other

    def apply(self, rows: pa.Table, store_id: int, file_ts: int, seq: int, history: History) -> None:
        """Take one file's rows (wire.file_batch.WATERMARKS) in order; note every change under `seq`."""
        if rows.num_rows == 0:
            return
        slow = self._apply_steady(rows, store_id, seq, history)
        for row in slow:
            self._apply_row(row_at(rows, int(row), store_id, file_ts), seq, history)
        if self.waiting:
            self._retry(seq, history)
        if len(slow):
            self._coalesce()

    def _apply_steady(self, rows: pa.Table, store_id: int, seq: int, history: History) -> Int64s:
        """Take the rows that meet exactly one slice of their region, version and span; return the others."""
        starts, ends = self._boundaries()
        found = pc.index_in(_binary(rows, "start_key"), value_set=starts)
        at = pc.fill_null(found, 0).to_numpy().astype(np.int64)
        same_end = pc.equal(ends.take(pa.array(at)), _binary(rows, "end_key")).to_numpy(zero_copy_only=False)
        first, last, resolved = (_int64(rows, name) for name in ("first_index", "log_index", "resolved_ts"))
        fits = (
            found.is_valid().to_numpy(zero_copy_only=False)
            & same_end
            & (self._region[at] == _int64(rows, "region_id"))
            & (self._version[at] == _int64(rows, "region_version"))
            & (first <= self._index[at] + 1)
            & rows["base_ts"].combine_chunks().is_null().to_numpy(zero_copy_only=False)
        )
        counts = np.bincount(at, minlength=len(self._starts))
        fits &= counts[at] == 1
        one = at[fits]
        self._index[one] = np.maximum(self._index[one], last[fits])
        self._resolved[one] = np.maximum(self._resolved[one], resolved[fits])
        self._store[one] = store_id
        history.note_many(
            seq,
            starts.take(pa.array(one)),
            ends.take(pa.array(one)),
            self._version[one],
            self._index[one],
            self._resolved[one],
            last[fits],
            resolved[fits],
        )
        return np.flatnonzero(~fits)

    def _apply_row(self, row: Watermark, seq: int, history: History) -> bool:
        """Take one row on every slice that it overlaps; what does not connect waits. True if anything changed."""
        changed = False
        self._split_at(row.start)
        if row.end:
            self._split_at(row.end)
        unconnected: list[int] = []
        for at in self._overlapping(row.start, row.end):
            if row.region_version < self._version[at]:
                changed |= self._raise(at, row, seq, history)
            elif self._connects(at, row):
                changed |= self._connect(at, row, seq, history)
            else:
                unconnected.append(at)
        self.waiting.extend(self._pieces(row, unconnected))
        return changed

    def _connects(self, at: int, row: Watermark) -> bool:
        region, version, index, resolved, _ = self._values(at)
        if row.region_id == region and row.first_index <= index + 1:
            return True
        if row.region_version > version and any(r == region and i <= index for r, i in row.after):
            return True
        return row.base_ts is not None and row.base_ts <= resolved

    def _connect(self, at: int, row: Watermark, seq: int, history: History) -> bool:
        before = self._values(at)
        same_region = row.region_id == before[0]
        self._region[at], self._version[at], self._store[at] = row.region_id, row.region_version, row.store_id
        self._index[at] = max(before[2], row.log_index) if same_region else row.log_index
        self._resolved[at] = max(before[3], row.resolved_ts)
        history.note(seq, self, at, row, connected=True)
        return self._values(at) != before

    def _raise(self, at: int, row: Watermark, seq: int, history: History) -> bool:
        if row.resolved_ts <= self._resolved[at]:
            return False
        self._resolved[at] = row.resolved_ts
        history.note(seq, self, at, row, connected=False)
        return True

    def _retry(self, seq: int, history: History) -> None:
        """Let waiting rows try again until none of them changes anything."""
        changed = True
        while changed and self.waiting:
            changed = False
            trying, self.waiting = self.waiting, []
            for row in trying:
                held = len(self.waiting)
                changed |= self._apply_row(row, seq, history)
                changed |= self.waiting[held:] != [row]
        self.waiting = joined(self.waiting)

    def _pieces(self, row: Watermark, unconnected: list[int]) -> list[Watermark]:
        """`row` clipped to the given slices, neighbours joined."""
        out: list[Watermark] = []
        for at in unconnected:
            if out and out[-1].end == self._starts[at]:
                out[-1] = out[-1].clipped(out[-1].start, self._end(at))
            else:
                out.append(row.clipped(self._starts[at], self._end(at)))
        return out

    # -- the array of slices --------------------------------------------------------------------------------------

    def _values(self, at: int) -> tuple[int, int, int, int, int]:
        return (
            int(self._region[at]),
            int(self._version[at]),
            int(self._index[at]),
            int(self._resolved[at]),
            int(self._store[at]),
        )

    def _end(self, at: int) -> bytes:
        return self._starts[at + 1] if at + 1 < len(self._starts) else self.span.end

    def _overlapping(self, start: bytes, end: bytes) -> range:
        first = max(bisect_right(self._starts, start) - 1, 0)
        last = bisect_left(self._starts, end) if end else len(self._starts)
        return range(first, last)

    def _boundaries(self) -> tuple[pa.Array, pa.Array]:
        if self._arrow is None:
            ends = [*self._starts[1:], self.span.end]
            self._arrow = pa.array(self._starts, pa.binary()), pa.array(ends, pa.binary())
        return self._arrow

    _ARRAYS = ("_region", "_version", "_index", "_resolved", "_store")

    def _split_at(self, key: bytes) -> None:
        at = bisect_right(self._starts, key) - 1
        if at < 0 or self._starts[at] == key or (self.span.end and key >= self.span.end):
            return
        self._starts.insert(at + 1, key)
        for name in self._ARRAYS:
            values = getattr(self, name)
            setattr(self, name, np.insert(values, at + 1, values[at]))
        self._arrow = None

    def _coalesce(self) -> None:
        """Join neighbours that know the same."""
        keep = np.ones(len(self._starts), bool)
        for name in self._ARRAYS[:-1]:
            values = getattr(self, name)
            keep[1:] &= values[1:] == values[:-1]
        keep[1:] = ~keep[1:]
        if keep.all():
            return
        self._starts = [start for start, kept in zip(self._starts, keep, strict=True) if kept]
        for name in self._ARRAYS:
            setattr(self, name, getattr(self, name)[keep])
        self._arrow = None

    # -- durable form ---------------------------------------------------------------------------------------------

    def to_tables(self) -> tuple[pa.Table, pa.Table]:
        """(SLICES, WAITING), as a manifest restates them."""
        starts, ends = self._boundaries()
        values = [self._region, self._version, self._index, self._resolved, self._store]
        slices = pa.Table.from_arrays([starts, ends, *map(pa.array, values)], schema=SLICES)
        return slices, to_table(self.waiting)

    @classmethod
    def from_tables(cls, span: KeySpan, slices: pa.Table, waiting: pa.Table) -> SliceMap:
        """The inverse of to_tables."""
        out = cls(span, 0)
        out._starts = slices["start_key"].to_pylist()
        assert out._starts[0] == span.start
        names = ("region_id", "region_version", "index", "resolved_ts", "store_id")
        out._region, out._version, out._index, out._resolved, out._store = (
            _int64(slices, name).copy() for name in names
        )
        out.waiting = from_table(waiting)
        return out


def _int64(table: pa.Table, name: str) -> Int64s:
    column = table[name].combine_chunks()
    assert column.null_count == 0, name
    return np.asarray(column.to_numpy(zero_copy_only=False), np.int64)


def _binary(table: pa.Table, name: str) -> pa.Array:
    return table[name].combine_chunks()
