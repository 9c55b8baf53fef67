"""A registry that has just started: it does not wait for news of routes that it has never heard."""

from __future__ import annotations

import httpx
import pytest
from prometheus_client import CollectorRegistry

from tistream.clock import ManualClock
from tistream.errors import Unavailable, UnknownName
from tistream.model.ids import TenantKey
from tistream.service.observe.metrics import LoopMetrics
from tistream.storage.backends.memory import MemoryObjectStore
from tistream.wire.clients.client import HttpClient
from tistream.wire.clients.meta_client import MetaClient
from tistream.wire.clients.sorter_client import SorterClient
from tistream.wire.meta import RouteTable
from tistream_schema.keeping import LogKeepingRules
from tistream_schema.metrics import SchemaMetrics
from tistream_schema.registry import Options, Registry

STRANGER = TenantKey("7", "nobody")


def test_the_first_routes_are_not_waited_for_and_nobody_is_unknown_before_them() -> None:
    asked: list[dict[str, str]] = []

    def answer(request: httpx.Request) -> httpx.Response:
        asked.append(dict(request.url.params))
        if len(asked) == 1:
            raise httpx.ReadTimeout("lost", request=request)
        return httpx.Response(200, content=RouteTable(version=5, tenants=[]).model_dump_json())

    http = HttpClient(transport=httpx.MockTransport(answer))
    metrics = CollectorRegistry()
    registry = Registry(
        MemoryObjectStore(),
        MetaClient(http, "http://meta"),
        SorterClient(http),
        Options(
            poll_ms=10,
            poll_idle_ms=10,
            poll_quiet_ms=10,
            route_wait_ms=20_000,
            keeping=LogKeepingRules(quiet_segments=1),
        ),
        ManualClock(0),
        new_nonce=lambda: "a",
        sleep=lambda _: None,
        metrics=SchemaMetrics(metrics),
        loop_metrics=LoopMetrics(metrics),
    )
    with pytest.raises(Unavailable):
        registry.follow_routes()
    with pytest.raises(Unavailable, match="routes"):
        registry.tenant(STRANGER)
    assert registry.not_ready()
    registry.follow_routes()
    with pytest.raises(UnknownName):
        registry.tenant(STRANGER)
    registry.follow_routes()
    assert [int(query.get("wait_ms", 0)) for query in asked] == [0, 0, 20_000]
