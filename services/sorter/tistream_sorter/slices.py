"""When a watermark counts: a task's span cut into slices (design.md 3). Pure.

A slice knows `(region, version, index, resolved_ts)`: up to which entry of which region's log everything that
concerns its keys has arrived, and its counted watermark. A WATERMARK row is taken slice by slice:

* its version is lower than the slice's: an older epoch, whose log is behind. It may raise resolved_ts, no more;
* else it *connects* if (a) it is of the slice's region and begins at or before the slice's next index, or
  (b) its version is higher and `after` names the slice's region at an index that the slice has reached, or
  (c) it carries a scan whose `base_ts` the slice's resolved_ts has reached;
* else it waits, changes nothing, and tries again after every change of its slice.

In steady state each row meets exactly one slice of the same region, version and span: that path is arrays only. So is
that of a row that has one slice for itself, as the first ones of a tenant do; what is left goes row by row.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tistream.model.span import KeySpan
from tistream.model.ts import MAX_TS
from tistream_sorter.slice_cuts import Bools, Cuts, Int64s, Places, int64s, whole
from tistream_sorter.slice_history import NO_SCAN, NOT_CONNECTED, Changes, History
from tistream_sorter.watermark import Queue, Watermark, from_table, joined, rows_of, to_table

NO_REGION = -1
NO_STORE = -1

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

    Mutable; `copy()` before trying something that may not be committed. Copies share what neither has changed.
    """

    def __init__(self, span: KeySpan, snapshot_ts: int) -> None:
        """A new task: one slice, covered by nobody's log up to `snapshot_ts`."""
        self.span = span
        self.waiting: list[Watermark] = []  # replaced, never changed
        self._cuts = Cuts(pa.array([span.start], pa.binary()), span.end)
        self._region = np.array([NO_REGION], np.int64)
        self._version = np.zeros(1, np.int64)
        self._index = np.zeros(1, np.int64)
        self._resolved = np.array([snapshot_ts], np.int64)
        self._store = np.array([NO_STORE], np.int64)
        self._own: set[str] = set()  # arrays that nobody else holds
        self._places: Places | None = None
        self._queue: Queue | None = None

    # -- what it says ---------------------------------------------------------------------------------------------

    def watermark(self) -> int:
        """The task's watermark: the minimum over its slices."""
        return int(self._resolved.min())

    def __len__(self) -> int:
        return len(self._cuts)

    def states(self, only: KeySpan | None = None) -> list[SliceState]:
        """The slices, clipped to `only` where it is given."""
        out = []
        for at in range(len(self)) if only is None else self._cuts.overlapping(only.start, only.end):
            piece = KeySpan(self._cuts.start_of(at), self._cuts.end_of(at))
            clipped = piece if only is None else piece.clip(only)
            assert clipped is not None
            out.append(SliceState(clipped.start, clipped.end, *self._values(at)))
        return out

    def lowest(self) -> SliceState:
        """The slice that holds the watermark."""
        at = int(self._resolved.argmin())
        return SliceState(self._cuts.start_of(at), self._cuts.end_of(at), *self._values(at))

    def slowest_waiting(self, count: int) -> list[Watermark]:
        """The waiting rows that begin in the slices furthest behind, at most `count`."""
        if not self.waiting:
            return []
        queue = self._queued()
        order = np.argsort(self._resolved[self._cuts.holding(queue.start)], kind="stable")
        return [self.waiting[at] for at in order[:count].tolist()]

    def waits_for(self, row: Watermark) -> str:
        """Why `row` does not connect to the first of its slices, in words."""
        at = self._cuts.overlapping(row.start, row.end)[0]
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
        other.__dict__ |= self.__dict__
        other._own = set()
        self._own.clear()
        return other

    def begin(self, history: History) -> None:
        """Note the states before the first change."""
        self._own -= {"_version", "_index", "_resolved"}
        history.begin(self._cuts, self._version, self._index, self._resolved)

    def apply(self, rows: pa.Table, store_id: int, file_ts: int, seq: int, history: History) -> None:
        """Take one file's rows (wire.file_batch.WATERMARKS) in order; note every change under `seq`."""
        if rows.num_rows == 0:
            return
        before = self.waiting
        rows = self._apply_steady(rows, store_id, seq, history)
        slow = rows.num_rows > 0
        if slow:
            self._cut(pa.concat_arrays([whole(rows, "start_key"), whole(rows, "end_key")]))
            rows = self._apply_alone(rows, store_id, seq, history)
            held: list[Watermark] = []
            for row in rows_of(rows, store_id, file_ts):
                held += self._apply_row(row, seq, history)[1]
            if held:
                self.waiting = self.waiting + held
        if self.waiting:
            self._retry(seq, history)
        if self.waiting is not before:
            self.waiting = joined(self.waiting)
        if slow or self.waiting is not before:
            self._coalesce()

    def _apply_steady(self, rows: pa.Table, store_id: int, seq: int, history: History) -> pa.Table:
        """Take the rows that meet exactly one slice of their region, version and span; return the others."""
        if self._places is None:
            self._own.discard("_region")
            self._places = Places(self._cuts, self._region)
        at, fits = self._places.of(rows, store_id)
        first, last, resolved = (int64s(rows, name) for name in ("first_index", "log_index", "resolved_ts"))
        fits = (
            fits
            & (self._version[at] == int64s(rows, "region_version"))
            & (first <= self._index[at] + 1)
            & _is_null(rows, "base_ts")
        )
        every = bool(fits.all())
        one, last, resolved = (at, last, resolved) if every else (at[fits], last[fits], resolved[fits])
        self._set("_index", one, np.maximum(self._index[one], last))
        self._set("_resolved", one, np.maximum(self._resolved[one], resolved))
        self._set("_store", one, np.broadcast_to(np.int64(store_id), len(one)))
        none = np.broadcast_to(np.int64(NO_SCAN), len(one))
        version = self._version[one]
        known = version, self._index[one], self._resolved[one]
        history.note_many(Changes(seq, self._cuts, one, *known, version, last, resolved, none))
        return rows.slice(0, 0) if every else rows.filter(pa.array(~fits))

    def _apply_alone(self, rows: pa.Table, store_id: int, seq: int, history: History) -> pa.Table:
        """Take the rows that cover one slice which no other of the rows touches, where they connect without `after` or
        are of an older epoch; return the others. Their order does not matter: no two are about the same keys."""
        first, beyond = self._cuts.rows_of(whole(rows, "start_key"), whole(rows, "end_key"))
        met = np.zeros(len(self) + 1, np.int64)
        np.add.at(met, first, 1)
        np.subtract.at(met, beyond, 1)
        alone = (beyond == first + 1) & (np.cumsum(met)[first] == 1)
        names = ("region_id", "region_version", "first_index", "log_index", "resolved_ts")
        region, version, begins, last, resolved = (int64s(rows, name) for name in names)
        scanned = ~_is_null(rows, "base_ts")
        base_ts = np.where(scanned, pc.fill_null(rows["base_ts"], 0).to_numpy(), MAX_TS)
        older = version < self._version[first]
        same = region == self._region[first]
        connects = ~older & ((same & (begins <= self._index[first] + 1)) | (base_ts <= self._resolved[first]))
        taken = alone & (older | connects)
        raised = taken & older & (resolved > self._resolved[first])
        connected = taken & connects
        at = first[connected]
        self._set("_index", at, np.where(same, np.maximum(self._index[first], last), last)[connected])
        self._set("_region", at, region[connected])
        self._set("_version", at, version[connected])
        self._set("_store", at, np.broadcast_to(np.int64(store_id), len(at)))
        changed = connected | raised
        at = first[changed]
        self._set("_resolved", at, np.maximum(self._resolved[at], resolved[changed]))
        known = self._version[at], self._index[at], self._resolved[at]
        said = [np.where(connected, value, NOT_CONNECTED)[changed] for value in (version, last, resolved)]
        scans = np.where(connected & scanned, begins - 1, NO_SCAN)[changed]
        history.note_many(Changes(seq, self._cuts, at, *known, said[0], said[1], said[2], scans))
        return rows.filter(pa.array(~taken))

    def _apply_row(self, row: Watermark, seq: int, history: History) -> tuple[bool, list[Watermark]]:
        """Take one row, whose bounds are cuts, on every slice that it overlaps. Whether anything changed, and what does
        not connect and has to wait."""
        changed = False
        unconnected: list[int] = []
        for at in self._cuts.overlapping(row.start, row.end):
            if row.region_version < self._version[at]:
                changed |= self._raise(at, row, seq, history)
            elif self._connects(at, row):
                changed |= self._connect(at, row, seq, history)
            else:
                unconnected.append(at)
        return changed, self._pieces(row, unconnected)

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
        self._set("_region", at, row.region_id)
        self._set("_version", at, row.region_version)
        self._set("_store", at, row.store_id)
        self._set("_index", at, max(before[2], row.log_index) if same_region else row.log_index)
        self._set("_resolved", at, max(before[3], row.resolved_ts))
        self._note(seq, at, row, history, connected=True)
        return self._values(at) != before

    def _raise(self, at: int, row: Watermark, seq: int, history: History) -> bool:
        if row.resolved_ts <= self._resolved[at]:
            return False
        self._set("_resolved", at, row.resolved_ts)
        self._note(seq, at, row, history, connected=False)
        return True

    def _note(self, seq: int, at: int, row: Watermark, history: History, *, connected: bool) -> None:
        _, version, index, resolved, _ = self._values(at)
        history.note(seq, self._cuts, at, (version, index, resolved), row, connected=connected)

    def _retry(self, seq: int, history: History) -> None:
        """Let waiting rows try again until none of them changes anything."""
        changed = True
        while changed and self.waiting:
            changed = False
            able, held = self._able()
            for row in able:
                moved, left = self._apply_row(row, seq, history)
                changed |= moved or left != [row]
                held += left
            if able:
                self.waiting = held

    def _able(self) -> tuple[list[Watermark], list[Watermark]]:
        """The waiting rows that may have something to do now, and the others: those that cover one slice which they can
        neither connect to nor raise."""
        queue = self._queued()
        self._cut(pa.concat_arrays([queue.start, queue.end]))
        first, beyond = self._cuts.rows_of(queue.start, queue.end)
        same = (queue.region == self._region[first]) & (queue.first_index <= self._index[first] + 1)
        stuck = (beyond == first + 1) & ~queue.has_after & (queue.version >= self._version[first])
        stuck &= ~same & (queue.base_ts > self._resolved[first])
        if stuck.all():
            return [], []
        pairs = list(zip(self.waiting, stuck.tolist(), strict=True))
        return [row for row, is_stuck in pairs if not is_stuck], [row for row, is_stuck in pairs if is_stuck]

    def _queued(self) -> Queue:
        queue = self._queue
        if queue is None or queue.rows is not self.waiting:
            queue = self._queue = Queue(self.waiting)
        return queue

    def _pieces(self, row: Watermark, unconnected: list[int]) -> list[Watermark]:
        """`row` clipped to the given slices, neighbours joined."""
        out: list[Watermark] = []
        for at in unconnected:
            start, end = self._cuts.start_of(at), self._cuts.end_of(at)
            if out and out[-1].end == start:
                start = out.pop().start
            out.append(row.clipped(start, end))
        return out

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
        """Change an array of which others may hold what it was."""
        array: Int64s = getattr(self, name)
        if np.array_equal(array[at], values):
            return
        if name not in self._own:
            array = array.copy()
            setattr(self, name, array)
            self._own.add(name)
        array[at] = values
        if name == "_region":
            self._places = None

    def _cut(self, keys: pa.Array) -> None:
        """Let slices begin at all of those keys."""
        if (found := self._cuts.with_keys(keys)) is not None:
            self._replace(*found)

    def _coalesce(self) -> None:
        """Join neighbours that know the same, but where a waiting row begins or ends: it will be cut there again."""
        same = np.ones(len(self) - 1, bool)
        for name in self._ARRAYS[:-1]:
            values = getattr(self, name)
            same &= values[1:] == values[:-1]
        at = np.flatnonzero(same) + 1
        if self.waiting and len(at):
            bounds = pa.array([key for row in self.waiting for key in (row.start, row.end)], pa.binary())
            wanted = pc.is_in(self._cuts.starts.take(pa.array(at)), value_set=bounds)
            at = at[~wanted.to_numpy(zero_copy_only=False)]
        if len(at):
            keep = np.ones(len(self), bool)
            keep[at] = False
            self._replace(self._cuts.kept(keep), np.flatnonzero(keep))

    def _replace(self, cuts: Cuts, source: Int64s) -> None:
        """Other cuts; `source` are the present slices whose values the new ones have."""
        self._cuts, self._places = cuts, None
        for name in self._ARRAYS:
            setattr(self, name, getattr(self, name)[source])
        self._own = set(self._ARRAYS)

    # -- durable form ---------------------------------------------------------------------------------------------

    def to_tables(self) -> tuple[pa.Table, pa.Table]:
        """(SLICES, WAITING), as a manifest restates them."""
        values = [pa.array(getattr(self, name)) for name in self._ARRAYS]
        slices = pa.Table.from_arrays([self._cuts.starts, self._cuts.ends, *values], schema=SLICES)
        self._own.clear()  # the table holds them
        return slices, to_table(self.waiting)

    @classmethod
    def from_tables(cls, span: KeySpan, slices: pa.Table, waiting: pa.Table) -> SliceMap:
        """The inverse of to_tables."""
        out = cls(span, 0)
        out._cuts = Cuts(whole(slices, "start_key"), span.end)
        assert out._cuts.start_of(0) == span.start
        for name, column in zip(cls._ARRAYS, SLICES.names[2:], strict=True):
            setattr(out, name, int64s(slices, column))
        out.waiting = from_table(waiting)
        return out


def _is_null(table: pa.Table, name: str) -> Bools:
    found: Bools = whole(table, name).is_null().to_numpy(zero_copy_only=False)
    return found
