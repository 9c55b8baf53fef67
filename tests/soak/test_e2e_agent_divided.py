"""The set `large` (transactions of 8,000 rows, rollbacks, a store that goes down) through two agents and the platform,
while their territories are split and merged and one agent dies: pulls are what TiDB said."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from support import plain_http, platform
from support.agent_process import AgentProcess
from support.compare import shown, tenant_differences
from support.emulated import EmulatedTikv
from support.platform import COMMAND, Platform
from support.territory_agents import agents_tenant, connect, territory_agent
from support.waiting import eventually
from tistream.model.ids import TenantKey

SPEED = 0.05  # the two seconds of the record take forty


@pytest.fixture
def up(tmp_path: Path) -> Iterator[Platform]:
    with platform.running(tmp_path / "platform", ranges=4) as started:
        yield started


@pytest.fixture
def tikv() -> Iterator[EmulatedTikv]:
    started = EmulatedTikv("large", speed=SPEED).start()
    yield started
    started.stop()


def _divide(up: Platform, tikv: EmulatedTikv, tenant: TenantKey, parents: list[int], into: int) -> None:
    of = ["--cluster", tenant.cluster_id, "--tenant", tenant.tenant_id, "--pd", tikv.address, "--url", up.url]
    which = [text for number in parents for text in ("--territory", str(number))]
    command = [str(COMMAND), "agent", "divide", *of, "--objects", str(up.objects), *which, "--into", str(into)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def _running(up: Platform, tenant: TenantKey) -> dict[int, str]:
    """The agent of each territory that runs."""
    path = f"{up.url}/v1/clusters/{tenant.cluster_id}/tenants/{tenant.tenant_id}/territories"
    found = plain_http.get(path).json()["territories"]
    return {int(one["territory"]): one["node_id"] for one in found if (one["said"] or {}).get("state") == "running"}


# Attack: under load a territory is split, an agent is killed, and the two are merged while the next one takes over
def test_territories_that_are_split_and_merged_under_load_lose_and_repeat_nothing(
    up: Platform, tikv: EmulatedTikv, tmp_path: Path
) -> None:
    loaded = agents_tenant(up, "divided", of="large")
    tenant, agents = loaded.tenant, dict[str, AgentProcess]()
    try:
        for name in ("agent-1", "agent-2"):
            agents[name] = territory_agent(up, tenant, name, tmp_path).start()
        eventually(lambda: all(agent.territories() is not None for agent in agents.values()))
        consumer = up.create_for(loaded)
        connect(up, tikv, loaded)
        eventually(lambda: set(_running(up, tenant)) == {1})
        _divide(up, tikv, tenant, [1], 3)
        eventually(lambda: set(_running(up, tenant)) == {2, 3, 4})
        assert len(set(_running(up, tenant).values())) == 2
        agents["agent-1"].kill()
        _divide(up, tikv, tenant, [2, 3], 1)
        eventually(lambda: _running(up, tenant) == {4: "agent-2", 5: "agent-2"})
        events = consumer.pull(until_ts=loaded.end_ts, start_ts=loaded.snapshot_ts, limit=400_000)
    finally:
        for agent in agents.values():
            agent.kill()
    problems = tenant_differences(loaded, events)
    assert not problems, shown(problems)
