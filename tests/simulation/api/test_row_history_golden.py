"""History of rows, and transactions, of the golden sets: the events of a pull."""

from __future__ import annotations

import functools
import json
import random
import threading
from collections import defaultdict
from dataclasses import replace
from typing import Any

import polars as pl
import pytest

from support.effort import FULL, cases
from support.points_world import over, point_world
from support.pull_world import committed, write_pool
from tistream.errors import Gone, InvalidRequest, UnknownName
from tistream.read.cursor import Position
from tistream.read.group_cache import GroupCache
from tistream.read.source import TenantSource
from tistream.storage.backends.memory import MemoryObjectStore

Line = dict[str, Any]


@functools.cache
def pulled(name: str) -> list[Line]:
    """Every row event of one pull."""
    world = point_world(name).world
    lines = map(json.loads, world.pull(start=Position(world.snapshot_ts)).splitlines())
    return [event for event in lines if event["type"] == "row"]


@functools.cache
def by_row(name: str) -> dict[tuple[str, str, str], list[Line]]:
    """Events by database, table and key."""
    found = defaultdict(list)
    for event in pulled(name):
        found[event["database"], event["table"], json.dumps(event["key"])].append(event)
    return found


def versions(events: list[Line]) -> list[Line]:
    return [{name: event[name] for name in ("commit_ts", "start_ts", "op", "row", "old_row")} for event in events][::-1]


@pytest.mark.parametrize(("tasks", "seed", "indexed"), cases([(16, 2, False), (4, 3, True)], [(1, 1, False)]))
def test_a_history_is_the_events_of_the_row_newest_first(tasks: int, seed: int, indexed: bool) -> None:
    one = point_world("everything", tasks, indexed=indexed)
    low, high = max(one.world.snapshot_ts, one.base_ts), one.world.end_ts
    rng = random.Random(seed)
    rows = sorted(by_row("everything").items())
    long = [row for row in rows if len(row[1]) > 3]
    for (database, table, key), every in rows if FULL else rng.sample(rows, 60) + rng.sample(long, min(len(long), 40)):
        events = [event for event in every if int(event["commit_ts"]) > low]
        if not events:
            continue
        got = one.history(database, table, json.loads(key), low, high)
        sources = [version.pop("txn_source") for version in got]
        assert got == versions(events), (database, table, key)
        assert all(source is None or isinstance(source, str) for source in sources)
        cut = int(rng.choice(events)["commit_ts"])
        part = one.history(database, table, json.loads(key), cut - 1, cut)
        want = versions([event for event in events if int(event["commit_ts"]) == cut])
        assert [{**version, "txn_source": 0} for version in part] == [{**version, "txn_source": 0} for version in want]


def test_a_history_goes_on_where_its_limit_ended_it() -> None:
    one = point_world("everything", 4)
    low, high = one.world.snapshot_ts, one.world.end_ts
    (database, table, key), _ = max(by_row("everything").items(), key=lambda item: len(item[1]))
    whole = one.history(database, table, json.loads(key), low, high)
    assert len(whole) > 3
    for limit in (1, 2, 3):
        assert one.history(database, table, json.loads(key), low, high, limit=limit) == whole


def test_a_key_that_is_none_of_the_table_is_refused_and_one_without_a_row_is_empty() -> None:
    one = point_world("everything", 1)
    low, high = one.world.snapshot_ts, one.world.end_ts
    (database, table, key), _ = next(iter(sorted(by_row("everything").items())))
    with pytest.raises(InvalidRequest) as caught:
        one.history(database, table, {"nothing": "1"}, low, high)
    assert caught.value.extra["parameter"] == "key"
    with pytest.raises(UnknownName):
        one.history(database, "no_such_table", json.loads(key), low, high)


@pytest.mark.parametrize(("name", "tasks"), [("everything", 4), ("large", 4)])
def test_a_transaction_is_its_events_of_a_pull(name: str, tasks: int) -> None:
    one = point_world(name, tasks)
    by_start = defaultdict(list)
    for event in pulled(name):
        by_start[event["start_ts"]].append(event)
    starts = sorted(by_start)
    for start in starts if FULL else random.Random(5).sample(starts, min(len(starts), 40)):
        *events, end = one.transaction(int(start))
        assert events == by_start[start]
        assert end == {
            "type": "end", "start_ts": start, "commit_ts": events[0]["commit_ts"], "rows": len(events),
            "txn_source": None,
        }  # fmt: skip


def test_a_transaction_ends_with_its_txn_source() -> None:
    """The recordings have none, so the pool is written again with one for each transaction."""
    before = point_world("everything", 1)
    rows = committed("everything")[0].with_columns(txn_source=pl.col("start_ts") % 1_000)
    objects = MemoryObjectStore()
    indexes = write_pool(objects, before.world.tenant, rows, 2, [0, before.world.end_ts])
    cache = GroupCache(objects, 64 << 20)
    source = TenantSource(threading.RLock(), lambda: before.world.history, lambda: indexes, cache, lambda: None)
    world = replace(before.world, objects=objects, indexes=indexes, source=source)
    one = over(world, [])
    for start in random.Random(6).sample(sorted({event["start_ts"] for event in pulled("everything")}), 5):
        assert one.transaction(int(start))[-1]["txn_source"] == str(int(start) % 1_000)


def test_a_transaction_that_is_not_there() -> None:
    one = point_world("everything", 1)
    with pytest.raises(UnknownName, match="no transaction"):
        one.transaction(int(pulled("everything")[0]["start_ts"]) + 1)
    with pytest.raises(Gone):
        one.transaction(5)
