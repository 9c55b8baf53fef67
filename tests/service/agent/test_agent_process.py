"""The agent as a process, against a PD and a TiKV over real gRPC and a directory as object storage."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from polars.testing import assert_frame_equal

from support import golden, oracle
from support.agent_judge import counted
from support.agent_process import AgentProcess
from support.agent_replay import TRUTH, committed
from support.certificates import Authority
from support.emulated import EmulatedTikv
from support.waiting import PATIENCE_S, eventually
from tistream.concurrency import sleep
from tistream.model.ids import TenantKey
from tistream.model.span import WHOLE
from tistream.storage import layout
from tistream.storage.backends.directory import DirectoryObjectStore
from tistream.storage.change_reader import open_change_file
from tistream_agent.connecting.checks import Check
from tistream_agent.connecting.connect import Connection, Connector
from tistream_agent.core.chain import new_chain
from tistream_agent.core.cutter import Draft
from tistream_agent.reservation import Reservation
from tistream_agent.reserved_ids import ReservedIds
from tistream_agent.upstream.pd import PdClient
from tistream_agent.upstream.stores import Channels, TlsFiles

QUICK = {"CUT_MS": "100", "IDLE_CUT_MS": "200"}
SPEED = 5.0  # the seven seconds of the record take one and a half
FENCED = 75


class World:
    """A TiKV, object storage, and agents that end with the test."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.loaded = golden.load_as("everything", "7", "agent")
        self.objects = DirectoryObjectStore(directory / "objects")
        self.objects.put(layout.schema_snap(self.tenant), self.loaded.schema_snap.data)
        self._tikvs: list[EmulatedTikv] = []
        self._agents: list[AgentProcess] = []

    @property
    def tenant(self) -> TenantKey:
        return self.loaded.tenant

    def tikv(self, **options: Any) -> EmulatedTikv:
        started = EmulatedTikv(**{"speed": SPEED, **options}).start()
        self._tikvs.append(started)
        return started

    def agent(self, tikv: EmulatedTikv, **settings: str) -> AgentProcess:
        log = self.directory / f"agent-{len(self._agents)}.log"
        made = AgentProcess(tikv.address, self.tenant, self.directory / "objects", log, {**QUICK, **settings})
        return self.watch(made.start())

    def watch(self, agent: AgentProcess) -> AgentProcess:
        self._agents.append(agent)
        return agent

    def connected(self, tikv: EmulatedTikv, tenant: TenantKey, territory: int = 1, reached: int | None = None) -> int:
        """Connect a tenant of which the platform has every change up to `reached`; the ts at which its chain begins."""
        channels, told = Channels(TlsFiles()), list[Check]()
        pd = PdClient([tikv.address], channels, deadline_s=PATIENCE_S)
        where = Connection(tenant, territory)
        connector = Connector(
            where, pd, channels, self.objects, lambda _: None, lambda _: reached, sleep, told.append, "c0ffee"
        )
        connector.check()
        return connector.connect()

    def files(self, territory: int = 1) -> list[str]:
        """The keys of a chain's files."""
        return [info.key for info in self.objects.list_after(layout.change_file_prefix(self.tenant, territory))]

    def close(self) -> None:
        for agent in self._agents:
            agent.kill()
        for tikv in self._tikvs:
            tikv.stop()


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    made = World(tmp_path)
    yield made
    made.close()


def _stopped(agent: AgentProcess, state: str) -> Callable[[], bool]:
    return lambda: agent.status().get("state") == state


# Attack: two agents for one territory at once
def test_of_two_agents_the_first_ends_itself_and_the_chain_stays_whole(world: World) -> None:
    tikv = world.tikv(speed=0.25)
    first = world.agent(tikv)
    eventually(lambda: len(world.files()) > 2)
    second = world.agent(tikv)
    eventually(lambda: first.ended() is not None)
    assert first.ended() == FENCED
    tikv.play_out()
    eventually(lambda: second.reached(world.loaded.end_ts))
    assert second.ended() is None
    files = [open_change_file(world.objects, key) for key in world.files()]
    assert [file.prev_ts for file in files] == [0, *(file.ts for file in files[:-1])]
    assert [file.ts for file in files] == list(range(files[0].ts, files[0].ts + len(files)))


