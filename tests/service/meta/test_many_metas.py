"""Three meta servers on one database: any of them answers, one decides, and who decided before is obeyed by nobody."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import create_engine, text

from support import plain_http
from support.metas import LEASE_MS, Metas
from support.waiting import eventually
from tistream.errors import AlreadyDiffers, Unavailable, UnknownName
from tistream.wire.clients.meta_client import MetaClient, StaleRoutes
from tistream.wire.meta import CreateTenant, Notification, SetRetention, StartOf
from tistream_meta.database.repository import FORGOTTEN_IDS
from tistream_meta.owner.server import MetaServer


@pytest.fixture
def metas(database_url: str) -> Iterator[Metas]:
    running = Metas(database_url, 3)
    yield running
    running.end()


def registered(client: MetaClient, node: str = "sorter-1") -> StartOf:
    start = StartOf(instance="i", start_epoch=client.new_start(node).start_epoch)
    client.register(node, "sorter", f"http://{node}", start)
    return start


def test_any_of_them_answers_whatever_is_asked(metas: Metas) -> None:
    owner = metas.owner()
    for number in range(3):
        client = metas.client(number)
        assert client.create_tenant("7", "acme").tenant_id == "acme"
        assert [tenant.tenant_id for tenant in client.tenants("7").tenants] == ["acme"]
        wanted = SetRetention(retention_ms=str(3_600_000 * (number + 1)))
        assert client.set_retention("7", "acme", wanted).retention_ms == wanted.retention_ms
        same = CreateTenant(tenant_id="acme", retention_ms=wanted.retention_ms)
        assert client.register_tenant("7", same).retention_ms == wanted.retention_ms
        with pytest.raises(AlreadyDiffers):
            client.register_tenant("7", CreateTenant(tenant_id="acme", retention_ms=None))
        start = registered(client, f"sorter-{number}")
        assert client.heartbeat(f"sorter-{number}", start).owner_rev == 1
        with pytest.raises(UnknownName):
            client.heartbeat("stranger", start)
        client.notify(Notification(cluster_id="7", tenant_id="acme", store_id="1", ts=str(number + 1)))
        told = client.announcements(0)
        assert [one.ts for one in told.announcements] == list(range(1, number + 2))
    version = metas.client(owner).routes().version
    for number in range(3):
        client = metas.client(number)
        eventually(lambda client=client: client.routes().version == version)
        table = client.routes()
        assert table.owner_rev == 1
        assert [tenant.tenant_id for tenant in table.tenants] == ["acme"]
        assert table.services["sorter"] == [f"http://sorter-{number}" for number in range(3)]


def test_fresh_routes_of_a_follower_tell_what_the_owner_has_answered_a_moment_ago(metas: Metas) -> None:
    old = metas.owner()
    client, follower = metas.client(old), metas.client((old + 1) % 3)
    for number in range(30):
        client.create_tenant("7", f"acme-{number:02}")
        assert follower.routes(fresh=True).tenants[-1].tenant_id == f"acme-{number:02}"


def test_when_the_owner_is_gone_another_takes_over_and_nobody_notices_but_by_the_owner_rev(metas: Metas) -> None:
    old = metas.owner()
    client = metas.client()
    client.create_tenant("7", "acme")
    start = registered(client)
    eventually(lambda: [one for one in client.routes().tenants if one.tasks])
    eventually(lambda: client.routes().tenants[0].tasks[0].sorter_node)
    eventually(lambda: len({metas.client(number).routes().version for number in range(3)}) == 1)
    before = client.routes()
    metas.stop(old)
    assert client.routes().version == before.version, "routes are told by any of them, at once"
    metas.turn()
    assert metas.owners() == [], "it may be still there: its lease lasts"
    metas.lease_ends()
    metas.turn()
    assert len(metas.owners()) == 1
    eventually(lambda: beats(client, start))
    assert client.heartbeat("sorter-1", start).owner_rev == 2
    eventually(lambda: followed(client) and client.seen.owner_rev == 2)
    task = client.routes().tenants[0].tasks[0]
    assert (task.sorter_node, task.task_epoch) == ("sorter-1", before.tenants[0].tasks[0].task_epoch)
    metas.start(old)
    eventually(lambda: metas.ready(old))
    assert metas.owner() != old
    assert metas.client(old).heartbeat("sorter-1", start).owner_rev == 2


def beats(client: MetaClient, start: StartOf) -> bool:
    try:
        client.heartbeat("sorter-1", start)
    except Unavailable:
        return False
    return True


def test_an_owner_that_hung_past_its_lease_is_not_obeyed_when_it_wakes(metas: Metas) -> None:
    old = metas.owner()
    others = [number for number in range(3) if number != old]
    client = metas.client(*others)
    registered(client)
    server = metas.server(old)
    table = server.routes().current()
    assert table is not None
    hang = server.is_owner
    server.is_owner = lambda: True  # type: ignore[method-assign]  # what it still believes, being asked as it wakes
    with renewals_paused(server):
        metas.lease_ends()
        metas.turn(*others)
        assert any(metas.server(number).is_owner() for number in others)
    eventually(lambda: followed(client) and client.seen.owner_rev == 2)
    stale: list[bool] = []
    behind = MetaClient(metas.http, metas.servers[old].url, on_stale=lambda: stale.append(True))
    behind.seen = client.seen
    with pytest.raises(StaleRoutes):
        behind.routes()
    with pytest.raises(Unavailable):
        behind.create_tenant("7", "other")
    assert stale
    told = plain_http.get(f"{metas.servers[old].url}/metrics").text
    assert re.search(r'^tistream_meta_refused_total{what="write"} [1-9]', told, re.MULTILINE)
    server.is_owner = hang  # type: ignore[method-assign]


class renewals_paused:
    """While it hangs its renewals do not reach the database."""

    def __init__(self, server: MetaServer) -> None:
        self._server = server

    def __enter__(self) -> None:
        self._renew = self._server._repository.renew
        self._server._repository.renew = self._fail  # type: ignore[method-assign]

    def __exit__(self, *_: object) -> None:
        self._server._repository.renew = self._renew  # type: ignore[method-assign]

    @staticmethod
    def _fail(*_: object) -> None:
        raise Unavailable("hangs")


def test_an_owner_that_cannot_renew_says_so_and_goes_on_when_nobody_took_over(tmp_path: Path) -> None:
    metas = Metas(f"sqlite:///{tmp_path}/meta.db", 1)
    metas.owner()
    client = metas.client()
    start = registered(client)
    server = metas.server(0)
    with renewals_paused(server):
        metas.clock.advance(LEASE_MS)
        assert not server.is_owner()
        with pytest.raises(Unavailable):
            client.heartbeat("sorter-1", start)
        assert client.routes().services["sorter"] == ["http://sorter-1"], "what is known stays true"
        with pytest.raises(Unavailable, match="hangs"):
            metas.turn()
        metas.clock.advance(LEASE_MS)
    metas.turn()
    assert server.is_owner()
    client.heartbeat("sorter-1", start)
    assert client.routes().owner_rev == 1
    assert client.routes().services["sorter"] == ["http://sorter-1"], "it was not heard for so long; nobody was"
    metas.end()


@pytest.mark.parametrize("elections", [0, 1], ids=["before-the-election", "after-the-election"])
def test_a_database_that_was_restored_is_believed_once_the_owner_has_heard_how_far_it_had_come(
    tmp_path: Path, elections: int
) -> None:
    """`elections`: how many the restored database knows of; there was one."""
    metas = Metas(f"sqlite:///{tmp_path}/meta.db", 1)
    metas.owner()
    client = metas.client()
    client.create_tenant("7", "acme")
    start = registered(client)
    eventually(lambda: [one for one in client.routes().tenants if one.tasks])
    before = client.seen
    metas.stop(0)
    with create_engine(metas.url).begin() as connection:
        connection.execute(text("UPDATE owner SET owner_rev = :rev, lease_until_ms = 0"), {"rev": elections})
        connection.execute(text("UPDATE counters SET value = 1 WHERE name = 'route_version'"))
    metas.start(0)
    metas.owner()
    with pytest.raises(StaleRoutes):
        client.routes()
    eventually(lambda: beats(client, start))
    metas.turn()
    eventually(lambda: followed(client))
    assert client.seen.owner_rev > before.owner_rev
    assert client.seen.version > before.version
    with create_engine(metas.url).connect() as connection:
        newest = connection.execute(text("SELECT value FROM counters WHERE name = 'last_task_id'")).scalar_one()
    assert newest > FORGOTTEN_IDS, "ids may have been given out after the backup"
    metas.end()


def followed(client: MetaClient) -> bool:
    try:
        client.routes()
    except Unavailable:
        return False
    return True
