"""Pools, histories and pulls in memory, made of real parts: for the tests of this folder."""

from __future__ import annotations

import copy
import functools
import itertools
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import polars as pl

from support import golden
from support.golden import GoldenSet
from tistream.clock import ManualClock
from tistream.decode.keys import table_ids
from tistream.filters.event_choice import EventChoice
from tistream.format.segment import SCHEMA, SegmentRef
from tistream.model.ids import TenantKey
from tistream.pool.segment_index import SegmentIndex
from tistream.pool.writer import write_segment
from tistream.read.cursor import Position, Scope
from tistream.read.group_cache import GroupCache
from tistream.read.row_events import Barrier
from tistream.read.scan import Budget
from tistream.read.source import TenantSource
from tistream.read.source_contract import Batch
from tistream.schema.history import History
from tistream.schema.tidb.meta_change import DDL_JOB_TABLE_ID, MetaDecoder, MetaRow
from tistream.schema.tidb.snapshot import parse_snapshot
from tistream.storage import layout
from tistream.storage.backends.memory import MemoryObjectStore
from tistream_api.encode.compression import compressed
from tistream_api.encode.encoding import new_encoder
from tistream_api.encode.one_stream import one_stream
from tistream_api.pull.answer import Pull
from tistream_api.pull.wanted import wanted
from tistream_api.request.params import PullParams

Change = Callable[[pl.DataFrame], pl.DataFrame]


def history_of(loaded: GoldenSet, rows: pl.DataFrame) -> History:
    """The history of a golden set, fed with everything that was committed."""
    snapshot = parse_snapshot(loaded.schema_snap.key, loaded.schema_snap.data)
    history, decoder = History(snapshot.snapshot_ts), MetaDecoder()
    for record in snapshot.records:
        decoder.learn(record)
    history.apply(snapshot.records)
    records = []
    meta = rows.filter(pl.col("table_id").is_in([0, DDL_JOB_TABLE_ID])).sort("commit_ts", "start_ts", "key")
    for row in meta.iter_rows(named=True):
        value = row["value"] if row["op"] == 1 else None
        found = decoder.decode(
            MetaRow(row["table_id"], row["commit_ts"], row["start_ts"], row["key"], value, row["old_value"])
        )
        records += [found] if found is not None else []
    history.apply(records)
    history.advance(loaded.end_ts)
    return history


@functools.cache
def committed(name: str) -> tuple[pl.DataFrame, History]:
    """A golden set's committed rows with their table_id, and its history: for worlds that only read them."""
    rows = golden.committed_rows(name)
    rows = rows.with_columns(pl.Series("table_id", table_ids(rows["key"].to_arrow()), pl.Int64))
    return rows, history_of(golden.load(name), rows)


