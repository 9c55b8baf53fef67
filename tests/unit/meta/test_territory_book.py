"""Territories at the meta server: who is given which, what a take-over takes, and what operators see."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from support.audit_world import ACME, World
from tistream_meta.metrics import MetaMetrics
from tistream_meta.territories.territory_book import TerritoryBook
from tistream_meta.territories.territory_watch import TerritoryWatch

PATH = f"{ACME}/territories"
ONE = {"territory": "1", "pd": "pd-1:2379,pd-2:2379", "pd_cluster_id": "17"}
UPSTREAM = {"upstream": {"pd": "pd-1:2379,pd-2:2379", "pd_cluster_id": "17", "kind": "tidb", "keyspace": ""}}


class Agents:
    """Agents that register, send heartbeats, and beat for territories."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.starts: dict[str, dict[str, Any]] = {}
        self.sequence = 0

    def start(self, node: str) -> None:
        start_epoch = self.world.ask("POST", f"/upcall/v1/nodes/{node}/starts")["start_epoch"]
        self.starts[node] = {"instance": f"{node}-{start_epoch}", "start_epoch": start_epoch}
        told = {"role": "agent", "url": f"http://{node}"}
        self.world.ask("PUT", f"/upcall/v1/nodes/{node}", self.starts[node] | told)

    def heartbeat(self, *nodes: str) -> None:
        for node in nodes:
            self.sequence += 1
            self.world.ask(
                "POST", f"/upcall/v1/nodes/{node}/heartbeat", self.starts[node] | {"sequence": self.sequence}
            )

    def beat(self, node: str, *reports: dict[str, Any], instance: str = "", serves: str = "") -> dict[str, int]:
        """The territories that an agent is to hold, with their epochs."""
        body = {
            "node_id": node,
            "instance": instance or self.starts[node]["instance"],
            "serves": serves,
            "reports": reports,
        }
        answer = self.world.ask("POST", "/upcall/v1/territories/beats", body)
        return {one["territory"]: one["epoch"] for one in answer["territories"]}


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    made = World(tmp_path)
    made.tenant("acme")
    yield made
    made.repository.close()


@pytest.fixture
def agents(world: World) -> Agents:
    made = Agents(world)
    made.start("agent-1")
    made.start("agent-2")
    world.ask("POST", PATH, ONE)
    return made


def test_territories_without_an_agent_are_counted_by_the_owner_only(world: World, agents: Agents) -> None:
    registry, owner = CollectorRegistry(), [True]
    book = world.repository.part(TerritoryBook)
    watch = TerritoryWatch(book, world.server.owned().agents, lambda: owner[0], MetaMetrics(registry))

    def held() -> tuple[float | None, ...]:
        watch.step()
        return tuple(registry.get_sample_value("tistream_meta_territories", {"held": one}) for one in ("yes", "no"))

    assert held() == (0, 1)
    agents.beat("agent-1")
    assert held() == (1, 0)
    world.clock.advance(5_100)
    assert held() == (0, 1)
    owner[0] = False
    assert held() == (0, 0)
    owner[0] = True
    world.ask("DELETE", f"{PATH}/1")
    assert held() == (0, 0)


def test_a_territory_has_one_agent_which_learns_what_to_read(world: World, agents: Agents) -> None:
    assert agents.beat("agent-1") == {"1": 1}
    assert agents.beat("agent-2") == {}
    assert agents.beat("agent-1") == {"1": 1}, "nothing moves"
    [one] = world.ask("GET", PATH)["territories"]
    assert one == ONE | {
        "cluster_id": "7",
        "tenant_id": "acme",
        "kind": "tidb",
        "keyspace": "",
        "start_key": "",
        "end_key": "",
        "epoch": 1,
        "node_id": "agent-1",
        "said": None,
    }


def test_a_silent_agent_is_replaced_and_is_given_nothing_when_it_wakes(world: World, agents: Agents) -> None:
    agents.beat("agent-1")
    agents.beat("agent-2")
    world.clock.advance(4_900)
    agents.heartbeat("agent-2")
    assert agents.beat("agent-2") == {}
    world.clock.advance(200)
    assert agents.beat("agent-2") == {"1": 2}
    assert agents.beat("agent-1") == {}
    agents.heartbeat("agent-1", "agent-2")
    assert (agents.beat("agent-1"), agents.beat("agent-2")) == ({}, {"1": 2}), "it is not handed back"


def test_a_restarted_agent_goes_on_and_its_former_start_holds_nothing(world: World, agents: Agents) -> None:
    agents.beat("agent-1")
    old = agents.starts["agent-1"]["instance"]
    agents.start("agent-1")
    assert agents.beat("agent-1") == {"1": 2}
    assert agents.beat("agent-1", instance=old) == {}


def test_a_drained_agent_hands_its_territories_over(world: World, agents: Agents) -> None:
    agents.beat("agent-1")
    agents.beat("agent-2")
    world.ask("POST", "/v1/nodes/agent-1/drain", {"draining": True})
    assert agents.beat("agent-1") == {}
    assert agents.beat("agent-2") == {"1": 2}
    assert {one["node_id"]: one["state"] for one in world.ask("GET", "/v1/nodes")["nodes"]} == {
        "agent-1": "draining",
        "agent-2": "alive",
    }


def test_an_agent_for_another_cluster_is_given_nothing(agents: Agents) -> None:
    assert agents.beat("agent-1", serves="18") == {}
    assert agents.beat("agent-2", serves="17") == {"1": 1}


