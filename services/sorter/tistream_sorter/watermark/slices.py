"""Applies watermark rows to the slices of a task's span, and so decides when a watermark counts (design.md 3). Pure.

A slice has `(region, version, index, resolved_ts)`: everything that concerns its keys has arrived up to entry `index`
of the region's log, and resolved_ts is the watermark that counts. A WATERMARK row is applied to each slice it overlaps:

* Its version is lower than the slice's: it is of an older epoch. It may raise resolved_ts, and changes nothing else.
* Otherwise it *connects* if (a) it is of the slice's region and begins at or before the slice's next index, or (b) its
  version is higher and `after` names the slice's region at an index that the slice has reached, or (c) it has a scan
  whose `base_ts` the slice's resolved_ts has reached.
* Otherwise it waits, changes nothing, and is retried after every change of its slice.

In steady state each row covers exactly one slice of the same region, version and span. These rows are applied as
arrays. A row that is the only one on one slice is applied as arrays too; the first rows of a tenant are such. The
others are applied one by one. Therefore the rules are in five places, which must change together: `_connects` for one
row, `_apply_steady` and `_apply_alone` for arrays of new rows, `_promising` and `_able` for rows that wait.

Many rows are applied one by one only if the rows of a store overlap. A reader refuses overlaps that no store can have
(format.change_rows). The remaining ones may still need seconds, so `applying` yields in between, to let other tasks
continue. A waiting row is retried only if one of its slices has changed.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tistream.arrays import Bools, Int64s
from tistream.model.span import KeySpan
from tistream.model.ts import MAX_TS
from tistream_sorter.watermark.slice_arrays import NO_REGION, SliceArrays
from tistream_sorter.watermark.slice_cuts import RegionSlices, int64s, whole
from tistream_sorter.watermark.slice_history import NO_SCAN, NOT_CONNECTED, SliceChanges, SliceHistory
from tistream_sorter.watermark.slice_work import (
    CHANGES_MAX,
    FEW_SLICES,
    ROWS_AT_ONCE,
    SLICES_A_STEP,
    STEPS_BETWEEN,
    WAITING_A_STEP,
    Steps,
    WatermarkLimitExceeded,
    check_room,
    ranges,
)
from tistream_sorter.watermark.watermark_rows import WaitingRows, Watermark, rows_of


@dataclass(frozen=True, slots=True)
class SliceState:
    """The values of one slice, as status and tests show them: its keys, the entry `index` of its region's log up to
    which it has everything, the watermark that counts, and the store of its newest row."""

    start: bytes
    end: bytes
    region_id: int
    region_version: int
    index: int
    resolved_ts: int
    store_id: int


class SliceMap(SliceArrays):
    """The slices of one task's span, in key order and without holes, and the watermark rows that wait. Mutable. Call
    `copy()` before a change that may not be committed."""

    # -- reading ---------------------------------------------------------------------------------------------

    def watermark(self) -> int:
        """The task's watermark: the minimum of resolved_ts over its slices."""
        return int(self._resolved.min())

    def states(self, only: KeySpan | None = None) -> list[SliceState]:
        """All slices. With `only`, the slices that overlap this span, clipped to it."""
        out = []
        for at in range(len(self)) if only is None else self._cuts.overlapping(only.start, only.end):
            piece = KeySpan(self._cuts.start_of(at), self._cuts.end_of(at))
            clipped = piece if only is None else piece.clip(only)
            assert clipped is not None
            out.append(SliceState(clipped.start, clipped.end, *self._values(at)))
        return out

    def lowest(self) -> SliceState:
        """The slice with the lowest resolved_ts."""
        at = int(self._resolved.argmin())
        return SliceState(self._cuts.start_of(at), self._cuts.end_of(at), *self._values(at))

    def slowest_waiting(self, count: int) -> list[Watermark]:
        """At most `count` of the waiting rows: those that begin in the slices with the lowest resolved_ts, in this
        order."""
        if not len(self._waiting):
            return []
        order = np.argsort(self._resolved[self._waiting_runs()[0]], kind="stable")
        return self._waiting.at(order[:count])

    def resting_on(self, store_id: int) -> tuple[SliceState | None, Watermark | None]:
        """What still depends on a store: (the first slice whose newest row came from the store, the store's first
        waiting row). Each is None if no such slice or row exists."""
        resting = np.flatnonzero(self._store == store_id)[:1].tolist()
        found = [SliceState(self._cuts.start_of(at), self._cuts.end_of(at), *self._values(at)) for at in resting]
        return next(iter(found), None), next(iter(self._waiting.of_store(store_id)), None)

    def waits_for(self, row: Watermark) -> str:
        """Describe what `row` waits for in the first of its slices, as text for a status."""
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

    def first_waiting(self, pieces: Sequence[SliceState]) -> list[Watermark | None]:
        """For each of `pieces`, which are slices in key order, the first waiting row that overlaps it; None if there is
        no such row."""
        return self._waiting.first_over([(piece.start, piece.end) for piece in pieces])

    # -- applying rows ----------------------------------------------------------------------------------------------

    def begin(self, history: SliceHistory) -> None:
        """Record in `history` the state of each slice before the first change."""
        self._own -= {"_version", "_index", "_resolved"}
        history.begin(self._cuts, self._version, self._index, self._resolved)

    def applying(self, rows: pa.Table, store_id: int, file_ts: int, seq: int, history: SliceHistory) -> Steps:
        """Apply one file's rows (wire.file_batch.WATERMARKS) in order, as a generator, and record every change in
        `history` under `seq`. Yields the number of steps since the last yield. Raises WatermarkLimitExceeded."""
        self._changes = 0
        if rows.num_rows == 0:
            return
        before = self._waiting
        self._touched = np.zeros(len(self), bool)
        rows = self._apply_steady(rows, store_id, seq, history)
        slow = rows.num_rows > 0
        if slow:
            self._cut(pa.concat_arrays([whole(rows, "start_key"), whole(rows, "end_key")]))
            rows, waits = self._apply_alone(rows, store_id, seq, history)
            held: list[Watermark] = []
            covers = self._cuts.slices_of(whole(rows, "start_key"), whole(rows, "end_key"))
            for at in range(0, rows.num_rows, ROWS_AT_ONCE):
                some = rows_of(rows.slice(at, ROWS_AT_ONCE), store_id, file_ts)
                for row, slices in zip(some, ranges(covers, slice(at, at + ROWS_AT_ONCE)), strict=True):
                    held += yield from self._apply_row(row, slices, seq, history)
                    check_room(len(held))
            if held or waits.num_rows:
                new = [WaitingRows.from_file(waits, store_id, file_ts), WaitingRows.of(held)]
                self._waiting = self._waiting.and_also(*new)
        if len(self._waiting):
            yield from self._retry(seq, history)
        if self._waiting is not before:
            yield self._waiting_steps()
            self._waiting = self._waiting.merged()
            if len(self._waiting) > len(before):
                check_room(len(self._waiting))
        if slow or self._waiting is not before:
            self._coalesce()

    def _apply_steady(self, rows: pa.Table, store_id: int, seq: int, history: SliceHistory) -> pa.Table:
        """Apply the rows that cover exactly one slice and have its region, version and span. Returns the other rows."""
        if self._places is None:
            self._own.discard("_region")
            self._places = RegionSlices(self._cuts, self._region)
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
        self._touched[one] = True
        none = np.broadcast_to(np.int64(NO_SCAN), len(one))
        version = self._version[one]
        known = version, self._index[one], self._resolved[one]
        history.note_many(SliceChanges(seq, self._cuts, one, *known, version, last, resolved, none))
        return rows.slice(0, 0) if every else rows.filter(pa.array(~fits))

    def _apply_alone(self, rows: pa.Table, store_id: int, seq: int, history: SliceHistory) -> tuple[pa.Table, pa.Table]:
        """Apply the rows that are the only ones on one slice, if they connect without `after` or are of an older epoch.
        Returns (the rows to apply one by one, the rows that wait). The order does not matter, because no two of these
        rows overlap."""
        first, beyond = self._cuts.slices_of(whole(rows, "start_key"), whole(rows, "end_key"))
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
        chosen = alone & (older | connects)
        raised = chosen & older & (resolved > self._resolved[first])
        connected = chosen & connects
        at = first[connected]
        self._set("_index", at, np.where(same, np.maximum(self._index[first], last), last)[connected])
        self._set("_region", at, region[connected])
        self._set("_version", at, version[connected])
        self._set("_store", at, np.broadcast_to(np.int64(store_id), len(at)))
        changed = connected | raised
        at = first[changed]
        self._touched[at] = True
        self._set("_resolved", at, np.maximum(self._resolved[at], resolved[changed]))
        known = self._version[at], self._index[at], self._resolved[at]
        said = [np.where(connected, value, NOT_CONNECTED)[changed] for value in (version, last, resolved)]
        scans = np.where(connected & scanned, begins - 1, NO_SCAN)[changed]
        history.note_many(SliceChanges(seq, self._cuts, at, *known, said[0], said[1], said[2], scans))
        waits = (
            alone
            & ~chosen
            & ~pc.greater(pc.fill_null(pc.list_value_length(whole(rows, "after")), 0), 0).to_numpy(zero_copy_only=False)
        )
        return rows.filter(pa.array(~chosen & ~waits)), rows.filter(pa.array(waits))

    def _apply_row(
        self, row: Watermark, slices: range, seq: int, history: SliceHistory
    ) -> Generator[int, None, list[Watermark]]:
        """Apply one row to every slice that it covers. Yields the number of steps since the last yield, so that the
        caller can pause. Returns the pieces of the row that must wait."""
        waits = np.ones(len(slices), bool)
        steps = 1 + len(slices) // SLICES_A_STEP
        for at in self._promising(slices, row):
            if row.region_version < self._version[at]:
                self._raise(at, row, seq, history)
                waits[at - slices.start] = False
            elif self._connects(at, row):
                self._connect(at, row, seq, history)
                waits[at - slices.start] = False
            steps += 1
            if steps >= STEPS_BETWEEN:
                yield steps
                steps = 0
        yield steps
        return [row] if waits.all() else self._pieces(row, slices.start + np.flatnonzero(waits))

    def _promising(self, slices: range, row: Watermark) -> Sequence[int]:
        """The slices that the row may change, and possibly a few more. Most slices of a row that waits cannot change,
        and are left out."""
        if len(slices) < FEW_SLICES:
            return slices
        here = slice(slices.start, slices.stop)
        region, version = self._region[here], self._version[here]
        may = (row.region_version < version) | ((region == row.region_id) & (row.first_index <= self._index[here] + 1))
        if row.base_ts is not None:
            may |= row.base_ts <= self._resolved[here]
        if row.after:
            may |= np.isin(region, np.array([named for named, _ in row.after], np.int64))
        found: list[int] = (slices.start + np.flatnonzero(may)).tolist()
        return found

    def _connects(self, at: int, row: Watermark) -> bool:
        region, version, index, resolved, _ = self._values(at)
        if row.region_id == region and row.first_index <= index + 1:
            return True
        if row.region_version > version and any(r == region and i <= index for r, i in row.after):
            return True
        return row.base_ts is not None and row.base_ts <= resolved

    def _connect(self, at: int, row: Watermark, seq: int, history: SliceHistory) -> None:
        before = self._values(at)
        same_region = row.region_id == before[0]
        self._set("_region", at, row.region_id)
        self._set("_version", at, row.region_version)
        self._set("_store", at, row.store_id)
        self._set("_index", at, max(before[2], row.log_index) if same_region else row.log_index)
        self._set("_resolved", at, max(before[3], row.resolved_ts))
        self._touched[at] |= self._values(at) != before
        self._note(seq, at, row, history, connected=True)

    def _raise(self, at: int, row: Watermark, seq: int, history: SliceHistory) -> None:
        if row.resolved_ts <= self._resolved[at]:
            return
        self._set("_resolved", at, row.resolved_ts)
        self._touched[at] = True
        self._note(seq, at, row, history, connected=False)

    def _note(self, seq: int, at: int, row: Watermark, history: SliceHistory, *, connected: bool) -> None:
        self._changes += 1
        if self._changes > CHANGES_MAX:
            raise WatermarkLimitExceeded(
                f"its watermark rows change slices more than {CHANGES_MAX} times, because too many of them overlap"
            )
        _, version, index, resolved, _ = self._values(at)
        history.note(seq, self._cuts, at, (version, index, resolved), row, connected=connected)

    def _retry(self, seq: int, history: SliceHistory) -> Steps:
        """Apply waiting rows again, until none of them changes a slice."""
        while self._touched.any() and len(self._waiting):
            yield self._waiting_steps()
            able, covers = self._able(), self._waiting_runs()
            self._touched = np.zeros(len(self), bool)
            keep = np.ones(len(self._waiting), bool)
            held: list[Watermark] = []
            for some in np.array_split(able, -(-len(able) // ROWS_AT_ONCE)) if len(able) else []:
                rows = zip(some.tolist(), self._waiting.at(some), ranges(covers, some), strict=True)
                for at, row, slices in rows:
                    left = yield from self._apply_row(row, slices, seq, history)
                    if left != [row]:
                        keep[at] = False
                        held += left
                        check_room(len(held))
            if not keep.all():
                self._waiting = self._waiting.kept(keep).and_also(WaitingRows.of(held))

    def _waiting_steps(self) -> int:
        return (len(self._waiting) + len(self)) // WAITING_A_STEP

    @property
    def changes(self) -> int:
        """How many times the watermark rows of the last file that were applied one by one have changed a slice. Rows
        that were applied as arrays do not count."""
        return self._changes

    def _able(self) -> Int64s:
        """The positions of the waiting rows to retry. Left out are rows whose slices did not change, and rows of a
        single slice that could neither connect to it nor raise its resolved_ts."""
        first, beyond = self._waiting_runs()
        touched = np.concatenate([[0], np.cumsum(self._touched)])
        places = np.flatnonzero(touched[beyond] > touched[first])
        queue, first, beyond = self._waiting, first[places], beyond[places]
        region, version, begins, base_ts = (
            queue.numbers(name)[places] for name in ("region_id", "region_version", "first_index", "base_ts")
        )
        same = (region == self._region[first]) & (begins <= self._index[first] + 1)
        stuck = (beyond == first + 1) & ~queue.has_after[places] & (version >= self._version[first])
        stuck &= ~same & (base_ts > self._resolved[first])
        able: Int64s = places[~stuck]
        return able

    def _pieces(self, row: Watermark, unconnected: Int64s) -> list[Watermark]:
        """Clip `row` to the slices at these positions. Returns one row for each sequence of neighbouring slices. Raises
        WatermarkLimitExceeded."""
        if not len(unconnected):
            return []
        breaks = np.flatnonzero(np.diff(unconnected) != 1)
        first, last = unconnected[np.append(0, breaks + 1)], unconnected[np.append(breaks, len(unconnected) - 1)]
        check_room(len(first))
        return [
            row.clipped(self._cuts.start_of(one), self._cuts.end_of(other))
            for one, other in zip(first.tolist(), last.tolist(), strict=True)
        ]


def _is_null(table: pa.Table, name: str) -> Bools:
    found: Bools = whole(table, name).is_null().to_numpy(zero_copy_only=False)
    return found
