"""A tenant's quota slows its feeds down, says so, and slows no other tenant."""

from __future__ import annotations

from random import Random

from prometheus_client import CollectorRegistry

from support.feed_run import StillView
from support.model_kafka import ModelKafka
from support.pull_world import golden_world
from tistream.clock import ManualClock
from tistream.model.ids import TenantKey
from tistream.wire.limits import NO_LIMITS, Limits
from tistream_changefeed.core.progress import Fence
from tistream_changefeed.core.shard import Order, Shard
from tistream_changefeed.hold.holder import Holder
from tistream_changefeed.hold.quota import QuotaPause, TenantQuotas
from tistream_changefeed.metrics import ChangefeedMetrics
from tistream_changefeed.sinks.kafka.feed_settings import parsed
from tistream_changefeed.sinks.kafka.kafka_sink import KafkaSink

ACME, OTHER = TenantKey("7", "acme"), TenantKey("7", "other")
URI = "kafka://broker:9092/changes?protocol=open-protocol&partition-num=2"


def test_what_is_sent_beyond_a_second_of_the_quota_is_waited_for() -> None:
    clock, limits = ManualClock(5_000), {ACME: Limits(feed_rows_per_second=100, feed_bytes_per_second=1_000_000)}
    quotas = TenantQuotas(lambda tenant: limits.get(tenant, NO_LIMITS), clock)
    assert quotas.charge(ACME, 100, 10) is None
    slowed = quotas.charge(ACME, 50, 10)
    assert slowed is not None
    assert (slowed.wait_ms, slowed.held_by.stage, slowed.held_by.object) == (500, "quota", "7/acme")
    assert "feed_rows_per_second = 100" in slowed.held_by.reason
    assert quotas.charge(OTHER, 1 << 40, 1 << 40) is None, "without a quota nothing waits"
    clock.advance(500)
    assert quotas.charge(ACME, 0, 0) is None
    slowed = quotas.charge(ACME, 0, 3_000_000)
    assert slowed is not None
    assert (slowed.wait_ms, "feed_bytes_per_second" in slowed.held_by.reason) == (2_000, True)
    limits[ACME] = Limits(feed_bytes_per_second=0)
    assert quotas.charge(ACME, 1 << 40, 1 << 40) is None, "0: unlimited"


def test_a_feed_that_its_quota_holds_says_so_until_it_goes_on_freely() -> None:
    world, clock = golden_world("everything"), ManualClock(4_000_000_000_000)
    kafka = ModelKafka(clock.monotonic_ms, Random(1))
    clients = kafka.clients(lambda seconds: clock.advance(int(seconds * 1000) + 1), lambda: True)
    limits = Limits(feed_rows_per_second=5)
    quotas = TenantQuotas(lambda _: limits, clock)
    order = Order(world.tenant, "all", 0, Fence(1, 1), world.snapshot_ts, world.end_ts)
    feed = parsed(URI, {"filter": {"rules": ["shop.orders"]}})
    waited: list[int] = []
    shown: list[str] = []

    def charge(rows: int, size: int) -> QuotaPause | None:
        shown.extend(one.stage for one in holder.report().held_by)
        slowed = quotas.charge(world.tenant, rows, size)
        if slowed is not None:
            waited.append(slowed.wait_ms)
            clock.advance(slowed.wait_ms)
            return QuotaPause(0, slowed.held_by)  # the clock has passed the pause
        return None

    metrics = ChangefeedMetrics(CollectorRegistry())
    holder = Holder(
        Shard(order, Random(1)),
        lambda: StillView(world),
        lambda: KafkaSink(feed.target, order, clock, clients),
        feed.pipeline(),
        clock,
        world.budget,
        4 << 10,
        metrics,
        charge=charge,
    )
    holder.step()
    assert holder.shard.phase == "finished"
    rows = holder.report().rows
    assert rows > 100
    assert sum(waited) >= (rows - 10) * 200, "five rows a second"
    assert set(shown) == {"quota"}
    assert holder.report().held_by == []
