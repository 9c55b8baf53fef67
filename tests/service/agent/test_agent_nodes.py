"""Two agents as processes and a meta server: who holds a territory when one dies, sleeps, or is drained."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from support import golden, plain_http
from support.agent_judge import counted
from support.agent_process import AgentProcess
from support.emulated import EmulatedTikv
from support.http_world import CLOCK, LEASE_MS, LOST_MS, Server
from support.waiting import PATIENCE_S, eventually
from tistream.errors import InvalidRequest
from tistream.format import change_file
from tistream.model.ids import TenantKey
from tistream.model.span import WHOLE
from tistream.model.tenant_kind import TenantKind
from tistream.storage import layout
from tistream.storage.backends.directory import DirectoryObjectStore
from tistream.storage.change_reader import open_change_file
from tistream_agent.connecting.checks import Check
from tistream_agent.connecting.divider import Divider
from tistream_agent.connecting.platform import PlatformApi, TenantTerritories
from tistream_agent.upstream.keyspaces import tenant_keys
from tistream_agent.upstream.pd import PdClient
from tistream_agent.upstream.stores import Channels, TlsFiles
from tistream_meta.app import build_app
from tistream_meta.settings import MetaSettings
from tistream_meta.territories import territory_policy

SPEED = 0.2  # the seven seconds of the record take 35


class World:
    """A meta server with one connected tenant, its TiKV, and agents that the meta server gives territories."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.loaded = golden.load_as("everything", "7", "nodes")
        self.objects = DirectoryObjectStore(directory / "objects")
        self.objects.put(layout.schema_snap(self.tenant), self.loaded.schema_snap.data)
        self.tikv = EmulatedTikv(speed=SPEED).start()
        self.meta = self._start_meta(0)
        self.ask("POST", "/v1/clusters/7/tenants", {"tenant_id": "nodes"})
        self.agents: dict[str, AgentProcess] = {}

    @property
    def tenant(self) -> TenantKey:
        return self.loaded.tenant

    def _start_meta(self, port: int) -> Server:
        url = f"sqlite:///{self.directory}/meta.db"
        timings = {"lease_ms": LEASE_MS, "suspect_ms": LOST_MS // 2, "lost_ms": LOST_MS}
        server = Server(build_app(MetaSettings(port=port, database_url=url, **timings), self.objects, CLOCK), port)
        eventually(lambda: plain_http.get(f"{server.url}/readyz").status_code == 200)
        return server

    def ask(self, method: str, path: str, body: Any = None) -> Any:
        answer = plain_http.request(method, self.meta.url + path, json=body)
        assert answer.is_success, answer.text
        return answer.json()

    def add_territory(self) -> None:
        body = {"territory": "1", "pd": self.tikv.address, "pd_cluster_id": str(self.tikv.cluster_id)}
        self.ask("POST", "/v1/clusters/7/tenants/nodes/territories", body)

    def agent(self, name: str) -> AgentProcess:
        settings = {
            **dict.fromkeys(("PD", "CLUSTER", "TENANT"), ""),
            "NODE_ID": name,
            "META_URL": self.meta.url,
            "CUT_MS": "100",
            "IDLE_CUT_MS": "200",
        }
        made = AgentProcess("", self.tenant, self.directory / "objects", self.directory / f"{name}.log", settings)
        self.agents[name] = made.start()
        return made

    def holder(self) -> str | None:
        [one] = self.ask("GET", "/v1/territories")["territories"]
        found: str | None = one["node_id"]
        return found

    def said(self) -> dict[str, Any]:
        [one] = self.ask("GET", "/v1/territories")["territories"]
        return one["said"] or {}

    def nonces(self) -> list[str]:
        """Of all files of the chain, in order; those that follow one with the same nonce left out."""
        found: list[str] = []
        for info in self.objects.list_after(layout.change_file_prefix(self.tenant, 1)):
            nonce = change_file.footer_metadata(info.key, open_change_file(self.objects, info.key).footer)[
                "tistream.agent_nonce"
            ]
            found += [nonce] if found[-1:] != [nonce] else []
        return found

    def files(self) -> list[tuple[str, bytes]]:
        """The files of all chains, one chain after the other."""
        found = [
            layout.parse_change_file(info.key) for info in self.objects.list_after(layout.push_prefix(self.tenant))
        ]
        keys = [layout.change_file(*one) for one in sorted(one for one in found if one is not None)]
        return [(key, self.objects.get(key)) for key in keys]

    def divide(self, parents: list[int], into: int, noticed: Callable[[], bool]) -> None:
        """What `tistream agent divide` does; it waits until the agents have noticed."""
        pd = PdClient([self.tikv.address], Channels(TlsFiles()), deadline_s=PATIENCE_S)
        upstream = self.tikv.address, self.tikv.cluster_id, TenantKind.TIDB, ""
        assigned = TenantTerritories(PlatformApi(self.meta.url, {}), self.tenant, *upstream)
        owned = tenant_keys(pd, TenantKind.TIDB, "")
        shown = list[Check]()
        divider = Divider(
            *(self.tenant, owned, pd, self.objects, assigned, lambda _: eventually(noticed), shown.append, "c0ffee")
        )
        divider.divide(parents, into)
        assert all(check.passed for check in shown)

    def close(self) -> None:
        for agent in self.agents.values():
            agent.kill()
        self.meta.stop()
        self.tikv.stop()


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    made = World(tmp_path)
    yield made
    made.close()


def none_is_lost(patch: pytest.MonkeyPatch) -> None:
    """From now on an agent that comes to nothing for some seconds keeps its territory."""
    patch.setattr(territory_policy, "LOST_MS", int(PATIENCE_S * 1000))


def reads_no_more(agent: AgentProcess, territory: int) -> bool:
    """Whether the agent says so; an agent that does not answer says nothing."""
    found = agent.territories()
    return found is not None and not any(
        int(one["territory"]) == territory and one["state"] == "running" for one in found
    )


def _pair(world: World) -> tuple[AgentProcess, AgentProcess]:
    """(the agent that holds the territory, the other one)."""
    for name in ("agent-1", "agent-2"):
        world.agent(name)
    eventually(lambda: {node["node_id"] for node in world.ask("GET", "/v1/nodes")["nodes"]} == set(world.agents))
    world.add_territory()
    eventually(lambda: world.said().get("state") == "running")
    holder = world.agents[world.holder() or ""]
    [other] = [agent for agent in world.agents.values() if agent is not holder]
    return holder, other


# Attack: the agent of a territory is killed, another sleeps and wakes while its successor works
def test_a_killed_and_a_sleeping_agent_are_replaced_and_one_that_wakes_gives_up(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = _pair(world)
    first.kill()
    eventually(lambda: world.holder() == second.settings["NODE_ID"] and world.said().get("state") == "running")
    first.start()
    second.send(signal.SIGSTOP)
    eventually(lambda: world.holder() == first.settings["NODE_ID"] and world.said().get("state") == "running")
    none_is_lost(monkeypatch)
    second.send(signal.SIGCONT)
    eventually(lambda: second.territories() == [])
    assert second.ended() is None, "as a node it goes on: it may be given other territories"
    world.tikv.play_out()
    eventually(lambda: first.reached(world.loaded.end_ts))
    assert len(world.nonces()) == len(set(world.nonces())), "no agent has pushed after it was fenced"


# Attack: no meta server for a while
def test_without_meta_servers_the_holder_goes_on(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    none_is_lost(monkeypatch)
    first, _ = _pair(world)
    world.meta.stop()
    reached = first.resolved_ts
    eventually(lambda: first.resolved_ts > reached)
    world.tikv.play_out()
    eventually(lambda: first.reached(world.loaded.end_ts))
    assert first.status()["state"] == "running"
    world.meta = world._start_meta(world.meta.port)
    eventually(lambda: world.said().get("state") == "running")


def test_a_drained_agent_hands_over_and_a_territory_is_divided_and_removed_while_it_is_read(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    none_is_lost(monkeypatch)
    first, second = _pair(world)
    world.ask("POST", f"/v1/nodes/{first.settings['NODE_ID']}/drain", {"draining": True})
    eventually(lambda: world.said().get("state") == "running" and second.territories() != [])
    eventually(lambda: first.territories() == [])
    world.divide([1], 2, lambda: reads_no_more(second, 1))
    eventually(lambda: second.held() == {2, 3})
    world.tikv.play_out()
    world.divide([2, 3], 1, lambda: second.held() == {4})
    eventually(lambda: second.reached(world.loaded.end_ts))
    slices = counted(world.files(), world.loaded.snapshot_ts)
    assert slices.waiting == []
    assert slices.watermark() >= world.loaded.end_ts
    world.ask("DELETE", "/v1/clusters/7/tenants/nodes/territories/4")
    eventually(lambda: second.territories() == [])


# Attack: territories are divided, or others added, by a command that names another keyspace, kind or cluster
def test_a_command_for_another_keyspace_or_cluster_does_not_touch_the_territories(world: World) -> None:
    world.add_territory()
    api, pd, cluster = PlatformApi(world.meta.url, {}), world.tikv.address, world.tikv.cluster_id
    assert TenantTerritories(api, world.tenant, "pd:1", cluster, TenantKind.TIDB, "").spans() == {1: WHOLE}
    for other in ((cluster, TenantKind.TIDB, "other"), (cluster, TenantKind.RAW, ""), (5, TenantKind.TIDB, "")):
        with pytest.raises(
            InvalidRequest, match=f"territory 1 is of PD cluster {cluster}, --kind tidb and --keyspace ''"
        ):
            TenantTerritories(api, world.tenant, pd, *other).spans()
