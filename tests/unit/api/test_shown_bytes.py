"""Rows of a few bytes that stand for very many: held a few at a time, whatever their tables make of them."""
# Attack: rows of a few bytes whose events are large

from __future__ import annotations

from typing import Any

import pytest

from support.effort import FULL
from support.pull_world import World
from support.review_world import change, paged, pulled, review_world
from support.row_bytes import row_v2
from support.schema_records import column, database, table, table_info
from tistream.read.cursor import Position, Scope
from tistream.read.scan import Budget, Scan
from tistream.schema.tidb import table as t

BASE = [database(10, 1, "d")]
BUDGET = Budget(shown_bytes=1 << 20)
TEXT = 20_000
SHOWN = "e" * TEXT


def int_pk(table_id: int, name: str, columns: list[Any]) -> dict[str, Any]:
    """A table with an integer clustered key `id`, column 1."""
    pk = column(1, "id", flag=t.FLAG_NOT_NULL | t.FLAG_PRIMARY)
    return table_info(table_id, name, [pk, *columns], pk_is_handle=True)


def enum() -> dict[str, Any]:
    one = column(2, "size", tp=t.ENUM)
    one["type"]["Elems"] = ["", SHOWN, "s"]
    return one


def of_set() -> dict[str, Any]:
    one = column(2, "size", tp=t.SET)
    one["type"]["Elems"] = [f"{number}" + SHOWN[: TEXT // 16] for number in range(16)]
    return one


COLUMNS = {
    "enum": ([enum()], {2: b"\2"}),
    "set": ([of_set()], {2: b"\xff\xff"}),
    "default": ([column(2, "note", tp=t.VARCHAR, origin_default=SHOWN)], {}),
    "columns": ([column(number, f"c{number}", tp=t.TINY) for number in range(2, 500)], {}),
}


def batches(one: World, budget: Budget = BUDGET) -> list[int]:
    """What the events of each step hold."""
    scan = Scan(one.source, Scope(one.tenant), Position(10), one.end_ts, budget)
    return [batch.events.held_bytes for batch in scan.batches()]


@pytest.mark.parametrize("together", [False, True], ids=["each alone", "one transaction"])
@pytest.mark.parametrize("name", COLUMNS)
def test_a_step_holds_no_more_than_what_its_rows_are_shown_as(name: str, together: bool) -> None:
    """Many rows, in as many transactions or in one; of some the row before is shown too."""
    columns, cells = COLUMNS[name]
    value = row_v2(cells)
    rows = [
        change(50 if together else 20 + at, 100, at, value, value if at % 3 == 0 else None)
        for at in range(300 if FULL else 150)
    ]
    records = [*BASE, table(10, 1, int_pk(100, "t", columns))]
    tight, wide = (review_world(records, rows, tasks=2, budget=budget) for budget in (BUDGET, Budget()))
    want = pulled(wide)
    assert pulled(tight) == want
    assert paged(tight, limit=31 if FULL else 131) == want
    held = batches(tight)
    objects = 2 * 2_048 * len(columns)  # arrays themselves, which do not grow with their rows
    assert max(held) <= 2 * BUDGET.shown_bytes + objects
    assert len([size for size in held if size > BUDGET.shown_bytes // 4]) > 4


def test_columns_of_a_wide_table_are_not_compared_with_each_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else an update of a row of a thousand columns costs a million comparisons."""
    compared, columns = [0], COLUMNS["columns"][0]
    new, old, equal = row_v2({2: b"\1"}), row_v2({}), t.Column.__eq__
    one = review_world([*BASE, table(10, 1, int_pk(100, "t", columns))], [change(20, 100, 1, new, old)])

    def counted(self: t.Column, other: object) -> bool:
        compared[0] += 1
        return equal(self, other)

    monkeypatch.setattr(t.Column, "__eq__", counted)
    assert len(pulled(one)) == 1
    assert compared[0] < 4 * len(columns)


@pytest.mark.parametrize("together", [False, True], ids=["each alone", "one transaction"])
def test_rows_of_a_heavy_table_are_few_though_those_of_others_are_light(together: bool) -> None:
    light, heavy = (int_pk(100, "light", []), int_pk(101, "heavy", [enum()]))
    rows = [
        *(change(50 if together else 500 + at // 8, 100, at, row_v2({})) for at in range(3_000)),
        *(change(50 if together else 20 + at, 101, at, row_v2({2: b"\2"})) for at in range(300)),
    ]
    one = review_world([*BASE, table(10, 1, light), table(10, 1, heavy)], rows, budget=BUDGET)
    held = batches(one)
    assert max(held) <= 2 * BUDGET.shown_bytes
    found = pulled(one)
    assert [len([event for event in found if event["table"] == name]) for name in ("light", "heavy")] == [3_000, 300]


def test_rows_of_usual_tables_are_as_many_at_a_time_as_before() -> None:
    columns = [column(number, f"column_{number}", tp=t.LONGLONG) for number in range(2, 22)]
    rows = [change(20 + at, 100, at, row_v2({})) for at in range(900)]
    one = review_world([*BASE, table(10, 1, int_pk(100, "t", columns))], rows)
    assert len(batches(one, Budget())) == len(batches(one, Budget(shown_bytes=1 << 40)))


def test_what_a_version_after_the_window_makes_of_rows_does_not_count() -> None:
    rows = [change(20 + at, 100, at, row_v2({})) for at in range(300)]
    later = table(900, 1, int_pk(100, "t", COLUMNS["default"][0]))
    one = review_world([*BASE, table(10, 1, int_pk(100, "t", [])), later], rows, budget=BUDGET)
    scan = Scan(one.source, Scope(one.tenant), Position(10), 800, BUDGET)
    assert [len(batch.events) for batch in scan.batches()] == [300]