# Attack: the PD of another cluster
def test_the_pd_of_another_cluster_is_stated_and_nothing_is_registered(world: World) -> None:
    tikv = world.tikv()
    agent = world.agent(tikv, PD_CLUSTER_ID="5")
    eventually(_stopped(agent, "cluster_id_mismatch"))
    assert "correct --pd" in agent.status()["reason"]
    assert agent.ended() is None
    assert not tikv.registrations
    assert not world.files()


# Attack: garbage collection has passed the position of an agent
def test_history_that_is_collected_stops_the_territory_before_it_registers(world: World) -> None:
    tikv = world.tikv(collected_ts=world.loaded.end_ts)
    agent = world.agent(tikv)
    eventually(_stopped(agent, "gc"))
    assert "docs/backfill.md" in agent.status()["reason"]
    assert agent.ended() is None
    assert not tikv.registrations


# Attack: an agent is away for longer than garbage collection waits for it
def test_after_collected_history_a_new_tenant_of_the_cluster_goes_on(world: World) -> None:
    tikv = world.tikv()
    agent = world.agent(tikv)
    eventually(lambda: len(world.files()) > 2)
    agent.kill()
    again = TenantKey("7", "again")
    begins = world.connected(tikv, again)
    tikv.collect(begins - 1)
    agent.start()
    eventually(_stopped(agent, "gc"))
    assert "connect a new tenant, and backfill" in agent.status()["reason"]
    new = AgentProcess(tikv.address, again, world.directory / "objects", world.directory / "new.log", QUICK)
    world.watch(new.start())
    eventually(lambda: new.reached(begins + 1))
    assert new.status()["state"] == "running"


# Attack: the newest file of a chain is overwritten with something that no agent wrote
def test_a_damaged_chain_is_replaced_by_one_that_begins_where_the_platform_stands(world: World) -> None:
    tikv = world.tikv(speed=2)
    agent = world.agent(tikv)
    eventually(lambda: len(world.files()) > 2)
    agent.kill()
    *whole, newest = world.files()
    files = [(key, world.objects.get(key)) for key in whole]
    world.objects.put(newest, b"no change file")
    agent.start()
    eventually(_stopped(agent, "chain"))
    assert "tistream connect" in agent.status()["reason"]
    stands = counted(files, world.loaded.snapshot_ts).watermark()
    world.objects.delete(layout.schema_snap(world.tenant))  # the registry has read it
    assert world.connected(tikv, world.tenant, territory=2, reached=stands) == stands
    second = world.agent(tikv, TERRITORY="2")
    eventually(lambda: second.reached(world.loaded.end_ts))
    files += [(key, world.objects.get(key)) for key in world.files(2)]
    slices = counted(files, world.loaded.snapshot_ts)
    assert slices.watermark() >= world.loaded.end_ts
    assert slices.waiting == []


# Attack: a certificate that TiKV does not accept
def test_a_wrong_certificate_is_stated_and_a_right_one_is_taken_without_a_restart(world: World) -> None:
    authority, other = Authority(world.directory, "ours"), Authority(world.directory, "other")
    tikv = world.tikv(tls=authority.sign("pd"))
    mine, strange = authority.sign("agent"), other.sign("stranger")
    cert, key = world.directory / "client.crt", world.directory / "client.key"
    cert.write_bytes(strange.cert_file.read_bytes())
    key.write_bytes(strange.key_file.read_bytes())
    names = {"CA_FILE": authority.file, "CERT_FILE": cert, "KEY_FILE": key}
    agent = world.agent(tikv, **{f"UPSTREAM_TLS__{name}": str(path) for name, path in names.items()})
    eventually(lambda: "no PD answers" in agent.status().get("reason", ""))
    assert not tikv.registrations
    cert.write_bytes(mine.cert_file.read_bytes())
    key.write_bytes(mine.key_file.read_bytes())
    eventually(lambda: agent.reached(world.loaded.end_ts))


def test_a_tenant_without_a_schema_waits_for_connect(world: World) -> None:
    world.objects.delete(layout.schema_snap(world.tenant))
    agent = world.agent(world.tikv())
    eventually(lambda: "tistream connect" in agent.status().get("reason", ""))
    world.objects.put(layout.schema_snap(world.tenant), world.loaded.schema_snap.data)
    eventually(lambda: agent.reached(world.loaded.end_ts))


