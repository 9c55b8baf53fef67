"""The golden sets through slices, ticks, kernel and manifests: the pool holds the oracle's rows, whatever the cut,
the order of arrival and the moments of ticks and restarts."""

from __future__ import annotations

import functools
import random

import polars as pl
import pytest
from polars.testing import assert_frame_equal

from support import golden as golden_sets
from support.effort import cases, seeds
from support.golden import Delivery, GoldenSet
from support.sorter_world import SorterWorld

COLUMNS = ["key", "start_ts", "commit_ts", "op", "value", "old_value", "txn_source"]


@functools.cache
def truth(name: str) -> pl.DataFrame:
    golden = golden_sets.load(name)
    rows = golden_sets.committed_rows(golden.name)
    return rows.select(COLUMNS).sort("commit_ts", "start_ts", "key")


@functools.cache
def keys(name: str) -> list[bytes]:
    return sorted(set(truth(name)["key"].to_list()))


def cut(name: str, tasks: int, seed: int = 0) -> list[bytes]:
    return random.Random(seed).sample(keys(name), tasks - 1)


def run(world: SorterWorld, files: list[Delivery], tick_every: int) -> None:
    for number, file in enumerate(files):
        world.push(file)
        if number % tick_every == tick_every - 1:
            world.tick()
    world.tick()


def check(world: SorterWorld, golden: GoldenSet) -> None:
    assert world.stopped() == []
    assert world.progress_ts() >= golden.end_ts
    assert_frame_equal(world.pool().select(COLUMNS), truth(golden.name), check_row_order=True)


CUTS = [(name, tasks) for name in golden_sets.NAMES for tasks in (1, 4, 16, 64)]
FEW_CUTS = [("large", 16)]


@pytest.mark.parametrize(("name", "tasks"), cases(FEW_CUTS, [one for one in CUTS if one not in FEW_CUTS]))
def test_any_cut_into_tasks_commits_the_same_rows(name: str, tasks: int) -> None:
    golden = golden_sets.load(name)
    world = SorterWorld(golden, cut(name, tasks))
    run(world, list(golden.files), tick_every=10 if tasks < 16 else 40)
    check(world, golden)


@pytest.mark.parametrize("seed", seeds(1, 4))
@pytest.mark.parametrize("name", golden_sets.NAMES)
def test_any_order_between_stores_commits_the_same_rows(name: str, seed: int) -> None:
    golden = golden_sets.load(name)
    world = SorterWorld(golden, cut(name, 5, seed))
    run(world, golden_sets.shuffled_across_stores(golden.files, seed), tick_every=random.Random(seed).randint(3, 30))
    check(world, golden)


def test_one_tick_for_everything() -> None:
    golden = golden_sets.load("everything")
    world = SorterWorld(golden, cut("everything", 3))
    run(world, list(golden.files), tick_every=10_000)
    check(world, golden)


@pytest.mark.parametrize("name", cases(["large"], ["everything"]))
def test_nothing_is_left_pending_at_the_end(name: str) -> None:
    golden = golden_sets.load(name)
    world = SorterWorld(golden, [])
    run(world, list(golden.files), tick_every=1)
    world.clock.advance(11_000)
    world.tick()
    check(world, golden)
    (task,) = world.node.tasks()
    assert sum(part.rows for part in task.state.pending) == 0


@pytest.mark.parametrize(("name", "seed"), cases([("large", 0)], [("everything", seed) for seed in range(3)]))
def test_a_process_that_dies_between_ticks_loses_and_repeats_nothing(name: str, seed: int) -> None:
    golden = golden_sets.load(name)
    rng = random.Random(seed)
    world = SorterWorld(golden, cut(name, 4, seed))
    for file in golden.files:
        world.push(file)
        if rng.random() < 0.2:
            world.node.tick()
        if rng.random() < max(0.05, 10 / len(golden.files)):
            world.start()
            world.send(world.sent)
    world.tick()
    check(world, golden)


def test_shards_of_one_task_commit_the_same_rows() -> None:
    golden = golden_sets.load("large")
    world = SorterWorld(golden, [], shards=4, shard_bytes_min=1 << 12)
    run(world, list(golden.files), tick_every=6)
    check(world, golden)
