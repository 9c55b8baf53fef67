"""How long nodes wait for a meta server that hangs: the network is httpx's own stand-in for one."""

from __future__ import annotations

import httpx

from tistream.wire.clients.client import HttpClient
from tistream.wire.clients.membership import Membership
from tistream.wire.clients.meta_client import MetaClient
from tistream.wire.meta import HeartbeatAnswer, RouteTable, StartOf


def test_a_heartbeat_asks_the_next_meta_server_before_its_node_counts_as_lost() -> None:
    waited: dict[str, float] = {}

    def answer(request: httpx.Request) -> httpx.Response:
        waited[request.url.host] = request.extensions["timeout"]["read"]
        if request.url.host == "hangs":
            raise httpx.ReadTimeout("nothing came", request=request)
        told = HeartbeatAnswer(owner_rev=1, route_version=1)
        return httpx.Response(200, content=told.model_dump_json())

    client = MetaClient(HttpClient(transport=httpx.MockTransport(answer)), "http://hangs,http://works")
    for _ in range(2):
        assert client.heartbeat("sorter-1", StartOf(instance="i", start_epoch=1)).owner_rev == 1
    assert waited == {"hangs": 3, "works": 3}


def test_what_the_owner_writes_ends_the_rest_of_its_readers() -> None:
    told = [
        HeartbeatAnswer(owner_rev=1, route_version=1, writes=5),
        HeartbeatAnswer(owner_rev=1, route_version=1, writes=5),
        HeartbeatAnswer(owner_rev=1, route_version=1, writes=6),
        HeartbeatAnswer(owner_rev=2, route_version=1, writes=6),
        HeartbeatAnswer(owner_rev=3, route_version=1),  # of an older version
    ]

    def answer(request: httpx.Request) -> httpx.Response:
        if request.url.path.endswith("/starts"):
            return httpx.Response(200, json={"start_epoch": 1})
        if request.method == "PUT":
            return httpx.Response(200, json={"start_epoch": 1, "route_version": 1})
        return httpx.Response(200, content=told.pop(0).model_dump_json())

    meta = MetaClient(HttpClient(transport=httpx.MockTransport(answer)), "http://meta")
    member = Membership(meta, "ingest-1", "ingest", "http://i", instance="i", end=lambda: None)
    woken = 0

    def wake() -> None:
        nonlocal woken
        woken += 1

    member.on_writes = wake
    seen = []
    for _ in range(6):
        member.beat()
        seen.append((woken, member.rest_ms(100, 10_000)))
    assert seen == [(0, 100), (1, 10_000), (1, 10_000), (2, 10_000), (3, 10_000), (4, 100)]


def test_a_node_without_news_sends_its_next_heartbeat_later_unless_something_happens() -> None:
    rev = 1

    def answer(request: httpx.Request) -> httpx.Response:
        if request.url.path.endswith("/starts"):
            return httpx.Response(200, json={"start_epoch": 1})
        if request.method == "PUT":
            return httpx.Response(200, json={"start_epoch": 1, "route_version": 1})
        if request.method == "GET":
            return httpx.Response(200, content=RouteTable(owner_rev=rev, version=rev, tenants=[]).model_dump_json())
        told = HeartbeatAnswer(owner_rev=1, route_version=0, next_ms=1_000, calm_ms=9_000)
        return httpx.Response(200, content=told.model_dump_json())

    meta, news, woken = MetaClient(HttpClient(transport=httpx.MockTransport(answer)), "http://meta"), [True], 0
    member = Membership(
        meta, "s", "sorter", "http://s", instance="i", end=lambda: None, calm=lambda: not (news and news.pop())
    )

    def wake() -> None:
        nonlocal woken
        woken += 1

    member.wake = wake
    meta.routes()
    assert [member.beat(), member.beat()] == [None, 1_000]
    member.hurry()
    assert woken == 0, "it comes soon anyway"
    assert member.beat() == 9_000
    member.hurry()
    member.hurry()
    assert woken == 1
    assert member.beat() == 9_000
    meta.routes()
    assert woken == 1
    rev = 2
    meta.routes()
    assert woken == 2, "a new owner knows no report"
