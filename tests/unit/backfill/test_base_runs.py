"""A recorded set cut at T0: chunks at random ts become base runs, and the base with the log is the table at any T."""

from __future__ import annotations

import itertools
import random
from collections.abc import Sequence
from dataclasses import replace

import polars as pl
import pyarrow as pa
import pytest

from support.cut_set import CutSet, commit_timestamps, cut
from support.effort import FULL, seeds
from support.pull_world import write_pool
from tistream.format.backfill.base_chunk import ChunkId, write_chunk
from tistream.format.run import RunRef
from tistream.format.segment import SegmentRef
from tistream.model.span import KeySpan
from tistream.model.ts import Window
from tistream.pool.versions.plan import IndexShard, TableRange
from tistream.pool.versions.reader import StoreReader
from tistream.pool.versions.scan import read_range
from tistream.schema.tidb.meta_change import record_span
from tistream.storage import layout
from tistream.storage.backends.memory import MemoryObjectStore
from tistream_sorter.jobs.index.base_runs import base_guarded
from tistream_sorter.jobs.index.base_unit import BaseResult, BaseUnit

NAME = "everything"


class BaseWorld:
    """One task with everything that was committed above T0 in segments, and chunks of its tables."""

    def __init__(self, t0: int, seed: int) -> None:
        self.made: CutSet = cut(NAME, t0)
        self.rng = random.Random(seed)
        self.objects = MemoryObjectStore()
        self.end = self.made.set_.end_ts
        above = self.made.rows.filter(pl.col("commit_ts") > t0)
        stamps = sorted(self.rng.sample(above["commit_ts"].unique().to_list(), 12))
        (index,) = write_pool(self.objects, self.made.set_.tenant, above, 1, [t0, *stamps, 1 << 62])
        self.segments: tuple[SegmentRef, ...] = tuple(index.overlapping(Window(0, 1 << 62)))
        self.runs: list[RunRef] = []
        self.number = 0

    def table_ids(self) -> list[int]:
        """The physical ids with rows at T0."""
        return self.made.user_ids()

    def chunk(self, table_id: int, span: KeySpan, says: int, read: int, *, with_commit_ts: bool = True) -> BaseUnit:
        """Push a chunk of `span` that says to be as of `says`, with the rows as of `read`."""
        identity = ChunkId(self.made.set_.tenant, "b1", self.number)
        rows = self.made.chunk_rows(span, read, with_commit_ts=with_commit_ts)
        if with_commit_ts and read > says:
            rows = rows.set_column(2, "commit_ts", pa.nulls(rows.num_rows, pa.int64()))
        key = layout.base_chunk(identity.tenant, identity.backfill_id, identity.number)
        self.objects.put(key, write_chunk([rows], identity, span, says))
        self.number += 1
        return BaseUnit(
            tenant=identity.tenant, task_id=1, chunk=identity, planned=span, span=span, table_id=table_id, base_ts=says,
            exact=True, old_values=True, flushed_ts=self.end, segments=self.segments, runs=(), indexed_ts=0,
            basis=tuple(self.runs), epoch=1, nonce=f"{self.number:016x}",
        )  # fmt: skip

    def cuts(self, table_id: int) -> list[KeySpan]:
        """The record span of a table, cut at random keys of any of its rows."""
        whole = record_span(table_id)
        keys = self.made.rows.filter((pl.col("table_id") == table_id) & (pl.col("key") > whole.start))["key"].unique()
        some = [key for key in self.rng.sample(keys.to_list(), min(len(keys), self.rng.randint(0, 3))) if key in whole]
        edges = [whole.start, *sorted(set(some)), whole.end]
        return [KeySpan(low, high) for low, high in itertools.pairwise(edges)]

    def state(self, table_ids: Sequence[int], ts: int) -> pl.DataFrame:
        """The rows of tables at `ts` by the base runs and the log."""
        shard = IndexShard(KeySpan(b"", b""), self.segments, basis=tuple(self.runs))
        wanted = [TableRange(one, record_span(one)) for one in table_ids]
        tables = list(read_range([shard], StoreReader(self.objects), Window(0, ts), wanted))
        frame = pl.from_arrow(pa.concat_tables(tables)) if tables else pl.DataFrame(schema={"key": pl.Binary})
        assert isinstance(frame, pl.DataFrame)
        return frame


def good(made: BaseResult) -> BaseResult:
    assert made.failed is None
    assert made.base is not None
    return made