def task_cuts(rows: pl.DataFrame, tasks: int) -> list[bytes]:
    """The keys at which `tasks` tasks cut the key space, evenly by rows."""
    keys = rows["key"].sort()
    return [keys[len(keys) * at // tasks] for at in range(1, tasks)]


def write_pool(
    objects: MemoryObjectStore, tenant: TenantKey, rows: pl.DataFrame, tasks: int, ticks: Sequence[int]
) -> list[SegmentIndex]:
    """Segments of `tasks` tasks that cut the key space evenly by rows, one segment for each tick that has rows."""
    cuts = task_cuts(rows, tasks)
    out = []
    for task in range(tasks):
        mine = rows
        if task:
            mine = mine.filter(pl.col("key") >= cuts[task - 1])
        if task < tasks - 1:
            mine = mine.filter(pl.col("key") < cuts[task])
        refs: list[SegmentRef] = []
        for number, (low, high) in enumerate(itertools.pairwise(ticks)):
            part = mine.filter((pl.col("commit_ts") > low) & (pl.col("commit_ts") <= high))
            if part.height:
                table = (
                    part.sort("table_id", "commit_ts", "start_ts", "key").select(SCHEMA.names).to_arrow().cast(SCHEMA)
                )
                key = layout.segment(tenant, task, 1, f"{number:04x}", 0)
                body, ref = write_segment(table, key)
                objects.put(key, body)
                refs.append(ref)
        index = SegmentIndex()
        index.update(tuple(refs))
        out.append(index)
    return out


@dataclass
class StandingProgress:
    """A tenant whose resolved_ts stands still."""

    ts: int
    barriers: list[Barrier] = field(default_factory=list)

    def resolved_ts(self) -> int:
        return self.ts

    def wait_above(self, ts: int, timeout_ms: int) -> bool:
        return self.ts > ts

    def stopping(self) -> bool:
        return False

    def record_barrier(self, barrier: Barrier) -> None:
        self.barriers.append(barrier)


@dataclass
class World:
    """One tenant that can be pulled."""

    tenant: TenantKey
    snapshot_ts: int
    end_ts: int
    objects: MemoryObjectStore
    indexes: list[SegmentIndex]
    history: History
    source: TenantSource
    budget: Budget = field(default_factory=Budget)

    def pull(
        self,
        *names: str,
        start: Position,
        limit: int | None = None,
        end_ts: int | None = None,
        form: str = "ndjson",
        events: str = "all",
        choice: EventChoice | None = None,
    ) -> bytes:
        """One page; `limit` None: as much as there is."""
        return b"".join(
            self.answer(*names, start=start, limit=limit, end_ts=end_ts, form=form, events=events, choice=choice)
        )

    def answer(
        self,
        *names: str,
        start: Position,
        limit: int | None = None,
        end_ts: int | None = None,
        form: str = "ndjson",
        events: str = "all",
        follow: bool = False,
        coding: str | None = None,
        scope: Scope | None = None,
        choice: EventChoice | None = None,
        clock: ManualClock | None = None,
    ) -> Iterator[bytes]:
        """One answer as it is sent; `scope`: in place of `names`; `choice`: its filter."""
        scope = scope or Scope(self.tenant, *names)
        params = PullParams(None, None, end_ts, limit or 1_000_000, 0, follow, form, events, choice=choice)
        one = one_stream(params, self.source, scope, lambda: self.end_ts)

        def scan(at: Position, high: int, size: int | None) -> Iterator[Batch]:
            budget = self.budget if size is None else self.budget.for_page(size)
            return wanted(params.events, self.source, scope, at, high, budget, choice=choice)

        progress = StandingProgress(self.end_ts)
        encoder = compressed(new_encoder(params, one), coding)
        return Pull(
            scope, params, start, progress, scan, clock or ManualClock(), lambda *_: None, encoder, one
        ).answer()

    def follow(self, *names: str, start: Position, form: str, events: str) -> bytes:
        """A stream that is to end by itself: after a thousand pieces it has not."""
        pieces = list(itertools.islice(self.answer(*names, start=start, form=form, events=events, follow=True), 1_000))
        assert len(pieces) < 1_000, "it does not end"
        return b"".join(pieces)


def golden_world(
    name: str, *, tasks: int = 1, ticks: int = 20, budget: Budget | None = None, change: Change | None = None
) -> World:
    """A golden set, committed by `tasks` tasks in `ticks` ticks; `change` spoils its committed rows."""
    loaded = golden.load(name)
    rows, history = committed(name)
    if change is not None:
        return world_of(loaded, change(rows), history, tasks=tasks, ticks=ticks, budget=budget)
    written, indexes = _golden_pool(name, tasks, ticks)
    objects = MemoryObjectStore()
    for info in written.list_after(""):
        objects.put(info.key, written.get(info.key))
    return _world(loaded, history, objects, [copy.copy(index) for index in indexes], budget)


@functools.cache
def _golden_pool(name: str, tasks: int, ticks: int) -> tuple[MemoryObjectStore, list[SegmentIndex]]:
    """What a golden set's tasks have written, once a process: for worlds that copy it."""
    objects = MemoryObjectStore()
    return objects, _written(objects, golden.load(name), committed(name)[0], tasks, ticks)


def _written(
    objects: MemoryObjectStore, loaded: GoldenSet, rows: pl.DataFrame, tasks: int, ticks: int
) -> list[SegmentIndex]:
    length = loaded.end_ts - loaded.snapshot_ts
    ends = [loaded.snapshot_ts + length * at // ticks for at in range(ticks + 1)]
    return write_pool(objects, loaded.tenant, rows, tasks, ends)


def world_of(
    loaded: GoldenSet,
    rows: pl.DataFrame,
    history: History,
    *,
    tasks: int = 1,
    ticks: int = 20,
    budget: Budget | None = None,
) -> World:
    """A tenant with these committed rows (with their table_id)."""
    objects = MemoryObjectStore()
    return _world(loaded, history, objects, _written(objects, loaded, rows, tasks, ticks), budget)


def _world(
    loaded: GoldenSet, history: History, objects: MemoryObjectStore, indexes: list[SegmentIndex], budget: Budget | None
) -> World:
    source = TenantSource(
        threading.RLock(), lambda: history, lambda: indexes, GroupCache(objects, 64 << 20), lambda: None
    )
    return World(
        loaded.tenant, loaded.snapshot_ts, loaded.end_ts, objects, indexes, history, source, budget or Budget()
    )
