"""The set `large` (transactions of 8,000 rows, rollbacks, a store that goes down) through two agents and the platform,
while their territories are split and merged and one agent dies: pulls are what TiDB said."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from support import platform
from support.agent_process import AgentProcess
from support.compare import shown, tenant_differences
from support.emulated import EmulatedTikv
from support.platform import COMMAND, Platform
from support.territory_agents import agents_tenant, connect, running, territory_agent
from support.waiting import awaited, eventually
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

    def divided() -> bool:
        """A command that did not finish is run again, as it says."""
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        print(done.stdout, done.stderr)
        return done.returncode == 0

    eventually(divided)


def _parts(up: Platform, tenant: TenantKey) -> list[int]:
    """The three territories in place of the first one, once two agents run them; before that none."""
    now = running(up, tenant)
    return sorted(now) if len(now) == 3 and 1 not in now and len(set(now.values())) == 2 else []


def _is_merged(now: dict[int, str], pair: list[int], last: int) -> bool:
    """Whether another territory runs in place of the pair, and the second agent has all that there is."""
    return len(now) == 2 and last in now and now.keys().isdisjoint(pair) and set(now.values()) == {"agent-2"}


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
        eventually(lambda: set(running(up, tenant)) == {1})
        _divide(up, tikv, tenant, [1], 3)
        *pair, last = awaited(lambda: _parts(up, tenant))
        agents["agent-1"].kill()
        _divide(up, tikv, tenant, pair, 1)
        eventually(lambda: _is_merged(running(up, tenant), pair, last))
        events = consumer.pull(until_ts=loaded.end_ts, start_ts=loaded.snapshot_ts, limit=400_000)
    finally:
        for agent in agents.values():
            agent.kill()
    problems = tenant_differences(loaded, events)
    assert not problems, shown(problems)
