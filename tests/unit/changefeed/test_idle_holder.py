"""How often a holder looks at the pool: whenever resolved_ts rises while rows come, rarely while none come. And what it
counts of its work."""

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
    holder = Holder(shard, lambda: pool, lambda: sink, feed.pipeline(), clock, world.budget, 8 << 20, metrics)
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


def test_a_holder_counts_what_the_sink_has_acknowledged_and_apart_from_it_what_it_has_not() -> None:
    world, clock = golden_world("everything"), ManualClock(4_000_000_000_000)
    pool, registry = Standing(world), CollectorRegistry()
    kafka = ModelKafka(clock.monotonic_ms, Random(1))
    clients = kafka.clients(lambda seconds: clock.advance(int(seconds * 1000) + 1), lambda: True)
    order = Order(world.tenant, "all", 0, Fence(1, 1), world.snapshot_ts)
    feed, shard, metrics = parsed(URI, {}), Shard(order, Random(1)), ChangefeedMetrics(registry)

    def new_sink() -> KafkaSink:
        return KafkaSink(feed.target, order, clock, clients)

    holder = Holder(shard, lambda: pool, new_sink, feed.pipeline(), clock, world.budget, 1 << 16, metrics)
    pool.ts = (world.snapshot_ts + world.end_ts) // 2
    holder.step()
    tally, first = holder.tally, holder.report()
    assert first.rows > 0
    assert (tally.aborted, tally.buffer_bytes, sum(tally.failures.values())) == (0, 0, 0)
    assert 0 < tally.window_bytes <= first.bytes
    clock.advance(1_000)  # the last transaction's markers are written
    assert tally.messages == sum(len(list(kafka.committed("changes", number))) for number in (0, 1))
    assert registry.get_sample_value("tistream_changefeed_flush_seconds_count") == tally.transactions > 1

    kafka.faults.refused = 1.0
    pool.ts = world.end_ts
    holder.step()
    assert (tally.aborted, dict(tally.failures), tally.buffer_bytes) == (1, {("sink", "_INCONSISTENT"): 1}, 0)
    assert holder.report().phase == "retrying"
    acknowledged = tally.transactions

    kafka.faults.refused = 0.0
    clock.advance(60_000)
    holder.step()
    assert holder.report().phase == "running"
    assert holder.report().rows > first.rows
    assert tally.transactions > acknowledged
