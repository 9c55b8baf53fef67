"""Reads the rows of a single commit_ts in pieces, if they do not fit into memory at once. Such a commit_ts is called
crowded."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from tistream.arrays import Int64s
from tistream.errors import NotFoundYet, Unavailable
from tistream.format.segment import SCHEMA
from tistream.model.ts import Window
from tistream.read import plan
from tistream.read.cursor import Place, Position, Scope
from tistream.read.events import NOTHING, Events
from tistream.read.plan import CrowdedRun, GroupRef, PlanPiece
from tistream.read.raw_events import render_raw
from tistream.read.raw_scope import RawScope
from tistream.read.row_events import Barrier, Moving, Needed, Rendered, Shapes, render
from tistream.read.source_contract import Alive, Batch, ScanSource, always


@dataclass(frozen=True, slots=True)
class GroupRows:
    """Some rows of a row group. `at` has their indexes in it, ascending."""

    group: GroupRef
    at: Int64s

    def read(self, source: ScanSource) -> pa.Table:
        """Read these rows from the source."""
        table = source.rows(self.group)
        if len(self.at) == len(table):
            return table
        if len(self.at) and self.at[-1] - self.at[0] + 1 == len(self.at):
            return table.slice(int(self.at[0]), len(self.at))
        return table.take(pa.array(self.at))


class OversizedCommit:
    """Reads the rows of one commit_ts of one scope, which do not fit into memory together, in pieces of at most
    `budget` rows. `groups` has these rows, by row group. Events at or before `start` are left out. `numbered`,
    `moving`, `needed`: see row_events.render. `alive` is called before each row group is read; it raises if the reader
    has left."""

    def __init__(
        self,
        source: ScanSource,
        scope: Scope,
        commit_ts: int,
        budget: int,
        groups: Sequence[GroupRows],
        start: Position,
        *,
        numbered: bool = False,
        moving: Moving | None = None,
        needed: Needed | None = None,
        alive: Alive = always,
    ) -> None:
        self._source = source
        self._scope = scope
        self._commit_ts = commit_ts
        self._window = Window(commit_ts - 1, commit_ts)
        self._groups = groups
        self._inside = start.commit_ts == commit_ts and start.place is not Place.DONE
        self._start = start
        self._budget = budget
        self._numbered = numbered
        self._moving = moving
        self._needed = needed
        self._alive = alive
        # The keys at which pieces are cut, by transaction and lowest key.
        self._cuts: dict[tuple[int, int, bytes], list[bytes]] = {}

    def batches(self) -> Iterator[Batch]:
        """Yield a batch that announces the commit_ts with an upper bound of its events, one batch for each piece, and a
        last batch with the DDL events. If some row cannot be decoded, yield only a batch with its barrier. This is
        checked before the first event is returned, unless `start` lies inside the commit_ts.

        Raises:
            NotFoundYet: an object has disappeared before the first batch; plan again.
            Unavailable: an object has disappeared after the first batch.
            CorruptObject, and the errors of `alive`.
        """
        runs = [run for number, rows in enumerate(self._groups) for run in self._runs(number, rows)]
        pieces = plan.pieces(runs, self._budget)
        if not self._inside:  # no event of the commit_ts is sent before all of its rows were checked to be decodable
            barrier = self._check(pieces)
            if barrier is not None:
                yield Batch(NOTHING, self._commit_ts - 1, barrier=barrier)
                return
        raw = isinstance(self._scope, RawScope)
        ddl = NOTHING if raw else Events.ordered([self._source.ddl_events(self._scope, self._window)])
        yield Batch(NOTHING, self._commit_ts - 1, crowd=2 * sum(run.rows for run in runs) + len(ddl))
        try:
            for piece in self._held(pieces):
                found = Events.ordered(self._rendered(piece, piece.op).sets)
                yield Batch(found.after(self._start) if self._inside else found, None)
        except NotFoundYet as error:  # some events have been sent, so it is too late to plan again
            raise Unavailable(str(error)) from error
        yield Batch(ddl.after(self._start) if self._inside else ddl, self._commit_ts)

    def _runs(self, number: int, rows: GroupRows) -> Iterator[CrowdedRun]:
        self._alive()
        table = rows.read(self._source).select(["table_id", "start_ts", "key"])
        ids, starts = (table.column(name).to_numpy() for name in ("table_id", "start_ts"))
        begins = np.flatnonzero((np.diff(ids, prepend=-1) != 0) | (np.diff(starts, prepend=-1) != 0))
        keys = table.column("key")
        for begin, end in pairwise([*begins.tolist(), len(ids)]):
            start_ts, physical_id = int(starts[begin]), int(ids[begin])
            logical_id = self._source.logical_id(physical_id, self._commit_ts)
            for low, high in pairwise([*plan.strips(begin, end, self._budget), end]):
                first, last = keys[low].as_py(), keys[high - 1].as_py()
                yield CrowdedRun(number, low, start_ts, logical_id, physical_id, high - low, first, last)

    def _held(self, pieces: list[PlanPiece]) -> Iterator[PlanPiece]:
        """Cut the pieces so that each fits into the budget, and leave out those that lie before the start. The keys of
        a piece are read only when the piece is next, so that the keys of one piece at a time are in memory."""
        for piece in pieces:
            if self._inside and piece.ends_by(self._start):
                continue
            for part in piece.cut_at(self._cuts_of(piece)) if piece.rows_max > self._budget else [piece]:
                if not (self._inside and part.ends_by(self._start)):
                    yield part

    def _cuts_of(self, piece: PlanPiece) -> list[bytes]:
        """The keys at which to cut a piece that is too large. They are cached, because the deletes and the puts of a
        piece are cut at the same keys."""
        name = (*piece.runs[0].transaction, piece.key_low)
        if name not in self._cuts:
            keys = [pl.Series(table["key"].cast(pa.binary())) for table in self._tables(piece, ["key"])]
            self._cuts[name] = plan.key_cuts(pl.concat(keys).sort(), self._budget)
        return self._cuts[name]

    def _check(self, pieces: list[PlanPiece]) -> Barrier | None:
        whole = [piece for piece in pieces if piece.op != plan.OP_DELETE]
        # Both sides of every row are decoded once, over the whole key range of the piece.
        for piece in self._held(whole):
            found = self._rendered(piece, None).barrier
            if found:
                return found
        return None

    def _rendered(self, piece: PlanPiece, op: int | None) -> Rendered:
        if isinstance(self._scope, RawScope):
            return render_raw(self._read(piece), self._scope, op)
        return render(
            self._read(piece),
            self._shapes(piece),
            op,
            numbered=self._numbered,
            moving=self._moving,
            needed=self._needed,
        )

    def _read(self, piece: PlanPiece) -> pa.Table:
        return pa.concat_tables(self._tables(piece, SCHEMA.names))

    def _tables(self, piece: PlanPiece, columns: list[str]) -> Iterator[pa.Table]:
        """Read these columns of the piece's rows. Yields a table for each row group, one after the other, so that only
        one row group is in memory. If only some keys of a row group are needed, their rows are copied."""
        runs = sorted(piece.runs, key=lambda run: (run.place, run.begin))
        for place, own in groupby(runs, key=lambda run: run.place):
            self._alive()
            rows = self._groups[place].read(self._source).select(columns)
            for begin, end in _joined(own):
                table = rows.slice(begin, end - begin)
                if piece.op is not None:
                    mask = pc.greater_equal(table["key"], piece.key_low)
                    if piece.key_high is not None:
                        mask = pc.and_(mask, pc.less(table["key"], piece.key_high))
                    table = table.filter(mask)
                yield table

    def _shapes(self, piece: PlanPiece) -> Shapes:
        ids = sorted({run.physical_id for run in piece.runs})
        return self._source.shapes(self._scope, ids, self._window)


def _joined(runs: Iterable[CrowdedRun]) -> Iterator[tuple[int, int]]:
    """Convert runs to row ranges (begin, end) of one row group. Adjacent ranges are joined, because a run may be a
    single row."""
    begin = end = 0
    for run in runs:
        if run.begin != end:
            if end > begin:
                yield begin, end
            begin = run.begin
        end = run.begin + run.rows
    if end > begin:
        yield begin, end
