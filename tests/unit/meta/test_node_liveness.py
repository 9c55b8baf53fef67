"""Silence is a node's own: the time in which nobody could be heartbeats counts for nobody."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from prometheus_client import CollectorRegistry

from support.meta_database import database_url
from tistream.clock import ManualClock
from tistream.storage.backends.memory import MemoryObjectStore
from tistream.wire.clients.client import HttpClient
from tistream.wire.clients.meta_client import MetaClient
from tistream_meta.database.repository import Repository
from tistream_meta.decide.incarnations import Start
from tistream_meta.decide.liveness import NodeState, Timings
from tistream_meta.decide.model import Node
from tistream_meta.decide.options import Options
from tistream_meta.metrics import MetaMetrics
from tistream_meta.owner.node_liveness import NodeHeartbeats
from tistream_meta.owner.server import MetaServer

TIMINGS = Timings(4_000, 10_000)
NODE = Node("sorter-1", "sorter", "http://sorter-1", 1, "i")


def judged(heartbeats: NodeHeartbeats, now_ms: int) -> NodeState:
    heartbeats.update_states([NODE], 0, now_ms)
    return heartbeats.states[NODE.node_id]


def test_while_nobody_can_be_heard_nobody_is_silent() -> None:
    heartbeats = NodeHeartbeats(TIMINGS)
    heartbeats.record("sorter-1", 20_000)
    heartbeats.suspend(21_000)
    heartbeats.suspend(25_000)  # the database still does not answer
    heartbeats.resume(60_000)
    assert judged(heartbeats, 60_500) is NodeState.ALIVE
    heartbeats.resume(70_000)  # nothing was the matter meanwhile
    assert judged(heartbeats, 70_000) is NodeState.LOST


def test_who_was_silent_before_is_as_silent_after() -> None:
    heartbeats = NodeHeartbeats(TIMINGS)
    heartbeats.record("sorter-1", 20_000)
    heartbeats.suspend(29_500)
    heartbeats.resume(40_000)
    assert judged(heartbeats, 40_400) is NodeState.SUSPECT
    assert judged(heartbeats, 40_600) is NodeState.LOST


def test_who_reports_nothing_sends_heartbeats_less_often_and_often_enough_not_to_be_suspect() -> None:
    heartbeats = NodeHeartbeats(TIMINGS)
    assert [heartbeats.next_ms(role) for role in ("sorter", "dispatcher", "agent")] == [1_000] * 3
    assert [heartbeats.next_ms(role) for role in ("api", "schema", "ingest", "changefeed")] == [2_000] * 4
    assert NodeHeartbeats(Timings(2_500, 10_000)).next_ms("api") == 1_250
    assert [heartbeats.calm_ms(next_ms) for next_ms in (1_000, 2_000, 60_000)] == [2_000, 2_000, 60_000]
    assert NodeHeartbeats(Timings(20_000, 40_000)).calm_ms(1_000) == 10_000


def test_an_owner_whose_lease_has_run_out_judges_nobody_until_it_is_the_owner_again(tmp_path: Path) -> None:
    clock, lease_ms = ManualClock(1_000_000), 9_000
    repository = Repository.open(database_url(tmp_path), "meta-1")
    options = Options("http://meta-1", 1, lease_ms, TIMINGS, 1_000, 100)
    server = MetaServer(
        repository,
        MemoryObjectStore(),
        clock,
        MetaMetrics(CollectorRegistry()),
        options,
        partial(MetaClient, HttpClient()),
    )
    server.hold_lease()
    _, version = server.owned().register(
        "sorter-1", "sorter", "http://sorter-1", Start("i", server.owned().new_start("sorter-1"))
    )
    clock.advance(lease_ms + TIMINGS.lost_ms)  # in which it heard nobody, since nobody was to take it for the owner
    server.look_after_nodes()
    server.hold_lease()
    server.look_after_nodes()
    assert [(node.node_id, state) for node, state, _, _ in server.owned().nodes()] == [("sorter-1", NodeState.ALIVE)]
    current = server.routes().current()
    assert current is not None
    assert current.version == version, "it was not told to be lost meanwhile"
    repository.close()