def test_what_the_holder_says_is_shown_and_what_others_say_is_not(world: World, agents: Agents) -> None:
    agents.beat("agent-1")
    said = {"state": "running", "reason": "region 4 on store 1 scans", "resolved_ts": "90", "lag_ms": 1200}
    of = {"cluster_id": "7", "tenant_id": "acme", "territory": "1"}
    agents.beat("agent-1", {**of, **said, "epoch": 1})
    [one] = world.ask("GET", "/v1/territories")["territories"]
    assert {name: one["said"][name] for name in said} == said
    agents.beat("agent-2", {**of, **said, "epoch": 1, "reason": "of another"})
    [one] = world.ask("GET", "/v1/territories")["territories"]
    assert one["said"]["reason"] == said["reason"]
    agents.beat("agent-1", {**of, **said, "epoch": 0})
    assert world.ask("GET", "/v1/territories")["territories"][0]["said"] is None


def test_a_tenant_that_is_deleted_is_read_by_no_agent(world: World, agents: Agents) -> None:
    agents.beat("agent-1")
    world.ask("PUT", f"{ACME}/deletion", {"confirm": "acme", "grace_ms": "86400000"})
    assert agents.beat("agent-1") == {}
    world.ask("DELETE", f"{ACME}/deletion")
    assert agents.beat("agent-1") == {"1": 1}


def test_adding_and_removing_are_recorded_once(world: World, agents: Agents) -> None:
    assert world.client.post(PATH, json=ONE).status_code == 200
    world.ask("DELETE", f"{PATH}/1")
    found = [one for one in world.entries(limit=1000) if one["subject"] == "territory 1 of tenant 7/acme"]
    assert [(one["action"], one["was"], one["became"]) for one in found] == [
        ("AddTerritory", None, UPSTREAM),
        ("RemoveTerritory", UPSTREAM, None),
    ]
    gone = world.client.delete(f"{PATH}/1")
    assert (gone.status_code, "it has none" in gone.text) == (404, True)


REPLACED = {
    "territories": ["1"],
    "by": [{"territory": "2", "end_key": "74"}, {"territory": "3", "start_key": "74"}],
    "pd": ONE["pd"],
    "pd_cluster_id": ONE["pd_cluster_id"],
}


def test_territories_are_replaced_in_one_step_which_may_be_repeated(world: World, agents: Agents) -> None:
    agents.beat("agent-1")
    for _ in range(2):
        found = world.ask("POST", f"{PATH}/replacements", REPLACED)["territories"]
        assert [(one["territory"], one["start_key"], one["end_key"]) for one in found] == [
            ("2", "", "74"),
            ("3", "74", ""),
        ]
    assert agents.beat("agent-1") == {"2": 1, "3": 1}
    found = [one for one in world.entries(limit=1000) if one["action"] == "ReplaceTerritories"]
    assert [(one["subject"], one["was"], one["became"]) for one in found] == [
        ("territory 1 of tenant 7/acme", UPSTREAM, None),
        ("territory 2 of tenant 7/acme", None, UPSTREAM),
        ("territory 3 of tenant 7/acme", None, UPSTREAM),
    ]


# Attack: territories are replaced by ones that another one is in the way of
@pytest.mark.parametrize(
    ("status", "wrong"),
    [
        (409, {"territories": []}),
        (409, {"by": [{"territory": "2"}, {"territory": "3", "start_key": "74"}]}),
        (400, {"by": [{"territory": "2", "start_key": "75", "end_key": "74"}]}),
        (400, {"by": [{"territory": "2", "pd": "pd-2:2379"}]}),
        (400, {"territories": ["one"]}),
        (400, {"territories": [str(2**63)]}),
    ],
)
def test_territories_that_cannot_be_replaced_stay(
    world: World, agents: Agents, status: int, wrong: dict[str, Any]
) -> None:
    answer = world.client.post(f"{PATH}/replacements", json=REPLACED | wrong)
    assert answer.status_code == status, answer.text
    assert [one["territory"] for one in world.ask("GET", PATH)["territories"]] == ["1"]


# Attack: a territory is removed, or one of the new ones, before a division that died is finished
def test_a_replacement_does_not_bring_back_what_was_removed(world: World, agents: Agents) -> None:
    world.ask("DELETE", f"{PATH}/1")
    refused = world.client.post(f"{PATH}/replacements", json=REPLACED)
    assert (refused.status_code, refused.json()["type"]) == (409, "tistream:already-differs")
    assert "territory 1 of tenant 7/acme was removed meanwhile" in refused.json()["detail"]
    assert world.ask("GET", PATH)["territories"] == []
    world.ask("POST", PATH, ONE)
    world.ask("POST", f"{PATH}/replacements", REPLACED)
    world.ask("DELETE", f"{PATH}/3")
    assert world.client.post(f"{PATH}/replacements", json=REPLACED).status_code == 409
    assert [one["territory"] for one in world.ask("GET", PATH)["territories"]] == ["2"]


@pytest.mark.parametrize(
    ("status", "wrong"),
    [
        (409, {"pd_cluster_id": "18"}),
        (409, {"territory": "2", "start_key": "74"}),
        (400, {"territory": "0"}),
        (400, {"territory": str(2**63)}),
        (400, {"territory": "3", "start_key": "75", "end_key": "74"}),
        (400, {"territory": "3", "start_key": "7"}),
        (400, {"territory": "3", "keyspace": "../x"}),
        (400, {"territory": "3", "pd": ""}),
        (400, {"territory": "3", "kind": "mysql"}),
    ],
)
def test_what_cannot_be_a_territory_is_refused(
    world: World, agents: Agents, status: int, wrong: dict[str, str]
) -> None:
    answer = world.client.post(PATH, json=ONE | wrong)
    assert answer.status_code == status, answer.text
    assert len(world.ask("GET", PATH)["territories"]) == 1
