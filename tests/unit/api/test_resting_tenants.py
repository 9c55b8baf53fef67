"""Idle tenants whose sorters say that no task moves: they are refreshed only now and then."""

from __future__ import annotations

import httpx
import pytest
from prometheus_client import CollectorRegistry, Counter

from support.committed_pool import CommittedTask
from tistream import concurrency
from tistream.clock import ManualClock
from tistream.follow.moved_tenants import ASK_MS
from tistream.follow.tenants import IDLE_TURN_MS, RESTING_EVERY_MS, RESTING_SPREAD_MS, Tenants
from tistream.model.ids import TenantKey
from tistream.read.group_cache import GroupCache
from tistream.storage.backends.memory import MemoryObjectStore
from tistream.wire.clients.client import HttpClient
from tistream.wire.clients.meta_client import MetaClient
from tistream.wire.meta import RouteTable, TaskRoute, TenantRoute
from tistream.wire.schema import LogPage
from tistream.wire.sorter import ProgressPage, TaskList, TaskProgress
from unit.api.test_refreshing import Held

TS = 1 << 40


class World:
    """The tenants of an API server, of one task each, which one sorter holds."""

    def __init__(self, count: int, schema_ts: int = 1 << 62) -> None:
        self.clock, self.executor, self.objects = ManualClock(1_000_000), Held(), MemoryObjectStore()
        self.tasks = {
            key.tenant_id: CommittedTask(self.objects, key, 100, task_id=number)
            for number, key in enumerate((TenantKey("7", f"t{number}") for number in range(count)), 1)
        }
        self.moved: set[str] = set()  # what the sorter says to the next question
        self.silent = self.old = self.faulty = False
        self.schema_ts, self.sorter_url, self.version = schema_ts, "http://sorter", 1
        self.asked: list[str] = []
        http = HttpClient(transport=httpx.MockTransport(self._answer))
        self.tenants = Tenants(
            http,
            MetaClient(http, "http://meta"),
            self.objects,
            GroupCache(self.objects, 1 << 20),
            self.clock,
            self.executor,
            concurrency.new_event(),
            Counter("undecodable", "Rows.", registry=CollectorRegistry()),
        )
        self.woken = False
        self.tenants.wake = self._wake
        self.tenants.follow()

    def _wake(self) -> None:
        self.woken = True

    def _answer(self, request: httpx.Request) -> httpx.Response:
        path, query = request.url.path, request.url.params
        if request.url.host == "meta":
            return _ok(self._routes())
        if request.url.host == "schema":
            page = LogPage(
                log_id="a", snapshot_ts=100, resolved_ts=self.schema_ts, next_after=0, more=False, records=[]
            )
            return _ok(page)
        self.asked.append(path)
        if self.silent:
            raise httpx.ConnectError("gone")
        if path == "/v1/progress" and self.faulty:
            raise RuntimeError("a fault of the client")
        if path == "/v1/tasks":
            return _ok(TaskList(node_id="s", tasks=[self.tasks[query["tenant_id"]].status()]))
        if self.old:
            return httpx.Response(404, json={"detail": "Not Found"})
        moved, self.moved = self.moved, set()
        told = [self.tasks[tenant_id].status() for tenant_id in (self.tasks if not query["boot"] else moved)]
        fields = TaskProgress.model_fields
        progress = [TaskProgress.model_validate({name: getattr(one, name) for name in fields}) for one in told]
        return _ok(ProgressPage(boot="b", version=1, tasks=progress))

    def _routes(self) -> RouteTable:
        routes = [
            TenantRoute(cluster_id="7", tenant_id=tenant_id, snapshot_ts=100, tasks=[self._route(task.task_id)])
            for tenant_id, task in self.tasks.items()
        ]
        return RouteTable(version=self.version, tenants=routes, services={"schema": ["http://schema"]})

    def _route(self, task_id: int) -> TaskRoute:
        return TaskRoute(
            task_id=task_id, start_key="", end_key="", task_epoch=1, sorter_node="s", sorter_url=self.sorter_url
        )

    def move(self, tenant_id: str) -> None:
        self.tasks[tenant_id].flush(TS)
        self.moved.add(tenant_id)

    def pass_ms(self, passed_ms: int) -> dict[str, int]:
        """As the loop does, for this time. The requests to the sorter by path."""
        self.asked.clear()
        until_ms = self.clock.monotonic_ms() + passed_ms
        while (left_ms := until_ms - self.clock.monotonic_ms()) > 0:
            self.woken = False
            pause_ms = self.tenants.refresh_due()
            self.executor.run()
            self.clock.advance(0 if self.woken else min(pause_ms, left_ms))
        return {path: self.asked.count(path) for path in set(self.asked)}

    def resolved_ts(self, tenant_id: str) -> int:
        return self.tenants.view("7", tenant_id).resolved_ts()


