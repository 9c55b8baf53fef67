"""How long nodes wait for a meta server that hangs: the network is httpx's own stand-in for one."""

from __future__ import annotations

import httpx

from tistream.wire.clients.client import HttpClient
from tistream.wire.clients.meta_client import MetaClient
from tistream.wire.meta import HeartbeatAnswer, StartOf


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
