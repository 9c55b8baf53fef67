"""Two meta servers on one database: the one that has lost its lease writes nothing more, says so, and steps down."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry
from sqlalchemy import create_engine, text

from tistream.clock import Clock, ManualClock
from tistream.errors import Unavailable
from tistream.model.ids import TenantKey
from tistream.storage.backends.memory import MemoryObjectStore
from tistream.wire.clients.client import HttpClient
from tistream.wire.clients.meta_client import MetaClient
from tistream.wire.clients.route_mark import RouteMark
from tistream_meta.database.repository import Repository
from tistream_meta.decide.incarnations import Start
from tistream_meta.decide.liveness import Timings
from tistream_meta.decide.options import Options
from tistream_meta.metrics import MetaMetrics
from tistream_meta.owner.owner_calls import CALM_LOOK_MS, REST_MS, WAITING_MS
from tistream_meta.owner.reports import ReportedTask
from tistream_meta.owner.server import FOLLOW_PAUSE_MS, OWNER_PAUSE_MS, MetaServer

LEASE_MS, LOST_MS = 600_000, 100_000


def owner(directory: Path, name: str, clock: Clock) -> MetaServer:
    """A meta server that has just become the owner."""
    options = Options(f"http://127.0.0.1/{name}", 1, LEASE_MS, Timings(LOST_MS // 2, LOST_MS), 1_000, 100)
    repository = Repository.open(f"sqlite:///{directory}/meta.db", name)
    metrics = MetaMetrics(CollectorRegistry())
    server = MetaServer(
        repository,
        MemoryObjectStore(),
        clock,
        metrics,
        options,
        partial(MetaClient, HttpClient()),
    )
    server.hold_lease()
    server.hold_lease()
    return server


@pytest.mark.parametrize("knows", [True, False])
def test_an_owner_whose_lease_went_to_another_steps_down(tmp_path: Path, knows: bool) -> None:
    """Whether or not its own clock says that the lease is over."""
    clock = ManualClock(1_000_000)
    old = owner(tmp_path, "old", clock)
    old.owned().register("sorter-1", "sorter", "http://127.0.0.1:1", Start("a", old.owned().new_start("sorter-1")))
    assert old.not_ready() is None
    with create_engine(f"sqlite:///{tmp_path}/meta.db").begin() as connection:
        connection.execute(text("UPDATE owner SET lease_until_ms = 0"))
    clock.advance(LEASE_MS if knows else 0)
    assert old.is_owner() is not knows
    new = owner(tmp_path, "new", ManualClock(1_000_000))
    assert new.not_ready() is None
    with pytest.raises(Unavailable, match="the owner"):
        old.owned().register("sorter-2", "sorter", "http://127.0.0.1:2", Start("b", 2))
    assert not old.is_owner()
    with pytest.raises(Unavailable):
        old.tenant_rules.create(TenantKey("7", "acme"))
    old.look_after_nodes()  # has nothing to look after any more
    _, version = new.owned().register(
        "sorter-3", "sorter", "http://127.0.0.1:3", Start("c", new.owned().new_start("sorter-3"))
    )
    table = new.routes().wait(RouteMark(2, version - 1), 0)
    assert table is not None
    assert table.services["sorter"] == ["http://127.0.0.1:1", "http://127.0.0.1:3"]


def test_a_process_that_wakes_does_not_take_the_lease_from_its_successor(tmp_path: Path) -> None:
    """A new process takes over at once what one of its name held; the old one must not do the same to it."""
    old, new = (owner(tmp_path, "meta-1", ManualClock(1_000_000)) for _ in range(2))
    assert new.is_owner()
    with pytest.raises(Unavailable):
        old.hold_lease()
    old.hold_lease()
    new.hold_lease()
    assert (old.is_owner(), new.is_owner()) == (False, True)


def test_an_owner_without_work_rests_until_it_is_woken(tmp_path: Path) -> None:
    clock, woken = ManualClock(1_000_000), list[str]()
    server = owner(tmp_path, "old", clock)
    server.on_news(**{name: partial(woken.append, name) for name in ("starts", "looks", "follow")})
    assert (server.activate_tenants(), server.follow_owner()) == (REST_MS, OWNER_PAUSE_MS)
    server.tenant_rules.create(TenantKey("7", "acme"))
    assert woken == ["starts"]
    assert server.activate_tenants() == WAITING_MS  # its schema_snap has not come
    woken.clear()
    with create_engine(f"sqlite:///{tmp_path}/meta.db").begin() as connection:
        connection.execute(text("UPDATE owner SET lease_until_ms = 0"))
    clock.advance(LEASE_MS)
    owner(tmp_path, "new", ManualClock(1_000_000))
    assert server.follow_owner() == FOLLOW_PAUSE_MS
    with pytest.raises(Unavailable):
        server.hold_lease()
    server.hold_lease()
    assert woken == ["follow"]


def test_writes_of_the_owner_are_counted_and_renewals_of_its_lease_are_not(tmp_path: Path) -> None:
    server = owner(tmp_path, "old", ManualClock(1_000_000))
    before = server.writes()
    server.hold_lease()
    server.look_after_nodes()
    server.activate_tenants()
    assert server.writes() == before
    server.tenant_rules.create(TenantKey("7", "acme"))
    assert server.writes() == before + 1


def test_an_owner_without_news_looks_seldom_but_not_after_a_node_is_to_be_judged(tmp_path: Path) -> None:
    clock, woken = ManualClock(1_000_000), list[str]()
    server = owner(tmp_path, "old", clock)
    server.on_news(**{name: partial(woken.append, name) for name in ("starts", "looks", "follow")})
    start = Start("a", server.owned().new_start("sorter-1"))
    server.owned().register("sorter-1", "sorter", "http://127.0.0.1:1", start)
    assert server.look_after_nodes() == CALM_LOOK_MS
    clock.advance(LOST_MS // 2 - 300)
    assert server.look_after_nodes() == 300
    woken.clear()
    server.owned().heartbeat("sorter-1", start, sequence=1)
    assert woken == []
    server.owned().heartbeat("sorter-1", start, sequence=2, holdings=[ReportedTask(1, 1)])
    assert woken == ["looks"]
    assert server.look_after_nodes() is not None
    woken.clear()
    clock.advance(LOST_MS)
    server.tenant_rules.create(TenantKey("7", "acme"))  # and finds that the node is lost
    assert woken.count("looks") == 1  # the loop goes on at its usual pace
    server.tenant_rules.create(TenantKey("7", "other"))
    assert woken.count("looks") == 1