def _ok(body: RouteTable | LogPage | TaskList | ProgressPage) -> httpx.Response:
    return httpx.Response(200, content=body.model_dump_json().encode())


def rested(count: int = 1, schema_ts: int = 1 << 62) -> World:
    world = World(count, schema_ts)
    world.pass_ms(20_000 + 200 * count)
    return world


def test_a_tenant_at_rest_is_not_refreshed_for_a_minute() -> None:
    world = rested()
    asked = world.pass_ms(10 * RESTING_EVERY_MS)
    assert asked["/v1/tasks"] in (9, 10)
    assert asked["/v1/progress"] <= 10 * RESTING_EVERY_MS // ASK_MS + 1


@pytest.mark.parametrize("count", [1, 12, 100])
def test_tenants_at_rest_take_turns_and_are_refreshed_about_once_a_minute(count: int) -> None:
    world = rested(count)
    asked = world.pass_ms(2 * RESTING_EVERY_MS)
    assert count <= asked["/v1/tasks"] <= 2 * count + 1
    assert asked["/v1/progress"] <= 2 * RESTING_EVERY_MS // ASK_MS + 1
    ages_ms = list[int]()
    for _ in range(60):
        assert world.pass_ms(1_000).get("/v1/tasks", 0) <= 1_000 // IDLE_TURN_MS + 1
        ages_ms += [view.age_ms() for view in world.tenants.views().values()]
    assert max(ages_ms) <= RESTING_EVERY_MS + RESTING_SPREAD_MS + 1_000


def test_a_task_that_moves_ends_the_rest_of_its_tenant_alone() -> None:
    world = rested(3)
    world.move("t1")
    asked = world.pass_ms(ASK_MS + 100)
    assert [world.resolved_ts(one) for one in world.tasks] == [100, TS, 100]
    assert asked["/v1/tasks"] == 1


def test_a_task_that_moves_after_a_rest_is_seen_within_two_seconds() -> None:
    world = rested(8)
    for number, tenant_id in enumerate(world.tasks):
        world.pass_ms(15_000 + 700 * number)
        world.move(tenant_id)
        world.pass_ms(2_100)
        assert world.resolved_ts(tenant_id) == TS


def test_a_tenant_that_always_moves_is_refreshed_as_before() -> None:
    world = rested()
    refreshed = 0
    for _ in range(20):
        world.moved.add("t0")
        refreshed += world.pass_ms(ASK_MS).get("/v1/tasks", 0)
    assert refreshed >= 17


def test_a_request_does_not_wait_for_the_sorter_to_say_so() -> None:
    world = rested()
    world.tasks["t0"].flush(TS)
    world.tenants.view("7", "t0").wait_above(TS, 0)
    world.pass_ms(200)
    assert world.resolved_ts("t0") == TS


def test_a_tenant_whose_schema_is_behind_does_not_rest() -> None:
    world = rested(schema_ts=200)
    world.move("t0")
    world.pass_ms(ASK_MS + 100)
    assert world.resolved_ts("t0") == 200
    world.schema_ts = TS
    world.pass_ms(2_100)
    assert world.resolved_ts("t0") == TS


def test_what_a_sorter_does_not_say_is_looked_for_as_before() -> None:
    for way in ("silent", "old", "faulty"):
        world = rested()
        setattr(world, way, True)
        world.pass_ms(2 * ASK_MS)
        world.tasks["t0"].flush(TS)
        assert world.pass_ms(2_200)["/v1/tasks"] >= 1
        setattr(world, way, False)
        world.pass_ms(2_200)
        assert world.resolved_ts("t0") == TS


def test_a_new_route_ends_the_rest() -> None:
    world = rested()
    world.tasks["t0"].flush(TS)
    world.sorter_url, world.version = "http://sorter-2", 2
    world.tenants.follow()
    world.pass_ms(2_100)
    assert world.resolved_ts("t0") == TS
