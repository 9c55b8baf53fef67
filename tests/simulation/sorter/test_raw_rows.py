"""Changes of RawKV through real sorter tasks: the pool and its index have each of them once, with its expiry."""

from __future__ import annotations

import random
from itertools import pairwise

import polars as pl
import pytest
from polars.testing import assert_frame_equal

from support import raw_set
from support.raw_set import RawSet
from support.sorter_world import SorterWorld
from tistream.format.run import runs_of
from tistream.model.raw_row import EXPIRE
from tistream.pool.lineage import Lineage
from tistream.pool.versions.lookup import PLACES, newest_at
from tistream.pool.versions.plan import shards_of
from tistream.pool.versions.reader import StoreReader
from tistream_sorter.upkeep.index_plan import IndexRules
from tistream_sorter.upkeep.shards import CutRules

COLUMNS = ["table_id", "key", "commit_ts", "op", "value", "expire_ts"]
CUTS = {1: [], 3: [b"r\0\0\0k", b"r\0\0\x05"]}


def rows(world: SorterWorld) -> pl.DataFrame:
    found = world.pool().with_columns(pl.col(EXPIRE).fill_null(0).alias("expire_ts"))
    assert (found["start_ts"] == found["commit_ts"]).all()
    return found.select(COLUMNS).sort("commit_ts", "key")


@pytest.mark.parametrize("tasks", [1, 3])
def test_the_pool_has_every_raw_change_once(tasks: int) -> None:
    loaded = raw_set.load()
    world = SorterWorld(loaded, CUTS[tasks], raw=True)
    for number, file in enumerate(loaded.files):
        world.push(file)
        if number % 7 == 0:
            world.tick()
    world.tick()
    assert not world.stopped()
    assert world.progress_ts() >= loaded.end_ts
    assert_frame_equal(rows(world), raw_set.truth())


# Attack: the sorter is started anew between files, and gets files that it has taken before
def test_raw_changes_that_come_again_are_not_repeated() -> None:
    loaded = raw_set.load()
    world = SorterWorld(loaded, CUTS[3], raw=True, cut=CutRules(3, 1))
    for number, file in enumerate(loaded.files):
        world.push(file)
        if number % 5 == 4:
            world.tick()
            world.start()
            world.send(world.sent)
    world.tick()
    assert not world.stopped()
    assert_frame_equal(rows(world), raw_set.truth())


# Attack: a cluster has keys of TiDB beside those of RawKV
def test_keys_of_the_other_kind_are_dropped() -> None:
    loaded = raw_set.load()
    world = SorterWorld(loaded, [], raw=False)
    for file in loaded.files:
        world.push(file)
    world.tick()
    assert world.progress_ts() >= loaded.end_ts
    assert world.node.tasks()[0].state.live_segments == ()


def test_the_index_finds_the_newest_version_of_a_raw_key_in_each_keyspace() -> None:
    loaded, truth = raw_set.load(), raw_set.truth()
    world = indexed(loaded)
    shards = shards_of(
        cover for task in world.identities for cover in Lineage(world.objects, loaded.tenant).covers(task, None)
    )
    assert all(runs_of(task.state.index) for task in world.node.tasks())
    rng = random.Random(5)
    stamps = [*sorted(rng.sample(truth["commit_ts"].to_list(), 5)), loaded.end_ts]
    for ts in stamps:
        newest = truth.filter(pl.col("commit_ts") <= ts).sort("key", "commit_ts").group_by("key").last().sort("key")
        assert set(newest["table_id"]) == {-1, -6}
        places = newest.select("table_id", "key").to_arrow().cast(PLACES)
        found = pl.from_arrow(newest_at(shards, StoreReader(world.objects), places, ts))
        assert isinstance(found, pl.DataFrame)
        found = found.with_columns(pl.col(EXPIRE).fill_null(0).alias("expire_ts")).select(COLUMNS)
        assert_frame_equal(found, newest.select(COLUMNS))


def indexed(loaded: RawSet) -> SorterWorld:
    """A pool whose older rows are in runs."""
    rules = IndexRules(age_ms=0, wait_ms=0, run_bytes=1, bytes_max=64 << 10, unpacked_max=64 << 10)
    world = SorterWorld(loaded, CUTS[3], raw=True, index=rules)
    for file in loaded.files:
        world.push(file)
        world.tick()
        world.node.compact()
    for _ in range(100):
        world.clock.advance(11_000)
        world.tick()
        if not world.node.compact():
            break
    assert not world.stopped()
    for task in world.node.tasks():
        for left, right in pairwise(sorted(runs_of(task.state.index), key=lambda run: run.first[1])):
            assert left.window != right.window or left.last[1] < right.first[1]
    return world
