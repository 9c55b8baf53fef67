"""Cuts events at DDLs into segments, and the messages of a segment into windows, each of which one transaction sends.
Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from tistream.arrays import Int64s
from tistream.read.cursor import Place, Position
from tistream.read.events import Ddls, Events
from tistream.schema.ddl_event import DdlEvent


@dataclass(frozen=True, slots=True)
class Segment:
    """Row events, and the DDL that follows them, if there is one. `rows_end` is the position after the rows, and
    `ddl_end` the position after the DDL."""

    rows: Events
    rows_end: Position
    ddl: DdlEvent | None = None
    ddl_end: Position | None = None


def segments(events: Events, start: Position, through: int | None) -> Iterator[Segment]:
    """Cut the events of a batch, which lie after the position `start`, at each DDL, because the rows at or before a
    DDL must be durable before the DDL is sent, and the DDL before any later row (invariant 43). The last segment
    has no DDL. `through`: the ts up to which the batch has all events; None if the batch ends inside a
    commit_ts."""
    begin = 0
    for at in np.flatnonzero(events.place == int(Place.DDL)).tolist():
        ddls = events.sets[int(events.source[at])]
        assert isinstance(ddls, Ddls)
        before = _before(events, at, start)
        yield Segment(events.between(begin, at), before, ddls.events[int(events.at[at])], events.position(at))
        begin = at + 1
    if through is not None:
        end = Position(through)
    else:
        end = events.position(len(events) - 1) if len(events) else start
    yield Segment(events.between(begin, len(events)), max(start, end))


def _before(events: Events, at: int, start: Position) -> Position:
    """The position just before the event with index `at`, or `start` if that is later."""
    done = Position(int(events.commit_ts[at]) - 1)
    return max(start, done if at == 0 or events.commit_ts[at - 1] < events.commit_ts[at] else events.position(at - 1))


@dataclass(frozen=True, slots=True)
class MessageWindow:
    """The messages of a segment from `start` (inclusive) to `end` (exclusive), which one transaction sends. `until` is
    the position after the transaction."""

    start: int
    end: int
    until: Position


def windows(commit_ts: Int64s, sizes: Int64s, limit: int, until: Position) -> Iterator[MessageWindow]:
    """Cut messages into windows of about `limit` bytes. `commit_ts` and `sizes` (in bytes) have an element for each
    message; `commit_ts` ascends. `until` is the position after the last message.

    A window ends only between two commit_ts, because a position inside a commit_ts counts events, not messages. So a
    window is larger than `limit` if the messages of one commit_ts are. Memory is bounded all the same: a scan reads a
    very large commit_ts in pieces, and each piece is a segment of its own.
    """
    count = len(commit_ts)
    ends = np.append(np.flatnonzero(commit_ts[1:] != commit_ts[:-1]) + 1, count) if count else np.empty(0, np.int64)
    filled = np.cumsum(sizes)
    start = 0
    while start < count:
        done = int(filled[start - 1]) if start else 0
        over = int(np.searchsorted(filled[ends - 1], done + limit, side="right"))
        first = int(np.searchsorted(ends, start, side="right"))
        end = int(ends[max(first, over - 1)])
        yield MessageWindow(start, end, until if end == count else Position(int(commit_ts[end - 1])))
        start = end
