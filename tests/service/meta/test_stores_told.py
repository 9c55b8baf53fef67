"""What dispatchers tell of stores with their heartbeats, and who is believed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from support.metas import ACME, LOST_MS, Metas
from support.waiting import eventually
from tistream.errors import Superseded, Unavailable, UnknownName
from tistream.wire.clients.meta_client import MetaClient
from tistream.wire.meta import StartOf, StoreReport, TenantRoute
from tistream_meta.decide.model import Change


@pytest.fixture
def metas(tmp_path: Path) -> Iterator[Metas]:
    running = Metas(f"sqlite:///{tmp_path}/meta.db", 2)
    running.owner()
    client = running.client()
    client.create_tenant(ACME.cluster_id, ACME.tenant_id)
    eventually(lambda: [one for one in client.routes().tenants if one.tasks])
    yield running
    running.end()


def started(client: MetaClient, node: str, role: str = "dispatcher") -> StartOf:
    start = StartOf(instance=f"i-{node}", start_epoch=client.new_start(node).start_epoch)
    client.register(node, role, f"http://{node}", start)
    return start


def report(store_id: int) -> StoreReport:
    return StoreReport(cluster_id=ACME.cluster_id, tenant_id=ACME.tenant_id, store_id=store_id)


def tenant(metas: Metas) -> TenantRoute:
    return metas.client(metas.owner()).routes().tenants[0]


def holders(metas: Metas) -> dict[int, str | None]:
    return {store.store_id: store.dispatcher_node for store in tenant(metas).stores or ()}


def test_a_new_store_is_in_the_routes_before_the_heartbeat_is_answered(metas: Metas) -> None:
    for number in range(2):  # whoever is asked
        client = metas.client(number)
        start = started(client, f"d-{number}")
        before = tenant(metas)
        assert before.dispatcher_node is not None
        answer = client.heartbeat(f"d-{number}", start, sequence=1, stores=[report(number)])
        table = metas.client(metas.owner()).routes()
        assert table.version == answer.route_version
        assert set(holders(metas)) == set(range(number + 1))
    assert set(holders(metas).values()) == {"d-0", "d-1"}


def test_it_keeps_its_dispatcher_however_often_and_by_whom_it_is_told(metas: Metas) -> None:
    client = metas.client()
    one, other = started(client, "one"), started(client, "other")
    client.heartbeat("one", one, sequence=1, stores=[report(5)])
    found = holders(metas)
    version = client.heartbeat("other", other, sequence=1, stores=[report(5)]).route_version
    assert client.heartbeat("one", one, sequence=2, stores=[report(5)]).route_version == version
    assert holders(metas) == found


def test_only_a_dispatchers_newest_word_counts(metas: Metas) -> None:
    client = metas.client()
    sorter, dispatcher = started(client, "sorter-1", "sorter"), started(client, "d-1")
    client.heartbeat("sorter-1", sorter, sequence=1, stores=[report(1)])
    client.heartbeat("d-1", dispatcher, sequence=5)
    client.heartbeat("d-1", dispatcher, sequence=4, stores=[report(2)])
    older = StartOf(instance="older", start_epoch=1)
    with pytest.raises(Superseded):
        client.heartbeat("d-1", older, sequence=9, stores=[report(3)])
    with pytest.raises(UnknownName):
        client.heartbeat("d-2", dispatcher, sequence=9, stores=[report(4)])
    assert holders(metas) == {}


def test_nodes_tell_how_many_stores_they_have(metas: Metas) -> None:
    client = metas.client()
    start = started(client, "d-1")
    client.heartbeat("d-1", start, sequence=1, stores=[report(1), report(2)])
    assert {node.node_id: node.stores for node in client.nodes().nodes} == {"d-1": 2}


def test_who_looks_for_stores_changes_also_if_the_database_is_silent_when_a_dispatcher_is_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    running = Metas(f"sqlite:///{tmp_path}/meta.db", 1)
    running.owner()
    client = running.client()
    client.create_tenant(ACME.cluster_id, ACME.tenant_id)
    eventually(lambda: [one for one in client.routes().tenants if one.tasks])
    repository = running.server(0)._repository
    raise_version, failed = repository.raise_version, []

    def silent_once() -> Change:
        if not failed:
            failed.append(True)
            raise Unavailable("the database does not answer")
        return raise_version()

    staying = started(client, "staying")
    names = [f"going-{number}" for number in range(8)]  # one of so many has the tenant
    for name in names:
        started(client, name)
    assert tenant(running).dispatcher_node is not None
    monkeypatch.setattr(repository, "raise_version", silent_once)
    sequences = iter(range(1, 10_000))

    def alone() -> bool:
        try:
            client.heartbeat("staying", staying, sequence=next(sequences))
            lost = {node.node_id for node in client.nodes().nodes if node.state == "lost"}
        except Unavailable:  # the plan is to be read again
            return False
        return lost == set(names)

    for _ in range(2):
        running.clock.advance(LOST_MS * 6 // 10)
        alone()
    eventually(alone)
    assert failed
    eventually(lambda: alone() and tenant(running).dispatcher_node == "staying")
    running.end()
