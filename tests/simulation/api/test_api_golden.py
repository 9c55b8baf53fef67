"""The golden sets, pulled from a pool in memory: complete, in order, and the same however they are cut."""

from __future__ import annotations

import functools
import json
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support import compare, golden
from support.effort import cases, examples
from support.pull_world import World, golden_world
from tistream.read.cursor import Position, Scope, decode
from tistream.read.scan import Budget

world = functools.cache(golden_world)


@functools.cache
def whole(name: str) -> list[bytes]:
    """Every event of one uninterrupted pull."""
    one = world(name, tasks=4)
    return one.pull(start=Position(one.snapshot_ts)).splitlines()[:-1]


def paged(one: World, *names: str, start: Position, limit: int, pages: int = 1 << 30) -> tuple[list[bytes], Position]:
    """Events of page after page, and where the last page ended."""
    out: list[bytes] = []
    for _ in range(pages):
        *events, end = one.pull(*names, start=start, limit=limit).splitlines()
        last = json.loads(end)
        assert len(events) <= limit
        assert (last["type"] == "continue") or all(
            int(json.loads(event)["commit_ts"]) <= int(last["resolved_ts"]) for event in events
        )
        out += events
        start = decode(Scope(one.tenant, *names), last["cursor"])
        if last["type"] == "resolved" and int(last["resolved_ts"]) == one.end_ts:
            break
    return out, start


@pytest.mark.parametrize("name", golden.NAMES)
def test_a_pull_is_what_select_showed(name: str) -> None:
    events = [json.loads(line) for line in whole(name)]
    loaded = golden.load(name)
    assert compare.form_differences(events) == []
    assert compare.order_differences(events) == []
    assert compare.row_differences(loaded, events) == []
    assert compare.announcement_differences(events) == []


@pytest.mark.parametrize(
    ("name", "tasks", "ticks"),
    cases(
        [("everything", 16, 40), ("large", 64, 3)],
        [("everything", 1, 1), ("everything", 64, 3), ("large", 1, 1), ("large", 16, 40)],
    ),
)
def test_neither_tasks_nor_ticks_make_a_difference(name: str, tasks: int, ticks: int) -> None:
    one = world(name, tasks=tasks, ticks=ticks)
    assert one.pull(start=Position(one.snapshot_ts)).splitlines()[:-1] == whole(name)


CHUNKS, TINY = Budget(1000, 100, 1 << 20, 1000), Budget(50, 7, 1 << 20, 60)


@pytest.mark.parametrize(
    ("name", "budget"), cases([("large", CHUNKS), ("everything", TINY)], [("everything", CHUNKS), ("large", TINY)])
)
def test_chunks_make_no_difference(name: str, budget: Budget) -> None:
    one = world(name, tasks=4, ticks=20, budget=budget)
    assert one.pull(start=Position(one.snapshot_ts)).splitlines()[:-1] == whole(name)


@pytest.mark.parametrize(
    ("name", "limit"), cases([("everything", 97), ("large", 1000)], [("everything", 1000), ("large", 97)])
)
def test_pages_make_no_difference(name: str, limit: int) -> None:
    one = world(name, tasks=4, ticks=20, budget=Budget(500, 50, 1 << 20, 1000))
    assert paged(one, start=Position(one.snapshot_ts), limit=limit)[0] == whole(name)


@pytest.mark.parametrize(("name", "limit"), cases([("everything", 7), ("large", 1)], [("everything", 1), ("large", 7)]))
def test_small_pages_from_anywhere(name: str, limit: int) -> None:
    one, events = world(name, tasks=4), whole(name)
    rng = random.Random(limit)
    for _ in range(6):
        ts = int(json.loads(rng.choice(events))["commit_ts"]) - 1
        want = [event for event in events if int(json.loads(event)["commit_ts"]) > ts]
        got, _ = paged(one, start=Position(ts), limit=limit, pages=25)
        assert got == want[: len(got)]
        assert len(got) >= 25 * limit * 0.2 or got == want


@settings(max_examples=examples(25, few=3), deadline=None)
@given(st.data())
def test_any_cursor_resumes_exactly(data: st.DataObject) -> None:
    name = data.draw(st.sampled_from(golden.NAMES))
    rows = data.draw(st.sampled_from([30, 300, 65_536]))
    one = world(name, tasks=4, ticks=20, budget=Budget(rows, min(rows, 100), 1 << 20, 2 * rows))
    first, at = paged(one, start=Position(one.snapshot_ts), limit=data.draw(st.integers(1, 9000)), pages=1)
    for _ in range(3):
        events, at = paged(one, start=at, limit=data.draw(st.sampled_from([1, 2, 50, 3000, 7999])), pages=1)
        first += events
    rest = one.pull(start=at).splitlines()[:-1]
    assert first + rest == whole(name)


@pytest.mark.parametrize("name", golden.NAMES)
def test_tables_and_databases_are_the_tenant_filtered_by_name_over_time(name: str) -> None:
    one = world(name, tasks=4)
    parsed = [json.loads(line) for line in whole(name)]
    databases, tables = compare.names(parsed)
    for names in [*((database,) for database in databases), *tables]:
        got = one.pull(*names, start=Position(one.snapshot_ts)).splitlines()[:-1]
        want = [line for line, event in zip(whole(name), parsed, strict=True) if compare.concerns(event, *names)]
        assert got == want, names


def test_end_ts_is_inclusive_and_ends_the_answer() -> None:
    one, events = world("everything", tasks=4), whole("everything")
    ts = int(json.loads(events[len(events) // 2])["commit_ts"])
    *got, end = one.pull(start=Position(one.snapshot_ts), end_ts=ts).splitlines()
    assert got == [event for event in events if int(json.loads(event)["commit_ts"]) <= ts]
    assert json.loads(end)["resolved_ts"] == str(ts)
    *got, end = one.pull(start=Position(ts - 1), end_ts=ts - 1).splitlines()
    assert got == []
    assert json.loads(end)["resolved_ts"] == str(ts - 1)


def test_a_start_ts_and_an_end_ts_between_commits_cut_exactly() -> None:
    one, events = world("everything", tasks=4), whole("everything")
    of = [int(json.loads(event)["commit_ts"]) for event in events]
    rng = random.Random(3)
    for _ in range(12):
        low, high = sorted(rng.sample(sorted(set(of)), 2))
        *got, end = one.pull(start=Position(low), end_ts=high).splitlines()
        assert got == [event for event, ts in zip(events, of, strict=True) if low < ts <= high]
        assert json.loads(end)["resolved_ts"] == str(high)


def test_a_start_ahead_sends_nothing_below_it() -> None:
    one = world("everything", tasks=4)
    ahead = one.end_ts + 5
    (end,) = one.pull(start=Position(ahead)).splitlines()
    assert json.loads(end)["resolved_ts"] == str(ahead)
    assert decode(Scope(one.tenant), json.loads(end)["cursor"]) == Position(ahead)
