"""The registry behind its HTTP surface, with real followers on a real pool; no sorter answers, manifests tell."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import orjson
import pytest
import uvicorn

from support import plain_http
from support.ahead_clock import STANDING, AheadClock
from support.committed_pool import CommittedTask
from support.schema_records import name, table_info
from support.waiting import PATIENCE_S, eventually
from tistream.clock import SystemClock
from tistream.errors import Gone, InvalidRequest, Unavailable, UnknownName
from tistream.model.ids import TenantKey
from tistream.schema.tidb.meta_key import encode_key
from tistream.storage import layout
from tistream.storage.backends.memory import MemoryObjectStore
from tistream.wire.clients.client import HttpClient
from tistream.wire.clients.schema_client import SchemaClient, SchemaReplica
from tistream.wire.meta import RouteTable, TaskRoute, TenantRoute
from tistream_schema.app import build_app
from tistream_schema.settings import SchemaSettings

TENANT = TenantKey("7", "acme")
TABLES = 2_300  # more than two pages of the log


def put_snapshot(objects: MemoryObjectStore, tenant: TenantKey, tables: int, snapshot_ts: int = 10) -> None:
    infos = [table_info(1000 + at, f"t{at}", ["id", "v"]) for at in range(tables)]
    databases = [{"db_info": {"id": 1, "db_name": name("Shop"), "state": 5}, "tables": infos}]
    snap = {"version": 1, "snapshot_ts": snapshot_ts, "databases": databases}
    objects.put(layout.schema_snap(tenant), orjson.dumps(snap))


def route(tenant: TenantKey) -> TenantRoute:
    task = TaskRoute(task_id=1, start_key="", end_key="", task_epoch=1, sorter_node=None, sorter_url=None)
    return TenantRoute(cluster_id=tenant.cluster_id, tenant_id=tenant.tenant_id, snapshot_ts=10, tasks=[task])


class Service:
    """The app on a port of its own. Its loops against the meta server do not run: routes are handed to it."""

    def __init__(self, objects: MemoryObjectStore, *tenants: TenantKey) -> None:
        settings = SchemaSettings(poll_ms=10, poll_idle_ms=20)
        self.http = HttpClient()
        self.app = build_app(settings, objects, self.http, SystemClock())
        config = uvicorn.Config(self.app, host="127.0.0.1", port=0, lifespan="off", log_config=None, access_log=False)
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(target=self._server.run, daemon=True)
        self._thread.start()
        eventually(lambda: self._server.started)
        port = self._server.servers[0].sockets[0].getsockname()[1]
        self.url = f"http://127.0.0.1:{port}"
        self.client = SchemaClient(self.http, lambda: self.url)
        self.app.state.registry.apply_routes(RouteTable(version=1, tenants=[route(one) for one in tenants]))

    def stop(self) -> None:
        self.app.state.registry.stop()
        self._server.should_exit = True
        self._thread.join(PATIENCE_S)
        self.http.close()


@pytest.fixture
def objects() -> MemoryObjectStore:
    out = MemoryObjectStore()
    put_snapshot(out, TENANT, TABLES)
    return out


@pytest.fixture
def service(objects: MemoryObjectStore) -> Iterator[Service]:
    out = Service(objects, TENANT)
    eventually(lambda: out.client.status(TENANT).resolved_ts)
    yield out
    out.stop()


def diff(ts: int, number: int) -> dict[str, object]:
    key = encode_key(b"Diff:%d" % number)
    return {"table_id": 0, "commit_ts": ts, "start_ts": ts - 1, "key": key, "op": 1, "value": b"{}"}


def put_table(ts: int, table_id: int, text: str) -> dict[str, object]:
    value = orjson.dumps(table_info(table_id, text))
    key = encode_key(b"DB:1", b"Table:%d" % table_id)
    return {"table_id": 0, "commit_ts": ts, "start_ts": ts - 1, "key": key, "op": 1, "value": value}


def test_a_replica_is_filled_page_by_page_and_follows(objects: MemoryObjectStore, service: Service) -> None:
    task = CommittedTask(objects, TENANT, 10)
    replica = SchemaReplica(service.client, TENANT)
    history = replica.refresh()
    assert history.snapshot_ts == 10
    assert len(history.tables(history.resolved_ts, "shop") or ()) == TABLES
    task.flush(50, [put_table(30, 9000, "new"), diff(30, 57)])
    eventually(lambda: replica.refresh(wait_ms=200).resolved_ts == 50)
    assert history.schema_version_before(31) == 57
    assert len(history.tables(50, "shop") or ()) == TABLES + 1
    found = history.table_at(9000, 31)
    assert found is not None
    assert found.name == ("Shop", "new")


def test_a_long_poll_ends_as_soon_as_there_is_news(objects: MemoryObjectStore, service: Service) -> None:
    task = CommittedTask(objects, TENANT, 10)
    replica = SchemaReplica(service.client, TENANT)
    replica.refresh()
    timer = threading.Timer(0.2, lambda: task.flush(60))
    timer.start()
    service.app.state.clock = AheadClock(STANDING)  # to which the end of a poll is hours away
    assert replica.refresh(wait_ms=20_000).resolved_ts == 60
    timer.join()


def test_without_news_a_long_poll_answers_in_time(service: Service) -> None:
    replica = SchemaReplica(service.client, TENANT)
    replica.refresh()
    assert replica.fetch(wait_ms=50).records == []


def test_a_replica_outlives_the_registry(objects: MemoryObjectStore, service: Service) -> None:
    task = CommittedTask(objects, TENANT, 10)
    task.flush(50, [diff(30, 57)])
    replica = SchemaReplica(service.client, TENANT)
    eventually(lambda: replica.refresh().resolved_ts == 50)
    before = replica.history
    successor = Service(objects, TENANT)
    try:
        eventually(lambda: successor.client.status(TENANT).resolved_ts)
        replica._client = successor.client
        task.flush(70, [diff(60, 58)])
        eventually(lambda: replica.refresh().resolved_ts == 70)
        assert replica.history is before  # the log is the same: nothing was read twice
        assert before is not None
        assert before.schema_version_at(70) == 58
    finally:
        successor.stop()


def test_a_log_begun_anew_is_read_anew(service: Service) -> None:
    replica = SchemaReplica(service.client, TENANT)
    replica.refresh()
    other = MemoryObjectStore()
    put_snapshot(other, TENANT, 1, snapshot_ts=20)
    anew = Service(other, TENANT)
    try:
        eventually(lambda: anew.client.status(TENANT).resolved_ts)
        replica._client = anew.client
        assert replica.refresh().snapshot_ts == 20
        assert len(replica.refresh().tables(20, "shop") or ()) == 1
    finally:
        anew.stop()


def test_the_schema_at_a_time(objects: MemoryObjectStore, service: Service) -> None:
    CommittedTask(objects, TENANT, 10).flush(50, [put_table(30, 9000, "new"), diff(30, 57)])
    eventually(lambda: service.client.status(TENANT).resolved_ts == 50)
    view = service.client.schema(TENANT)
    assert (view.ts, view.schema_version) == ("50", "57")
    (shop,) = view.databases
    assert shop.name == "Shop"
    assert len(shop.tables) == TABLES + 1
    new = next(one for one in shop.tables if one.name == "new")
    assert (new.table_id, new.physical_ids, new.columns[0].sql_type) == ("9000", ["9000"], "int")
    assert len(service.client.schema(TENANT, 29).databases[0].tables) == TABLES
    with pytest.raises(Gone) as raised:
        service.client.schema(TENANT, 9)
    assert raised.value.extra["earliest_ts"] == "10"
    with pytest.raises(Unavailable):
        service.client.schema(TENANT, 51)


def test_unknown_names_and_bad_parameters(service: Service) -> None:
    with pytest.raises(UnknownName):
        service.client.log(TenantKey("7", "nobody"), 0)
    base = f"{service.url}/v1/clusters/7/tenants/acme/schema"
    for path, bad in [
        ("/log", {"after": -1}),
        ("/log", {"after": "x"}),
        ("/log", {"wait_ms": 60_001}),
        ("", {"ts": -1}),
        ("", {"ts": 2**63}),
    ]:
        with pytest.raises(InvalidRequest):
            service.http.request("GET", base + path, params=bad)
    assert plain_http.get(f"{service.url}/v1/clusters/7/tenants/a%2Fb/schema/log").status_code in (
        400,
        404,
    )
    assert service.client.log(TENANT, 10**9).records == []


def test_one_tenant_without_a_snapshot_stops_no_other(objects: MemoryObjectStore) -> None:
    broken, missing = TenantKey("7", "broken"), TenantKey("7", "missing")
    objects.put(layout.schema_snap(broken), b"{}")
    service = Service(objects, broken, missing, TENANT)
    try:
        eventually(lambda: service.client.status(TENANT).resolved_ts == 10)
        eventually(lambda: service.client.status(broken).holds and service.client.status(missing).holds)
        assert service.client.status(broken).holds[0].object == layout.schema_snap(broken)
        assert "version" in service.client.status(broken).holds[0].reason
        assert "not arrived" in service.client.status(missing).holds[0].reason
        with pytest.raises(Unavailable, match="schema_snap"):
            service.client.log(missing, 0)
    finally:
        service.stop()


def test_tenants_come_and_go_with_the_routes(service: Service) -> None:
    registry = service.app.state.registry
    assert registry.not_ready() is None
    registry.apply_routes(RouteTable(version=2, tenants=[]))
    with pytest.raises(UnknownName):
        service.client.status(TENANT)
