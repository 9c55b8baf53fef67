"""When the tables of a database show the rows of one ts, and how rows are compared."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import replace

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tistream.read.cursor import Place, Position
from tistream.wire.bulk.changefeeds import Applied
from tistream_changefeed.core.load import Load
from tistream_changefeed.core.progress import Fence, Progress
from tistream_changefeed.core.stopped import StoppedTable
from tistream_changefeed.core.sync_points import SyncPoints, passed
from tistream_changefeed.verify.compared_rows import ComparedRows
from tistream_changefeed.verify.database_state import NotNow, shown_ts

AT = Position(150)
DONE = Progress(AT, 0, Fence(1, 1))


def test_tables_show_a_ts_once_every_connection_has_written_its_part() -> None:
    marked = replace(DONE, at=passed(170))
    assert shown_ts({0: (DONE, AT), 1: (marked, marked.at)}, 150, 2) == (150, 170)
    stopped = replace(DONE, stopped=(StoppedTable(("d", "t"), AT, "why"),))
    for progress, high, text, passes in (
        (DONE, Position(151), "some connections", True),
        (replace(DONE, load=Load(150)), None, "not loaded yet", True),
        (replace(DONE, at=Position(150, Place.ROW, 149, 7)), None, "inside a transaction", True),
        (replace(DONE, at=Position(150, Place.DDL, 0, 1)), None, "inside a transaction", True),
        (stopped, None, r"tables have stopped \(d.t\)", False),
    ):
        found = shown_ts({0: (progress, high or progress.at)}, 0, 1)
        assert isinstance(found, NotNow)
        assert (found.passes, re.search(text, found.reason) is not None) == (passes, True)
    assert isinstance(shown_ts({0: (DONE, AT)}, 0, 2), NotNow)


def test_tables_that_a_ddl_or_a_change_of_the_feed_has_met_in_part_show_no_ts() -> None:
    def at(revision: int, shards: int, ts: int = 150) -> tuple[Progress, Position]:
        applied = Applied(revision=revision, from_ts=100, after_ts=100) if revision else None
        progress = replace(DONE, at=Position(ts), applied=applied, shards=shards)
        return progress, progress.at

    left_behind = {shard: at(1, 4, 120) for shard in (2, 3)}
    assert shown_ts({0: at(2, 2), 1: at(2, 2), **left_behind}, 130, 2) == (150, 150)
    for states, ddl_ts, text in (
        ({0: at(2, 2), 1: at(1, 4), **left_behind}, 0, "shard 1 has not begun with revision 2"),
        ({0: at(1, 4), 1: at(1, 4), **left_behind}, 0, "divided into 2 shards"),
        ({0: at(1, 1), 1: at(1, 1)}, 0, "divided into 2 shards"),
        ({0: at(0, 2, 170), 1: at(0, 2)}, 160, "the DDL at commit_ts 160"),
    ):
        found = shown_ts(states, ddl_ts, 2)
        assert isinstance(found, NotNow)
        assert (found.passes, text in found.reason) == (True, True), found


@given(st.lists(st.integers(0, 5)), st.lists(st.integers(0, 5)), st.integers(1, 3))
def test_rows_are_compared_as_often_as_they_are_there(wanted: list[int], found: list[int], parts: int) -> None:
    def cut(values: list[int]) -> list[np.ndarray]:
        return [np.array(values[at::parts], np.uint64) for at in range(parts)]

    result = ComparedRows(cut(wanted), cut(found)).result()
    less, more = Counter(wanted) - Counter(found), Counter(found) - Counter(wanted)
    assert result.missing == less
    assert {**result.unexpected, **result.repeated} == more
    assert set(result.repeated) <= set(wanted)
    assert not set(result.unexpected) & set(wanted)
    assert (result.equal, result.wanted, result.found) == (sorted(wanted) == sorted(found), len(wanted), len(found))


def test_sync_points_are_multiples_and_each_is_marked_once() -> None:
    points = SyncPoints(30_000)
    ts = points.after(5 << 18)
    assert ts == 30_000 << 18
    assert points.after(ts) == 60_000 << 18
    assert points.after(ts - 1) == ts
    assert points.due(Position(ts))
    for other in (Position(ts - 1), Position(ts + 1), Position(ts, Place.DDL, 0, 1), passed(ts)):
        assert not points.due(other)
    assert passed(ts) < Position(ts + 1, Place.ROW, 1)
    assert passed(ts).low_ts == ts
