"""Random histories of a model cluster with agents that are killed, paused and taken over: no row is lost."""

from __future__ import annotations

import pytest

from support.agent_divisions import DivisionWorld
from support.agent_judge import counted
from support.agent_model import KEYS
from support.agent_truth import check
from support.agent_world import AgentWorld
from support.effort import seeds
from tistream.model.span import WHOLE, merge_spans


@pytest.mark.parametrize("seed", seeds(3, 300))
def test_no_row_is_lost_in_a_random_history(seed: int) -> None:
    _lives_through(AgentWorld(seed))


@pytest.mark.parametrize("seed", seeds(2, 300))
def test_no_row_is_lost_if_regions_share_logs(seed: int) -> None:
    _lives_through(AgentWorld(seed, range_bounds=() if seed % 2 else (KEYS[7], KEYS[15])))


@pytest.mark.parametrize("seed", seeds(1, 300))
def test_no_write_of_rawkv_is_lost_in_a_random_history(seed: int) -> None:
    _lives_through(AgentWorld(seed, raw=True))


# Attack: territories are split and merged under load, by commands that are killed half way, repeated, and run twice
@pytest.mark.parametrize("seed", seeds(2, 300))
def test_no_row_is_lost_while_territories_are_divided(seed: int) -> None:
    world = DivisionWorld(seed, range_bounds=None if seed % 3 else (KEYS[7], KEYS[15]))
    world.run(400, faults=False)
    world.divide((1,), 2)
    world.run(6_000)
    world.finish()
    assert world.done > 0
    world.settle()
    assert [stop for stop in world.agent_stops if stop.code != "fenced"] == []
    assert merge_spans(world.territories.values(), len(world.territories)) == (WHOLE,)
    assert set(world.holds) == set(world.territories), (
        "a hold of a territory that is gone, or none of one that is there"
    )
    check(world, world.arrivals())
    assert counted(world.files, world.cluster.base_ts).waiting == []


def _lives_through(world: AgentWorld) -> None:
    world.run(8_000)
    world.settle()
    assert [stop for stop in world.agent_stops if stop.code != "fenced"] == []
    check(world)
    assert counted(world.files, world.cluster.base_ts).waiting == []
