"""How often tenants are looked at, and how far behind they are told to be when nobody can look."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Executor, Future
from typing import Any

import httpx
import pytest
from prometheus_client import CollectorRegistry

from support.committed_pool import CommittedTask
from tistream import concurrency
from tistream.clock import ManualClock
from tistream.follow.tenants import Tenants
from tistream.model.ids import TenantKey
from tistream.model.ts import from_physical_ms
from tistream.read.group_cache import GroupCache
from tistream.storage.backends.memory import MemoryObjectStore
from tistream.wire.clients.client import HttpClient
from tistream.wire.clients.meta_client import MetaClient
from tistream.wire.meta import RouteTable, TaskRoute, TenantRoute
from tistream.wire.schema import LogPage
from tistream_api.metrics import ApiMetrics


class Held(Executor):
    """Runs what is submitted when it is told to."""

    def __init__(self) -> None:
        self.waiting: list[Callable[[], None]] = []

    def submit(self, call: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        self.waiting.append(lambda: call(*args, **kwargs))
        return Future()

    def run(self) -> int:
        begun, self.waiting = self.waiting, []
        for call in begun:
            call()
        return len(begun)


class World:
    """An API server's tenants, of one task each, whose sorters do not answer: manifests tell."""

    def __init__(self, count: int) -> None:
        self.clock, self.executor, self.objects = ManualClock(1_000_000), Held(), MemoryObjectStore()
        self.keys = [TenantKey("7", f"t{number}") for number in range(count)]
        self.tasks = [CommittedTask(self.objects, key, 100) for key in self.keys]
        self.registry = CollectorRegistry()
        http = HttpClient(transport=httpx.MockTransport(self._answer))
        meta, cache = MetaClient(http, "http://meta"), GroupCache(self.objects, 1 << 20)
        stopping = concurrency.new_event()
        metrics = ApiMetrics(self.registry)
        self.tenants = Tenants(
            http, meta, self.objects, cache, self.clock, self.executor, stopping, metrics.undecodable
        )
        metrics.follow_lag(self.tenants.lag_seconds)
        self.tenants.follow()

    def _answer(self, request: httpx.Request) -> httpx.Response:
        if request.url.host == "meta":
            task = TaskRoute(task_id=1, start_key="", end_key="", task_epoch=1, sorter_node=None, sorter_url=None)
            routes = [
                TenantRoute(cluster_id="7", tenant_id=key.tenant_id, snapshot_ts=100, tasks=[task]) for key in self.keys
            ]
            table = RouteTable(version=1, tenants=routes, services={"schema": ["http://schema"]})
            return httpx.Response(200, content=table.model_dump_json().encode())
        page = LogPage(log_id="a", snapshot_ts=100, resolved_ts=1 << 62, next_after=0, more=False, records=[])
        return httpx.Response(200, content=page.model_dump_json().encode())

    def flush(self) -> None:
        for task in self.tasks:
            task.flush(from_physical_ms(self.clock.now_ms()))

    def round(self) -> int:
        """As the loop does; how many were looked at."""
        self.clock.advance(20)
        self.tenants.refresh_due()
        return self.executor.run()

    def lag_seconds(self) -> float:
        lag = self.registry.get_sample_value("tistream_api_resolved_lag_seconds")
        assert lag is not None
        return lag


def test_idle_tenants_are_looked_at_one_after_the_other() -> None:
    world = World(100)
    assert world.round() == 100  # all are new
    seconds = [sum(world.round() for _ in range(50)) for _ in range(40)]
    assert sum(seconds[:2]) <= 2
    assert all(9 <= looks <= 11 for looks in seconds[2:])
    assert max(view.age_ms() for key in world.keys for view in [world.tenants.view("7", key.tenant_id)]) <= 10_100
    asked_for = world.tenants.view("7", "t50")
    asked_for.wait_above(0, 0)
    assert sum(world.round() for _ in range(50)) >= 18
    assert asked_for.age_ms() <= 100


def test_nothing_is_done_until_an_idle_tenant_is_due_or_asked_for() -> None:
    world = World(1)
    wakes: list[int] = []
    world.tenants.wake = lambda: wakes.append(world.clock.monotonic_ms())
    view = world.tenants.view("7", "t0")
    world.round()
    assert world.tenants.refresh_due() >= 1_900
    view.wait_above(0, 0)
    assert len(wakes) == 1
    assert world.tenants.refresh_due() <= 100
    world.round()
    view.wait_above(0, 0)
    assert len(wakes) == 1, "it is active already"
    world.clock.advance(1_000)
    world.round()
    assert world.tenants.refresh_due() >= 900
    view.wait_above(0, 0)
    assert len(wakes) == 2


def test_an_idle_tenant_that_cannot_be_looked_at_keeps_nobody_from_the_others() -> None:
    world = World(30)
    world.round()
    view = world.tenants.view("7", "t3")

    def broken() -> None:
        raise RuntimeError("a fault of ours")

    view.refresh = broken  # type: ignore[method-assign]
    for _ in range(500):
        world.round()
    ages = sorted(world.tenants.view("7", key.tenant_id).age_ms() for key in world.keys)
    assert ages[-2] <= 3_100
    assert ages[-1] >= 9_000


@pytest.mark.parametrize("count", [1, 100])
def test_a_tenant_that_nobody_can_look_at_falls_behind_in_the_metric(count: int) -> None:
    world = World(count)
    world.flush()
    world.round()
    assert world.lag_seconds() == 0.02
    world.clock.advance(1_000)  # no look is due: that it was told up to date counts
    assert world.lag_seconds() == 0.02
    world.clock.advance(3_600_000)  # refreshes hang
    world.tenants.refresh_due()
    assert world.lag_seconds() >= 3_590
