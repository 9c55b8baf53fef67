"""Undo of the golden sets' transactions: the plan as of the commit, and as of the end."""

from __future__ import annotations

import random
from collections import defaultdict
from functools import cache
from typing import Any

import pytest

from simulation.api.test_row_history_golden import pulled
from support.effort import FULL, seeds
from support.points_world import PointWorld, point_world
from support.undo_world import undo
from tistream.errors import InvalidRequest
from tistream.restore.undo_plan import Reason, plan_undo
from tistream.schema.tidb.create_table import Dialect
from tistream_api.undo import changed_rows, row_cells

Line = dict[str, Any]


@cache
def transactions(name: str) -> dict[int, list[Line]]:
    """Row events by start_ts."""
    found = defaultdict(list)
    for event in pulled(name):
        found[int(event["start_ts"])].append(event)
    return found


def sampled(name: str, count: int, seed: int) -> list[int]:
    starts = sorted(transactions(name))
    return starts if FULL else random.Random(seed).sample(starts, min(len(starts), count))


def expected_ops(events: list[Line]) -> dict[str, int]:
    """The reverse of what the events did to each row of the transaction."""
    first: dict[tuple[str, str], Any] = {}
    last: dict[tuple[str, str], Any] = {}
    for event in events:
        row = event["table_id"], str(event["key"])
        first.setdefault(row, event["old_row"])
        last[row] = event["row"]
    ops = {"insert": 0, "update": 0, "delete": 0, "unchanged": 0}
    for row, before in first.items():
        after = last[row]
        if before == after:
            ops["unchanged"] += 1
        else:
            ops["delete" if before is None else "insert" if after is None else "update"] += 1
    return ops


@pytest.mark.parametrize(("name", "tasks"), [("everything", 4), ("large", 4)])
def test_as_of_its_commit_a_transaction_can_be_taken_back_whole(name: str, tasks: int) -> None:
    one = point_world(name, tasks)
    for start in sampled(name, 80, tasks):
        found = undo(one, start).answer(Dialect.TIDB, None)
        assert found["conflicts"] == [], start
        assert found["counts"] == {**expected_ops(transactions(name)[start]), "conflicts": 0}, start
        assert len(found["statements"]) == sum(found["counts"][op] for op in ("insert", "update", "delete"))


def test_a_chosen_row_is_taken_back_alone_and_the_rows_together_are_the_transaction() -> None:
    one = point_world("everything", 4)
    several = [
        start
        for start, events in transactions("everything").items()
        if len({str(event["key"]) for event in events}) > 1 and len({event["table_id"] for event in events}) == 1
    ]
    for start in random.Random(3).sample(several, 10):
        whole = undo(one, start).answer(Dialect.TIDB, None)
        keys = {str(event["key"]): event["key"] for event in transactions("everything")[start]}
        parts = [undo(one, start, where=key).answer(Dialect.TIDB, None) for key in keys.values()]
        assert all(sum(part["counts"].values()) == 1 for part in parts), start
        texts = sorted(line["sql"] for part in parts for line in part["statements"])
        assert texts == sorted(line["sql"] for line in whole["statements"])
        name = next(iter(next(iter(keys.values()))))
        assert undo(one, start, where={name: "no such value"}).answer(Dialect.TIDB, None)["statements"] == []
    with pytest.raises(InvalidRequest, match="no_such_column"):
        undo(one, several[0], where={"no_such_column": 1})


def test_as_of_the_end_each_row_is_taken_back_or_its_conflict_names_the_transaction_that_came_after() -> None:
    one = point_world("everything", 4)
    seen = set()
    for start in sampled("everything", 150, 1):
        commit_ts = int(transactions("everything")[start][0]["commit_ts"])
        found = undo(one, start, ts=one.world.end_ts).answer(None, None)
        rows = {(event["table_id"], str(event["key"])) for event in transactions("everything")[start]}
        assert sum(found["counts"].values()) == len(rows), start
        for conflict in found["conflicts"]:
            seen.add(conflict["reason"])
            if conflict["reason"] in (Reason.CHANGED.value, Reason.EXISTS.value):
                check_cause(one, conflict, commit_ts)
    assert {Reason.CHANGED.value, Reason.GONE.value} <= seen


