"""Reads at a point in time over a golden set in memory, and what SELECT showed then."""

from __future__ import annotations

import functools
import json
import random
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any
from unittest.mock import patch

import numpy as np
import polars as pl
import pyarrow as pa

from support import golden
from support.compare import Row, expected_changes
from support.pull_world import World, committed, golden_world, task_cuts
from support.sql_values import from_json
from tistream.filters.event_choice import EventChoice
from tistream.format.run import SCHEMA as RUN_SCHEMA
from tistream.format.run import RunRef
from tistream.format.segment import OP_PUT
from tistream.model.span import KeySpan
from tistream.model.ts import MAX_TS, Window
from tistream.pool import run_writer
from tistream.pool.footers import FooterCache
from tistream.pool.rows import read_rows
from tistream.pool.versions.plan import IndexShard
from tistream.pool.versions.pool_reads import PoolReads
from tistream.read.cursor import Position, Scope, decode
from tistream.read.group_cache import GroupCache
from tistream.read.scan import Budget
from tistream.schema.visible import TableVersion
from tistream.storage import layout
from tistream_api.encode.ndjson import NdjsonEncoder
from tistream_api.points import point_cursor
from tistream_api.points.cached_reader import CachedReader
from tistream_api.points.list_rows import RowsPage
from tistream_api.points.named_table import ranges_asked, shape_of, table_at
from tistream_api.points.net.net_changes import parts_between
from tistream_api.points.net.net_page import NetPage, NetPart, diff_parts
from tistream_api.points.net.squash import squash_parts
from tistream_api.points.parts import cuts, row_marks
from tistream_api.points.point_cursor import Kind, PointPosition
from tistream_api.points.point_reads import up_to
from tistream_api.points.row_formats import ENCODERS
from tistream_api.points.row_history import RowHistory
from tistream_api.points.row_selection import RowSelection
from tistream_api.points.transaction import Transaction

Line = dict[str, Any]


