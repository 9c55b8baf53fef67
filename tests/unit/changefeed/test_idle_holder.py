"""When a holder looks at the pool: whenever resolved_ts rises while rows come, and only for what concerns it while none
come. And what it counts of its work."""

from __future__ import annotations

from random import Random

import polars as pl
from prometheus_client import CollectorRegistry

from support.model_kafka import ModelKafka
from support.pull_world import World, committed, golden_world
from support.waiting import eventually
from tistream.clock import ManualClock
from tistream.model.ts import Window
from tistream.read.cursor import Scope
from tistream.read.row_events import Barrier
from tistream.read.source import TenantSource
from tistream_changefeed.core.progress import Fence
from tistream_changefeed.core.shard import Order, Shard
from tistream_changefeed.hold.holder import IDLE_MS, Holder, IdleUntil
from tistream_changefeed.hold.holder_threads import NONE_MS, HolderThreads
from tistream_changefeed.hold.new_rows import NewRows
from tistream_changefeed.metrics import ChangefeedMetrics
from tistream_changefeed.sinks.kafka.feed_settings import parsed
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

    def check_served(self, ts: int) -> None:
        assert ts >= self.world.snapshot_ts

    def wait_above(self, ts: int, timeout_ms: int) -> bool:
        self.waited += 1
        return self.ts > ts

    def record_barrier(self, barrier: Barrier) -> None:
        raise AssertionError(barrier)


class Idle:
    """A holder of a feed of the golden set, whose pool stands at the set's beginning."""

    def __init__(self, *rules: str, end_ts: int | None = None) -> None:
        world, self.clock = golden_world("everything"), ManualClock(4_000_000_000_000)
        self.world, self.pool = world, Standing(world)
        clients = ModelKafka(self.clock.monotonic_ms, Random(1)).clients(lambda _: None, lambda: True)
        order = Order(world.tenant, "all", 0, Fence(1, 1), world.snapshot_ts, end_ts)
        feed = parsed(URI, {"filter": {"rules": list(rules)}} if rules else {})
        metrics = ChangefeedMetrics(CollectorRegistry())
        sink = KafkaSink(feed.target, order, self.clock, clients)
        self.holder = Holder(
            Shard(order, Random(1)),
            lambda: self.pool,
            lambda: sink,
            feed.pipeline(),
            self.clock,
            world.budget,
            8 << 20,
            metrics,
        )

    def rest(self) -> IdleUntil:
        """What it rests for, after nothing has come for a while."""
        assert self.holder.step() is None
        self.clock.advance(IDLE_MS + 1)
        rest = self.holder.step()
        assert rest is not None
        return rest

    def is_due(self, rest: IdleUntil, low: int, high: int) -> bool:
        """Whether it goes on because its pool now reads up to `high`, and was looked at up to `low`."""
        fresh = NewRows(self.world.source, Window(low, high))
        return self.holder.is_due(rest, self.clock.monotonic_ms(), fresh)


def test_a_shard_that_sends_nothing_rests_until_rows_come() -> None:
    idle = Idle()
    world, pool = idle.world, idle.pool
    rest = idle.rest()
    assert pool.waited == 1, "it does not wait for resolved_ts"
    assert rest.at_ts == world.snapshot_ts
    assert not idle.is_due(rest, world.snapshot_ts, world.snapshot_ts)
    pool.ts = (world.snapshot_ts + world.end_ts) // 2
    assert idle.is_due(rest, world.snapshot_ts, pool.ts)
    assert (idle.holder.step(), pool.waited) == (None, 2), "rows came"
    assert idle.holder.report().rows > 0
    idle.clock.advance(IDLE_MS - 1)
    assert (idle.holder.step(), pool.waited) == (None, 3)
    idle.clock.advance(2)
    assert idle.holder.step() is not None


def test_rows_of_other_tables_do_not_wake_a_shard_that_rests() -> None:
    busy, other = Idle("shop.busy"), Idle("shop.nothing")
    at = _a_row(busy.world, "shop", "busy")
    for idle, woken in ((busy, True), (other, False)):
        rest = idle.rest()._replace(at_ts=at - 1)
        assert idle.is_due(rest, at - 1, at) is woken
        assert idle.holder.report().resolved_ts == at
        assert idle.is_due(rest._replace(at_ts=at - 2), at - 1, at), "nothing has looked at what lies between"
        assert not idle.is_due(rest._replace(at_ts=at), at - 1, at), "it has read that itself"
        idle.clock.advance(10_000)
        assert idle.is_due(rest, at - 1, at), "a resolved message is due"
        assert not idle.is_due(rest, at - 1, at - 1), "but the pool stands still"


def _a_row(world: World, database: str, table: str) -> int:
    """The commit_ts of a row of a table, at which there is no DDL."""
    scope, rows = Scope(world.tenant), committed("everything")[0]
    for table_id, ts in rows.filter(pl.col("table_id") > 0).select("table_id", "commit_ts").iter_rows():
        version = world.source.table_of([table_id], table_id, ts - 1)
        ddls = world.source.ddl_events(scope, Window(ts - 1, ts))
        if version is not None and version.name == (database, table) and not len(ddls):
            return int(ts)
    raise AssertionError(f"no row of {database}.{table}")


def test_a_shard_that_rests_goes_on_to_its_end_as_soon_as_the_pool_is_there() -> None:
    world = golden_world("everything")
    idle = Idle("shop.nothing", end_ts=world.snapshot_ts + 5)
    rest = idle.rest()
    assert idle.is_due(rest, world.snapshot_ts, world.snapshot_ts + 6)


def test_a_shard_that_rests_stores_how_far_it_has_come_though_the_pool_stands_still() -> None:
    idle = Idle("nothing.here")
    idle.rest()
    world, pool = idle.world, idle.pool
    pool.ts = (world.snapshot_ts + world.end_ts) // 2
    assert idle.holder.step() is not None, "a resolved message is sent"
    pool.ts = world.end_ts
    rest = idle.holder.step()
    assert rest is not None
    assert rest.at_ts == world.end_ts
    assert (idle.holder.report().checkpoint_ts or 0) < world.end_ts, "none is due so soon"
    assert not idle.is_due(rest, world.end_ts, world.end_ts)
    idle.clock.advance(10_000)
    assert idle.is_due(rest, world.end_ts, world.end_ts)
    rest = idle.holder.step()
    assert rest is not None
    assert idle.holder.report().checkpoint_ts == world.end_ts
    idle.clock.advance(60_000)
    assert not idle.is_due(rest, world.end_ts, world.end_ts)


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


def test_the_loop_of_idle_holders_rests_while_there_is_none() -> None:
    one, woken = Idle(), list[str]()
    threads = HolderThreads(one.clock, lambda: woken.append("now"))
    assert threads.start_due() == NONE_MS
    one.rest()
    threads.begin(one.holder)
    eventually(lambda: woken)
    assert threads.start_due() is None
    threads.end(one.holder)
    eventually(lambda: threads.start_due() == NONE_MS)
    assert woken == ["now"]
