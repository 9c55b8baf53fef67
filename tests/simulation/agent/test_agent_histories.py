"""Random histories of a model cluster with agents that are killed, paused and taken over: no row is lost."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from support.agent_judge import counted
from support.agent_world import TENANT, AgentWorld
from support.effort import seeds
from support.golden import Delivery
from support.sorter_world import SorterWorld
from tistream.model.ids import TenantKey


@dataclass(frozen=True)
class Origin:
    tenant: TenantKey
    snapshot_ts: int


def check(world: AgentWorld) -> None:
    """The sorter's own ticks commit what the cluster committed, up to the end."""
    cluster = world.cluster
    sorter = SorterWorld(Origin(TENANT, cluster.base_ts), [])
    for number, (key, data) in enumerate(world.files):
        sorter.push(Delivery(0.0, key, data))
        if number % 3 == 2:
            sorter.tick()
    sorter.tick()
    assert sorter.stopped() == []
    assert sorter.progress_ts() >= max((change[2] for change in cluster.committed), default=0)
    rows = sorter.pool().select("key", "start_ts", "commit_ts", "op", "value").rows()
    assert {(key, start, commit, op, value or b"") for key, start, commit, op, value in rows} == cluster.committed
    assert len(rows) == len(cluster.committed)
    assert cluster.scans_below_hold == 0, "a registration at or below the GC hold"


@pytest.mark.parametrize("seed", seeds(12, 300))
def test_no_row_is_lost_in_a_random_history(seed: int) -> None:
    world = AgentWorld(seed)
    world.run(8_000)
    world.settle()
    assert [stop for stop in world.agent_stops if stop.code != "fenced"] == []
    check(world)
    assert counted(world.files, world.cluster.base_ts).waiting == []
