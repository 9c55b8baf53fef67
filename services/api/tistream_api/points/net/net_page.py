"""Sends one answer of DiffTable or of a squashed pull: the net change of each key between two timestamps.

An answer has three blocks, in this order: rows of dropped tables, DDL events, rows of present tables. A position in it
is (block, table id, step, raw key), where the step counts the events of one raw key and the passes over the keys
(net_events.NetPosition); see PointPosition.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from tistream.errors import Gone, RetryableError
from tistream.model.ts import Window
from tistream.pool.versions.pool_reads import PoolReads
from tistream.read import cursor as cursors
from tistream.read.cursor import Position, Scope
from tistream.read.events import Ddls, Events
from tistream.read.row_events import Barrier
from tistream.read.source import TenantSource
from tistream_api.encode.encoding import Encoder
from tistream_api.encode.page_end import PageEnd
from tistream_api.encode.piece import Piece
from tistream_api.points import point_cursor
from tistream_api.points.list_rows import undecodable
from tistream_api.points.net.net_changes import TableComparison
from tistream_api.points.net.net_events import NetPosition, net_events
from tistream_api.points.point_cursor import Kind, PointPosition

_BLOCK = 16  # a phase is block * _BLOCK + step
GONE, DDL, ROWS = range(3)  # blocks: rows of tables that are no more; ddl events; rows of tables that there are


@dataclass(frozen=True, slots=True)
class NetPart:
    """What an answer sends for one table, or its DDL events if `part` is None. `block` is GONE, DDL or ROWS."""

    block: int
    table_id: int
    part: TableComparison | None

    @property
    def place(self) -> tuple[int, int]:
        return self.block, self.table_id


@dataclass(slots=True)
class NetPage:
    """One answer of DiffTable or of a squashed pull. It begins after the position `at`, and sends `parts` in order, at
    most `limit` events. `count` is called with the numbers of events, rows and bytes that are about to be sent,
    `record_barrier` with a row that cannot be decoded, and the answer ends early once `stopping` returns True."""

    kind: Kind
    scope: Scope
    parts: Sequence[NetPart]
    at: PointPosition
    limit: int
    source: TenantSource
    reads: PoolReads
    encoder: Encoder
    count: Callable[[int, int, int], None]
    record_barrier: Callable[[Barrier], None]
    stopping: Callable[[], bool]

    def pieces(self) -> Iterator[Piece]:
        """Yield the answer's bytes. If the first row to send cannot be decoded, raises Undecodable before any bytes; a
        later one ends the answer with a cursor."""
        at, sent, more = self.at, 0, False
        try:
            for events, after, barrier in self._batches():
                page = events.first(self.limit - sent)
                if barrier is not None:
                    self.record_barrier(barrier)
                if barrier is not None and not sent and not len(page):
                    raise undecodable(barrier)
                if len(page):
                    if not sent:
                        yield b""  # the answer begins: from now on, no error status is possible
                    self.count(len(page), page.rows, 0)
                    yield from self._counted(self.encoder.events(page))
                    at = after(len(page) - 1)
                sent += len(page)
                if len(page) < len(events) or barrier is not None or sent == self.limit or self.stopping():
                    more = True
                    break
        except (RetryableError, Gone):
            if not sent:
                raise
            more = True
        yield from self._counted(self.encoder.end(self._end(at, more=more)))
        yield from self._counted(self.encoder.close())

    def _batches(self) -> Iterator[tuple[Events, Callable[[int], PointPosition], Barrier | None]]:
        """Yield (events, a function that returns the position after the event with this index, the barrier after the
        events), from the position `at` on. The barrier is None if no row that cannot be decoded follows."""
        block, step = divmod(self.at.phase, _BLOCK)
        begun = (block, self.at.table_id) if self.at.phase else (-1, -1)
        for one in self.parts:
            if one.place < begun:
                continue
            resumed = one.place == begun
            if one.part is None:
                yield from self._ddl(int.from_bytes(self.at.key, "big") if resumed else 0)
                continue
            for batch in net_events(self.reads, one.part, NetPosition(step, self.at.key) if resumed else NetPosition()):

                def after(
                    index: int, one: NetPart = one, sent: Callable[[int], NetPosition] = batch.sent
                ) -> PointPosition:
                    reached = sent(index)
                    return self._position(one, reached.step, reached.key)

                yield batch.events, after, batch.barrier

    def _ddl(self, done: int) -> Iterator[tuple[Events, Callable[[int], PointPosition], Barrier | None]]:
        found = self.source.ddl_events(self.scope, Window(self.at.low_ts, self.at.high_ts))
        events = Events.ordered([Ddls(found.events[done:])])
        one = NetPart(DDL, 0, None)
        yield events, lambda index: self._position(one, 1, (done + index + 1).to_bytes(8, "big")), None

    def _position(self, one: NetPart, step: int, key: bytes) -> PointPosition:
        phase = one.block * _BLOCK + step
        return PointPosition(self.at.low_ts, self.at.high_ts, phase, one.table_id, key)

    def _end(self, at: PointPosition, *, more: bool) -> PageEnd:
        cursor = point_cursor.encode(self.kind, self.scope, at)
        if self.kind is Kind.DIFF:
            return PageEnd(cursor if more else None, None, (at.low_ts, at.high_ts))
        if more:
            return PageEnd(cursor, None)
        return PageEnd(cursors.encode(self.scope, Position(at.high_ts)), at.high_ts)

    def _counted(self, pieces: Iterator[Piece]) -> Iterator[Piece]:
        for piece in pieces:
            self.count(0, 0, len(piece))
            yield piece


def diff_parts(parts: Sequence[TableComparison]) -> list[NetPart]:
    """What an answer of DiffTable sends, in order. If two tables have had the name, the rows of the earlier one come
    first."""
    return [NetPart(ROWS, number, part) for number, part in enumerate(parts)]
