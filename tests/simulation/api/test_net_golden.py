"""Net changes between random timestamps of the golden sets, against the rows at both."""

from __future__ import annotations

import functools
import json
import random
from collections import Counter, defaultdict
from typing import Any

import pytest

from support.effort import FULL, cases
from support.points_world import PointWorld, commits, point_world
from tistream_api.points.net import net_events

Line = dict[str, Any]
Tables = list[tuple[str, str]]


def shown(row: Line) -> str:
    return json.dumps(row, sort_keys=True)


def rows_at(one: PointWorld, database: str, table: str, ts: int) -> Counter[str] | None:
    if not one.exists(database, table, ts):
        return None
    return Counter(shown(line["row"]) for line in one.lines(database, table, ts))


def columns_at(one: PointWorld, database: str, table: str, ts: int) -> list[tuple[int, str, int]]:
    version = one.world.source.table(ts, database, table)
    return [] if version is None else [(c.id, c.name, c.tp) for c in version.table.visible_columns]


@functools.cache
def names(name: str) -> Tables:
    return sorted({(database, table) for _, tables in commits(name) for database, table, _ in tables})


def pairs(name: str, count: int, seed: int) -> list[tuple[int, int]]:
    rng = random.Random(seed)
    stamps = [ts for ts, _ in commits(name)]
    return [(min(pair), max(pair)) for pair in (rng.sample(stamps, 2) for _ in range(count))]


def check(one: PointWorld, database: str, table: str, low: int, high: int, events: list[Line]) -> None:
    """The events are the multiset difference of the rows at both timestamps, where the columns are the same."""
    before, after = (rows_at(one, database, table, ts) for ts in (low, high))
    keys = Counter(shown(event["key"]) for event in events)
    where = (database, table, low, high)
    if columns_at(one, database, table, low) != columns_at(one, database, table, high) and before and after is not None:
        puts = Counter(shown(event["row"]) for event in events if event["op"] == "put")
        assert not puts - after, where
        return
    removed = Counter(shown(event["old_row"]) for event in events if event["old_row"] is not None)
    added = Counter(shown(event["row"]) for event in events if event["row"] is not None)
    before, after = before or Counter(), after or Counter()
    assert removed - added == before - after, where
    assert added - removed == after - before, where
    assert all(event["row"] != event["old_row"] for event in events), where
    assert not keys or max(keys.values()) == 1, (where, keys.most_common(2))


@pytest.mark.parametrize(("tasks", "seed", "indexed"), cases([(16, 2, False), (4, 3, True)], [(1, 1, False)]))
def test_a_diff_is_the_difference_of_the_rows(tasks: int, seed: int, indexed: bool) -> None:
    one = point_world("everything", tasks, indexed=indexed)
    checked = 0
    for low, high in pairs("everything", 200 if FULL else 6, seed):
        if low < one.base_ts:
            continue
        for database, table in names("everything"):
            if one.exists(database, table, low) or one.exists(database, table, high):
                check(one, database, table, low, high, one.diff(database, table, low, high))
                checked += 1
    assert checked > 100


def test_a_diff_of_large_transactions() -> None:
    one = point_world("large", 4)
    for low, high in pairs("large", 6, 3):
        for database, table in names("large"):
            if one.exists(database, table, low) or one.exists(database, table, high):
                check(one, database, table, low, high, one.diff(database, table, low, high))


@pytest.mark.parametrize("paired", [50_000, 3])
def test_pages_make_no_difference(monkeypatch: pytest.MonkeyPatch, paired: int) -> None:
    monkeypatch.setattr(net_events, "PAIRED_ROWS", paired)
    one = point_world("everything", 4)
    for low, high in pairs("everything", 3, 4):
        for database, table in random.Random(low).sample(names("everything"), 12):
            if one.exists(database, table, low) or one.exists(database, table, high):
                whole = one.diff(database, table, low, high)
                assert one.diff(database, table, low, high, limit=3) == whole, (database, table, low, high)
    low, high = pairs("everything", 1, 5)[0]
    whole = one.squash(low=low, high=high)
    assert whole == one.squash(low=low, high=high, limit=7)
    assert {event["type"] for event in whole} == {"row", "ddl"}


def test_rows_that_are_too_many_to_be_paired_are_deleted_before_they_are_put(monkeypatch: pytest.MonkeyPatch) -> None:
    one = point_world("everything", 1)
    monkeypatch.setattr(net_events, "PAIRED_ROWS", 0)
    for low, high in pairs("everything", 6, 6):
        for database, table in names("everything"):
            if not (one.exists(database, table, low) and one.exists(database, table, high)):
                continue
            if columns_at(one, database, table, low) != columns_at(one, database, table, high):
                continue
            state = {shown(line["key"]): shown(line["row"]) for line in one.lines(database, table, low)}
            for event in one.diff(database, table, low, high):
                if event["op"] == "delete":
                    assert state.pop(shown(event["key"])) == shown(event["old_row"])
                else:
                    state[shown(event["key"])] = shown(event["row"])
            want = {shown(line["key"]): shown(line["row"]) for line in one.lines(database, table, high)}
            assert state == want, (database, table, low, high)


def test_a_squashed_pull_is_the_diff_of_each_table() -> None:
    one = point_world("everything", 4)
    for low, high in pairs("everything", 8, 7):
        by_name: dict[tuple[str, str], list[Line]] = defaultdict(list)
        for event in one.squash(low=low, high=high, ddl=False):
            by_name[event["database"], event["table"]].append(event)
        for database, table in names("everything"):
            source = one.world.source
            before, after = (source.table(ts, database, table) for ts in (low, high))
            same = before is None or after is None or before.table.id == after.table.id
            if same and after is not None and before is not None:
                assert by_name.get((database, table), []) == one.diff(database, table, low, high)
        alone = one.squash("shop", low=low, high=high)
        assert [event for event in alone if event["type"] == "row"] == [
            event for event in one.squash(low=low, high=high, ddl=False) if event["database"].lower() == "shop"
        ]
