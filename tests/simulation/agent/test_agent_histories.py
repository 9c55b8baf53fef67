"""Random histories of a model cluster with agents that are killed, paused and taken over: no row is lost."""

from __future__ import annotations

import pytest

from support.agent_judge import counted
from support.agent_truth import check
from support.agent_world import AgentWorld
from support.effort import seeds


@pytest.mark.parametrize("seed", seeds(5, 300))
def test_no_row_is_lost_in_a_random_history(seed: int) -> None:
    world = AgentWorld(seed)
    world.run(8_000)
    world.settle()
    assert [stop for stop in world.agent_stops if stop.code != "fenced"] == []
    check(world)
    assert counted(world.files, world.cluster.base_ts).waiting == []
