"""The edges of a pull: what lies at its start, at its end, at a DDL's ts, and inside one commit_ts."""

from __future__ import annotations

import json
from typing import Any

import pytest

from support import schema_records as s
from support.pull_world import World
from support.review_world import brief, change, pulled, review_world
from support.row_bytes import compact, row_v2
from support.schema_records import DONE, column, database, job, table, table_info, version
from tistream.read.cursor import Position, Scope, decode
from tistream.read.scan import Budget

DDL_TS, END_TS = 50, 100
NOT_NULL, PRIMARY = 1, 2
PK = column(1, "id", flag=NOT_NULL | PRIMARY)
BEFORE = table_info(100, "t", [PK, "v"], pk_is_handle=True)
AFTER = table_info(100, "t", [PK, "v", "w"], pk_is_handle=True)
RECORDS = [
    database(10, 1, "d"),
    table(10, 1, BEFORE),
    version(10, 57),
    table(DDL_TS, 1, AFTER),
    version(DDL_TS, 58),
    job(DDL_TS, 9, 5, DONE, table_id=100, existed=False),
]


def v(number: int) -> bytes:
    return row_v2({2: compact(number)})


ROWS = [
    *(change(20, 100, at, v(at)) for at in (1, 2, 3)),
    change(30, 100, 1, None, v(1), start_ts=25),
    change(30, 100, 4, v(4), start_ts=25),
    change(30, 100, 2, v(22), v(2), start_ts=26),
    change(DDL_TS, 100, 5, v(5)),
    change(DDL_TS + 1, 100, 6, v(6)),
    change(60, 100, 7, v(7)),
    change(END_TS, 100, 8, v(8)),
]


def world(budget: Budget | None = None) -> World:
    """Segments end at 55 and 100: one of them begins with the row at 60."""
    return review_world(RECORDS, ROWS, end_ts=END_TS, budget=budget)


def put(ts: int, handle: int, number: int, **more: Any) -> tuple[Any, ...]:
    row = {"id": handle, "v": number}
    return (ts, "put", "t", {"id": handle}, {**row, **more}, None)


WANTED = [
    *(put(20, at, at) for at in (1, 2, 3)),
    (30, "delete", "t", {"id": 1}, None, {"id": 1, "v": 1}),
    put(30, 4, 4),
    (30, "put", "t", {"id": 2}, {"id": 2, "v": 22}, {"id": 2, "v": 2}),
    put(DDL_TS, 5, 5),
    (DDL_TS, "ddl", "d", "t", "add column"),
    put(DDL_TS + 1, 6, 6, w=None),
    put(60, 7, 7, w=None),
    put(END_TS, 8, 8, w=None),
]


def test_rows_up_to_a_ddl_have_the_old_shape_and_come_before_it() -> None:
    found = pulled(world())
    assert brief(found) == WANTED
    versions = [event["schema_version"] for event in found]
    assert versions == ["57"] * 7 + ["58"] * 4


@pytest.mark.parametrize("budget", [None, Budget(2, 1, 1 << 20, 2)])
def test_a_window_has_what_lies_above_its_start_and_up_to_its_end(budget: Budget | None) -> None:
    one = world(budget)
    full = pulled(world())
    stamps = sorted({int(event["commit_ts"]) for event in full})
    edges = sorted({10, *stamps, *(ts - 1 for ts in stamps), *(ts + 1 for ts in stamps)} - {END_TS + 1})
    for low in edges:
        for high in (ts for ts in edges if ts >= low):
            lines = [json.loads(line) for line in one.pull(start=Position(low), end_ts=high).splitlines()]
            assert lines[:-1] == [event for event in full if low < int(event["commit_ts"]) <= high]
            assert lines[-1]["resolved_ts"] == str(high)


@pytest.mark.parametrize("budget", [None, Budget(2, 1, 1 << 20, 2)])
@pytest.mark.parametrize("limit", [1, 2, 3, 4, 5])
def test_any_page_ends_where_the_next_one_goes_on(limit: int, budget: Budget | None) -> None:
    """A `resolved` stands only where a commit_ts ends, and promises nothing that was not sent."""
    one = world(budget)
    full = [json.dumps(event) for event in pulled(world())]
    sent: list[str] = []
    at = Position(10)
    while len(sent) < len(full):
        *events, end = [json.loads(line) for line in one.pull(start=at, limit=limit).splitlines()]
        assert 0 < len(events) <= limit
        sent += map(json.dumps, events)
        assert sent == full[: len(sent)]
        unsent = [int(json.loads(event)["commit_ts"]) for event in full[len(sent) :]]
        if end["type"] == "resolved":
            assert int(end["resolved_ts"]) < min(unsent, default=END_TS + 1)
        else:
            assert end["type"] == "continue"
            assert unsent[0] >= int(events[-1]["commit_ts"])
        at = decode(Scope(one.tenant), end["cursor"])


def test_the_second_of_two_tables_of_one_name_is_pulled_by_it() -> None:
    """t is dropped at 40 and made anew: the name has both, each in its time."""
    anew = table_info(200, "t", [PK, "v"], pk_is_handle=True)
    records = [database(10, 1, "d"), table(10, 1, BEFORE), s.drop(40, 1, 100), table(45, 1, anew)]
    rows = [change(20, 100, 1, v(1)), change(42, 100, 2, v(2)), change(50, 200, 3, v(3)), change(60, 100, 4, v(4))]
    found = pulled(review_world(records, rows), "d", "t")
    assert [(event["commit_ts"], event["table_id"]) for event in found] == [("20", "100"), ("50", "200")]
