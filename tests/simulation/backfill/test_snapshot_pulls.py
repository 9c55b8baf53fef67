"""Pulls with a snapshot over a backfilled pool: rows as of S, then every change above S, exactly once."""

from __future__ import annotations

import functools
import json
import random
import threading
from collections import Counter
from itertools import pairwise
from typing import Any

import polars as pl
import pytest

from support.cut_set import CutSet, commit_timestamps, cut
from support.effort import cases
from support.points_world import point_world
from support.pull_world import history_of, task_cuts, write_pool
from tistream.decode.keys import table_ids
from tistream.format.backfill.base_chunk import ChunkId, write_chunk
from tistream.format.run import RunRef
from tistream.model.base_cover import Base, Cover, laid_over
from tistream.model.span import KeySpan
from tistream.model.ts import Window
from tistream.pool.footers import FooterCache
from tistream.pool.versions.plan import Shard
from tistream.schema.tidb.meta_change import record_span
from tistream.storage import layout
from tistream.storage.backends.memory import MemoryObjectStore
from tistream_api.points import point_cursor
from tistream_api.points.named_table import NotComplete
from tistream_api.points.point_cursor import Kind, PointPosition
from tistream_api.points.pool_reads import CachedReader, PoolReads
from tistream_api.points.snapshot_pull import SnapshotPage, check_snapshot
from tistream_api.read import cursor as cursors
from tistream_api.read.cursor import Position, Scope
from tistream_api.read.group_cache import GroupCache
from tistream_api.read.source import TenantSource
from tistream_sorter.jobs.index.base_runs import base_guarded
from tistream_sorter.jobs.index.base_unit import BaseUnit

NAME = "everything"
Line = dict[str, Any]


class SnapshotWorld:
    """A tenant that begins at T0, with everything above in segments, and bases of its tables as of random ts."""

    def __init__(self, seed: int, tasks: int, *, without: int = 0) -> None:
        self.rng = rng = random.Random(seed)
        stamps = commit_timestamps(NAME)
        self.made: CutSet = cut(NAME, stamps[rng.randrange(500, 1_000)])
        self.tenant, self.end, t0 = self.made.set_.tenant, self.made.set_.end_ts, self.made.t0
        above = self.made.rows.filter(pl.col("commit_ts") > t0)
        objects = MemoryObjectStore()
        cuts = sorted(rng.sample(above["commit_ts"].unique().to_list(), 9))
        indexes = write_pool(objects, self.tenant, above, tasks, [t0, *cuts, 1 << 62])
        self.spans = [KeySpan(*edges) for edges in pairwise([b"", *task_cuts(above, tasks), b""])]
        segments = [tuple(index.overlapping(Window(0, 1 << 62))) for index in indexes]
        later = [one for one in stamps if t0 <= one <= stamps[len(stamps) // 2]]
        self.base_ts: dict[int, int] = {}
        self.covers: list[Cover] = [()] * tasks
        self.runs: list[tuple[RunRef, ...]] = [()] * tasks
        self.objects = objects
        ids = self.made.physical_ids(t0)
        for number, table_id in enumerate(ids[without:]):
            says = self.base_ts[table_id] = rng.choice(later)
            identity = ChunkId(self.tenant, "b1", number)
            rows = self.made.chunk_rows(record_span(table_id), says, with_commit_ts=rng.random() < 0.5)
            body = write_chunk([rows], identity, record_span(table_id), says)
            objects.put(layout.base_chunk(self.tenant, "b1", number), body)
            for at, span in enumerate(self.spans):
                part = record_span(table_id).clip(span)
                if part is not None:
                    self._take(at, identity, table_id, part, says, segments[at])
        self.missing = ids[:without]
        self.history = history_of(
            self.made.set_, above.with_columns(pl.Series("table_id", table_ids(above["key"].to_arrow())))
        )
        self.source = TenantSource(
            threading.RLock(), lambda: self.history, lambda: indexes, GroupCache(objects, 64 << 20), lambda: None
        )
        shards = [
            Shard(span, live, begins_ts=0, basis=runs, cover=cover)
            for span, live, runs, cover in zip(self.spans, segments, self.runs, self.covers, strict=True)
        ]
        cache = GroupCache(objects, 64 << 20)
        self.reads = PoolReads(CachedReader(objects, cache, FooterCache()), lambda: shards, lambda: None)

    def _take(self, at: int, chunk: ChunkId, table_id: int, part: KeySpan, says: int, segments: Any) -> None:
        unit = BaseUnit(
            tenant=self.tenant, task_id=at + 1, chunk=chunk, planned=record_span(table_id), span=part,
            table_id=table_id, base_ts=says, exact=True, old_values=True, flushed_ts=self.end, segments=segments,
            runs=(), indexed_ts=0, basis=(), epoch=1, nonce=f"{chunk.number:016x}",
        )  # fmt: skip
        made = base_guarded(self.objects, unit)
        assert made.failed is None
        self.covers[at] = laid_over(self.covers[at], [Base(part, says)])
        self.runs[at] += made.runs

    def answers(self, *names: str, ts: int, limit: int) -> list[list[Line]]:
        """The answers of a pull with snapshot=ts, until its `resolved`."""
        scope = Scope(self.tenant, *names)
        at = PointPosition(0, ts)
        found: list[list[Line]] = []
        while True:
            tables = self.source.tables_at(ts, scope)
            check_snapshot(self.source, self.reads, tables, ts)
            page = SnapshotPage(
                scope, tables, at, limit, self.source, self.reads, lambda *_: None, lambda _: None, lambda: False
            )
            found.append([json.loads(line) for line in b"".join(page.pieces()).splitlines()])
            end = found[-1][-1]
            if end["type"] == "resolved":
                assert cursors.decode(scope, end["cursor"]) == Position(ts)
                return found
            assert end["type"] == "continue"
            at = point_cursor.decode(Kind.SNAPSHOT, scope, end["cursor"])


@functools.cache
def world(seed: int, tasks: int) -> SnapshotWorld:
    return SnapshotWorld(seed, tasks)


def shown(lines: list[Line]) -> Counter[str]:
    """The rows of lines, without what a backfill may not know."""
    return Counter(json.dumps([line["key"], line["row"], line["schema_version"]]) for line in lines)


@pytest.mark.parametrize(("seed", "tasks"), cases([(1, 1), (2, 4)], [(seed, 1 + seed % 4) for seed in range(3, 20)]))
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
