"""Answers ListRows: a page of a table's rows as of a ts."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tistream.errors import Gone, RetryableError, Undecodable
from tistream.format.segment import OP_PUT
from tistream.model.span import KeySpan
from tistream.model.ts import Window
from tistream.pool.versions.lookup import PLACES
from tistream.pool.versions.plan import TableRange
from tistream.pool.versions.pool_reads import PoolReads
from tistream.read.cursor import Scope
from tistream.read.row_events import Barrier
from tistream_api.encode.piece import Piece
from tistream_api.points import point_cursor
from tistream_api.points.point_cursor import Kind, PointPosition
from tistream_api.points.row_formats import RowEncoder
from tistream_api.points.row_selection import RowSelection
from tistream_api.points.table_rows import DecodedRows, Shape, pages
from tistream_api.pull.answer import FILTERED_MS


def undecodable(barrier: Barrier) -> Undecodable:
    """Make the error for a row that no schema can decode."""
    extra = {
        "table": barrier.table or "",
        "table_id": str(barrier.table_id),
        "key": barrier.key.hex(),
        "commit_ts": str(barrier.commit_ts),
        "reason": barrier.reason,
    }
    return Undecodable(str(barrier), extra)


@dataclass(slots=True)
class RowsPage:
    """One answer of ListRows, with at most `limit` rows. It begins after the raw key `after`. If `only` is set, only
    the row whose key has this text is sent. `count` is called with the numbers of events, rows and bytes that are about
    to be sent, `record_barrier` with a row that cannot be decoded. The answer ends early once `stopping` returns True,
    or if `selection` (the filter; None: every row) has selected nothing for FILTERED_MS by `now_ms`, a monotonic
    clock."""

    scope: Scope
    shape: Shape
    ranges: list[TableRange]
    only: str | None
    after: bytes
    limit: int
    reads: PoolReads
    encoder: RowEncoder
    count: Callable[[int, int, int], None]
    record_barrier: Callable[[Barrier], None]
    stopping: Callable[[], bool]
    selection: RowSelection | None = None
    now_ms: Callable[[], int] = lambda: 0

    def pieces(self) -> Iterator[Piece]:
        """Yield the answer's bytes. The first piece may be empty; once it was yielded, no error status is possible.
        Before it, raises RetryableError or Gone if a read fails, and Undecodable for a row that cannot be decoded;
        after it, each of these ends the answer with a cursor."""
        last, more = self.after, False
        sent, begun, told_ms = 0, False, self.now_ms()
        try:
            for found, barrier, reached in self._found():
                rows = found if self.selection is None else self.selection.selected(found)
                page = rows if len(rows) <= self.limit - sent else rows.slice(0, self.limit - sent)
                if barrier is not None:
                    self.record_barrier(barrier)
                if barrier is not None and not begun and not len(page):
                    raise undecodable(barrier)
                if (len(page) and not begun) or self.selection is not None:
                    begun = True
                    yield b""  # from now on, no error status is possible; another pull may take the decode slot
                if len(page):
                    self.count(len(page), len(page), 0)
                    yield from self._counted(self.encoder.rows(page))
                    told_ms = self.now_ms()
                if len(page) == len(rows):
                    last = max(last, reached)
                else:
                    last = page.raw[len(page) - 1].as_py()
                sent += len(page)
                silent = last != self.after and self.now_ms() - told_ms >= FILTERED_MS
                if silent or len(page) < len(rows) or barrier is not None or sent == self.limit or self.stopping():
                    more = True
                    break
        except (RetryableError, Gone):
            if not begun:
                raise
            more = True  # the next answer goes on, or has the error
        cursor = self._cursor(last) if more else None
        yield from self._counted(self.encoder.end(cursor))

    def _found(self) -> Iterator[tuple[DecodedRows, Barrier | None, bytes]]:
        """Yield (rows, barrier, key) in key order. `barrier` describes the row after these rows if it cannot be
        decoded; it ends the iteration. `key` is the raw key up to which, inclusive, all rows were yielded; empty if
        there are no rows. After a range that is followed by a gap in the keys, an item without rows moves `key` to the
        range's end."""
        rest = KeySpan(self.after + b"\0", b"") if self.after else KeySpan(b"", b"")
        asked = self.ranges if self.selection is None else self.selection.narrowed(self.ranges)
        ranges = [one for one in (some.clip(rest) for some in asked) if one is not None]
        shape = self.shape if self.selection is None else self.selection.decoded
        by_key = all(one.span.end == one.span.start + b"\0" for one in ranges)
        lots = [ranges] if ranges and by_key else [[one] for one in ranges]
        for at, lot in enumerate(lots):
            found = self._of_keys(lot) if by_key else self.reads.scan(Window(0, self.shape.ts), lot)
            for rows, barrier in pages(shape, found, self.only):
                yield rows, barrier, rows.raw[len(rows) - 1].as_py() if len(rows) else b""
                if barrier is not None:
                    return
            if at + 1 < len(lots) and lot[-1].span.end < lots[at + 1][0].span.start:
                yield (
                    DecodedRows(shape, (), (), np.empty(0, np.int64), pa.array([], pa.large_binary())),
                    None,
                    lot[-1].span.end,
                )

    def _of_keys(self, ranges: Sequence[TableRange]) -> Iterator[pa.Table]:
        """Yield the newest version at or below the answer's ts of each key in `ranges`, each of which has exactly one
        key. Keys without a row at that ts are left out. Unlike a scan, a lookup reads no object that is older than the
        version that it has found."""
        places = [[one.table_id for one in ranges], [one.span.start for one in ranges]]
        found = self.reads.newest(pa.table(places, schema=PLACES), self.shape.ts)
        rows = found.filter(pc.equal(found.column("op"), OP_PUT))
        if len(rows):
            yield rows

    def _cursor(self, key: bytes) -> str:
        return point_cursor.encode(Kind.ROWS, self.scope, PointPosition(0, self.shape.ts, key=key))

    def _counted(self, pieces: Iterator[Piece]) -> Iterator[Piece]:
        for piece in pieces:
            self.count(0, 0, len(piece))
            yield piece
