"""The meta server over HTTP, whole, with SQLite and objects in memory."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson
import pytest
from fastapi.testclient import TestClient

from support.ahead_clock import AheadClock
from support.metas import LEASE_MS, LOST_MS
from support.waiting import PATIENCE_S, eventually
from tistream.clock import SystemClock
from tistream.model.ids import TenantKey
from tistream.storage import layout
from tistream.storage.backends.memory import MemoryObjectStore
from tistream.storage.backends.tenant_keys import TenantKeys
from tistream.wire.clients.route_mark import RouteMark
from tistream_meta.app import build_app
from tistream_meta.settings import MetaSettings

ACME = TenantKey("7", "acme")
SNAP = orjson.dumps({"version": 1, "snapshot_ts": 42, "databases": []})


class EncryptingMemory(MemoryObjectStore):
    """As a bucket with key management, for what the meta server asks of it: whether it is one."""

    def __init__(self) -> None:
        super().__init__()
        self.keys = TenantKeys()


class Meta:
    def __init__(self, directory: Path, objects: MemoryObjectStore | None = None, **settings: int) -> None:
        self.objects = objects or EncryptingMemory()
        self.clock = AheadClock()
        self._instances = 0
        self._settings = MetaSettings(
            database_url=f"sqlite:///{directory}/meta.db",
            check_ms=10,
            snapshot_retry_max_ms=50,
            lease_ms=LEASE_MS,
            suspect_ms=LOST_MS // 2,
            lost_ms=LOST_MS,
            **settings,  # type: ignore[arg-type]
        )
        self.start()

    def start(self) -> None:
        app = build_app(self._settings, self.objects, self.clock)
        self.http = TestClient(app, raise_server_exceptions=False)
        self.http.__enter__()
        eventually(lambda: self.http.get("/readyz").status_code == 200)

    def stop(self) -> None:
        self.http.__exit__(None, None, None)

    def create(self, tenant: object = "acme", cluster: str = "7", **more: object) -> int:
        answer = self.http.post(f"/v1/clusters/{cluster}/tenants", json={"tenant_id": tenant, **more})
        assert (answer.status_code < 400) == (answer.headers["content-type"] == "application/json")
        return answer.status_code

    def register(self, node: str = "sorter-1", role: str = "sorter") -> dict:
        """A process starts; what the meta server says of it, and the process's own instance."""
        self._instances += 1
        start = {"instance": f"i{self._instances}", **self.http.post(f"/upcall/v1/nodes/{node}/starts").json()}
        answer = self.http.put(f"/upcall/v1/nodes/{node}", json={"role": role, "url": f"http://{node}", **start})
        assert answer.status_code == 200, answer.text
        assert answer.json()["start_epoch"] == start["start_epoch"]
        return {**answer.json(), **start}

    def heartbeat(self, node: str, start: dict) -> Any:
        body = {name: start[name] for name in ("instance", "start_epoch")}
        return self.http.post(f"/upcall/v1/nodes/{node}/heartbeat", json=body)

    def routes(self, **query: int) -> dict:
        return self.http.get("/upcall/v1/routes", params=query).json()

    def tenant(self) -> dict:
        return self.routes()["tenants"][0]


@pytest.fixture
def meta(tmp_path: Path) -> Iterator[Meta]:
    running = Meta(tmp_path, ranges_per_tenant=4)
    yield running
    running.stop()


def test_a_tenant_waits_for_its_snapshot_and_is_then_cut_and_served(meta):
    assert meta.create() == 201
    key = layout.schema_snap(ACME)
    eventually(lambda: meta.tenant()["problem"] == f"schema_snap has not come: {key}")
    assert meta.tenant()["snapshot_ts"] is None
    meta.objects.put(key, SNAP[:-1])
    eventually(lambda: "damaged" in meta.tenant()["problem"] and key in meta.tenant()["problem"])
    meta.objects.put(key, SNAP)
    eventually(lambda: meta.tenant()["snapshot_ts"] == 42)
    assert len(meta.tenant()["tasks"]) == 4
    assert "no sorter" in meta.tenant()["problem"]
    registered = meta.register()
    table = meta.routes()
    assert registered == {"start_epoch": 1, "instance": "i1", "route_version": table["version"]}
    assert table["services"]["sorter"] == ["http://sorter-1"]
    tenant = table["tenants"][0]
    assert tenant["problem"] is None
    assert {(task["sorter_url"], task["task_epoch"]) for task in tenant["tasks"]} == {("http://sorter-1", 1)}
    assert [task["start_key"] for task in tenant["tasks"][1:]] == [task["end_key"] for task in tenant["tasks"][:-1]]


