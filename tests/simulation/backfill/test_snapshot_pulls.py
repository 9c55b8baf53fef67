"""Pulls with a snapshot over a backfilled pool: rows as of S, then every change above S, exactly once."""

from __future__ import annotations

import functools
import json
from collections import Counter

import pytest

from support.cut_set import commit_timestamps
from support.effort import cases
from support.points_world import point_world
from support.snapshot_world import NAME, Line, SnapshotWorld
from tistream_api.points.named_table import NotComplete


@functools.cache
def world(seed: int, tasks: int) -> SnapshotWorld:
    return SnapshotWorld(seed, tasks)


def shown(lines: list[Line]) -> Counter[str]:
    """The rows of lines, without what a backfill may not know."""
    return Counter(json.dumps([line["key"], line["row"], line["schema_version"]]) for line in lines)


@pytest.mark.parametrize(("seed", "tasks"), cases([(2, 4)], [(1, 1), *((seed, 1 + seed % 4) for seed in range(3, 20))]))
def test_a_snapshot_at_any_s_is_what_the_whole_log_shows(seed: int, tasks: int) -> None:
    one, plain = world(seed, tasks), point_world(NAME)
    highest = max(one.base_ts.values())
    stamps = [ts for ts in commit_timestamps(NAME) if ts >= highest]
    compared = 0
    for ts in [*one.rng.sample(stamps, 3), one.end]:
        (lines,) = one.answers(ts=ts, limit=1_000_000)
        assert [lines[0]["type"], *(line["type"] for line in lines[-2:])] == [
            "snapshot_begin",
            "snapshot_end",
            "resolved",
        ]
        rows = lines[1:-2]
        assert all((line["type"], line["op"], line["old_row"]) == ("row", "read", None) for line in rows)
        by_table: dict[tuple[str, str], list[Line]] = {}
        for line in rows:
            by_table.setdefault((line["database"], line["table"]), []).append(line)
        for version in one.made.tables(ts):
            name = version.database, version.head.name
            assert shown(by_table.pop(name, [])) == shown(plain.lines(*name, ts)), (ts, name)
            compared += 1
        assert not by_table
    assert compared > 50


@pytest.mark.parametrize(("seed", "tasks"), cases([(2, 4)], [(seed, 1 + seed % 4) for seed in range(3, 12)]))
def test_every_cursor_of_a_snapshot_resumes(seed: int, tasks: int) -> None:
    one = world(seed, tasks)
    ts = one.end
    (whole,) = one.answers(ts=ts, limit=1_000_000)
    for limit in (1_000, 777):
        found = [line for answer in one.answers(ts=ts, limit=limit) for line in answer if line["type"] != "continue"]
        assert found == whole
    version = next(table for table in one.made.tables(ts) if one.base_ts.keys() & set(table.head.physical_ids))
    names = version.database, version.head.name
    (table,) = one.answers(*names, ts=ts, limit=1_000_000)
    found = [line for answer in one.answers(*names, ts=ts, limit=1) for line in answer if line["type"] != "continue"]
    assert found == table


def test_a_snapshot_below_the_base_is_refused_with_it() -> None:
    one = world(1, 1)
    table_id, base_ts = max(one.base_ts.items(), key=lambda item: item[1])
    ts = base_ts - 1
    named = [table for table in one.made.tables(ts) if table_id in table.head.physical_ids]
    if not named:
        pytest.skip("the table has other physical ids by then")
    with pytest.raises(NotComplete, match=f"are known from {base_ts} on, not at {ts}") as error:
        one.answers(named[0].database, named[0].head.name, ts=ts, limit=10)
    assert error.value.extra["base_ts"] == str(base_ts)


def test_a_table_without_a_backfill_is_refused_alone() -> None:
    one = SnapshotWorld(3, 1, without=1)
    ts = one.end
    lacking = [table for table in one.made.tables(ts) if set(table.head.physical_ids) & set(one.missing)]
    assert lacking, "the table is still there"
    with pytest.raises(NotComplete, match="have not been backfilled"):
        one.answers(lacking[0].database, lacking[0].head.name, ts=ts, limit=10)
    other = next(table for table in one.made.tables(ts) if not set(table.head.physical_ids) & set(one.missing))
    assert one.answers(other.database, other.head.name, ts=ts, limit=10)[-1][-1]["type"] == "resolved"
