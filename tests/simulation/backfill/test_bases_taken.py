"""Base chunks on their way into the manifests of real sorter tasks, while the log goes on and processes restart."""

from __future__ import annotations

import itertools
import random
from collections.abc import Sequence

import polars as pl
import pyarrow as pa
import pytest
from prometheus_client import CollectorRegistry

from support.cut_set import CutSet, commit_timestamps, cut
from support.effort import FULL, cases
from support.sorter_world import SorterWorld
from tistream.format.backfill import refused_chunk
from tistream.format.backfill.base_chunk import ChunkId, write_chunk
from tistream.format.backfill.chunk_plan import ChunkPlan, encode_plan
from tistream.model.base_cover import Hole, base_ts_of, laid_over
from tistream.model.span import KeySpan
from tistream.model.ts import Window
from tistream.pool import lineage
from tistream.pool.task_log import TaskLog
from tistream.pool.versions.plan import IndexShard, TableRange, shards_of
from tistream.pool.versions.reader import StoreReader
from tistream.pool.versions.scan import read_range
from tistream.schema.tidb.meta_change import record_span
from tistream.storage import layout
from tistream.storage.measured import MeasuredObjectStore
from tistream_sorter.metrics import SorterMetrics
from tistream_sorter.node.base_converter import BaseConverter, ListedBackfill
from tistream_sorter.upkeep.index_plan import IndexRules

NAME = "everything"


class BackfillWorld:
    """A cut golden set in a sorter process, and the chunks of its tables."""

    def __init__(self, seed: int, tasks: int, index: IndexRules | None = None) -> None:
        self.rng = random.Random(seed)
        stamps = commit_timestamps(NAME)
        self.made: CutSet = cut(NAME, self.rng.choice(stamps[250:900]))
        self.tenant = self.made.set_.tenant
        keys = self.made.rows["key"].unique().sort().to_list()
        bounds = sorted(self.rng.sample(keys[1:], tasks - 1))
        self.world = SorterWorld(self.made.set_, bounds, index=index)
        self.world.clock.advance((self.made.set_.end_ts >> 18) - self.world.clock.now_ms() + 1)  # rows are old enough
        self.stamps = [one for one in stamps if one >= self.made.t0]
        self.table_ids = self.made.user_ids()
        self.open: list[str] = []
        self.converter = self.new_converter()

    def new_converter(self) -> BaseConverter:
        nonces = random.Random(self.rng.random())
        objects, metrics = MeasuredObjectStore(self.world.objects), SorterMetrics(CollectorRegistry())
        return BaseConverter(
            objects, self.world.runner, self.world.clock, lambda: f"{nonces.getrandbits(64):016x}", metrics
        )

    def kill(self) -> None:
        """kill -9: what no manifest names is forgotten."""
        self.world.start()
        self.world.send(self.world.sent)
        self.converter = self.new_converter()

    def plan(self, backfill_id: str) -> list[KeySpan]:
        """Put the plan of a backfill of every table, in up to three chunks each."""
        spans: list[KeySpan] = []
        every = self.made.rows["key"].unique().sort().to_list()
        for table_id in self.table_ids:
            whole = record_span(table_id)
            keys = [key for key in every if key.startswith(whole.start) and key > whole.start]
            edges = [whole.start, *sorted(self.rng.sample(keys, min(len(keys), self.rng.randint(0, 2)))), whole.end]
            spans += [KeySpan(low, high) for low, high in itertools.pairwise(edges)]
        body = encode_plan(ChunkPlan(tuple(spans), self.made.t0))
        self.world.objects.put_new(layout.backfill_plan(self.tenant, backfill_id), body)
        self.open.append(backfill_id)
        return spans

    def push(self, backfill_id: str, number: int, span: KeySpan, says: int, read: int | None = None) -> None:
        identity = ChunkId(self.tenant, backfill_id, number)
        rows = self.made.chunk_rows(span, says if read is None else read, with_commit_ts=False)
        key = layout.base_chunk(self.tenant, backfill_id, number)
        self.world.objects.put_new(key, write_chunk([rows], identity, span, says))

    def turn(self) -> None:
        """Take what there is to take, and commit it."""
        self.converter.set_backfills([ListedBackfill(self.tenant, one) for one in self.open])
        for _ in range(200):
            self.world.tick()
            worked = self.converter.convert(self.world.node.tasks())
            self.world.tick()
            if any(task.to_settle for task in self.world.node.tasks()):
                self.world.clock.advance(11_000)  # progress without changes is written that often, and bases with it
            elif not (self.world.node.compact() or worked):
                return
        raise AssertionError("bases are taken without end")

    def shards(self) -> list[IndexShard]:
        """The tenant's pool as readers see it."""
        out = []
        for task_id, span in enumerate(self.world.spans, 1):
            log = TaskLog(self.world.objects, self.tenant, task_id)
            log.refresh()
            out += shards_of([lineage.LogSpan(span, log)])
        return out

    def base_ts(self, table_id: int) -> int | Hole:
        """From when on a table is complete."""
        return self.bases()[table_id]

    def bases(self) -> dict[int, int | Hole]:
        """From when on each table is complete."""
        cover = laid_over((), [])
        for task_id in range(1, len(self.world.spans) + 1):
            log = TaskLog(self.world.objects, self.tenant, task_id)
            log.refresh()
            cover = laid_over(cover, log.view.cover)
        return {table_id: base_ts_of(cover, [record_span(table_id)]) for table_id in self.table_ids}

    def state(self, table_id: int, ts: int, shards: Sequence[IndexShard]) -> pl.DataFrame:
        wanted = [TableRange(table_id, record_span(table_id))]
        tables = list(read_range(shards, StoreReader(self.world.objects), Window(0, ts), wanted))
        frame = pl.from_arrow(pa.concat_tables(tables)) if tables else self.made.rows.clear()
        assert isinstance(frame, pl.DataFrame)
        return frame.select("key", "value")

    def check(self, stamps: Sequence[int]) -> int:
        """Every complete table at some ts is what was committed; returns the number of comparisons."""
        compared, shards = 0, self.shards()
        for table_id, base_ts in self.bases().items():
            assert isinstance(base_ts, int)
            for ts in stamps:
                if ts >= base_ts:
                    wanted = self.made.state(ts).filter(pl.col("table_id") == table_id).select("key", "value")
                    assert self.state(table_id, ts, shards).equals(wanted)
                    compared += 1
        return compared


