"""Answers ListRows: a page of a table's rows as of a ts."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from tistream.errors import Gone, RetryableError, Undecodable
from tistream.model.span import KeySpan
from tistream.model.ts import Window
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
    the row whose key has this text is sent. `count` is called with what is about to be sent, `record_barrier` with a
    row that cannot be decoded, and the answer ends early once `stopping` returns True, or if `selection` has selected
    nothing when `late` does."""

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
    late: Callable[[], bool] = lambda: False

    def pieces(self) -> Iterator[Piece]:
        """Yield the answer's bytes. Raises Undecodable before the first of them."""
        last, more = self.after, False
        sent = 0
        try:
            for found, barrier in self._found():
                rows = found if self.selection is None else self.selection.selected(found)
                page = rows if len(rows) <= self.limit - sent else rows.slice(0, self.limit - sent)
                if barrier is not None:
                    self.record_barrier(barrier)
                if barrier is not None and not sent and not len(page):
                    raise undecodable(barrier)
                if len(page):
                    if not sent:
                        yield b""  # the answer begins: from now on, no error status is possible
                    self.count(len(page), len(page), 0)
                    yield from self._counted(self.encoder.rows(page))
                reached = found if len(page) == len(rows) else page
                if len(reached):
                    last = reached.raw[len(reached) - 1].as_py()
                sent += len(page)
                if not sent and last != self.after and self.late():
                    more = True
                    break
                if len(page) < len(rows) or barrier is not None or sent == self.limit or self.stopping():
                    more = True
                    break
        except (RetryableError, Gone):
            if not sent:
                raise
            more = True  # the next answer goes on, or has the error
        cursor = self._cursor(last) if more else None
        yield from self._counted(self.encoder.end(cursor))

    def _found(self) -> Iterator[tuple[DecodedRows, Barrier | None]]:
        rest = KeySpan(self.after + b"\0", b"") if self.after else KeySpan(b"", b"")
        asked = self.ranges if self.selection is None else self.selection.narrowed(self.ranges)
        ranges = [one for one in (some.clip(rest) for some in asked) if one is not None]
        shape = self.shape if self.selection is None else self.selection.decoded
        return pages(shape, self.reads.scan(Window(0, self.shape.ts), ranges), self.only)

    def _cursor(self, key: bytes) -> str:
        return point_cursor.encode(Kind.ROWS, self.scope, PointPosition(0, self.shape.ts, key=key))

    def _counted(self, pieces: Iterator[Piece]) -> Iterator[Piece]:
        for piece in pieces:
            self.count(0, 0, len(piece))
            yield piece