def test_a_restart_keeps_tenants_and_versions_and_gives_sorters_new_epochs(meta):
    meta.objects.put(layout.schema_snap(ACME), SNAP)
    meta.create()
    meta.register()
    eventually(lambda: meta.tenant()["tasks"] and meta.tenant()["problem"] is None)  # each task has its sorter
    before = meta.routes()
    meta.stop()
    meta.start()
    assert meta.routes()["tenants"] == before["tenants"]
    assert meta.routes()["version"] >= before["version"]
    assert meta.register()["start_epoch"] == 2
    assert {task["task_epoch"] for task in meta.tenant()["tasks"]} == {2}


def test_creating_again_is_no_error_and_lists_are_by_cluster(meta):
    assert [meta.create(), meta.create(), meta.create("beta"), meta.create("acme", cluster="8")] == [201] * 4
    listed = meta.http.get("/v1/clusters/7/tenants").json()
    assert [tenant["tenant_id"] for tenant in listed["tenants"]] == ["acme", "beta"]
    unknown = meta.http.get("/v1/clusters/9/tenants")
    assert (unknown.status_code, unknown.json()["type"]) == (404, "tistream:unknown-name")


WEEK_MS = str(7 * 86_400_000)


def test_retention_is_told_when_a_tenant_is_created_and_changed_later(meta):
    assert meta.create(retention_ms=WEEK_MS) == 201
    assert meta.tenant()["retention_ms"] == int(WEEK_MS)
    assert [meta.create(), meta.create(retention_ms=WEEK_MS)] == [201, 201]
    assert [meta.create(retention_ms=None), meta.create(retention_ms="3600000")] == [409, 409]
    eventually(lambda: meta.tenant()["problem"] is not None)  # which is a version of its own
    version = meta.routes()["version"]
    url = "/v1/clusters/7/tenants/acme/retention"
    changed = meta.http.put(url, json={"retention_ms": "3600000"})
    assert (changed.status_code, changed.json()["retention_ms"]) == (200, "3600000")
    table = meta.routes(known_version=version, wait_ms=60_000)
    assert table["version"] > version
    assert table["tenants"][0]["retention_ms"] == 3_600_000
    assert meta.http.put(url, json={"retention_ms": "3600000"}).status_code == 200
    assert meta.routes()["version"] == table["version"]
    assert meta.http.put(url, json={"retention_ms": None}).json()["retention_ms"] is None
    assert meta.tenant()["retention_ms"] is None
    assert meta.http.get("/v1/clusters/7/tenants").json()["tenants"][0]["retention_ms"] is None
    unknown = meta.http.put("/v1/clusters/7/tenants/nobody/retention", json={"retention_ms": None})
    assert (unknown.status_code, unknown.json()["type"]) == (404, "tistream:unknown-name")


ARN = "arn:aws:kms:eu-central-1:111122223333:key/1234abcd-12ab-34cd-56ef-1234567890ab"


def test_a_key_is_told_when_a_tenant_is_created_and_changed_later(meta):
    assert meta.create(kms_key_id=ARN) == 201
    assert meta.tenant()["kms_key_id"] == ARN
    assert [meta.create(), meta.create(kms_key_id=ARN), meta.create(kms_key_id="other")] == [201, 201, 409]
    assert [meta.create("beta"), meta.create("beta", kms_key_id=None)] == [201, 201]
    eventually(lambda: all(tenant["problem"] for tenant in meta.routes()["tenants"]))
    version = meta.routes()["version"]
    url = "/v1/clusters/7/tenants/acme/encryption"
    changed = meta.http.put(url, json={"kms_key_id": "alias/acme"})
    assert (changed.status_code, changed.json()["kms_key_id"]) == (200, "alias/acme")
    table = meta.routes(known_version=version, wait_ms=60_000)
    assert [tenant["kms_key_id"] for tenant in table["tenants"]] == ["alias/acme", None]
    assert meta.http.put(url, json={"kms_key_id": "alias/acme"}).status_code == 200
    assert meta.routes()["version"] == table["version"]
    assert meta.http.put(url, json={"kms_key_id": None}).json()["kms_key_id"] is None
    assert meta.http.put(url.replace("acme", "nobody"), json={"kms_key_id": None}).status_code == 404


@pytest.mark.parametrize("key", ["", " ", "a b", "a\r\nx-amz-acl: public-read", "ключ", "-k", "k" * 513, 5])
def test_a_bad_key_is_refused_and_changes_nothing(meta, key):
    meta.create()
    url = "/v1/clusters/7/tenants/acme/encryption"
    refused = meta.http.put(url, json={"kms_key_id": key})
    assert (refused.status_code, refused.json()["type"]) == (400, "tistream:bad-request")
    assert meta.create("beta", kms_key_id=key) == 400
    assert [(tenant["tenant_id"], tenant["kms_key_id"]) for tenant in meta.routes()["tenants"]] == [("acme", None)]
    assert meta.http.put(url, json={}).status_code == 400


