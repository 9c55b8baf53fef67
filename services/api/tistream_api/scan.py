"""Going through a window of a tenant's committed rows in the order of events, chunk by chunk.

Memory is bounded by the chunk, whatever the window holds: plan.py decides what is read, this module reads it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tistream.format.segment import SCHEMA, SegmentRef
from tistream.model.ts import Window
from tistream_api import events, plan
from tistream_api.cursor import Place, Position, Scope
from tistream_api.events import Events
from tistream_api.plan import GroupRef, Piece, Run
from tistream_api.row_events import Barrier, Shapes, render

Ints = npt.NDArray[np.int64]


PAGE_ROWS_MIN = 4_096
PAGE_FIRST_ROWS_MIN = 16
CHUNK_GROWTH = 4


class Source(Protocol):
    """A tenant's pool and schema history, complete up to the window's end."""

    def segments(self, window: Window) -> Sequence[SegmentRef]:
        """The live segments that may hold rows of the window."""

    def physical_ids(self, scope: Scope, window: Window) -> Ints | None:
        """The ids, ascending, that the scope's rows may bear in the window; None: any."""

    def shapes(self, scope: Scope, ids: Sequence[int], window: Window) -> Shapes:
        """How the rows of these ids are shown to this scope in the window."""

    def logical_id(self, physical_id: int, commit_ts: int) -> int:
        """The table id that events of this physical id's rows bear; the physical one if none is shown."""

    def ddl_events(self, scope: Scope, window: Window) -> pa.Table:
        """The scope's ddl events (events.SCHEMA)."""

    def rows(self, group: GroupRef) -> pa.Table:
        """One row group (tistream.format.segment.SCHEMA)."""

    def index(self, group: GroupRef) -> tuple[Ints, Ints]:
        """The table_id and commit_ts of a row group's rows."""


@dataclass(frozen=True, slots=True)
class Batch:
    """Events that follow those of the batch before.

    With them everything at or below `through` has been given; None: the batch ends inside a crowded commit_ts, one
    that is too large to be held. Before the first batch of a crowded commit_ts comes one with `crowd`, an upper
    bound of its events. After a `barrier` nothing follows; the events end below its commit_ts.
    """

    events: Events
    through: int | None
    crowd: int | None = None
    barrier: Barrier | None = None


@dataclass(frozen=True, slots=True)
class Budget:
    """What is held at once: rows of a chunk, their compressed bytes, and rows of which only ids and ts are looked at.

    `first_rows` is the first chunk's: small, so that the first byte comes soon; it grows from chunk to chunk.
    """

    rows: int = 65_536
    first_rows: int = 8_192
    chunk_bytes: int = 16 << 20
    index_rows: int = 1 << 18

    def for_page(self, limit: int) -> Budget:
        """The budget of an answer with at most `limit` events: a small page needs no large chunk."""
        rows = min(self.rows, max(PAGE_ROWS_MIN, 2 * limit))
        first = min(self.first_rows, rows, max(PAGE_FIRST_ROWS_MIN, 2 * limit))
        return replace(self, rows=rows, first_rows=first)


class Scan:
    """The events of one scope after `start` with commit_ts <= `high`."""

    def __init__(self, source: Source, scope: Scope, start: Position, high: int, budget: Budget) -> None:
        self._source = source
        self._scope = scope
        self._start = start
        self._high = high
        self._budget = budget

    def batches(self) -> Iterator[Batch]:
        """Batches in order; the last one's `through` is `high`, unless it has a barrier."""
        low = self._start.low_ts
        if low >= self._high:
            return
        window = Window(low, self._high)
        ids = self._source.physical_ids(self._scope, window)
        groups = plan.groups_in(self._source.segments(window), window, ids)
        budget = min(self._budget.first_rows, self._budget.rows)
        while low < self._high:
            groups = [ref for ref in groups if ref.info.commit_ts_max > low]
            window = Window(low, self._high)
            high, near = plan.coarse_cut(groups, window, max(self._budget.index_rows, budget))
            most = plan.rows_within(self._budget.rows, self._budget.chunk_bytes, near)
            masks = {ref: self._mask(ref, Window(low, high), ids) for ref in near}
            found = [self._source.index(ref)[1][mask] for ref, mask in masks.items()]
            cut = plan.exact_cut(np.concatenate([np.empty(0, np.int64), *found]), high, min(budget, most), most)
            if cut.crowded:
                if cut.high - 1 > low:
                    yield self._batch(_no_rows(), Window(low, cut.high - 1))
                crowd = _Crowd(self._source, self._scope, cut.high, most, masks, self._start)
                yield from crowd.batches()
                if crowd.barrier:
                    return
            else:
                chunk = Window(low, cut.high)
                batch = self._batch(self._read(masks, chunk), chunk)
                yield batch
                if batch.barrier:
                    return
            low = cut.high
            budget = min(budget * CHUNK_GROWTH, self._budget.rows)

    def _mask(self, ref: GroupRef, window: Window, ids: Ints | None) -> npt.NDArray[np.bool_]:
        table_ids, commit_ts = self._source.index(ref)
        mask: npt.NDArray[np.bool_] = (commit_ts > window.low) & (commit_ts <= window.high)
        return mask & (table_ids > 0 if ids is None else np.isin(table_ids, ids))

    def _read(self, masks: dict[GroupRef, npt.NDArray[np.bool_]], window: Window) -> pa.Table:
        parts = []
        for ref, mask in masks.items():
            fit = np.flatnonzero(mask & (self._source.index(ref)[1] <= window.high))
            if len(fit):
                parts.append(_taken(self._source.rows(ref), fit))
        return pa.concat_tables(parts) if parts else _no_rows()

    def _batch(self, rows: pa.Table, window: Window) -> Batch:
        ids = pc.unique(rows.column("table_id")).to_pylist()
        rendered = render(rows, self._source.shapes(self._scope, ids, window))
        ddl = self._source.ddl_events(self._scope, window)
        found = Events.ordered(pa.concat_tables([rendered.table, ddl]))
        barrier = rendered.barrier
        if barrier is not None:
            found = found.before(barrier.commit_ts)
        if self._start.place is not Place.DONE and self._start.commit_ts in window:
            found = found.after(self._start)
        return Batch(found, window.high if barrier is None else barrier.commit_ts - 1, barrier=barrier)


