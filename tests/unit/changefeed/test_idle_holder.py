"""How often a holder looks at the pool: whenever resolved_ts rises while rows come, rarely while none come."""

from __future__ import annotations

from random import Random

from prometheus_client import CollectorRegistry

from support.model_kafka import ModelKafka
from support.pull_world import World, golden_world
from tistream.clock import ManualClock
from tistream.read.row_events import Barrier
from tistream.read.source import TenantSource
from tistream_changefeed.core.progress import Fence
from tistream_changefeed.core.shard import Order, Shard
from tistream_changefeed.feed_settings import parsed
from tistream_changefeed.hold.holder import IDLE_LOOK_MS, IDLE_MS, Holder
from tistream_changefeed.metrics import ChangefeedMetrics
from tistream_changefeed.sinks.kafka.kafka_sink import KafkaSink

URI = "kafka://broker:9092/changes?protocol=open-protocol&partition-num=2"


class Standing:
    """A pool whose resolved_ts is set, and how often a reader waited for it to rise."""

    def __init__(self, world: World) -> None:
        self.world, self.ts, self.waited = world, world.snapshot_ts, 0

    @property
    def source(self) -> TenantSource:
        return self.world.source

    def resolved_ts(self) -> int:
        return self.ts

    def wait_fresh(self) -> None:
        return None

    def check_known(self) -> None:
        assert self.ts

    def check_retained(self, ts: int) -> None:
        assert ts >= self.world.snapshot_ts

    def wait_above(self, ts: int, timeout_ms: int) -> bool:
        self.waited += 1
        return self.ts > ts

    def met(self, barrier: Barrier) -> None:
        raise AssertionError(barrier)


def test_a_shard_that_sends_nothing_looks_rarely_until_rows_come() -> None:
    world, clock = golden_world("everything"), ManualClock(4_000_000_000_000)
    pool = Standing(world)
    kafka = ModelKafka(clock.monotonic_ms, Random(1))
    clients = kafka.clients(lambda _: None, lambda: True)
    order = Order(world.tenant, "all", 0, Fence(1, 1), world.snapshot_ts)
    feed = parsed(URI, {})
    metrics = ChangefeedMetrics(CollectorRegistry())
    shard = Shard(order, Random(1))
    sink = KafkaSink(feed.target, order, clock, clients)
    holder = Holder(shard, lambda: pool, lambda: sink, feed.pipeline, clock, world.budget, 8 << 20, metrics)
    assert (holder.step(), pool.waited) == (0, 1)
    clock.advance(IDLE_MS + 1)
    assert (holder.step(), pool.waited) == (IDLE_LOOK_MS, 1), "it is idle: it does not wait for resolved_ts"
    pool.ts = (world.snapshot_ts + world.end_ts) // 2
    assert (holder.step(), pool.waited) == (0, 2), "rows came"
    assert holder.report().rows > 0
    clock.advance(IDLE_MS - 1)
    assert (holder.step(), pool.waited) == (0, 3)
    clock.advance(2)
    assert holder.step() == IDLE_LOOK_MS
