"""A TiKV that nothing was changed on, an agent and the platform as processes: pulls are what TiDB said."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from support import golden, plain_http
from support.agent_process import AgentProcess
from support.compare import shown, tenant_differences
from support.emulated import EmulatedTikv
from support.golden import GoldenSet
from support.platform import Platform
from support.waiting import eventually
from tistream.model.ids import TenantKey
from tistream.model.span import WHOLE
from tistream.storage.backends.directory import DirectoryObjectStore
from tistream_agent.core.chain import new_chain
from tistream_agent.core.cutter import Draft

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


def _agent(up: Platform, name: str, tmp_path: Path) -> AgentProcess:
    """An agent that the platform gives territories."""
    settings = {
        **dict.fromkeys(("PD", "CLUSTER", "TENANT"), ""),
        "NODE_ID": name,
        "META_URL": f"http://127.0.0.1:{up.ports()['meta']}",
        "SERVICE_KEY_FILE": str(up.data_dir / "secrets" / "service.key"),
        "CUT_MS": "200",
        "IDLE_CUT_MS": "500",
    }
    return AgentProcess("", TenantKey("8", name), up.objects, tmp_path / f"{name}.log", settings, up.service_headers)


def _connect(up: Platform, tikv: EmulatedTikv, loaded: GoldenSet) -> None:
    """Begin the chain at the recorded snapshot, which the registry deletes, and register the territory."""
    begin = new_chain(WHOLE, loaded.snapshot_ts)
    draft = Draft(
        tenant=loaded.tenant,
        store_id=1,
        ts=begin.next_ts,
        prev_ts=0,
        nonce="c0ffee",
        epoch=0,
        promises=begin.promises,
        carried=begin.promises,
        changes=(),
        watermarks=(),
        size=0,
    )
    DirectoryObjectStore(up.objects).put_new(draft.key, draft.data())
    body = {"territory": "1", "pd": tikv.address, "pd_cluster_id": str(tikv.cluster_id)}
    of = loaded.tenant
    path = f"{up.url}/v1/clusters/{of.cluster_id}/tenants/{of.tenant_id}/territories"
    answer = plain_http.post(path, json=body)
    assert answer.status_code == 201, answer.text


def _holder(up: Platform, tenant: TenantKey) -> tuple[str | None, str]:
    """(the agent that holds the tenant's territory, the state that it has reported)."""
    path = f"{up.url}/v1/clusters/{tenant.cluster_id}/tenants/{tenant.tenant_id}/territories"
    [one] = plain_http.get(path).json()["territories"]
    return one["node_id"], (one["said"] or {}).get("state", "")


# Attack: the agent of a territory is killed while rows arrive; its successor is stopped, and wakes
def test_two_agents_of_which_one_dies_and_one_sleeps_lose_and_repeat_nothing(
    up: Platform, tikv: EmulatedTikv, tmp_path: Path
) -> None:
    loaded = _tenant(up, "agents")
    agents = {name: _agent(up, name, tmp_path).start() for name in ("agent-1", "agent-2")}
    try:
        eventually(lambda: all(agent.territories() is not None for agent in agents.values()))
        consumer = up.create_for(loaded)
        _connect(up, tikv, loaded)
        eventually(lambda: _holder(up, loaded.tenant)[1] == "running")
        first = agents[_holder(up, loaded.tenant)[0] or ""]
        [second] = [agent for agent in agents.values() if agent is not first]
        eventually(lambda: first.reached(loaded.snapshot_ts + 1))
        first.kill()
        eventually(lambda: _holder(up, loaded.tenant) == (second.settings["NODE_ID"], "running"))
        first.start()
        second.send(signal.SIGSTOP)
        eventually(lambda: _holder(up, loaded.tenant) == (first.settings["NODE_ID"], "running"))
        second.send(signal.SIGCONT)
        events = consumer.pull(until_ts=loaded.end_ts, start_ts=loaded.snapshot_ts, limit=200_000)
        # What a successor registers from is what the files hold, not the beginning.
        later = [request.checkpoint_ts for request in tikv.subscribed()]
        eventually(lambda: second.territories() == [])
    finally:
        for agent in agents.values():
            agent.kill()
    assert {"epoch_not_match", "not_leader"} <= set(tikv.upstream.counters.errors)
    problems = tenant_differences(loaded, events)
    assert not problems, shown(problems)
    assert later
    assert min(later) > loaded.snapshot_ts