@pytest.mark.parametrize("seed", seeds(1, 2))
def test_chunks_at_random_ts_and_the_log_are_the_table_at_any_ts(seed: int) -> None:
    rng = random.Random(seed)
    stamps = commit_timestamps(NAME)
    world = BaseWorld(rng.choice(stamps[200:900]), seed)
    table_ids = world.table_ids()
    highest: dict[int, int] = {}
    for table_id in table_ids:
        for span in world.cuts(table_id):
            base_ts = rng.choice([one for one in stamps if one >= world.made.t0])
            with_ts = rng.random() < 0.5
            made = good(
                base_guarded(world.objects, world.chunk(table_id, span, base_ts, base_ts, with_commit_ts=with_ts))
            )
            highest[table_id] = max(highest.get(table_id, 0), base_ts)
            world.runs += made.runs
    assert world.runs, "some rows of the tables were never changed above T0"
    for ts in [*rng.sample(stamps, 8 if FULL else 3), world.end]:
        for table_id in table_ids:
            if ts >= highest[table_id]:
                wanted = world.made.state(ts).filter(pl.col("table_id") == table_id)
                found = world.state([table_id], ts)
                assert found["key"].to_list() == wanted["key"].to_list()
                assert not found.height or found["value"].to_list() == wanted["value"].to_list()


@pytest.mark.parametrize("seed", seeds(1, 2))
def test_a_second_backfill_adds_no_row_twice(seed: int) -> None:
    rng = random.Random(seed)
    stamps = [one for one in commit_timestamps(NAME) if one >= commit_timestamps(NAME)[600]]
    world = BaseWorld(stamps[0], seed)
    for table_id in world.table_ids():
        for base_ts in sorted(rng.sample(stamps, 2), reverse=rng.random() < 0.5):
            made = good(base_guarded(world.objects, world.chunk(table_id, record_span(table_id), base_ts, base_ts)))
            world.runs += made.runs
        found = world.state([table_id], world.end)
        assert found["key"].n_unique() == found.height
        wanted = world.made.state(world.end).filter(pl.col("table_id") == table_id)
        assert found["key"].to_list() == wanted["key"].to_list()
    keys = [key for run in world.runs for key in _keys(world, run)]
    assert len(keys) == len(set(keys)), "a row is in one base run only"


def _keys(world: BaseWorld, run: RunRef) -> list[bytes]:
    reader = StoreReader(world.objects)
    (opened,) = reader.open_runs([run])
    (groups,) = reader.fetch([(opened, range(len(opened.groups.rows)))])
    found = groups.read(("key",))
    return [bytes(key) for key in found.column("key").to_pylist()]


@pytest.mark.parametrize("seed", range(2))
def test_a_chunk_of_a_wrong_ts_is_caught(seed: int) -> None:
    """A chunk that says the ts just before a change of its table and was read just after it, or the reverse, is
    refused: if its rows differ at all."""
    rng = random.Random(seed)
    world = BaseWorld(commit_timestamps(NAME)[300], seed)
    caught = 0
    for table_id in world.table_ids():
        span = record_span(table_id)
        stamps = world.made.rows.filter((pl.col("table_id") == table_id) & (pl.col("commit_ts") > world.made.t0))
        if not stamps.height:
            continue
        changed = rng.choice(stamps["commit_ts"].to_list())
        says, read = rng.sample([changed - 1, changed], 2)
        one, two = (world.made.chunk_rows(span, ts).select(["key", "value"]) for ts in (says, read))
        made = base_guarded(world.objects, world.chunk(table_id, span, says, read))
        if one.equals(two):
            good(made)
            continue
        caught += 1
        assert made.failed is not None
        assert made.lasting
        assert f"chunk-{made.chunk.number:08d}: it is not as of its base_ts {says}" in made.failed
    assert caught >= 3


def test_a_replaced_chunk_or_a_wrong_span_is_refused() -> None:
    world = BaseWorld(commit_timestamps(NAME)[700], 1)
    table_id = world.table_ids()[0]
    span, ts = record_span(table_id), world.made.t0
    unit = world.chunk(table_id, span, ts, ts)
    first = KeySpan(span.start, span.start + b"\x90")
    for wrong, reason in (
        (replace(unit, base_ts=ts + 1), "it was replaced"),
        (replace(unit, planned=first), "is not that of chunk 0 in the plan"),
        (replace(unit, chunk=ChunkId(unit.tenant, "b1", 7)), "no object"),
    ):
        made = base_guarded(world.objects, wrong)
        assert reason in (made.failed or "")
        assert made.lasting == (reason != "no object")
