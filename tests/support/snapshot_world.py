"""A backfilled tenant of a golden set, whose snapshots are pulled."""

from __future__ import annotations

import json
import random
import threading
from itertools import pairwise
from typing import Any

import polars as pl

from support.cut_set import CutSet, commit_timestamps, cut
from support.pull_world import history_of, task_cuts, write_pool
from tistream.decode.keys import table_ids
from tistream.format.backfill.base_chunk import ChunkId, write_chunk
from tistream.format.run import RunRef
from tistream.model.base_cover import Base, Cover, laid_over
from tistream.model.span import KeySpan
from tistream.model.ts import Window
from tistream.pool.footers import FooterCache
from tistream.pool.versions.plan import IndexShard
from tistream.pool.versions.pool_reads import PoolReads
from tistream.read import cursor as cursors
from tistream.read.cursor import Position, Scope
from tistream.read.group_cache import GroupCache
from tistream.read.source import TenantSource
from tistream.schema.tidb.meta_change import record_span
from tistream.storage import layout
from tistream.storage.backends.memory import MemoryObjectStore
from tistream_api.points import point_cursor
from tistream_api.points.cached_reader import CachedReader
from tistream_api.points.point_cursor import Kind, PointPosition
from tistream_api.points.snapshot_pull import SnapshotPage, check_snapshot
from tistream_sorter.jobs.index.base_runs import base_guarded
from tistream_sorter.jobs.index.base_unit import BaseUnit

NAME = "everything"
Line = dict[str, Any]


class SnapshotWorld:
    """A tenant that begins at T0, with everything above in segments, and bases of its tables as of random ts."""

    exact = True  # chunks have the bytes that TiKV stores

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
            self._write(identity, record_span(table_id), says)
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
            IndexShard(span, live, begins_ts=0, basis=runs, cover=cover)
            for span, live, runs, cover in zip(self.spans, segments, self.runs, self.covers, strict=True)
        ]
        cache = GroupCache(objects, 64 << 20)
        self.reads = PoolReads(CachedReader(objects, cache, FooterCache()), lambda: shards, lambda: None)

    def _write(self, identity: ChunkId, span: KeySpan, says: int) -> None:
        """Create the chunk of a span as of `says`."""
        rows = self.made.chunk_rows(span, says, with_commit_ts=self.rng.random() < 0.5)
        body = write_chunk([rows], identity, span, says)
        self.objects.put(layout.base_chunk(self.tenant, identity.backfill_id, identity.number), body)

    def _take(self, at: int, chunk: ChunkId, table_id: int, part: KeySpan, says: int, segments: Any) -> None:
        unit = BaseUnit(
            tenant=self.tenant, task_id=at + 1, chunk=chunk, planned=record_span(table_id), span=part,
            table_id=table_id, base_ts=says, exact=self.exact, old_values=True, flushed_ts=self.end, segments=segments,
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
