"""Which shards a worker begins anew: one whose secret was put again, and none whose order is the same."""

from __future__ import annotations

import httpx
from prometheus_client import CollectorRegistry

from tistream.clock import ManualClock
from tistream.errors import InvalidRequest
from tistream.wire.bulk.changefeeds import FeedAssignments, FeedShard, FeedWork
from tistream.wire.clients.client import HttpClient
from tistream.wire.clients.meta_client import MetaClient
from tistream_changefeed.hold.crew import Crew
from tistream_changefeed.hold.driver import Driver
from tistream_changefeed.hold.holder import Holder
from tistream_changefeed.metrics import ChangefeedMetrics

SHARD = FeedShard(cluster_id="7", tenant_id="acme", changefeed_id="all", shard=0, generation=1)


class World:
    """A driver whose feeds are all refused, and the sealed secrets with which it tried to begin them."""

    def __init__(self) -> None:
        self.sealed: dict[str, str] = {"pw": "sealed-1"}
        self.begun: list[dict[str, str]] = []
        http = HttpClient(transport=httpx.MockTransport(self._answer))
        metrics = ChangefeedMetrics(CollectorRegistry())
        self.driver = Driver(
            MetaClient(http, "http://meta"), "worker-1", "i", self._new_holder, metrics, Crew(ManualClock(0))
        )

    def _answer(self, _: httpx.Request) -> httpx.Response:
        work = FeedWork(
            shard=SHARD, epoch=1, sink_uri="kafka://b:1/t", config={}, start_ts=1, end_ts=None, secrets=self.sealed
        )
        return httpx.Response(200, content=FeedAssignments(shards=[work]).model_dump_json())

    def _new_holder(self, work: FeedWork) -> Holder:
        self.begun.append(work.secrets)
        raise InvalidRequest("the sink is not allowed")


def test_a_shard_begins_anew_when_a_secret_was_put_again_and_not_before() -> None:
    world = World()
    world.driver.beat()
    world.driver.beat()
    assert world.begun == [{"pw": "sealed-1"}]
    world.sealed = {"pw": "sealed-2"}
    world.driver.beat()
    world.driver.beat()
    assert world.begun == [{"pw": "sealed-1"}, {"pw": "sealed-2"}]
