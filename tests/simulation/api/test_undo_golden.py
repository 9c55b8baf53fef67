"""Undo of the golden sets' transactions: the plan as of the commit, and as of the end."""

from __future__ import annotations

import random
from collections import defaultdict
from functools import cache
from typing import Any

import pytest

from simulation.api.test_row_history_golden import pulled
from support.effort import FULL
from support.points_world import PointWorld, point_world
from support.undo_world import undo
from tistream.restore.undo_plan import Reason
from tistream.schema.tidb.create_table import Dialect

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
    """The transaction that a conflict names changed the row, and did so after the undone one."""
    by = conflict["by"]
    assert int(by["commit_ts"]) > commit_ts
    changed = one.transaction(int(by["start_ts"]))[:-1]
    assert conflict["key"] in [event["key"] for event in changed if event["table"] == conflict["table"]]


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
