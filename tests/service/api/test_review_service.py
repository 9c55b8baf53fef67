"""What outsiders see of the service itself: its OpenAPI document, and peers that are not ready yet."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

import tistream_api.app
from support import plain_http
from support.api_world import start_api
from support.http_world import CLOCK, World, never_superseded, running
from tistream.errors import Unavailable
from tistream.follow.tenants import Tenants
from tistream.read.group_cache import GroupCache
from tistream.storage.backends.memory import MemoryObjectStore
from tistream.wire.clients.client import HttpClient
from tistream.wire.clients.membership import Membership
from tistream.wire.clients.meta_client import MetaClient
from tistream.wire.meta import TaskRoute, TenantRoute
from tistream_api.app import build_app
from tistream_api.metrics import ApiMetrics
from tistream_api.settings import ApiSettings
from tistream_api.status.tenant_status import TenantStatus


@pytest.fixture(scope="module")
def document() -> dict[str, Any]:
    app = build_app(ApiSettings(meta_url="http://127.0.0.1:1"), MemoryObjectStore(), CLOCK)
    return app.openapi()


def operations(document: dict[str, Any]) -> dict[str, dict[str, Any]]:
    calls = [call for path in document["paths"].values() for call in path.values()]
    return {call["operationId"]: call for call in calls if "operations" not in call["tags"]}


def test_every_problem_is_an_rfc_9457_problem(document: dict[str, Any]) -> None:
    for name, call in operations(document).items():
        told = {status: list(answer["content"]) for status, answer in call["responses"].items() if status[0] != "2"}
        assert "default" in told, name
        assert {kind for kinds in told.values() for kind in kinds} == {"application/problem+json"}, name
    assert "HTTPValidationError" not in document.get("components", {}).get("schemas", {})


@pytest.mark.parametrize(
    ("name", "statuses"),
    [
        ("PullTable", {"200", "400", "404", "409", "410", "422", "429", "503"}),
        ("ListDBs", {"200", "400", "404", "410", "503"}),
        ("ListTables", {"200", "400", "404", "410", "503"}),
        ("TenantStatus", {"200", "400", "404", "503"}),
        ("Coverage", {"200", "400", "404", "503"}),
        ("CreateTenant", {"201", "400", "409", "503"}),
        ("SetRetention", {"200", "400", "404", "503"}),
        ("Notify", {"202", "400", "503"}),
    ],
)
def test_the_answers_of_each_call(document: dict[str, Any], name: str, statuses: set[str]) -> None:
    of_the_gate = {"401", "403", "429"}
    assert operations(document)[name]["responses"].keys() - {"default"} == statuses | of_the_gate


def test_formats_of_pulls_and_bodies_are_told(document: dict[str, Any]) -> None:
    calls = operations(document)
    for name in ("PullTable", "PullDB", "PullTenant"):
        offered = list(calls[name]["responses"]["200"]["content"])
        assert offered == ["application/x-ndjson", "application/vnd.apache.arrow.stream", "application/x-tar"]
    for name, required, optional in (
        ("CreateTenant", ["tenant_id"], ["retention_ms", "kms_key_id", "index_keys", "kind"]),
        ("SetRetention", ["retention_ms"], []),
        ("SetEncryption", ["kms_key_id"], []),
        ("Notify", ["cluster_id", "tenant_id", "store_id", "ts"], []),
    ):
        schema = calls[name]["requestBody"]["content"]["application/json"]["schema"]
        assert schema["required"] == required
        assert list(schema["properties"]) == required + optional
    retention = calls["SetRetention"]["requestBody"]["content"]["application/json"]["schema"]["properties"]
    assert retention["retention_ms"]["type"] == ["string", "null"]


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with running(tmp_path_factory.mktemp("world")) as one:
        yield one


def test_coverage_of_a_task_that_its_sorter_does_not_hold_yet_is_no_404(world: World) -> None:
    objects, http, registry = MemoryObjectStore(), HttpClient(), CollectorRegistry()
    meta = MetaClient(http, world.meta.url)
    with ThreadPoolExecutor(1) as executor:
        cache = GroupCache(objects, 1 << 20)
        tenants = Tenants(
            http, meta, objects, cache, CLOCK, executor, threading.Event(), ApiMetrics(registry).undecodable
        )
        world.client.create_tenant("7", "waiting")
        view = tenants.view("7", "waiting")
        task = TaskRoute(
            task_id=999,
            start_key="",
            end_key="",
            task_epoch=1,
            sorter_node="sorter-1",
            sorter_url=world.sorter.server.url,
        )
        view.replace_route(TenantRoute(cluster_id="7", tenant_id="waiting", snapshot_ts=5, tasks=[task]))
        view.refresh()
        with pytest.raises(Unavailable, match="999"):
            TenantStatus(http, tenants, CLOCK, meta).coverage(view, b"", b"")
    http.close()


def test_a_peer_that_hangs_does_not_keep_status_from_answering(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its port takes connections, and nothing more ever comes: a process that was stopped looks like that."""
    monkeypatch.setattr(tistream_api.app, "STATUS_DEADLINE_S", 1.0)  # any other call would wait for as long as we do
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        meta = MetaClient(world.http, world.meta.url)
        Membership(meta, "dispatcher-9", "dispatcher", url, instance="a", end=never_superseded).beat()
        world.client.create_tenant("7", "hanging")
        api = start_api(world)
        try:
            base = f"{api.url}/v1/clusters/7/tenants/hanging/status"
            held_by = plain_http.get(base).json()["held_by"]
            assert held_by["stage"] == "push"
        finally:
            api.stop()