def test_a_store_that_cannot_encrypt_takes_no_keys(tmp_path):
    running = Meta(tmp_path, objects=MemoryObjectStore())
    try:
        assert [running.create(kms_key_id=ARN), running.create(kms_key_id=None)] == [400, 201]
        refused = running.http.put("/v1/clusters/7/tenants/acme/encryption", json={"kms_key_id": ARN})
        assert (refused.status_code, refused.json()["type"]) == (400, "tistream:bad-request")
        assert "is not S3, so it has no keys of tenants" in refused.json()["detail"]
    finally:
        running.stop()


def test_a_tenant_without_a_retention_gets_that_of_the_settings(tmp_path):
    running = Meta(tmp_path, retention_ms=int(WEEK_MS))
    try:
        assert [running.create(), running.create("kept", retention_ms=None)] == [201, 201]
        assert [tenant["retention_ms"] for tenant in running.routes()["tenants"]] == [int(WEEK_MS), None]
    finally:
        running.stop()
    with pytest.raises(ValueError, match="retention_ms"):
        MetaSettings(retention_ms=60_000)


@pytest.mark.parametrize("retention", ["", "7d", "-1", "3599999", "0x10", "3153600000001", "9" * 30, 3_600_000, 1.5])
def test_a_bad_retention_is_refused_and_changes_nothing(meta, retention):
    assert meta.create() == 201
    refused = meta.http.put("/v1/clusters/7/tenants/acme/retention", json={"retention_ms": retention})
    assert refused.status_code == 400
    assert "retention_ms" in refused.json()["detail"]
    assert meta.create("beta", retention_ms=retention) == 400
    assert [(tenant["tenant_id"], tenant["retention_ms"]) for tenant in meta.routes()["tenants"]] == [("acme", None)]
    assert meta.http.put("/v1/clusters/7/tenants/acme/retention", json={}).status_code == 400


@pytest.mark.parametrize("tenant", ["", "-a", "a/b", "a" * 64, "ü", "a\n", "..", 7, None, ["a"]])
def test_a_bad_tenant_name_is_refused(meta, tenant):
    assert meta.create(tenant) == 400


def test_bad_bodies_and_cluster_names_are_refused(meta):
    assert meta.create("acme", more="x") == 400
    assert meta.create("acme", cluster="a b") == 400
    assert meta.http.get("/v1/clusters/a b/tenants").status_code == 400
    for body in (b"", b"{", b"[]", b"\xff", b"null"):
        answer = meta.http.post("/v1/clusters/7/tenants", content=body, headers={"content-type": "application/json"})
        assert (answer.status_code, answer.json()["type"]) == (400, "tistream:bad-request"), body


def test_announcements_reach_a_waiting_reader(meta):
    after = meta.http.get("/upcall/v1/announcements").json()["next_after"]
    got = []
    reader = threading.Thread(
        target=lambda: got.append(
            meta.http.get("/upcall/v1/announcements", params={"after": after, "wait_ms": 60_000}).json()
        )
    )
    reader.start()
    body = {"cluster_id": "7", "tenant_id": "acme", "store_id": "1", "ts": "470596577401765888"}
    assert meta.http.post("/v1/notifications", json=body).status_code == 202
    reader.join(PATIENCE_S)
    assert got[0]["lost"] is False
    assert got[0]["announcements"] == [{**body, "store_id": 1, "ts": 470596577401765888}]


@pytest.mark.parametrize(
    "change",
    [
        {"ts": 5},
        {"ts": "x"},
        {"ts": "-1"},
        {"ts": "0"},
        {"ts": "9223372036854775808"},
        {"ts": "1" * 30},
        {"ts": "٣"},
        {"store_id": 1},
        {"store_id": "a"},
        {"store_id": "01"},
        {"tenant_id": "a/b"},
        {"cluster_id": ""},
        {"more": "x"},
        {"ts": None},
    ],
)
def test_a_bad_notification_is_refused(meta, change):
    body = {"cluster_id": "7", "tenant_id": "acme", "store_id": "1", "ts": "5", **change}
    answer = meta.http.post("/v1/notifications", json=body)
    assert (answer.status_code, answer.json()["type"]) == (400, "tistream:bad-request")
    missing = {name: value for name, value in body.items() if name not in change}
    if len(missing) < 4:
        assert meta.http.post("/v1/notifications", json=missing).status_code == 400