def test_a_hold_is_set_before_the_first_registration_and_follows_the_files(world: World) -> None:
    tikv = world.tikv()
    agent = world.agent(tikv)
    eventually(lambda: tikv.registrations)
    name = f"tistream-{world.tenant.cluster_id}-{world.tenant.tenant_id}-1"
    assert tikv.holds[name] >= world.loaded.snapshot_ts - 1
    eventually(lambda: tikv.holds[name] >= world.loaded.end_ts - 1)
    assert agent.ended() is None


def test_a_tikv_without_multiplexing_is_read_by_its_older_call(world: World) -> None:
    tikv = world.tikv(version="6.5.3")
    agent = world.agent(tikv)
    eventually(lambda: agent.reached(world.loaded.end_ts))
    assert not any(store.quirks.multiplexing for store in tikv.upstream.stores.values())
    assert tikv.upstream.counters.streams > 0


def test_regions_that_share_a_log_are_read_as_by_themselves(world: World) -> None:
    tikv = world.tikv()
    agent = world.agent(tikv, RANGE_LOGS="4")
    eventually(lambda: agent.reached(world.loaded.end_ts))
    regions = len(tikv.subscribed())
    agent.stop()
    files = [(key, world.objects.get(key)) for key in world.files()]
    slices = counted(files, world.loaded.snapshot_ts)
    assert slices.watermark() >= world.loaded.end_ts
    assert slices.waiting == []
    assert len(slices.states(WHOLE)) <= 4 < regions
    rows = oracle.committed_rows([data for _, data in files], world.loaded.snapshot_ts, keep_index_keys=True)
    assert_frame_equal(rows.select(TRUTH).sort("commit_ts", "start_ts", "key"), committed("everything"))


# Attack: supervisors start two agents for one territory again, whenever one has ended
def test_an_agent_waits_where_others_fence_each_other_in_turn_and_says_so(world: World) -> None:
    tikv = world.tikv()
    end = new_chain(WHOLE, world.loaded.snapshot_ts)
    for number, nonce in enumerate(("aa", "bb", "cc", "dd")):
        ts = end.next_ts + number
        none: dict[str, Any] = {"changes": (), "watermarks": (), "size": 0, "epoch": 0}
        kept = {"promises": end.promises, "carried": end.promises}
        draft = Draft(
            tenant=world.tenant, store_id=1, ts=ts, prev_ts=ts - 1 if number else 0, nonce=nonce, **kept, **none
        )
        world.objects.put_new(draft.key, draft.data())
    agent = world.agent(tikv)
    eventually(lambda: "fenced by dd: agents took this territory" in agent.log.read_text())
    assert "waits 2 s before it claims: stop one" in agent.log.read_text()
    eventually(lambda: agent.reached(world.loaded.end_ts))


# Attack: an agent is to begin a chain whose id a division has reserved for one of its own
def test_an_agent_begins_no_chain_whose_id_a_division_has_reserved(world: World) -> None:
    ids, mine = ReservedIds(world.objects, world.tenant), Reservation(1)
    ids.reserve(Reservation(1, "dead"))
    agent = world.agent(world.tikv())
    eventually(lambda: "id 1 is reserved for a new territory of a division" in agent.log.read_text())
    assert agent.status()["state"] == "starting"
    assert world.files() == []
    world.objects.delete(layout.reserved_territory(world.tenant, 1))
    eventually(lambda: agent.reached(world.loaded.end_ts))
    assert ids.reserve(mine) is None
    assert ids.reserve(Reservation(1, "dead")) is not None, "the agent has reserved it by name"


# Attack: a supervisor starts the agent of a disconnected tenant again
def test_disconnect_ends_the_agent_and_none_goes_on_with_its_chain(world: World) -> None:
    tikv = world.tikv(speed=0.1)
    agent = world.agent(tikv)
    eventually(lambda: len(world.files()) > 2)
    channels, told = Channels(TlsFiles()), list[Check]()
    pd = PdClient([tikv.address], channels, deadline_s=PATIENCE_S)
    connector = Connector(
        Connection(world.tenant),
        pd,
        channels,
        world.objects,
        lambda _: None,
        lambda _: None,
        sleep,
        told.append,
        "c0ffee",
    )
    connector.disconnect()
    eventually(lambda: agent.ended() == FENCED)
    connector.disconnect()
    assert tikv.holds == {}
    before = world.files()
    agent.start()
    eventually(_stopped(agent, "sealed"))
    assert "tistream connect" in agent.status()["reason"]
    assert world.files() == before
    assert tikv.holds == {}
