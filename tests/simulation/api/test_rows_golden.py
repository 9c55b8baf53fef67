"""A table's rows at the commits of the golden sets: what SELECT showed, however the pool is cut."""

from __future__ import annotations

import json
import random

import pyarrow as pa
import pytest

from support import golden
from support.effort import cases
from support.points_world import commits, point_world


def sampled(name: str, seed: int) -> list[tuple[int, list[tuple[str, str, dict[str, str]]]]]:
    """A sample of the commits; all of them with full effort."""
    every = list(commits(name))
    some = random.Random(seed).sample(every, min(len(every), 60))
    return cases(some, [one for one in every if one not in some])


# (set, tasks, indexed)
FEW = [("everything", 4, False), ("everything", 16, True), ("large", 4, True)]
REST = [("everything", 1, False), ("everything", 16, False), ("large", 4, False), ("everything", 1, True)]


@pytest.mark.parametrize(("name", "tasks", "indexed"), cases(FEW, REST))
def test_rows_before_a_commit_and_its_changes_are_the_rows_after_it(name: str, tasks: int, indexed: bool) -> None:
    one = point_world(name, tasks, indexed=indexed)
    for ts, tables in sampled(name, tasks):
        if ts > one.base_ts:
            one.check_commit(name, ts, tables)


@pytest.mark.parametrize(("tasks", "indexed"), [(1, False), (16, True)])
def test_every_cursor_resumes(tasks: int, indexed: bool) -> None:
    one = point_world("everything", tasks, indexed=indexed)
    rng = random.Random(tasks)
    for ts, tables in [found for found in sampled("everything", 7) if found[0] > one.base_ts][:12]:
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
def test_an_index_and_the_segments_alone_hold_the_same_rows(name: str) -> None:
    plain, indexed = point_world(name, 4), point_world(name, 4, indexed=True)
    for ts, tables in list(commits(name))[-5:]:
        for database, table, _ in tables:
            assert plain.page(database, table, ts) == indexed.page(database, table, ts)
            bodies = [one.page(database, table, ts, form="arrow") for one in (plain, indexed)]
            left, right = (pa.ipc.open_stream(body).read_all() for body in bodies)  # in other batches
            assert left.equals(right)


@pytest.mark.parametrize(("tasks", "indexed"), [(16, False), (4, True)])
def test_parts_are_the_table_cut_into_pieces(tasks: int, indexed: bool) -> None:
    one = point_world("everything", tasks, indexed=indexed)
    several = 0
    for ts, tables in [found for found in sampled("everything", 9) if found[0] > one.base_ts][:10]:
        for database, table, _ in tables:
            if not one.exists(database, table, ts):
                continue
            parts = one.parts(database, table, ts, 3)
            assert 1 <= len(parts) <= 3
            several += len(parts) > 1
            found = [
                line for cursor, until in parts for line in one.lines(database, table, ts, cursor=cursor, until=until)
            ]
            assert found == one.lines(database, table, ts)
    assert several
