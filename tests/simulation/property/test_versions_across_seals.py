"""Rows as of any ts while tasks are split and merged, segments are compacted, and the version index is written: the
newest versions of the truth, by shards that a server learns of late."""

from __future__ import annotations

import random
from dataclasses import replace
from functools import partial
from unittest.mock import patch

import polars as pl
import pyarrow as pa
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from support import split_world
from support.effort import cases, examples
from support.simulated import WILD
from support.split_histories import History
from support.split_readers import Readers
from tistream.decode.keys import is_record_key, table_ids
from tistream.format.run import SCHEMA
from tistream.format.segment import OP_PUT
from tistream.model.ts import Window
from tistream.pool.versions.lookup import PLACES, newest_at
from tistream.pool.versions.plan import records_of
from tistream.pool.versions.reader import StoreReader
from tistream.pool.versions.scan import read_range
from tistream_sorter.task.task import TickLimits
from tistream_sorter.upkeep.index_plan import IndexRules

COLUMNS = ["key", "commit_ts", "start_ts", "op", "value"]
RULES = IndexRules(age_ms=300, wait_ms=300, run_bytes=1 << 10, fold_share=0.05, amplification=100.0)


class Indexed(History):
    """A history with a version index, which is read while it happens."""

    def begin(self) -> None:
        self.read = Readers(self.world, self.upstream, random.Random(self.rng.random()))
        keys = self.truth["key"].to_arrow()
        ids = pl.Series("table_id", table_ids(keys), pl.Int64)
        records = self.truth.filter(pl.Series(is_record_key(keys)))
        self.versions = records.with_columns(ids.filter(pl.Series(is_record_key(keys))))
        self.ids = sorted(self.versions["table_id"].unique())
        self.checked = self.indexed = 0

    def something(self) -> None:
        super().something()
        if self.rng.random() < 0.2:
            self.read.step()
            self.check()

    def check(self) -> None:
        """Rows at a random ts, and single keys."""
        view = self.read.view
        shards = view.shards()
        low = max([self.upstream.snapshot_ts, *(shard.base_ts for shard in shards)])
        if view.resolved_ts() <= low:
            return
        ts = self.rng.randint(low, view.resolved_ts())
        reader = StoreReader(self.world.objects)
        newest = self.versions.filter(pl.col("commit_ts") <= ts).sort("commit_ts").group_by("key").last().sort("key")
        found = list(read_range(shards, reader, Window(0, ts), [records_of(one) for one in self.ids]))
        got = pl.from_arrow(pa.concat_tables([*found, SCHEMA.empty_table()]).select(COLUMNS))
        want = newest.filter(pl.col("op") == OP_PUT).select(COLUMNS)
        assert got.rows() == want.rows()  # type: ignore[union-attr]
        some = newest.sample(min(newest.height, 20), seed=self.rng.randrange(1 << 30)).sort("key")
        answer = newest_at(shards, reader, some.select("table_id", "key").to_arrow().cast(PLACES), ts)
        for row, one in zip(some.iter_rows(named=True), answer.to_pylist(), strict=True):
            if one["commit_ts"] is None:  # the base has no deletes
                assert row["op"] != OP_PUT
            else:
                assert [one[name] for name in COLUMNS] == [row[name] for name in COLUMNS]
        self.checked += 1
        self.indexed += any(shard.runs for shard in shards)


def run(seed: int) -> Indexed:
    with patch.object(split_world, "TickLimits", partial(TickLimits, index=RULES)):
        history = Indexed(replace(WILD, ddl_per_min=100, tables=3, columns=3), seed, 2_500)
    history.begin()
    history.run()
    for _ in range(20):
        history.read.step(newest=True)
        history.check()
    return history


@settings(max_examples=examples(4, few=1), deadline=None, suppress_health_check=list(HealthCheck))
@given(seed=st.integers(0, 2**32))
def test_rows_at_any_ts_are_the_newest_versions_across_seals(seed: int) -> None:
    run(seed)


def test_runs_were_written_and_read_meanwhile() -> None:
    histories = [run(seed) for seed in cases([11], [5, 6, 7])]
    assert all(history.checked > 10 for history in histories)
    assert all(history.world.sealed for history in histories)
    assert sum(history.indexed for history in histories) > 0
