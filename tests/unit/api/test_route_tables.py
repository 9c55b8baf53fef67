"""Two threads take the meta server's route tables: the older of two answers never undoes the newer."""

from __future__ import annotations

import concurrent.futures

import httpx
import pytest
from prometheus_client import CollectorRegistry

from tistream import concurrency
from tistream.clock import ManualClock
from tistream.follow.tenants import Tenants
from tistream.read.group_cache import GroupCache
from tistream.storage.backends.memory import MemoryObjectStore
from tistream.wire.clients.client import HttpClient
from tistream.wire.clients.meta_client import MetaClient, StaleRoutes
from tistream.wire.meta import RouteTable, TenantRoute
from tistream_api.metrics import ApiMetrics


def table(version: int, *tenants: str, owner_rev: int = 1, **services: str) -> RouteTable:
    routes = [
        TenantRoute(cluster_id="7", tenant_id=tenant, snapshot_ts=None, tasks=[], problem=None) for tenant in tenants
    ]
    found = {role: [url] for role, url in services.items()}
    return RouteTable(version=version, owner_rev=owner_rev, tenants=routes, services=found)


class Meta:
    """Answers with `now`; while it does so for a long poll, `meanwhile` happens once."""

    def __init__(self, now: RouteTable) -> None:
        self.now = now
        self.meanwhile = lambda: None
        self.registries: list[str] = []  # those that were asked
        http = HttpClient(transport=httpx.MockTransport(self._answer))
        objects = MemoryObjectStore()
        self.tenants = Tenants(
            http,
            MetaClient(http, "http://meta"),
            objects,
            GroupCache(objects, 1 << 20),
            ManualClock(1_000),
            concurrent.futures.ThreadPoolExecutor(1),
            concurrency.new_event(),
            ApiMetrics(CollectorRegistry()).undecodable,
        )

    def _answer(self, request: httpx.Request) -> httpx.Response:
        answer = self.now
        if "/schema/" in request.url.path:
            self.registries.append(request.url.host)
            return httpx.Response(503, headers={"retry-after": "1"})
        if "wait_ms" in request.url.params:
            meanwhile, self.meanwhile = self.meanwhile, lambda: None
            meanwhile()
        return httpx.Response(200, content=answer.model_dump_json().encode())


def test_an_answer_overtaken_by_a_newer_one_drops_no_view() -> None:
    """A stream that reads a dropped view would stand still for ever: nobody refreshes it any more."""
    meta = Meta(table(5, "old"))
    meta.tenants.follow()
    seen = []

    def registered() -> None:
        meta.now = table(6, "old", "young")
        seen.append(meta.tenants.view("7", "young"))

    meta.meanwhile = registered
    with pytest.raises(StaleRoutes):  # the loop asks again
        meta.tenants.follow()
    routes = meta.tenants.routes()
    assert routes is not None
    assert routes.version == 6
    assert meta.tenants.view("7", "young") is seen[0]


def test_routes_that_are_behind_are_not_followed_and_those_of_a_newer_owner_are() -> None:
    """A database that was restored has lower versions, also after another election. Heartbeats tell its owner, which is
    then elected anew, above what nodes had seen."""
    meta = Meta(table(5, "old"))
    meta.tenants.follow()
    for behind in (table(3, "restored"), table(4, "restored", owner_rev=2)):
        meta.now = behind
        with pytest.raises(StaleRoutes, match="older than"):
            meta.tenants.follow()
    meta.now = table(6, "restored", owner_rev=3)
    meta.tenants.follow()
    routes = meta.tenants.routes()
    assert routes is not None
    assert (routes.version, [tenant.tenant_id for tenant in routes.tenants]) == (6, ["restored"])


def test_a_registry_that_was_started_again_elsewhere_is_asked_there() -> None:
    """Everything was killed, and routes were taken before the registry had told its new address."""
    meta = Meta(table(5, "acme", schema="http://before"))
    meta.tenants.follow()
    view = meta.tenants.view("7", "acme")
    view.refresh()
    meta.now = table(6, "acme", schema="http://now")
    meta.tenants.follow()
    view.refresh()
    assert meta.registries == ["before", "now"]
    assert meta.tenants.view("7", "acme") is view