def check_cause(one: PointWorld, conflict: Line, commit_ts: int) -> None:
    """The transaction that a conflict names wrote the row after the undone one: in an event, or as DDL that moved the
    rows of the table, which events do not show."""
    by = conflict["by"]
    assert int(by["commit_ts"]) > commit_ts
    changed = [event for event in one.transaction(int(by["start_ts"]))[:-1] if event["table"] == conflict["table"]]
    if changed:
        renamed = any(event["key"].keys() != conflict["key"].keys() for event in changed)  # DDL gave it another key
        assert renamed or conflict["key"] in [event["key"] for event in changed]
    else:
        versions = one.history(conflict["database"], conflict["table"], conflict["key"], commit_ts, one.world.end_ts)
        assert versions, "a later event of the row is the reason of the conflict"
        assert int(versions[0]["commit_ts"]) < int(by["commit_ts"])


def test_all_transactions_of_a_table_taken_back_leave_nothing_of_it() -> None:
    one = point_world("everything", 4)
    by_table = defaultdict(set)
    for event in pulled("everything"):
        by_table[event["database"], event["table"]].add(int(event["start_ts"]))
    name, starts = max(
        by_table.items(), key=lambda item: len(item[1]) if one.exists(item[0][0], item[0][1], one.world.end_ts) else 0
    )
    found = undo(one, *sorted(starts), ts=one.world.end_ts).answer(Dialect.TIDB, None)
    mine = [line for line in found["statements"] if (line["database"], line["table"]) == name]
    assert len(mine) == len(one.lines(*name, one.world.end_ts)) > 0
    assert {line["op"] for line in mine} == {"delete"}


def through_ddl() -> tuple[str, list[tuple[int, int]]]:
    """The id of the table with the most changes among those that were dropped, while DDL changed its columns; and
    (commit_ts, start_ts) of its transactions."""
    one = point_world("everything", 4)
    found = defaultdict(set)
    for event in pulled("everything"):
        if not one.exists(event["database"], event["table"], one.world.end_ts):
            found[event["table_id"]].add((int(event["commit_ts"]), int(event["start_ts"])))
    table_id, when = max(found.items(), key=lambda item: len(item[1]))
    return table_id, sorted(when)


@pytest.mark.parametrize("seed", seeds(2, 4))
def test_the_newest_changes_through_ddl_taken_back_give_the_rows_before_them(seed: int) -> None:
    """Columns are compared by their ids: those that exist before and after. Rows that were inserted, and that DDL has
    rewritten since with a new column, are conflicts, because that column may have been set."""
    one = point_world("everything", 4)
    table_id, when = through_ddl()
    first = random.Random(seed).randrange(len(when) // 3, len(when) - 10)
    before, last = when[first][0] - 1, when[-1][0]
    found = undo(one, *(start for _, start in when[first:]), ts=last)
    version = found.tables[int(table_id)]
    columns = {int(table_id): frozenset(column.id for column in version.table.visible_columns)}
    plan = plan_undo(found.changed.in_order(), found.standing, columns)
    inserted = {change.row for change in found.changed.changes if change.before is None}
    for conflict in plan.conflicts:
        assert conflict.reason is Reason.CHANGED
        assert conflict.row in inserted
        assert conflict.now is not None
        assert conflict.left is not None
        assert not conflict.now.keys() <= conflict.left.keys()
    stay = {conflict.row for conflict in plan.conflicts}
    now = {row: state.cells for (_, row), state in found.standing.items()}
    now.update({reversal.row: reversal.then for reversal in plan.reversals})
    then = one.world.source.table_of([int(table_id)], int(table_id), before)
    assert then is not None
    kept = columns[int(table_id)] & {column.id for column in then.table.visible_columns}
    rows = {
        row_cells.identity(then.table, line["key"]): row_cells.cells_of(then.table.visible_columns, line["row"])
        for line in one.lines(*then.name, before)
    }
    assert len(now) - len(stay) > 5
    for row, cells in now.items():
        if row in stay:
            continue
        wanted = rows.get(row)
        assert (cells is None) == (wanted is None), row
        if cells is not None and wanted is not None:
            assert {one: cells[one] for one in kept} == {one: wanted[one] for one in kept}, row
    dropped = {column for reversal in plan.reversals for column in reversal.dropped}
    assert not dropped & columns[int(table_id)]


def test_an_undo_that_is_too_large_is_refused_with_the_way_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(changed_rows, "ROWS_MAX", 3)
    start = max(transactions("everything"), key=lambda start: len(transactions("everything")[start]))
    assert len(transactions("everything")[start]) > 3
    with pytest.raises(InvalidRequest, match=r"more than 3 changed rows.*restore the tables instead"):
        undo(point_world("everything", 4), start)