def _ts(found: int | Hole) -> int:
    assert isinstance(found, int)
    return found


AT_ONCE = IndexRules(age_ms=0, run_bytes=1, rows_max=1_000, factor=2, unpacked_max=1 << 14)


@pytest.mark.parametrize(
    ("seed", "tasks", "index"),
    cases(
        [(1, 1, None), (2, 4, AT_ONCE)],
        [(seed, tasks, index) for seed in range(3, 8) for tasks in (1, 4) for index in (None, AT_ONCE)],
    ),
)
def test_chunks_become_bases_while_the_log_goes_on(seed: int, tasks: int, index: IndexRules | None) -> None:
    made = BackfillWorld(seed, tasks, index)
    rng, files = made.rng, list(made.made.set_.files)
    chunks = [(number, span, rng.choice(made.stamps)) for number, span in enumerate(made.plan("b1"))]
    rng.shuffle(chunks)
    steps = len(chunks)
    for at, (number, span, says) in enumerate(chunks):
        made.push("b1", number, span, says)
        for delivery in files[at * len(files) // steps : (at + 1) * len(files) // steps]:
            made.world.push(delivery)
        if rng.random() < 0.3:
            made.turn()
        if rng.random() < 0.1:
            made.world.start()  # kill -9: what no manifest names is forgotten
            made.world.send(made.world.sent)
    made.turn()
    assert made.world.stopped() == []
    assert (index is None) == all(not shard.runs for shard in made.shards())
    stamps = rng.sample(made.stamps, 5 if FULL else 2)
    assert made.check([*stamps, made.made.set_.end_ts]) > len(made.table_ids)
    again = [(number, span, rng.choice(made.stamps)) for number, span in enumerate(made.plan("b2"))]
    before = made.bases()
    for number, span, says in again:
        made.push("b2", number, span, says)
    made.turn()
    made.check([made.made.set_.end_ts])
    after = made.bases()
    assert all(_ts(after[one]) >= _ts(before[one]) for one in before), "a second backfill never lowers a base_ts"


def test_a_chunk_above_the_log_waits_and_one_below_it_is_refused() -> None:
    made = BackfillWorld(5, 1)
    spans = made.plan("b1")
    made.push("b1", 0, spans[0], made.made.set_.end_ts)
    made.turn()
    assert isinstance(made.base_ts(made.table_ids[0]), Hole)
    made.push("b1", 1, spans[1], made.made.t0 - 1)
    made.turn()
    key = layout.refused_chunk(made.tenant, "b1", 1)
    reason = refused_chunk.decode(key, made.world.objects.get(key))
    assert f"is as of {made.made.t0 - 1}, below the min_ts {made.made.t0} of its plan" in reason
    for delivery in made.made.set_.files:
        made.world.push(delivery)
    made.turn()
    assert made.shards()[0].basis or made.state(made.table_ids[0], made.made.set_.end_ts, made.shards()).height == 0
    cover = TaskLog(made.world.objects, made.tenant, 1)
    cover.refresh()
    assert [base.span for base in cover.view.cover] == [spans[0]]


def test_a_chunk_of_a_wrong_ts_is_refused_and_the_table_is_not_complete() -> None:
    made = BackfillWorld(7, 2)
    for delivery in made.made.set_.files:
        made.world.push(delivery)
    spans = made.plan("b1")
    wrong = None
    for number, span in enumerate(spans):
        says, read = made.made.t0, made.made.set_.end_ts
        one, two = (made.made.chunk_rows(span, ts).select(["key", "value"]) for ts in (says, read))
        bad = wrong is None and not one.equals(two)
        made.push("b1", number, span, says, read if bad else says)
        wrong = number if bad else wrong
    assert wrong is not None
    made.turn()
    assert made.world.stopped() == []
    key = layout.refused_chunk(made.tenant, "b1", wrong)
    assert "is not as of its base_ts" in refused_chunk.decode(key, made.world.objects.get(key))
    holes = [table_id for table_id, base_ts in made.bases().items() if isinstance(base_ts, Hole)]
    assert holes == [int.from_bytes(spans[wrong].start[1:9], "big") - (1 << 63)]


def test_without_an_open_backfill_no_chunk_is_looked_for() -> None:
    made = BackfillWorld(8, 1)
    spans = made.plan("b1")
    made.push("b1", 0, spans[0], made.made.t0)
    made.open.clear()
    made.turn()
    assert made.shards()[0].basis == ()
