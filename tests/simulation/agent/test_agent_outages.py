"""On the virtual clock: object storage away for ten minutes, and a killed agent whose territory another one moves."""

from __future__ import annotations

import pytest

from support.agent_truth import check
from support.agent_world import TENANT, AgentWorld
from support.effort import seeds
from tistream.model.span import WHOLE
from tistream_meta.decide.liveness import NodeState
from tistream_meta.territories.territory_policy import Agent, Territory, Upstream, assignments

AWAY_MS, STALLED_MS = 600_000, 60_000
BUFFER_BYTES = 400_000
BATCH_BYTES = 40_000  # of the messages that one step takes, with what tables take besides
BEAT_MS = 1_000


# Attack: object storage refuses every file for ten minutes while the cluster works
@pytest.mark.parametrize("seed", seeds(1, 20))
def test_without_object_storage_memory_is_bounded_tikv_is_released_and_nothing_is_lost(seed: int) -> None:
    world = AgentWorld(seed, BUFFER_BYTES)
    world.run(2_000, faults=False)
    cluster, agent = world.cluster, world.holder.agent
    began_ms, files = cluster.now_ms, len(world.objects)
    world.away_until_ms = began_ms + AWAY_MS
    most, released_ms, registered = 0, 0, 0
    while cluster.now_ms < world.away_until_ms - 250:
        world.run(250, 250, faults=False)
        most = max(most, agent.buffer_bytes)
        if not cluster.streams and not released_ms:
            released_ms, registered = cluster.now_ms - began_ms, len(cluster.registered)
    assert len(world.objects) == files
    assert most <= BUFFER_BYTES + BATCH_BYTES
    assert STALLED_MS <= released_ms <= STALLED_MS + 3_000, "TiKV must not queue for an agent that cannot write"
    assert len(cluster.registered) == registered, "it registered again before a file was durable"
    world.settle(120_000)
    assert world.agent_stops == []
    check(world)


# Attack: the holder is killed; nothing but its silence says so
@pytest.mark.parametrize("seed", seeds(3, 60))
def test_a_killed_agents_territory_moves_again_within_fifteen_seconds(seed: int) -> None:
    world = AgentWorld(seed)
    world.run(3_000, faults=False)
    cluster = world.cluster
    killed_ms, killed_ts = cluster.now_ms, cluster.tso()
    world.end(world.holder)
    held = Territory(TENANT, 1, WHOLE, Upstream("pd:2379", 1), 1, "a", "1")
    beat_ms = killed_ms + seed % 7 * 137 % BEAT_MS  # the other agent's beats come at their own time
    while not world.processes:
        cluster.advance(20, work=False)  # a lock that lives on would hold the resolved ts
        if cluster.now_ms >= beat_ms:
            beat_ms += BEAT_MS
            # The last heartbeat of the killed one may have come at the very end.
            silent = Agent("1", NodeState.ALIVE, cluster.now_ms - killed_ms)
            agents = {"a": silent, "b": Agent("1", NodeState.ALIVE, 0)}
            if any(one.node_id == "b" for one, _ in assignments([held], agents)):
                world.start()
    while world.holder.agent.hold_ts < killed_ts:
        world.run(100, faults=False, work=False)
        assert cluster.now_ms - killed_ms <= 15_000
    world.settle()
    check(world)
