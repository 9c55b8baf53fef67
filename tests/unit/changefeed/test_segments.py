"""Segments of a golden set: no row stands on the wrong side of a DDL, and a scan goes on at the end of each."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

from support.pull_world import World, golden_world
from tistream.read.cursor import Position, Scope
from tistream.read.scan import Budget, Scan
from tistream_changefeed.core.segments import Segment, segments

Shown = tuple[int, str]
SMALL = Budget(rows=200, first_rows=50)  # so that large transactions are read in parts


def read(world: World, start: Position) -> Iterator[Segment]:
    at = start
    for batch in Scan(world.source, Scope(world.tenant), start, world.end_ts, SMALL).batches():
        for segment in segments(batch.events, at, batch.through):
            yield segment
            at = segment.ddl_end or segment.rows_end


def shown(segment: Segment) -> list[Shown]:
    """The events of a segment: rows by position, and the DDL."""
    rows = segment.rows
    out = [(int(ts), str(rows.position(at))) for at, ts in enumerate(rows.commit_ts)]
    return out if segment.ddl is None else [*out, (segment.ddl.commit_ts, segment.ddl.query)]


def test_rows_up_to_a_ddl_precede_it_and_no_other_follows_below_it() -> None:
    world = golden_world("everything")
    barrier = ddls = 0
    for segment in read(world, Position(world.snapshot_ts)):
        assert all(int(ts) > barrier for ts in segment.rows.commit_ts)
        if segment.ddl is not None:
            ddls += 1
            assert segment.ddl_end is not None
            assert segment.rows_end < segment.ddl_end
            assert all(int(ts) <= segment.ddl.commit_ts for ts in segment.rows.commit_ts)
            barrier = segment.ddl.commit_ts
            # A later DDL of the same commit_ts may follow; a row of it may not
    assert ddls > 20


def test_a_reader_goes_on_at_the_end_of_any_segment_without_a_gap_or_a_repeat() -> None:
    world = golden_world("everything")
    whole = list(read(world, Position(world.snapshot_ts)))
    ends: list[tuple[Position, int]] = []
    events: list[Shown] = []
    for segment in whole:
        found = shown(segment)
        rows = len(segment.rows)
        events += found
        ends.append((segment.rows_end, len(events) - (len(found) - rows)))
        if segment.ddl_end is not None:
            ends.append((segment.ddl_end, len(events)))
    assert [end for end, _ in ends] == sorted(end for end, _ in ends)
    assert any(one.rows_end.place.name == "ROW" for one in whole), "a transaction is read in parts"
    for end, count in Random(7).sample(ends, 12):
        rest = [event for segment in read(world, end) for event in shown(segment)]
        assert rest == events[count:], end