class _Crowd:
    """One commit_ts that is too large to be held, piece by piece."""

    def __init__(
        self,
        source: Source,
        scope: Scope,
        commit_ts: int,
        budget: int,
        masks: dict[GroupRef, npt.NDArray[np.bool_]],
        start: Position,
    ) -> None:
        self.barrier: Barrier | None = None
        self._source = source
        self._scope = scope
        self._commit_ts = commit_ts
        self._window = Window(commit_ts - 1, commit_ts)
        self._rows = {ref: np.flatnonzero(mask & (source.index(ref)[1] == commit_ts)) for ref, mask in masks.items()}
        self._inside = start.commit_ts == commit_ts and start.place is not Place.DONE
        self._start = start
        self._budget = budget

    def batches(self) -> Iterator[Batch]:
        """A batch that announces it, one for each piece, and one with the ddl events at its end."""
        runs = [run for ref, rows in self._rows.items() for run in self._runs(ref, rows)]
        pieces = plan.pieces(runs, self._budget)
        if self._inside:  # nothing of it is sent before all of it was found decodable
            pieces = [piece for piece in pieces if not piece.over_before(self._start)]
        else:
            self.barrier = self._check(pieces)
        nothing = Events.ordered(events.EMPTY)
        if self.barrier:
            yield Batch(nothing, self._commit_ts - 1, barrier=self.barrier)
            return
        ddl = Events.ordered(self._source.ddl_events(self._scope, self._window))
        yield Batch(nothing, self._commit_ts - 1, crowd=2 * sum(run.rows for run in runs) + len(ddl))
        for piece in pieces:
            found = Events.ordered(render(self._read(piece), self._shapes(piece), piece.op).table)
            yield Batch(found.after(self._start) if self._inside else found, None)
        yield Batch(ddl.after(self._start) if self._inside else ddl, self._commit_ts)

    def _runs(self, ref: GroupRef, rows: Ints) -> Iterator[Run]:
        if not len(rows):
            return
        table = _taken(self._source.rows(ref).select(["table_id", "start_ts", "key"]), rows)
        ids, starts = (table.column(name).to_numpy() for name in ("table_id", "start_ts"))
        begins = np.flatnonzero((np.diff(ids, prepend=-1) != 0) | (np.diff(starts, prepend=-1) != 0))
        keys = table.column("key")
        for begin, end in zip(begins, [*begins[1:], len(ids)], strict=True):
            physical_id = int(ids[begin])
            logical_id = self._source.logical_id(physical_id, self._commit_ts)
            first, last = keys[int(begin)].as_py(), keys[int(end) - 1].as_py()
            yield Run(ref, int(starts[begin]), logical_id, physical_id, int(end - begin), first, last)

    def _check(self, pieces: list[Piece]) -> Barrier | None:
        for piece in pieces:
            if piece.op != plan.OP_DELETE:  # both sides of every row are decoded once, with its whole range of keys
                found = render(self._read(piece), self._shapes(piece)).barrier
                if found:
                    return found
        return None

    def _read(self, piece: Piece) -> pa.Table:
        parts = []
        for run in piece.runs:
            table = _taken(self._source.rows(run.group), self._rows[run.group])
            mask = pc.and_(pc.equal(table["start_ts"], run.start_ts), pc.equal(table["table_id"], run.physical_id))
            if piece.op is not None:
                mask = pc.and_(mask, pc.greater_equal(table["key"], piece.key_low))
                if piece.key_high is not None:
                    mask = pc.and_(mask, pc.less(table["key"], piece.key_high))
            parts.append(table.filter(mask))
        return pa.concat_tables(parts)

    def _shapes(self, piece: Piece) -> Shapes:
        ids = sorted({run.physical_id for run in piece.runs})
        return self._source.shapes(self._scope, ids, self._window)


def _taken(table: pa.Table, rows: Ints) -> pa.Table:
    if len(rows) == len(table):
        return table
    if len(rows) and rows[-1] - rows[0] + 1 == len(rows):
        return table.slice(int(rows[0]), len(rows))
    return table.take(pa.array(rows))


def _no_rows() -> pa.Table:
    return SCHEMA.empty_table()
