"""ListRows with a key looks the row up, and the table read whole has the same row."""

from __future__ import annotations

import json
from typing import Any

import pytest

from support import golden
from support.compare import expected_changes
from support.effort import cases
from support.points_world import PointWorld, commits, point_world

NAME = "everything"
INDEXED = cases([True], [False])


def by_key(one: PointWorld, database: str, table: str, ts: int) -> dict[str, dict[str, Any]]:
    """The row lines of a table, by the text of their keys."""
    return {json.dumps(row["key"]): row for row in one.lines(database, table, ts)}


@pytest.mark.parametrize("indexed", INDEXED)
def test_a_row_that_is_asked_for_by_key_is_that_of_the_whole_table(indexed: bool) -> None:
    one = point_world(NAME, 4, indexed=indexed)
    asked = 0
    for ts, tables in [commit for commit in commits(NAME) if commit[0] > one.base_ts][::100]:
        for database, table, _ in tables:
            if one.exists(database, table, ts):
                rows = one.lines(database, table, ts)
                for row in rows[:: max(1, len(rows) // 2)]:
                    assert one.lines(database, table, ts, key=row["key"]) == [row]
                    asked += 1
    assert asked > 10


@pytest.mark.parametrize("indexed", INDEXED)
def test_a_row_that_was_deleted_is_not_found_by_its_key(indexed: bool) -> None:
    one = point_world(NAME, 4, indexed=indexed)
    asked = 0
    for (at, database, table), change in expected_changes(golden.load(NAME)).items():
        ts = int(at)
        fewer = change.removed.total() > change.added.total()
        if asked >= 10 or not fewer or ts <= one.base_ts or not one.exists(database, table, ts):
            continue
        before, after = by_key(one, database, table, ts - 1), by_key(one, database, table, ts)
        for key in sorted(before.keys() - after.keys())[:3]:
            assert one.lines(database, table, ts - 1, key=json.loads(key)) == [before[key]]
            assert one.lines(database, table, ts, key=json.loads(key)) == []
            asked += 1
    assert asked >= 10


def test_a_cursor_after_the_only_row_of_a_key_finds_no_other() -> None:
    one = point_world(NAME, 4, indexed=True)
    ts, (database, table, _) = next(
        (ts, tables[0]) for ts, tables in reversed(list(commits(NAME))) if one.lines(*tables[0][:2], ts)
    )
    row = one.lines(database, table, ts)[0]
    line, end = map(json.loads, one.page(database, table, ts, key=row["key"], limit=1).splitlines())
    assert line == row
    assert end["cursor"] is not None
    again = one.page(database, table, ts, cursor=end["cursor"], key=row["key"], limit=1)
    assert [json.loads(each)["type"] for each in again.splitlines()] == ["end"]