@dataclass
class PointWorld:
    """A tenant in memory that can be read at any ts."""

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
        until: bytes | None = None,
        where: str | None = None,
        now_ms: Callable[[], int] = lambda: 0,
    ) -> bytes:
        """One answer of ListRows. `until`: the raw key with which a part ends."""
        scope = Scope(self.world.tenant, database, table)
        after = b""
        if cursor is not None:
            at = point_cursor.decode(Kind.ROWS, scope, cursor)
            ts, after = at.high_ts, at.key
        version = table_at(self.world.source, scope, ts, None)
        shape = shape_of(self.world.source, version, ts, columns)
        ranges, only = ranges_asked(version, key, from_key, to_key)
        ranges = ranges if until is None else up_to(ranges, until)
        choice = EventChoice.parse(None, None, None, where)
        page = RowsPage(
            scope, shape, ranges, only, after, limit, self.reads, ENCODERS[form](shape),
            lambda *_: None, lambda _: None, lambda: False,
            None if choice is None else RowSelection(choice, shape), now_ms,
        )  # fmt: skip
        return b"".join(page.pieces())

    def parts(
        self, database: str, table: str, ts: int, parts: int, from_key: Line | None = None, to_key: Line | None = None
    ) -> list[tuple[str, bytes | None]]:
        """(cursor, last raw key) of each part of RowParts; None: up to the last row."""
        scope = Scope(self.world.tenant, database, table)
        ranges, _ = ranges_asked(table_at(self.world.source, scope, ts, None), None, from_key, to_key)
        keys = [mark.at for mark in cuts(row_marks(self.reads, ts, ranges), parts)]
        cursors = [point_cursor.encode(Kind.ROWS, scope, PointPosition(0, ts, key=key)) for key in (b"", *keys[:-1])]
        return list(zip(cursors, [*keys[:-1], None], strict=True))

    def lines(self, database: str, table: str, ts: int, **how: Any) -> list[Line]:
        """The row lines of one answer; its end is checked."""
        *rows, end = map(json.loads, self.page(database, table, ts, **how).splitlines())
        assert end["type"] == "end"
        assert end["ts"] == str(ts)
        return rows

    def diff(self, database: str, table: str, low: int, high: int, limit: int = 1_000_000) -> list[Line]:
        """The events of DiffTable, page after page of `limit` events."""
        scope = Scope(self.world.tenant, database, table)
        before, after = (self._named(scope, ts) for ts in (low, high))
        parts = diff_parts(parts_between(before, after, self._versions(low, high), low, high))
        return self._net(Kind.DIFF, scope, parts, low, high, limit)

    def squash(self, *names: str, low: int, high: int, limit: int = 1_000_000, ddl: bool = True) -> list[Line]:
        """The events of a squashed pull, page after page."""
        scope = Scope(self.world.tenant, *names)
        before, after = (self.world.source.tables_at(ts, scope) for ts in (low, high))
        parts = squash_parts(before, after, self._versions(low, high), low, high, ddl=ddl)
        return self._net(Kind.SQUASH, scope, parts, low, high, limit)

    def _net(self, kind: Kind, scope: Scope, parts: Sequence[NetPart], low: int, high: int, limit: int) -> list[Line]:
        at, found = PointPosition(low, high), []
        while True:
            page = NetPage(
                kind, scope, parts, at, limit, self.world.source, self.reads, NdjsonEncoder(),
                lambda *_: None, lambda _: None, lambda: False,
            )  # fmt: skip
            *events, end = map(json.loads, b"".join(page.pieces()).splitlines())
            assert len(events) <= limit
            found += events
            if end["type"] == "resolved":
                assert end["resolved_ts"] == str(high)
                assert decode(scope, end["cursor"]) == Position(high)
                return found
            if end["cursor"] is None:
                assert end == {"type": "end", "from": str(low), "to": str(high), "cursor": None}
                return found
            at = point_cursor.decode(kind, scope, end["cursor"])

    def _named(self, scope: Scope, ts: int) -> TableVersion | None:
        return next(iter(self.world.source.tables_at(ts, scope)), None)

    def _versions(self, low: int, high: int) -> tuple[int, int]:
        return self.world.source.schema_version(low), self.world.source.schema_version(high)

    def history(self, database: str, table: str, key: Line, low: int, high: int, limit: int = 10_000) -> list[Line]:
        """The versions of RowHistory, answer after answer."""
        found: list[Line] = []
        while True:
            one = RowHistory(
                Scope(self.world.tenant, database, table), key, Window(low, high), limit, self.world.source, self.reads
            )
            answer = one.answer()
            found += answer["versions"]
            if answer["next_to"] is None:
                return found
            assert int(answer["next_to"]) < high
            high = int(answer["next_to"])

    def transaction(self, start_ts: int, resolved_ts: int | None = None) -> list[Line]:
        """The lines of GetTransaction, when the tenant's resolved_ts is `resolved_ts`; None: the end of the world."""
        one = Transaction(
            Scope(self.world.tenant), start_ts, self.world.snapshot_ts, resolved_ts or self.world.end_ts,
            self.world.source, self.reads.reader, Budget(), lambda *_: None, lambda _: None,
        )  # fmt: skip
        return [json.loads(line) for line in b"".join(one.pieces()).splitlines()]

    def state(self, database: str, table: str, ts: int, types: dict[str, str]) -> Counter[Row]:
        """The rows at `ts` in the form of compare.Change. `types` are the SQL types of the columns, by name; empty: the
        table may be missing."""
        return rows_as(self.lines(database, table, ts), types)

    def check_commit(self, name: str, ts: int, tables: list[tuple[str, str, dict[str, str]]]) -> None:
        """The rows before a commit of a golden set, and what SELECT saw of it, are the rows after it."""
        changes = expected_changes(golden.load(name))
        for database, table, types in tables:
            change = changes[str(ts), database, table]
            before = self.state(database, table, ts - 1, types)
            after = self.state(database, table, ts, types)
            assert not change.removed - before, (ts, database, table)
            assert before - change.removed + change.added == after, (ts, database, table)

    @property
    def base_ts(self) -> int:
        """The lowest ts that can be read; 0 without an index."""
        return max(shard.base_ts for shard in self.reads.shards())

    def exists(self, database: str, table: str, ts: int) -> bool:
        return self.world.source.table(ts, database, table) is not None


