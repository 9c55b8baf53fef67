"""The agent of a territory finishes the division that has ended its chain, if the command that began it has died."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from support import plain_http
from support.emulated import EmulatedTikv
from support.http_world import CLOCK, Server
from support.turns import Died
from support.virtual_waits import VirtualWaits
from support.waiting import PATIENCE_S, eventually
from tistream.clock import ManualClock
from tistream.concurrency import installed
from tistream.errors import AlreadyDiffers, InvalidRequest
from tistream.model.ids import TenantKey
from tistream.model.span import KeySpan
from tistream.model.tenant_kind import TenantKind
from tistream.storage import layout
from tistream.storage.backends.memory import MemoryObjectStore
from tistream.wire.clients.client import HttpClient
from tistream.wire.clients.meta_client import MetaClient
from tistream_agent.connecting.checks import Check
from tistream_agent.connecting.connect import Connection, Connector
from tistream_agent.connecting.disconnecting import disconnect
from tistream_agent.connecting.divider import Assignments, Divider
from tistream_agent.connecting.finishing import finish_division
from tistream_agent.connecting.platform import PlatformApi, TenantTerritories
from tistream_agent.core.chain import Child
from tistream_agent.core.cutter import draft_without_rows
from tistream_agent.core.territory import assert_tiled
from tistream_agent.holding.unfinished import DivisionFinisher
from tistream_agent.metrics import AgentMetrics
from tistream_agent.order import Order
from tistream_agent.position import end_of_chain, last_position
from tistream_agent.run import FINISH_AFTER_S, TerritoryRun
from tistream_agent.settings import AgentSettings
from tistream_agent.upstream.gc_hold import PLANNED_TTL_S, TTL_S, GcHold
from tistream_agent.upstream.keyspaces import tenant_keys
from tistream_agent.upstream.pd import PdClient
from tistream_agent.upstream.stores import Channels, TlsFiles
from tistream_meta.app import build_app
from tistream_meta.settings import MetaSettings

TENANT, LOW, HIGH = TenantKey("7", "unfinished"), KeySpan(b"", b"t"), KeySpan(b"t", b"")


class Killing(MemoryObjectStore):
    """The process that puts files is killed when it has put `left` of them."""

    def __init__(self) -> None:
        super().__init__()
        self.left: int | None = None

    def put_new(self, key: str, body: bytes) -> None:
        super().put_new(key, body)
        if self.left is not None and layout.parse_change_file(key) is not None:
            self.left -= 1
            if not self.left:
                self.left = None
                raise Died


class World:
    """A meta server with a tenant whose territories 1 and 2 have been claimed."""

    def __init__(self, directory: Path) -> None:
        self.tikv, self.objects = EmulatedTikv().start(), Killing()
        url = f"sqlite:///{directory}/meta.db"
        self.meta = Server(build_app(MetaSettings(port=0, database_url=url), self.objects, CLOCK), 0)
        eventually(lambda: plain_http.get(f"{self.meta.url}/readyz").status_code == 200)
        made = plain_http.request("POST", f"{self.meta.url}/v1/clusters/7/tenants", json={"tenant_id": "unfinished"})
        assert made.is_success, made.text
        self.pd = PdClient([self.tikv.address], Channels(TlsFiles()), deadline_s=PATIENCE_S)
        upstream = self.tikv.address, self.tikv.cluster_id, TenantKind.TIDB, ""
        self.assigned = TenantTerritories(PlatformApi(self.meta.url, {}), TENANT, *upstream)
        self.shown = list[Check]()
        self.ts = self.connector().connect()
        taken = self.connector(2).divide({1: LOW}, self.ts)
        assert taken == [(2, HIGH)]
        self.assigned.replace((), [Child(1, LOW), Child(2, HIGH)])
        for number, span in ((1, LOW), (2, HIGH)):
            position = last_position(self.objects, TENANT, number, span)
            assert position is not None
            draft = draft_without_rows(TENANT, number, position, "aa")
            self.objects.put_new(draft.key, draft.data())

    def connector(self, territory: int = 1) -> Connector:
        return Connector(
            *(Connection(TENANT, territory), self.pd, Channels(TlsFiles()), self.objects),
            *(lambda _: None, lambda _: None, lambda _: None, self.shown.append, "c0ffee"),
        )

    def divider(self, assigned: Assignments) -> Divider:
        owned = tenant_keys(self.pd, TenantKind.TIDB, "")
        return Divider(*(TENANT, owned, self.pd, self.objects, assigned, lambda _: None, self.shown.append, "dead"))

    def killed(self, parents: list[int], into: int, files: int) -> None:
        """A division of the territories is killed when it has put so many files."""
        self.objects.left = files
        with pytest.raises(Died):
            self.divider(self.assigned).divide(parents, into)

    def agent(self, store_id: int, waits: VirtualWaits) -> TerritoryRun:
        """An agent that the platform gives a territory."""
        meta = MetaClient(HttpClient(deadline_s=PATIENCE_S), self.meta.url)
        finisher = DivisionFinisher(self.objects, meta, lambda: "f1", lambda _: None)
        settings = AgentSettings(meta_url=self.meta.url)
        span = {1: LOW, 2: HIGH}[store_id]
        order = Order(TENANT, store_id, (self.tikv.address,), self.tikv.cluster_id, span=span)
        metrics, clock = AgentMetrics(CollectorRegistry()), ManualClock(0)
        with installed(waits):
            return TerritoryRun(
                *(order, settings, self.objects, clock, metrics, lambda: "f0", lambda _: None), finish=finisher.finish
            )

    def disconnect(self, number: int) -> None:
        """What `tistream disconnect` does for a territory; 0: for all."""
        found, api = self.assigned.spans(), PlatformApi(self.meta.url, {})
        disconnect(self.connector, number or None, found, lambda one: api.remove_territory(TENANT, one))

    def held(self, after_s: int = 0) -> set[int]:
        """The territories whose holds on garbage collection last longer than that."""
        return {int(name.rpartition("-")[2]) for name in self.tikv.held_after(after_s)}

    def close(self) -> None:
        self.meta.stop()
        self.tikv.stop()


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    made = World(tmp_path)
    yield made
    made.close()


def _waits(before: Callable[[], Any] = lambda: None) -> VirtualWaits:
    """`before`: called before each wait for the command."""
    return VirtualWaits(ManualClock(0), lambda seconds: before() if seconds == FINISH_AFTER_S else None)


# Attack: a division is killed after any of its files, and the command is never run again
@pytest.mark.parametrize(
    ("parents", "into", "files", "there"),
    [([1], 2, 1, [2, 3, 4]), ([1], 2, 2, [2, 3, 4]), ([1], 2, 3, [2, 3, 4]), ([1, 2], 1, 1, [3]), ([1, 2], 1, 2, [3])],
)
def test_the_agent_finishes_a_division_whose_command_was_killed(
    world: World, parents: list[int], into: int, files: int, there: list[int]
) -> None:
    world.killed(parents, into, files)
    waits = _waits()
    run = world.agent(1, waits)
    assert run._run() == "sealed"
    assert waits.waits.count(FINISH_AFTER_S) == 1
    spans = world.assigned.spans()
    assert sorted(spans) == there
    assert_tiled(KeySpan(b"", b""), sorted(spans.values(), key=lambda span: span.start))
    for number, span in spans.items():
        assert last_position(world.objects, TENANT, number, span) is not None
    assert world.held() == world.held(PLANNED_TTL_S) == set(there)


# Attack: the command goes on while the agent waits
def test_an_agent_that_is_given_the_territory_no_more_finishes_nothing(world: World) -> None:
    world.killed([1], 2, 1)
    run = world.agent(1, _waits(lambda: run.stop()))  # noqa: PLW0108  # set below
    assert run._run() is None
    assert sorted(world.assigned.spans()) == [1, 2]
    waits = _waits(lambda: world.assigned.replace([1], []))
    assert world.agent(1, waits)._run() == "sealed"
    assert sorted(world.assigned.spans()) == [2], "disconnected: nothing is left to do"


# Attack: the other territory of a merge is disconnected before it has its last file
def test_an_agent_that_cannot_finish_a_division_says_why_and_tries_again(world: World) -> None:
    world.killed([1, 2], 1, 1)
    world.assigned.replace([2], [])
    reasons = list[str]()

    def looked() -> None:
        reasons.append(run.status().reason)
        if len(reasons) == 3:
            run.stop()

    run = world.agent(1, _waits(looked))
    assert run._run() is None
    assert "after a minute this agent finishes the division" in reasons[0]
    again = "the division is not finished, and tried again each minute: territory 2 was disconnected"
    assert [reason[: len(again)] for reason in reasons[1:]] == [again] * 2
    assert 1 in world.held(PLANNED_TTL_S), "no agent reads its keys yet"


# Attack: a division cannot be finished for longer than a hold lasts
def test_what_waits_for_its_division_is_held_for_a_day_after_each_attempt(world: World) -> None:
    world.killed([1, 2], 1, 1)
    world.assigned.replace([2], [])
    end, hold = end_of_chain(world.objects, TENANT, 1, None), GcHold(world.pd, TENANT, 1)
    assert end.position is not None
    lowest_ts = end.position.lowest_ts
    held = list[bool]()

    def looked() -> None:
        held.append(1 in world.held(TTL_S - 60))
        hold.move(lowest_ts - 1, PLANNED_TTL_S)
        if len(held) == 4:
            run.stop()

    run = world.agent(1, _waits(looked))
    assert run._run() is None
    assert held[1:] == [True] * 3
    assert world.tikv.holds[hold.service_id] == lowest_ts - 1


class Disconnecting:
    """The platform's territories. The `wanted` one is disconnected right after the platform has told for the `at`-th
    time which it has, or, if that is None, right before it replaces any; 0: all of the tenant."""

    def __init__(self, world: World, wanted: int, at: int | None) -> None:
        self._world, self._wanted, self._at, self._told = world, wanted, at, 0

    def spans(self) -> Mapping[int, KeySpan]:
        found = self._world.assigned.spans()
        self._told += 1
        if self._told == self._at:
            self._world.disconnect(self._wanted)
        return found

    def replace(self, gone: Collection[int], children: Sequence[Child]) -> None:
        if self._at is None:
            self._world.disconnect(self._wanted)
        self._world.assigned.replace(gone, children)


# Attack: `tistream disconnect` comes between the look at the platform and the renewal of the hold
def test_a_territory_that_is_disconnected_while_its_hold_is_renewed_holds_nothing(world: World) -> None:
    world.killed([1], 2, 1)
    assigned, children = Disconnecting(world, 1, at=1), end_of_chain(world.objects, TENANT, 1, None).children
    divider = world.divider(assigned)
    assert finish_division(divider, world.objects, TENANT, 1, children, assigned) == ()
    assert 1 not in world.held()
    assert sorted(world.assigned.spans()) == [2]


# Attack: the tenant is disconnected between the last look at the platform and the hand-over of a division that died
def test_a_division_does_not_bring_back_a_tenant_that_was_disconnected_meanwhile(world: World) -> None:
    world.killed([1], 2, 3)
    assigned, children = Disconnecting(world, 0, at=None), end_of_chain(world.objects, TENANT, 1, None).children
    with pytest.raises(
        AlreadyDiffers, match=r"territory 1 of tenant 7/unfinished was removed meanwhile\. `tistream dis"
    ):
        finish_division(world.divider(assigned), world.objects, TENANT, 1, children, assigned)
    assert world.assigned.spans() == {}
    assert world.held(PLANNED_TTL_S) == set(), "what was held again ends in minutes"


# Attack: a new territory is disconnected after its chain was read, and before its hold is set once more
def test_a_new_territory_that_was_disconnected_while_it_was_held_is_not_handed_over(world: World) -> None:
    world.killed([1], 2, 3)
    world.divider(Disconnecting(world, 3, at=3)).divide([1], 2)
    assert sorted(world.assigned.spans()) == [2, 4]
    assert world.held(PLANNED_TTL_S) == {2, 4}
    assert "no territory has all keys of 3, which ended" in world.shown[-1].why


# Attack: of two territories that are merged, one is disconnected when the chain of the new one is there
@pytest.mark.parametrize("files", [2, 3])
def test_the_agent_of_the_other_territory_reads_its_keys_on(world: World, files: int) -> None:
    world.killed([1, 2], 1, files)
    world.disconnect(2)
    run = world.agent(1, _waits())
    assert run._run() == "sealed"
    assert world.assigned.spans() == {4: LOW}
    position = last_position(world.objects, TENANT, 4, LOW)
    assert position is not None
    assert position.lowest_ts == world.ts
    assert world.held(PLANNED_TTL_S) == {4}
    left = end_of_chain(world.objects, TENANT, 3, None)
    assert left.position is None or left.sealed, "`connect --assign` waits for no territory that will never be"


# Attack: one of two territories is disconnected between the last look at the platform and their merge
def test_a_merge_that_is_refused_holds_what_is_left_for_a_day(world: World) -> None:
    world.killed([1, 2], 1, 3)
    with pytest.raises(AlreadyDiffers, match="territory 2 of tenant 7/unfinished was removed meanwhile"):
        world.divider(Disconnecting(world, 2, at=None)).divide([1, 2], 1)
    assert world.assigned.spans() == {1: LOW}
    assert world.held(PLANNED_TTL_S) == {1}
    assert [one.store_id for one in world.divider(world.assigned).divide([1, 2], 1)] == [4]
    assert world.assigned.spans() == {4: LOW}


# Attack: a division that was killed is run again for another keyspace, kind or cluster than the territories have
@pytest.mark.parametrize(
    "other",
    [{"keyspace": "other"}, {"kind": TenantKind.RAW}, {"pd_cluster_id": 5}],
    ids=["keyspace", "kind", "cluster"],
)
def test_a_repeat_for_other_keys_than_the_territories_have_changes_nothing(world: World, other: dict[str, Any]) -> None:
    world.killed([1], 2, 2)
    files, holds = [info.key for info in world.objects.list_after("")], world.tikv.holds
    with pytest.raises(InvalidRequest, match=f"territory 1 is of PD cluster {world.tikv.cluster_id}, --kind tidb and"):
        world.divider(replace(world.assigned, **other)).divide([1], 2)
    assert [info.key for info in world.objects.list_after("")] == files
    assert world.tikv.holds == holds
    assert sorted(world.assigned.spans()) == [1, 2]
