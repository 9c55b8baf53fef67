"""Reads at a point in time over a golden set in memory, and what SELECT showed then."""

from __future__ import annotations

import functools
import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from support import golden
from support.compare import Row
from support.golden import GoldenSet
from support.pull_world import World, committed, golden_world, task_cuts
from support.sql_values import from_json
from tistream.model.span import KeySpan
from tistream.pool.footers import FooterCache
from tistream.pool.versions.plan import Shard
from tistream_api.points import point_cursor
from tistream_api.points.list_rows import RowsPage
from tistream_api.points.named_table import ranges_asked, shape_of, table_at
from tistream_api.points.point_cursor import Kind
from tistream_api.points.pool_reads import CachedReader, PoolReads
from tistream_api.points.row_formats import ENCODERS
from tistream_api.read.cursor import Scope
from tistream_api.read.group_cache import GroupCache

Line = dict[str, Any]


@dataclass
class PointWorld:
    """A golden set that can be read at any ts."""

    loaded: GoldenSet
    world: World
    reads: PoolReads

    def page(
        self,
        database: str,
        table: str,
        ts: int = 0,
        *,
        cursor: str | None = None,
        limit: int = 1_000_000,
        form: str = "ndjson",
        columns: tuple[str, ...] | None = None,
        key: Line | None = None,
        from_key: Line | None = None,
        to_key: Line | None = None,
    ) -> bytes:
        """One answer of ListRows."""
        scope = Scope(self.loaded.tenant, database, table)
        after = b""
        if cursor is not None:
            at = point_cursor.decode(Kind.ROWS, scope, cursor)
            ts, after = at.high_ts, at.key
        version = table_at(self.world.source, scope, ts)
        shape = shape_of(self.world.source, version, ts, columns)
        ranges, only = ranges_asked(version, key, from_key, to_key)
        page = RowsPage(
            scope, shape, ranges, only, after, limit, self.reads, ENCODERS[form](shape),
            lambda *_: None, lambda _: None, lambda: False,
        )  # fmt: skip
        return b"".join(page.pieces())

    def lines(self, database: str, table: str, ts: int, **how: Any) -> list[Line]:
        """The row lines of one answer; its end is checked."""
        *rows, end = map(json.loads, self.page(database, table, ts, **how).splitlines())
        assert end["type"] == "end"
        assert end["ts"] == str(ts)
        return rows

    def state(self, database: str, table: str, ts: int, types: dict[str, str]) -> Counter[Row]:
        """The rows at `ts` in the form of compare.Change. `types` are the SQL types of the columns, by name; empty: the
        table may be missing."""
        return rows_as(self.lines(database, table, ts), types)

    def exists(self, database: str, table: str, ts: int) -> bool:
        return self.world.source.table(ts, database, table) is not None


def rows_as(lines: list[Line], types: dict[str, str]) -> Counter[Row]:
    """Row lines as a multiset of canonical rows."""
    return Counter(tuple(from_json(types[name], value) for name, value in line["row"].items()) for line in lines)


@functools.cache
def point_world(name: str, tasks: int = 1, ticks: int = 20) -> PointWorld:
    """A golden set, committed by `tasks` tasks."""
    world = golden_world(name, tasks=tasks, ticks=ticks)
    bounds = [b"", *task_cuts(committed(name)[0], tasks), b""]
    shards = [
        Shard(KeySpan(low, high), tuple(index.segments))
        for (low, high), index in zip(pairwise(bounds), world.indexes, strict=True)
    ]
    cache = GroupCache(world.objects, 64 << 20)
    reads = PoolReads(CachedReader(world.objects, cache, FooterCache()), lambda: shards, lambda: None)
    return PointWorld(golden.load(name), world, reads)


def commits(name: str) -> Iterator[tuple[int, list[tuple[str, str, dict[str, str]]]]]:
    """Each commit of the expectation: its ts, and (database, table, SQL types by column) of what it changed."""
    shapes = golden.expected(name, "columns")
    for commit in golden.expected(name, "rows"):
        tables = [
            (one["database"], one["table"], {c["name"]: c["type"] for c in shapes[one["columns"]]["columns"]})
            for one in commit["tables"]
        ]
        yield int(commit["commit_ts"]), tables
