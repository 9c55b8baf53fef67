"""A random cluster through the real sorter, with any arrival between stores, cut, shards, ticks and restarts: the
pool is what was committed."""

from __future__ import annotations

import random

from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from polars.testing import assert_frame_equal

from support.golden import Delivery
from support.oracle import COLUMNS
from support.sorter_world import SorterWorld
from support.upstream import KEYS, Upstream


def arrival(upstream: Upstream, rng: random.Random) -> list[Delivery]:
    """Some order that keeps every chain's."""
    chains: dict[tuple[int, int], list[Delivery]] = {}
    begun: dict[int, int] = {}
    for file in upstream.files:
        store, ts = file.store_and_ts
        begun[store] = ts if ts in upstream.chain_starts else begun[store]
        chains.setdefault((store, begun[store]), []).append(file)
    order: list[Delivery] = []
    while chains:
        # Mostly the one that was pushed first.
        chain = min(chains, key=lambda c: chains[c][0].at_ms) if rng.random() < 0.5 else rng.choice(sorted(chains))
        order.append(chains[chain].pop(0))
        if not chains[chain]:
            del chains[chain]
    return order


def run(seed: int, steps: int = 200) -> None:
    upstream = Upstream(seed)
    for _ in range(steps):
        upstream.step()
    end_ts = upstream.finish()
    rng = random.Random(seed + 1)
    bounds = rng.sample(KEYS, rng.choice([0, 1, 3]))
    world = SorterWorld(upstream, bounds, shards=rng.choice([1, 3]), shard_bytes_min=1 << 9)
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
    assert world.progress_ts() >= end_ts
    assert_frame_equal(world.pool().select(list(COLUMNS)), upstream.truth())


@example(seed=117)  # a second flush that comes after the commit
@example(seed=126)  # one that was lost: only the scan has it
@example(seed=3005)  # a scan that brings back what was settled
@settings(max_examples=6, deadline=None, suppress_health_check=list(HealthCheck))
@given(seed=st.integers(0, 2**32))
def test_the_pool_is_what_was_committed(seed: int) -> None:
    run(seed)
