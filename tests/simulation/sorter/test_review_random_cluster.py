"""A random cluster through the real sorter, with any arrival between stores, cut, shards, ticks and restarts: the
pool is what was committed."""

from __future__ import annotations

import random

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from polars.testing import assert_frame_equal

from support import simulated
from support.effort import NAMED, cases, examples
from support.oracle import COLUMNS
from support.pending_rules import any_rules
from support.simulated import FLUSHING, LOSING, WILD, arrival
from support.sorter_world import SorterWorld
from tistream_upstream.config import ClusterConfig


def run(config: ClusterConfig, seed: int, ms: int = 4_000) -> None:
    upstream = simulated.run(config, seed, ms)
    truth = upstream.cluster.truth.rows
    rng = random.Random(seed + 1)
    bounds = rng.sample(sorted(set(truth["key"])), rng.choice([0, 1, 3]))
    cut = any_rules(random.Random(seed + 2), rng.choice([1, 3]), 1 << 9)
    world = SorterWorld(upstream, bounds, cut=cut)
    tick_share = rng.choice([0.05, 0.3, 1.0])
    for file in arrival(upstream, rng):
        world.push(file)
        if rng.random() < tick_share:
            world.clock.advance(rng.choice([1, 11_000]))
            world.node.tick()
        if rng.random() < 0.03:
            world.start()
            world.send(world.sent)
        assert world.stopped() == []
    world.tick()
    world.clock.advance(11_000)
    world.tick()
    assert world.stopped() == []
    assert world.progress_ts() >= upstream.end_ts
    assert_frame_equal(world.pool().select(list(COLUMNS)), truth)


@example(seed=117)
@example(seed=126)
@settings(max_examples=examples(4), phases=NAMED, deadline=None, suppress_health_check=list(HealthCheck))
@given(seed=st.integers(0, 2**32))
def test_the_pool_is_what_was_committed(seed: int) -> None:
    run(WILD, seed)


@pytest.mark.parametrize("config", cases([pytest.param(FLUSHING, id="flushing")], [pytest.param(LOSING, id="losing")]))
def test_the_pool_is_what_was_committed_where_one_thing_happens_often(config: ClusterConfig) -> None:
    run(config, 3005)
