"""A table's rows at the commits of the golden sets: what SELECT showed, however the pool is cut."""

from __future__ import annotations

import json
import random

import pytest

from support import compare, golden
from support.effort import cases
from support.points_world import commits, point_world, rows_as


def sampled(name: str, seed: int) -> list[tuple[int, list[tuple[str, str, dict[str, str]]]]]:
    """A sample of the commits; all of them with full effort."""
    every = list(commits(name))
    some = random.Random(seed).sample(every, min(len(every), 60))
    return cases(some, [one for one in every if one not in some])


@pytest.mark.parametrize(("name", "tasks"), [("everything", 1), ("everything", 4), ("everything", 16), ("large", 4)])
def test_rows_before_a_commit_and_its_changes_are_the_rows_after_it(name: str, tasks: int) -> None:
    one = point_world(name, tasks)
    changes = compare.expected_changes(golden.load(name))
    for ts, tables in sampled(name, tasks):
        for database, table, types in tables:
            change = changes[str(ts), database, table]
            before = one.state(database, table, ts - 1, types)
            after = one.state(database, table, ts, types)
            assert not change.removed - before, (ts, database, table)
            assert before - change.removed + change.added == after, (ts, database, table)


@pytest.mark.parametrize("tasks", [1, 16])
def test_every_cursor_resumes(tasks: int) -> None:
    one = point_world("everything", tasks)
    rng = random.Random(tasks)
    for ts, tables in sampled("everything", 7)[:12]:
        for database, table, _ in tables:
            whole = one.lines(database, table, ts)
            found: list[object] = []
            cursor = None
            while True:
                page = one.page(database, table, ts, cursor=cursor, limit=rng.choice([1, 2, 7, 100]))
                *rows, end = map(json.loads, page.splitlines())
                found += rows
                cursor = end["cursor"]
                if cursor is None:
                    break
            assert found == whole
            assert len({json.dumps(line["key"]) for line in whole}) == len(whole)


@pytest.mark.parametrize("name", golden.NAMES)
def test_the_last_state_is_every_change_of_a_pull_applied(name: str) -> None:
    one = point_world(name, 4)
    for ts, tables in list(commits(name))[-5:]:
        for database, table, types in tables:
            rows = one.lines(database, table, ts)
            assert all(int(line["commit_ts"]) <= ts for line in rows)
            assert rows_as(rows, types) == one.state(database, table, ts, types)
