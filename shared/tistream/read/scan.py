"""Reads a window of a tenant's committed rows in the order of events, chunk by chunk.

Memory is bounded by the chunk, not by the window. plan.py decides which rows are next, and this module reads them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tistream.arrays import Int64s
from tistream.errors import NotFoundYet, Unavailable
from tistream.format.segment import SCHEMA
from tistream.model.ts import Window
from tistream.read import plan
from tistream.read.cursor import Place, Position, Scope
from tistream.read.events import Events
from tistream.read.oversized_commit import GroupRows, OversizedCommit
from tistream.read.plan import GroupRef, PlanCut
from tistream.read.raw_events import render_raw
from tistream.read.raw_scope import RawScope
from tistream.read.row_events import Moving, Needed, render
from tistream.read.source_contract import Alive, Batch, DerivedResult, Excluded, GroupIndex, ScanSource, always

PAGE_ROWS_MIN = 4_096
PAGE_FIRST_ROWS_MIN = 16
CHUNK_GROWTH = 4
STRIDE_CHUNKS = 4  # row groups are looked up ahead for this many chunks, in units of index_rows
LOOK_CHUNKS = 4  # how many bytes may be decoded to find the end of the next chunk, in units of decoded_bytes
REPLANS = 3
IMAGES = 2  # a row has two images, the new and the old one


@dataclass(frozen=True, slots=True)
class Budget:
    """Limits of the rows that a scan holds in memory at once: rows of a chunk, their compressed bytes, and rows of
    which only ids and ts are read.

    `first_rows` is the size of the first chunk, which is small, so that the first byte is sent soon; chunks then grow.
    `decoded_bytes` bounds a chunk's rows in memory, whatever their compression; its events need a few times more.
    `shown_bytes` bounds the bytes that decoding adds to stored rows: texts that are stored as a number (ENUM, for
    example), and columns for which rows have no cell.
    """

    rows: int = 32_768
    first_rows: int = 8_192
    chunk_bytes: int = 16 << 20
    index_rows: int = 1 << 17
    decoded_bytes: int = 32 << 20
    shown_bytes: int = 64 << 20

    def for_page(self, limit: int) -> Budget:
        """The budget of an answer with at most `limit` events. A small page needs no large chunk."""
        rows = min(self.rows, max(PAGE_ROWS_MIN, 2 * limit))
        first = min(self.first_rows, rows, max(PAGE_FIRST_ROWS_MIN, 2 * limit))
        return replace(self, rows=rows, first_rows=first)


@dataclass(frozen=True, slots=True)
class _Found:
    """The rows of one row group that may be in the next chunk. `begins` is a lower bound of their commit_ts."""

    begins: int
    rows: GroupRows
    commit_ts: Int64s
    table_id: Int64s


@dataclass(frozen=True, slots=True)
class _ReadChunk:
    """A chunk that was read. `cut` is its end, `parts` names its rows by row group, and `tables` has these rows (only
    some of them if the cut is crowded). `most` is the highest number of rows that may be in memory at once."""

    cut: PlanCut
    parts: list[GroupRows]
    tables: list[pa.Table]
    most: int


@dataclass(frozen=True, slots=True)
class _Step:
    """What a scan yields for one chunk, the same for every reader: the chunk's end and its events. If the chunk is a
    single commit_ts that does not fit into memory, `crowd` announces it instead."""

    high: int
    batch: Batch | None
    crowd: _ReadChunk | None = None


class _Weights:
    """Computes how many bytes decoded rows of a window need in memory beyond their stored bytes."""

    def __init__(self, source: ScanSource, scope: Scope, window: Window) -> None:
        self._source, self._scope, self._window = source, scope, window
        self._known: dict[int, int] = {}  # bytes of a row, by physical id

    def of(self, rows: pa.Table) -> int:
        """The additional bytes of all these rows together."""
        ids, counts = np.unique(rows.column("table_id").to_numpy(), return_counts=True)
        images = IMAGES if rows.column("old_value").null_count < len(rows) else 1
        weights: Int64s = np.array(self._each(ids), np.int64)
        return images * int((weights * counts).sum())

    def heaviest(self, ids: Sequence[Int64s]) -> int:
        """The additional bytes of the heaviest row of the tables with these physical ids."""
        return max(self._each(np.unique(np.concatenate(ids))))

    def _each(self, ids: Int64s) -> list[int]:
        """For each physical id, the additional bytes of one row, in that version of its table within the window that
        needs most."""
        if isinstance(self._scope, RawScope):  # values of RawKV are shown as they are stored
            return [0] * len(ids)
        ones: list[int] = ids.tolist()
        if missing := [one for one in ones if one not in self._known]:
            shown = self._source.shapes(self._scope, missing, self._window).intervals
            for one in missing:
                versions = (interval.version for interval in shown.get(one, ()))
                self._known[one] = max((version.stored.shown_bytes for version in versions if version), default=0)
        return [self._known[one] for one in ones]


class Scan:
    """Reads the events of one scope that follow the position `start` and have a commit_ts <= `high`. `numbered`: values
    of ENUM and SET are numbers, not names. `moving`, `needed`: see row_events. Row groups that are `excluded` are not
    read. `alive` is called before each row group is read, and before rows are rendered; it raises if the reader has
    left."""

    def __init__(
        self,
        source: ScanSource,
        scope: Scope,
        start: Position,
        high: int,
        budget: Budget,
        *,
        numbered: bool = False,
        moving: Moving | None = None,
        needed: Needed | None = None,
        excluded: Excluded | None = None,
        alive: Alive = always,
    ) -> None:
        self._source = source
        self._scope = scope
        self._start = start
        self._high = high
        self._budget = budget
        self._numbered = numbered
        self._moving = moving
        self._needed = needed
        self._excluded = excluded
        self._alive = alive
        self._low = start.low_ts  # every event at or below it has been returned
        self._rows = min(budget.first_rows, budget.rows)  # size of the next chunk

    def batches(self) -> Iterator[Batch]:
        """Yield batches in order. The last batch reaches `high`, unless it has a barrier.

        Raises:
            Unavailable: segments disappear repeatedly although the newest manifests name them, or no answer came.
            Gone: retention may have deleted changes that follow the last batch.
            CorruptObject, and the errors of `alive`.
        """
        replans = 0
        while self._low < self._high:
            before = self._low
            try:
                for batch in self._stride():
                    yield batch
                    if batch.barrier:
                        return
            except NotFoundYet as error:  # compaction has deleted the segment: the same rows are in other segments
                replans = 0 if self._low > before else replans + 1
                if replans > REPLANS:
                    raise Unavailable(f"{error}, though it is live by the newest manifests") from error
                self._source.replan()

    def _stride(self) -> Iterator[Batch]:
        """Read chunks up to the horizon (plan.horizon). Yields their batches, and advances `_low` after each."""
        window = Window(self._low, self._high)
        end = self._source.horizon(window, STRIDE_CHUNKS * self._budget.index_rows)
        window = Window(self._low, end)
        ids = self._source.physical_ids(self._scope, window)
        raw = isinstance(self._scope, RawScope)
        groups = plan.groups_in(self._source.segments(window), window, ids, raw=raw)
        while self._low < end:
            excluded = None if self._excluded is None else self._excluded.key
            shape = self._numbered, self._moving, self._needed, excluded
            key = (self._scope, self._low, end, self._rows, self._budget, *shape)
            step = self._source.shared(key, end, lambda alive: self._step(groups, end, ids, alive), self._alive)
            if step.crowd is not None:
                yield from self._crowd(step.crowd)
            elif step.batch is not None:
                yield self._rest(step.batch)
            self._low = step.high
            self._rows = min(self._rows * CHUNK_GROWTH, self._budget.rows)

    def _step(self, groups: Sequence[GroupRef], end: int, ids: Int64s | None, alive: Alive) -> DerivedResult[_Step]:
        """Make the batch of the next chunk. The result is shared with all pulls at the same position."""
        near = [ref for ref in groups if ref.info.commit_ts_max > self._low]
        high, near = plan.coarse_cut(near, Window(self._low, end), max(self._budget.index_rows, self._rows))
        high, found = self._look(near, Window(self._low, high), ids, alive)
        chunk = self._read_chunk(high, found, alive)
        if chunk.cut.crowded:
            return DerivedResult(_Step(chunk.cut.high, None, chunk), None, ())
        alive()
        rows = pa.concat_tables(chunk.tables) if chunk.tables else SCHEMA.empty_table()
        batch = self._batch(rows, Window(self._low, chunk.cut.high))
        step = _Step(chunk.cut.high, batch)
        # Steps with a barrier are not cached, because a barrier may be lifted later. Empty steps are not cached,
        # because they are made quickly.
        if batch.barrier is not None or not len(batch.events):
            return DerivedResult(step, None, ())
        return DerivedResult(step, batch.events.held_bytes, [part.group for part in chunk.parts])

    def _look(self, near: list[GroupRef], window: Window, ids: Int64s | None, alive: Alive) -> tuple[int, list[_Found]]:
        """Find the rows that the window and the scope may select, by the ids and ts of the row groups `near`. Returns
        the high end of what was searched, which is below the window's end if searching all would cost too much, and the
        rows. `near` is ordered by lowest commit_ts, so the rest of it begins above that end."""
        found: list[_Found] = []
        high, decoded = window.high, 0
        for ref in near:
            begins = max(ref.info.commit_ts_min, window.low + 1)
            if decoded > LOOK_CHUNKS * self._budget.decoded_bytes and begins > found[0].begins:
                high = begins - 1
                break
            alive()
            if self._excluded is not None and self._excluded(ref, window):
                continue
            index = self._source.index(ref)
            decoded += index.decoded_bytes
            at, commit_ts = _chosen(ref, index, window, ids, raw=isinstance(self._scope, RawScope))
            found.append(_Found(begins, GroupRows(ref, at), commit_ts, index.table_id[at]))
        return high, found

    def _read_chunk(self, high: int, found: list[_Found], alive: Alive) -> _ReadChunk:
        """Read the rows of the next chunk, which is cut so that it fits into the budget."""
        most = plan.rows_within(self._budget.rows, self._budget.chunk_bytes, [one.rows.group for one in found])
        every = np.concatenate([np.empty(0, np.int64), *(one.commit_ts for one in found)])
        every = every[every <= high]
        weights = _Weights(self._source, self._scope, Window(self._low, high))
        while True:
            cut = plan.exact_cut(every, high, min(self._rows, most), most)
            parts = [GroupRows(one.rows.group, one.rows.at[one.commit_ts <= cut.high]) for one in found]
            parts = [rows for rows in parts if len(rows.at)]
            fit, tables = self._read(parts, weights, alive)
            if fit >= min(cut.rows, most):
                if cut.crowded:  # all rows of a piece may be of the heaviest table
                    ids = [one.table_id[one.commit_ts == cut.high] for one in found]
                    most = min(most, max(1, self._budget.shown_bytes // max(1, IMAGES * weights.heaviest(ids))))
                return _ReadChunk(cut, parts, tables, most)
            most = fit

    def _read(self, parts: list[GroupRows], weights: _Weights, alive: Alive) -> tuple[int, list[pa.Table]]:
        """Read these rows until the memory limit is reached. Returns about how many rows may be in memory at once, and
        the rows that were read."""
        rows = decoded = shown = 0
        tables: list[pa.Table] = []
        for part in parts:
            alive()
            tables.append(part.read(self._source))
            rows += len(part.at)
            decoded += tables[-1].nbytes
            shown += weights.of(tables[-1])
            over = max(decoded / self._budget.decoded_bytes, shown / self._budget.shown_bytes)
            if over > 1:
                return max(1, int(rows / over)), tables
        return max(1, rows), tables

    def _crowd(self, chunk: _ReadChunk) -> Iterator[Batch]:
        commit_ts = chunk.cut.high
        if commit_ts - 1 > self._low:
            yield self._rest(self._batch(SCHEMA.empty_table(), Window(self._low, commit_ts - 1)))
        self._low = commit_ts - 1
        chunk.tables.clear()  # these rows are read again, piece by piece
        yield from OversizedCommit(
            self._source,
            self._scope,
            commit_ts,
            chunk.most,
            chunk.parts,
            self._start,
            numbered=self._numbered,
            moving=self._moving,
            needed=self._needed,
            alive=self._alive,
        ).batches()

    def _batch(self, rows: pa.Table, window: Window) -> Batch:
        if isinstance(self._scope, RawScope):
            return Batch(Events.ordered(render_raw(rows, self._scope).sets), window.high)
        ids = pc.unique(rows.column("table_id")).to_pylist()
        shapes = self._source.shapes(self._scope, ids, window)
        rendered = render(rows, shapes, numbered=self._numbered, moving=self._moving, needed=self._needed)
        ddl = self._source.ddl_events(self._scope, window)
        found = Events.ordered([*rendered.sets, ddl])
        barrier = rendered.barrier
        if barrier is not None:
            found = found.before(barrier.commit_ts)
        return Batch(found, window.high if barrier is None else barrier.commit_ts - 1, barrier=barrier)

    def _rest(self, batch: Batch) -> Batch:
        """The events of a batch that come after the start of the scan. Only the first batch can have others, at the
        start's own commit_ts."""
        if self._start.place is Place.DONE or self._low > self._start.low_ts:
            return batch
        return replace(batch, events=batch.events.after(self._start))


def _chosen(
    ref: GroupRef, index: GroupIndex, window: Window, ids: Int64s | None, *, raw: bool
) -> tuple[Int64s, Int64s]:
    """Select the rows of a row group that are in the window and may be in the scope. Returns their indexes and their
    commit_ts."""
    # One selected table, whose rows are in the order of commit_ts.
    if ref.info.table_id_min == ref.info.table_id_max > 0:
        low, high = (int(np.searchsorted(index.commit_ts, ts, side="right")) for ts in (window.low, window.high))
        return np.arange(low, high), index.commit_ts[low:high]
    mask = (index.commit_ts > window.low) & (index.commit_ts <= window.high)
    if ids is None:
        mask &= index.table_id < 0 if raw else index.table_id > 0
    else:
        mask &= np.isin(index.table_id, ids)
    at = np.flatnonzero(mask)
    return at, index.commit_ts[at]
