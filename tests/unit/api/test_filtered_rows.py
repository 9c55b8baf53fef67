"""ListRows with `where`: the rows that fulfil it, page by page, and fewer reads for conditions of the key."""

from __future__ import annotations

import itertools
import json
from typing import Any

import pytest

from support.points_world import PointWorld, point_world
from tistream.filters.event_choice import EventChoice
from tistream.pool.versions.plan import record_prefix
from tistream_api.points.named_table import ranges_of, shape_of
from tistream_api.points.row_selection import RowSelection
from tistream_api.pull.answer import FILTERED_MS

Line = dict[str, Any]


def world() -> PointWorld:
    return point_world("everything", tasks=4, indexed=True)


@pytest.mark.parametrize(
    ("table", "where", "true"),
    [
        ("big", "id between 100 and 119", lambda row: 100 <= int(row["id"]) < 120),
        ("big", "id in (5, 110, 99999999)", lambda row: int(row["id"]) in (5, 110)),
        ("big", "pad = 'ppp' or id < 3", lambda row: row["pad"] == "ppp" or int(row["id"]) < 3),
        ("orders", "amount > 10", lambda row: row["amount"] is not None and float(row["amount"]) > 10),
        ("orders", "customer is not null and note is null", lambda row: row["customer"] and row["note"] is None),
        ("p_hash", "id > 3", lambda row: int(row["id"]) > 3),
        ("k_comp", "a >= 1", lambda row: int(row["a"]) >= 1),
        ("k_uint", "id > 9223372036854775807", lambda row: int(row["id"]) > 2**63 - 1),
        ("k_uint", "id <= 9223372036854775807", lambda row: int(row["id"]) <= 2**63 - 1),
    ],
)
def test_rows_are_those_that_fulfil_the_condition(table: str, where: str, true: Any) -> None:
    one = world()
    every = one.lines("shop", table, one.world.end_ts)
    expected = [line for line in every if true(line["row"])]
    assert one.lines("shop", table, one.world.end_ts, where=where) == expected


def test_pages_join_and_the_columns_of_the_condition_are_not_shown() -> None:
    one, cursor, found, pages = world(), None, [], 0
    where = "id < 4000 and pad like 'ppp%'"
    while True:
        body = one.page("shop", "big", one.world.end_ts, cursor=cursor, limit=300, columns=("id",), where=where)
        *rows, end = [json.loads(line) for line in body.splitlines()]
        found += rows
        pages += 1
        assert len(rows) <= 300
        if (cursor := end["cursor"]) is None:
            break
    assert pages > 2
    assert {tuple(line["row"]) for line in found} == {("id",)}
    every = one.lines("shop", "big", one.world.end_ts)
    assert [line["key"] for line in found] == [
        line["key"] for line in every if int(line["row"]["id"]) < 4000 and line["row"]["pad"].startswith("ppp")
    ]


def joined(table: str, where: str, **how: Any) -> tuple[list[Line], int]:
    """The rows of all pages, and the number of pages. Each page advances."""
    one, cursor, found, pages = world(), None, [], 0
    while True:
        body = one.page("shop", table, one.world.end_ts, cursor=cursor, where=where, **how)
        *rows, end = [json.loads(line) for line in body.splitlines()]
        assert end["cursor"] != cursor
        found += rows
        pages += 1
        if (cursor := end["cursor"]) is None:
            return found, pages


# One row is selected early, or none at all.
@pytest.mark.parametrize(("where", "selected"), [("pad = 'nothing'", 0), ("pad = 'nothing' or id = 1", 1)])
def test_an_answer_that_selects_nothing_for_long_has_a_cursor_that_advances(where: str, selected: int) -> None:
    rows, pages = joined("big", where, now_ms=itertools.count(0, FILTERED_MS).__next__)
    assert len(rows) == selected
    assert pages > 1


def test_an_answer_may_end_between_two_ranges_of_keys_without_rows() -> None:
    where = "id in (70000000, 80000000, 90000000)"
    rows, pages = joined("big", where, now_ms=itertools.count(0, FILTERED_MS).__next__)
    assert (rows, pages) == ([], 3)


@pytest.mark.parametrize("limit", [1, 2])
def test_pages_join_if_the_keys_are_on_both_sides_of_2_to_the_63(limit: int) -> None:
    one = world()
    every = one.lines("shop", "k_uint", one.world.end_ts)
    keys = sorted(int(line["row"]["id"]) for line in every)
    low, high = keys[0], keys[-1]
    assert low < 2**63 <= high
    rows, _ = joined("k_uint", f"id <= {low} or id >= {high}", limit=limit)
    assert rows == [line for line in every if int(line["row"]["id"]) in (low, high)]


def test_a_condition_of_the_key_reads_few_keys() -> None:
    source = world().world.source
    version = source.table(world().world.end_ts, "shop", "big")
    assert version is not None
    choice = EventChoice.parse(None, None, None, "id = 5 or id between 8 and 9")
    assert choice is not None
    shape = shape_of(source, version, world().world.end_ts, None)
    (table_id,) = version.head.physical_ids
    prefix = record_prefix(table_id)
    found = RowSelection(choice, shape).narrowed(ranges_of([table_id]))
    handles = [tuple((2**63 + at).to_bytes(8, "big") for at in bounds) for bounds in [(5, 6), (8, 10)]]
    assert [(one.span.start, one.span.end) for one in found] == [(prefix + a, prefix + b) for a, b in handles]