def test_routes_wait_for_the_next_version(meta):
    version = meta.routes()["version"]
    got = []
    reader = threading.Thread(target=lambda: got.append(meta.routes(known_version=version, wait_ms=60_000)))
    reader.start()
    meta.create()
    reader.join(PATIENCE_S)
    assert got[0]["version"] > version
    assert meta.routes(known_version=version)["version"] > version
    assert meta.http.get("/upcall/v1/routes", params={"wait_ms": 60_001}).status_code == 400


def test_heartbeats_are_for_the_newest_start_of_a_node(meta):
    first, second = meta.register("api-1", "api"), meta.register("api-1", "api")
    refused = meta.heartbeat("api-1", first)
    assert (refused.status_code, refused.json()["type"]) == (409, "tistream:superseded")
    assert meta.heartbeat("api-1", second).json()["owner_rev"] == 1
    assert meta.heartbeat("other", second).status_code == 404
    start = {"url": "http://x", "instance": "x", "start_epoch": 9}
    for node, body in (
        ("x", {**start, "role": "king"}),
        ("a%20b", {**start, "role": "api"}),
        ("x", {**start, "role": "api", "start_epoch": 0}),
        ("x", {**start, "role": "api", "instance": ""}),
    ):
        assert meta.http.put(f"/upcall/v1/nodes/{node}", json=body).status_code == 400


