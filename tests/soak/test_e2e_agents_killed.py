"""Agents that the platform gives a tenant die and sleep while rows arrive: pulls are what TiDB said."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from support import platform
from support.compare import shown, tenant_differences
from support.emulated import EmulatedTikv
from support.platform import Platform
from support.territory_agents import agents_tenant, connect, holder_of, running, territory_agent
from support.waiting import awaited, eventually

SPEED = 0.35  # the seven seconds of the record take twenty


@pytest.fixture
def up(tmp_path: Path) -> Iterator[Platform]:
    with platform.running(tmp_path / "platform", ranges=4) as started:
        yield started


@pytest.fixture
def tikv() -> Iterator[EmulatedTikv]:
    started = EmulatedTikv(speed=SPEED).start()
    yield started
    started.stop()


# Attack: the agent of a territory is killed while rows arrive; its successor is stopped, and wakes
def test_two_agents_of_which_one_dies_and_one_sleeps_lose_and_repeat_nothing(
    up: Platform, tikv: EmulatedTikv, tmp_path: Path
) -> None:
    loaded = agents_tenant(up, "agents")
    tenant = loaded.tenant
    agents = {name: territory_agent(up, tenant, name, tmp_path).start() for name in ("agent-1", "agent-2")}
    try:
        eventually(lambda: all(agent.territories() is not None for agent in agents.values()))
        consumer = up.create_for(loaded)
        connect(up, tikv, loaded)
        # An agent that is not scheduled for five seconds loses the territory to the other one.
        eventually(lambda: any(agent.reached(loaded.snapshot_ts + 1) for agent in agents.values()))
        [holder] = awaited(lambda: running(up, tenant)).values()
        first = agents[holder]
        [second] = [agent for agent in agents.values() if agent is not first]
        first.kill()
        eventually(lambda: holder_of(up, tenant) == (second.settings["NODE_ID"], "running"))
        first.start()
        second.send(signal.SIGSTOP)
        eventually(lambda: holder_of(up, tenant) == (first.settings["NODE_ID"], "running"))
        second.send(signal.SIGCONT)
        events = consumer.pull(until_ts=loaded.end_ts, start_ts=loaded.snapshot_ts, limit=200_000)
        # What a successor registers from is what the files hold, not the beginning.
        later = awaited(lambda: [request.checkpoint_ts for request in tikv.subscribed()])
        eventually(lambda: sorted(len(agent.held()) for agent in agents.values()) == [0, 1])
    finally:
        for agent in agents.values():
            agent.kill()
    assert {"epoch_not_match", "not_leader"} <= set(tikv.upstream.counters.errors)
    problems = tenant_differences(loaded, events)
    assert not problems, shown(problems)
    assert min(later) > loaded.snapshot_ts
