"""A TiKV that nothing was changed on, an agent and the platform as processes: pulls are what TiDB said."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from support import golden
from support.agent_process import AgentProcess
from support.compare import shown, tenant_differences
from support.emulated import EmulatedTikv
from support.golden import GoldenSet
from support.platform import Platform
from support.waiting import eventually

SPEED = 0.35  # the seven seconds of the record take twenty


@pytest.fixture
def tikv() -> Iterator[EmulatedTikv]:
    started = EmulatedTikv(speed=SPEED).start()
    yield started
    started.stop()


def _tenant(up: Platform, name: str) -> GoldenSet:
    loaded = golden.load_as("everything", "8", name)
    golden.put(up.objects, loaded.schema_snap)
    return loaded


def _agent(up: Platform, tikv: EmulatedTikv, loaded: GoldenSet, tmp_path: Path) -> AgentProcess:
    settings = {"API_URL": up.url, "CUT_MS": "200", "IDLE_CUT_MS": "500"}
    return AgentProcess(tikv.address, loaded.tenant, up.objects, tmp_path / "agent.log", settings)


# Attack: an agent is killed while rows arrive, and again while it scans
def test_an_agent_that_is_killed_loses_and_repeats_nothing(up: Platform, tikv: EmulatedTikv, tmp_path: Path) -> None:
    loaded = _tenant(up, "agent-killed")
    agent = _agent(up, tikv, loaded, tmp_path).start()
    try:
        eventually(lambda: tikv.registrations)  # then its chain has begun; the registry deletes schema_snap
        consumer = up.create_for(loaded)
        eventually(lambda: agent.reached(loaded.snapshot_ts + 1))
        agent.kill()
        first = tikv.registrations
        agent.start()
        eventually(lambda: tikv.registrations > first)
        agent.kill()
        agent.start()
        events = consumer.pull(until_ts=loaded.end_ts, start_ts=loaded.snapshot_ts, limit=200_000)
        # What a restart registers from is what its files hold, not the beginning.
        later = [request.checkpoint_ts for request in tikv.subscribed()]
    finally:
        agent.kill()
    assert {"epoch_not_match", "not_leader"} <= set(tikv.upstream.counters.errors)
    problems = tenant_differences(loaded, events)
    assert not problems, shown(problems)
    assert later
    assert min(later) > loaded.snapshot_ts
