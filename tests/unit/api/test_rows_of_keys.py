"""ListRows with a key looks the row up, and the table read whole has the same row."""

from __future__ import annotations

import json

import pytest

from support.effort import cases
from support.points_world import commits, point_world


@pytest.mark.parametrize("indexed", cases([True], [False]))
def test_a_row_that_is_asked_for_by_key_is_that_of_the_whole_table(indexed: bool) -> None:
    one = point_world("everything", 4, indexed=indexed)
    asked = 0
    for ts, tables in list(commits("everything"))[::150]:
        if ts <= one.base_ts:
            continue
        for database, table, _ in tables:
            if not one.exists(database, table, ts):
                continue
            lines = one.lines(database, table, ts)
            for row in lines[:: max(1, len(lines) // 2)]:
                assert one.lines(database, table, ts, key=row["key"]) == [row]
                asked += 1
            gone = {json.dumps(row["key"]): row["key"] for row in one.lines(database, table, ts - 1)} if lines else {}
            for row in lines:
                gone.pop(json.dumps(row["key"]), None)
            for key in list(gone.values())[:2]:
                assert one.lines(database, table, ts, key=key) == []
    assert asked > 10


def test_a_cursor_after_the_only_row_of_a_key_finds_no_other() -> None:
    one = point_world("everything", 4, indexed=True)
    ts, (database, table, _) = next(
        (ts, tables[0]) for ts, tables in reversed(list(commits("everything"))) if one.lines(*tables[0][:2], ts)
    )
    row = one.lines(database, table, ts)[0]
    line, end = map(json.loads, one.page(database, table, ts, key=row["key"], limit=1).splitlines())
    assert line == row
    assert end["cursor"] is not None
    again = one.page(database, table, ts, cursor=end["cursor"], key=row["key"], limit=1)
    assert [json.loads(each)["type"] for each in again.splitlines()] == ["end"]