def test_a_silent_sorter_loses_its_tasks_to_one_that_is_there(tmp_path):
    meta = Meta(tmp_path, ranges_per_tenant=2)
    try:
        meta.objects.put(layout.schema_snap(ACME), SNAP)
        meta.create()
        silent = meta.register("sorter-1")
        eventually(lambda: meta.tenant()["tasks"] and meta.tenant()["problem"] is None)
        meta.heartbeat("sorter-1", silent)  # its last
        there = meta.register("sorter-2")
        assert {(task["sorter_node"], task["task_epoch"]) for task in meta.tenant()["tasks"]} == {("sorter-1", 1)}

        def moved() -> bool:
            meta.heartbeat("sorter-2", there)
            return {(task["sorter_node"], task["task_epoch"]) for task in meta.tenant()["tasks"]} == {("sorter-2", 2)}

        for _ in range(2):
            meta.clock.advance(LOST_MS * 6 // 10)
            meta.heartbeat("sorter-2", there)
        eventually(moved)
        assert meta.routes()["services"]["sorter"] == ["http://sorter-2"]
    finally:
        meta.stop()


def test_metrics_tell_what_is_served(meta):
    meta.create()
    text = meta.http.get("/metrics").text
    assert "tistream_meta_tenants 1.0" in text
    assert "tistream_meta_owner_rev 1.0" in text
    assert "tistream_meta_owner 1.0" in text


def test_what_comes_too_late_is_refused_and_counted(meta):
    first = meta.register("sorter-1")
    second = meta.register("sorter-1")
    assert meta.heartbeat("sorter-1", first).status_code == 409
    body = {name: second[name] for name in ("instance", "start_epoch")}
    for sequence in (5, 4):
        answer = meta.http.post("/upcall/v1/nodes/sorter-1/heartbeat", json={**body, "sequence": sequence})
        assert answer.status_code == 200
    text = meta.http.get("/metrics").text
    assert 'tistream_meta_refused_total{what="start"} 1.0' in text
    assert 'tistream_meta_refused_total{what="report"} 1.0' in text


# -- what tenants use, and may use --

USAGE = "/v1/clusters/7/tenants/acme/usage"
QUOTAS = "/v1/clusters/7/tenants/acme/quotas"
NO_QUOTAS = {
    "requests_per_second": None,
    "pulls_at_once": None,
    "served_bytes_per_second": None,
    "notifications_per_second": None,
    "changefeeds": None,
    "changefeed_shards": None,
    "feed_rows_per_second": None,
    "feed_bytes_per_second": None,
    "stored_bytes": None,
}


def told(hour_ms: int, **more: Any) -> dict[str, Any]:
    one = {"cluster_id": "7", "tenant_id": "acme", "hour_ms": hour_ms}
    return {"node_id": "api-1", "instance": "i1", **{name: [one | value] for name, value in more.items()}}


def test_usage_is_told_and_asked_for(meta: Meta) -> None:
    meta.create()
    hour_ms = SystemClock().now_ms() // 3_600_000 * 3_600_000
    report = told(hour_ms, counted={"bytes_served": 5, "rows_served": 1, "requests": {"get": 3, "unheard": 9}})
    for _ in range(2):
        assert meta.http.post("/upcall/v1/usage", json=report).status_code == 202
    found = meta.http.get(USAGE).json()
    assert [hour["hour_ms"] for hour in found["hours"]] == [str(hour_ms)]
    assert found["total"]["bytes_served"] == "5"
    assert found["total"]["requests"]["get"] == "3"
    assert "unheard" not in found["total"]["requests"]
    assert meta.http.get(USAGE, params={"from": str(hour_ms + 1)}).json()["hours"] == []
    assert meta.http.get(USAGE, params={"to": str(hour_ms)}).json()["hours"] == []
    assert meta.http.get(USAGE.replace("acme", "nobody")).status_code == 404
    for wrong, why in (
        ({"from": "x"}, "from"),
        ({"to": "-1"}, "to"),
        ({"from": "5", "to": "4"}, "from 5 lies above to 4: the range is empty"),
        ({"from": "0"}, "more than 100 days"),
    ):
        refused = meta.http.get(USAGE, params=wrong)
        assert refused.status_code == 400
        assert why in refused.json()["detail"]
    assert meta.http.post("/upcall/v1/usage", json=told(hour_ms, counted={"bytes_served": -1})).status_code == 400


def test_quotas_are_kept_and_come_with_the_routes(meta: Meta) -> None:
    meta.create()
    assert meta.http.get(QUOTAS).json() == {
        "cluster_id": "7",
        "tenant_id": "acme",
        **NO_QUOTAS,
        "bytes_stored_now": None,
        "stored_bytes_exceeded": False,
    }
    eventually(lambda: meta.tenant()["problem"] is not None)  # which is a version of its own
    version = meta.http.get("/upcall/v1/routes").json()["version"]
    limits = {**NO_QUOTAS, "requests_per_second": 50, "stored_bytes": 1_000}
    assert meta.http.put(QUOTAS, json={"requests_per_second": 50, "stored_bytes": 1_000}).status_code == 200
    table = meta.http.get("/upcall/v1/routes").json()
    assert table["version"] > version
    assert [one["limits"] for one in table["tenants"]] == [limits]
    assert meta.http.put(QUOTAS, json=limits).status_code == 200
    assert meta.http.get("/upcall/v1/routes").json()["version"] == table["version"], "the same again changes nothing"
    meta.stop()
    meta.start()
    assert [one["limits"] for one in meta.http.get("/upcall/v1/routes").json()["tenants"]] == [limits]
    meta.create("other")
    assert meta.http.put(QUOTAS, json={}).json()["requests_per_second"] is None
    for wrong in ({"requests_per_second": -1}, {"pulls_at_once": "5"}, {"unheard": 1}, {"stored_bytes": 1 << 60}):
        assert meta.http.put(QUOTAS, json=wrong).status_code == 400, wrong
    assert meta.http.put(QUOTAS.replace("acme", "nobody"), json={}).status_code == 404


def test_who_stores_more_than_its_quota_is_told(meta: Meta) -> None:
    meta.create()
    hour_ms = SystemClock().now_ms() // 3_600_000 * 3_600_000
    meta.http.put(QUOTAS, json={"stored_bytes": 1_000})
    for number, size in enumerate((1_000, 1_001), 1):
        stored = {"task_id": 1, "manifest": number, "bytes_of": {"1": size}}
        meta.http.post("/upcall/v1/usage", json=told(hour_ms, stored=stored))
        found = meta.http.get(QUOTAS).json()
        assert (found["bytes_stored_now"], found["stored_bytes_exceeded"]) == (str(size), size > 1_000)
    meta.http.put(QUOTAS, json={"stored_bytes": 0})
    assert not meta.http.get(QUOTAS).json()["stored_bytes_exceeded"], "0: as much as it likes"


def test_who_waits_is_answered_once_the_process_ends(meta: Meta) -> None:
    server, tokens = meta.http.app.state.server, meta.http.app.state.tokens
    eventually(lambda: meta.http.get("/upcall/v1/tokens").status_code == 200)
    known, wait_ms = server.routes().current(), int(10 * PATIENCE_S * 1000)
    waits = [
        lambda: server.routes().wait(RouteMark(known.owner_rev, known.version), wait_ms),
        lambda: server.owned().announcements.after(server.owned().announcements.after(0, 0).next_after, wait_ms),
        lambda: tokens.wait(tokens.wait(-1, 0).version, wait_ms),
    ]
    threads = [threading.Thread(target=wait, daemon=True) for wait in waits]
    for thread in threads:
        thread.start()
    meta.http.app.state.stopping.set()
    for thread in threads:
        thread.join(PATIENCE_S)
        assert not thread.is_alive()
