"""Going through a window of a tenant's committed rows in the order of events, chunk by chunk.

Memory is bounded by the chunk, whatever the window holds: plan.py decides what is read, this module reads it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tistream.errors import NotFoundYet, Unavailable
from tistream.format.segment import SCHEMA
from tistream.model.ts import Window
from tistream_api import plan
from tistream_api.crowd import Crowd, GroupRows
from tistream_api.cursor import Place, Position, Scope
from tistream_api.events import Events
from tistream_api.plan import Cut, GroupRef
from tistream_api.row_events import render
from tistream_api.source_contract import Batch, Ints, Source

PAGE_ROWS_MIN = 4_096
PAGE_FIRST_ROWS_MIN = 16
CHUNK_GROWTH = 4
STRIDE_CHUNKS = 4  # of index_rows: how far ahead row groups are looked up
REPLANS = 3


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
        self._low = start.low_ts  # everything at or below it was given
        self._rows = min(budget.first_rows, budget.rows)  # of the next chunk

    def batches(self) -> Iterator[Batch]:
        """Batches in order; the last one's `through` is `high`, unless it has a barrier."""
        replans = 0
        while self._low < self._high:
            before = self._low
            try:
                for batch in self._stride():
                    yield batch
                    if batch.barrier:
                        return
            except NotFoundYet as error:  # compacted meanwhile: the same rows are in other segments
                replans = 0 if self._low > before else replans + 1
                if replans > REPLANS:
                    raise Unavailable(f"{error}, though it is live by the newest manifests") from error
                self._source.replan()

    def _stride(self) -> Iterator[Batch]:
        """Chunks up to the horizon; `_low` moves on as each has been taken."""
        window = Window(self._low, self._high)
        end = self._source.horizon(window, STRIDE_CHUNKS * self._budget.index_rows)
        window = Window(self._low, end)
        ids = self._source.physical_ids(self._scope, window)
        groups = plan.groups_in(self._source.segments(window), window, ids)
        while self._low < end:
            groups = [ref for ref in groups if ref.info.commit_ts_max > self._low]
            window = Window(self._low, end)
            high, near = plan.coarse_cut(groups, window, max(self._budget.index_rows, self._rows))
            most = plan.rows_within(self._budget.rows, self._budget.chunk_bytes, near)
            found = [self._candidates(ref, Window(self._low, high), ids) for ref in near]
            every = np.concatenate([np.empty(0, np.int64), *(commit_ts for _, commit_ts in found)])
            cut = plan.exact_cut(every, high, min(self._rows, most), most)
            taken = [GroupRows(rows.group, rows.at[commit_ts <= cut.high]) for rows, commit_ts in found]
            taken = [rows for rows in taken if len(rows.at)]
            yield from self._crowd(cut, taken, most) if cut.crowded else self._chunk(cut, taken)
            self._low = cut.high
            self._rows = min(self._rows * CHUNK_GROWTH, self._budget.rows)

    def _candidates(self, ref: GroupRef, window: Window, ids: Ints | None) -> tuple[GroupRows, Ints]:
        """Which rows of a row group the window and the scope may want, and their commit_ts."""
        table_ids, commit_ts = self._source.index(ref)
        mask = (commit_ts > window.low) & (commit_ts <= window.high)
        mask &= table_ids > 0 if ids is None else np.isin(table_ids, ids)
        at = np.flatnonzero(mask)
        return GroupRows(ref, at), commit_ts[at]

    def _chunk(self, cut: Cut, taken: list[GroupRows]) -> Iterator[Batch]:
        rows = [part.read(self._source) for part in taken]
        yield self._batch(pa.concat_tables(rows) if rows else SCHEMA.empty_table(), Window(self._low, cut.high))

    def _crowd(self, cut: Cut, taken: list[GroupRows], most: int) -> Iterator[Batch]:
        if cut.high - 1 > self._low:
            yield self._batch(SCHEMA.empty_table(), Window(self._low, cut.high - 1))
        self._low = cut.high - 1
        yield from Crowd(self._source, self._scope, cut.high, most, taken, self._start).batches()

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
