"""When the registry asks which sorter."""

from __future__ import annotations

import threading
import time

import httpx
from prometheus_client import CollectorRegistry

from support.waiting import PATIENCE_S, eventually
from tistream.clock import SystemClock
from tistream.service.observe.metrics import LoopMetrics
from tistream.storage.backends.memory import MemoryObjectStore
from tistream.wire.clients.client import HttpClient
from tistream.wire.clients.meta_client import MetaClient
from tistream.wire.clients.sorter_client import SorterClient
from tistream.wire.meta import RouteTable, TaskRoute, TenantRoute
from tistream.wire.sorter import ProgressPage
from tistream_schema.keeping import LogKeepingRules
from tistream_schema.metrics import SchemaMetrics
from tistream_schema.poll_pace import PollPace
from tistream_schema.registry import Options, Registry


def test_between_two_ticks_a_sorter_is_asked_as_often_as_ever() -> None:
    pace, now_ms = PollPace(100, 500, 0), 0
    for tick_ms in range(1_000, 20_000, 1_000):
        while now_ms < tick_ms:
            pause_ms = pace.answered(now_ms, now_ms, moved=False)
            assert pause_ms == 100
            now_ms += pause_ms
        pace.answered(now_ms, now_ms, moved=True)
    pauses = []
    for _ in range(40):
        pauses.append(pace.answered(now_ms, now_ms, moved=False))
        now_ms += pauses[-1]
    assert sum(pauses[:30]) == 3_000
    assert pauses[30:34] == [200, 400, 500, 500]
    assert pace.answered(now_ms, now_ms, moved=True) == 100


def test_the_time_that_a_sorter_waits_is_part_of_the_pause() -> None:
    pace = PollPace(100, 500, 0)
    assert pace.answered(0, 5_000, moved=False) == 0
    assert pace.answered(5_000, 5_030, moved=True) == 70
    assert pace.answered(5_100, 5_900, moved=True) == 0


def route(tenant_id: str, sorter: str) -> TenantRoute:
    task = TaskRoute(
        task_id=1, start_key="", end_key="", task_epoch=1, sorter_node=sorter, sorter_url=f"http://{sorter}"
    )
    return TenantRoute(cluster_id="7", tenant_id=tenant_id, snapshot_ts=10, tasks=[task])


def test_a_sorter_that_hangs_keeps_nobody_from_the_others() -> None:
    released = threading.Event()
    asked: list[str] = []

    def answer(request: httpx.Request) -> httpx.Response:
        asked.append(request.url.host)
        if request.url.host == "sorter-1":
            released.wait(2 * PATIENCE_S)
        return httpx.Response(200, content=ProgressPage(boot="b", version=1, tasks=[]).model_dump_json().encode())

    http, metrics = HttpClient(transport=httpx.MockTransport(answer)), CollectorRegistry()
    registry = Registry(
        MemoryObjectStore(),
        MetaClient(http, "http://meta"),
        SorterClient(http),
        Options(poll_ms=10, poll_idle_ms=10, poll_quiet_ms=1_000, route_wait_ms=20_000, keeping=LogKeepingRules()),
        SystemClock(),
        new_nonce=lambda: "a",
        sleep=time.sleep,
        metrics=SchemaMetrics(metrics),
        loop_metrics=LoopMetrics(metrics),
    )

    def until_asked(host: str, times: int) -> None:
        eventually(lambda: asked.count(host) >= times)

    try:
        registry.apply_routes(RouteTable(version=1, tenants=[route("a", "sorter-1"), route("b", "sorter-2")]))
        until_asked("sorter-1", 1)
        until_asked("sorter-2", 5)
        assert asked.count("sorter-1") == 1
        registry.apply_routes(RouteTable(version=2, tenants=[route("a", "sorter-3")]))
        until_asked("sorter-3", 2)
        known = asked.count("sorter-2")
        until_asked("sorter-3", 10)
        assert asked.count("sorter-2") <= known + 1
    finally:
        released.set()
        registry.stop()
