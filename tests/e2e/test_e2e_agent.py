"""A TiKV that nothing was changed on, an agent and the platform as processes: pulls are what TiDB said.

Agents that die and sleep: service/agent/test_agent_nodes.py, and with the whole platform
soak/test_e2e_agents_killed.py.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from support.compare import shown, tenant_differences
from support.emulated import EmulatedTikv
from support.platform import Platform
from support.territory_agents import agents_tenant, connect, territory_agent

SPEED = 2  # the seven seconds of the record take some three


@pytest.fixture
def tikv() -> Iterator[EmulatedTikv]:
    started = EmulatedTikv(speed=SPEED).start()
    yield started
    started.stop()


def test_an_agent_that_the_platform_gives_a_tenant_loses_and_repeats_nothing(
    up: Platform, tikv: EmulatedTikv, tmp_path: Path
) -> None:
    loaded = agents_tenant(up, "agent")
    consumer = up.create_for(loaded)
    connect(up, tikv, loaded)
    agent = territory_agent(up, loaded.tenant, "agent-1", tmp_path).start()
    try:
        events = consumer.pull(until_ts=loaded.end_ts, start_ts=loaded.snapshot_ts, limit=200_000)
    finally:
        agent.kill()
    problems = tenant_differences(loaded, events)
    assert not problems, shown(problems)