def rows_as(lines: list[Line], types: dict[str, str]) -> Counter[Row]:
    """Row lines as a multiset of canonical rows."""
    return Counter(tuple(from_json(types[name], value) for name, value in line["row"].items()) for line in lines)


@functools.cache
def point_world(name: str, tasks: int = 1, ticks: int = 20, *, indexed: bool = False) -> PointWorld:
    """A golden set, committed by `tasks` tasks; `indexed`: with runs up to some ts, and a base at another one."""
    world = golden_world(name, tasks=tasks, ticks=ticks)
    bounds = [b"", *task_cuts(committed(name)[0], tasks), b""]
    shards = [
        IndexShard(KeySpan(low, high), tuple(index.segments), logged_ts=0)
        for (low, high), index in zip(pairwise(bounds), world.indexes, strict=True)
    ]
    if indexed:
        rng = random.Random(tasks)
        shards = [indexed_shard(world, shard, rng) for shard in shards]
    return over(world, shards)


def over(world: World, shards: list[IndexShard]) -> PointWorld:
    """Reads of these shards of a world."""
    cache = GroupCache(world.objects, 64 << 20)
    reads = PoolReads(CachedReader(world.objects, cache, FooterCache()), lambda: shards, lambda: None)
    return PointWorld(world, reads)


def indexed_shard(world: World, shard: IndexShard, rng: random.Random) -> IndexShard:
    """The shard with an index of runs: a base run at the beginning of the set's second tenth, three windows, and the
    segments above the second window; what the runs hold is taken out of the segments' reach by indexed_ts."""
    rows = pa.concat_tables([read_rows(world.objects, one, Window(0, MAX_TS)) for one in shard.segments])
    stamps = np.unique(rows.column("commit_ts").to_numpy())
    cuts = [int(stamps[len(stamps) * tenth // 10]) for tenth in (1, 3, 6, 8)]
    frame = pl.from_arrow(rows.select(RUN_SCHEMA.names))
    assert isinstance(frame, pl.DataFrame)
    frame = frame.sort("table_id", "key", "commit_ts", descending=[False, False, True])
    base = frame.filter(pl.col("commit_ts") <= cuts[0]).group_by("table_id", "key", maintain_order=True).first()
    runs = written(world, base.select(RUN_SCHEMA.names).filter(pl.col("op") == OP_PUT), None, cuts[0], rng)
    for low, high in pairwise(cuts):
        some = frame.filter((pl.col("commit_ts") > low) & (pl.col("commit_ts") <= high))
        runs += written(world, some, low, high, rng)
    live = tuple(one for one in shard.segments if one.commit_ts_max > cuts[2])
    return IndexShard(shard.span, live, tuple(runs), cuts[-1], cuts[0], logged_ts=cuts[2])


def written(world: World, rows: pl.DataFrame, low: int | None, high: int, rng: random.Random) -> list[RunRef]:
    """One run of these rows, which are in the order of runs, in small row groups."""
    if not rows.height:
        return []
    key = f"{layout.task_prefix(world.tenant, 1)}run/{rng.getrandbits(64):016x}.parquet"
    with patch.object(run_writer, "GROUP_ROWS", 100):
        body, ref = run_writer.write_run(rows.to_arrow().cast(RUN_SCHEMA), key, low, high)
    world.objects.put(key, body)
    return [ref]


def commits(name: str) -> Iterator[tuple[int, list[tuple[str, str, dict[str, str]]]]]:
    """Each commit of the expectation: its ts, and (database, table, SQL types by column) of what it changed."""
    shapes = golden.expected(name, "columns")
    for commit in golden.expected(name, "rows"):
        tables = [
            (one["database"], one["table"], {c["name"]: c["type"] for c in shapes[one["columns"]]["columns"]})
            for one in commit["tables"]
        ]
        yield int(commit["commit_ts"]), tables
