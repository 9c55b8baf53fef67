"""A changefeed worker as a simulated process: its real driver, holders, Kafka sink and pipeline, on a recorded pool."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from random import Random

from fastapi import FastAPI
from prometheus_client import CollectorRegistry

from support.model_kafka import ModelKafka
from support.pull_world import World as PoolWorld
from support.sim.platform import Member, ProcessClock, SimPlatform
from support.sim.scheduler import Process
from tistream.concurrency import sleep
from tistream.model.ids import TenantKey
from tistream.read.row_events import Barrier
from tistream.read.scan import Budget
from tistream.read.source import TenantSource
from tistream.service.http.app import new_app
from tistream.service.worker import Loop
from tistream.wire.bulk.changefeeds import FeedWork
from tistream.wire.clients.client import HttpClient
from tistream.wire.clients.membership import Membership
from tistream.wire.clients.meta_client import MetaClient
from tistream.wire.limits import NO_LIMITS
from tistream_changefeed.core.progress import Fence, Revision
from tistream_changefeed.core.shard import Order, Shard
from tistream_changefeed.dispatch.ownership import Ownership
from tistream_changefeed.hold.driver import Driver
from tistream_changefeed.hold.holder import Holder
from tistream_changefeed.hold.holder_threads import HolderThreads
from tistream_changefeed.hold.quota import TenantQuotas
from tistream_changefeed.metrics import ChangefeedMetrics
from tistream_changefeed.sinks.kafka.feed_settings import parsed
from tistream_changefeed.sinks.kafka.kafka_sink import KafkaSink

LOOK_S = 0.05


@dataclass
class PlayedPool:
    """The committed pool of a recorded tenant, whose resolved_ts rises as the world plays it."""

    world: PoolWorld
    ts: int = 0
    barriers: list[Barrier] = field(default_factory=list)

    @property
    def source(self) -> TenantSource:
        return self.world.source

    def resolved_ts(self) -> int:
        return self.ts

    def wait_fresh(self) -> None:
        sleep(LOOK_S)

    def check_known(self) -> None:
        assert self.ts >= self.world.snapshot_ts

    def check_served(self, ts: int) -> None:
        assert ts >= self.world.snapshot_ts

    def wait_above(self, ts: int, timeout_ms: int) -> bool:
        for _ in range(max(1, timeout_ms // int(LOOK_S * 1_000))):
            if self.ts > ts:
                return True
            sleep(LOOK_S)
        return self.ts > ts

    def record_barrier(self, barrier: Barrier) -> None:
        self.barriers.append(barrier)


@dataclass
class Workers:
    """What makes the workers' apps. `window_bytes`, `chunk_rows`: small, so that faults meet transactions under way."""

    pool: PlayedPool
    kafka: ModelKafka
    rng: Random
    window_bytes: int
    chunk_rows: int
    platform: SimPlatform | None = None  # set once it is made
    metrics: list[ChangefeedMetrics] = field(default_factory=list)

    def new_app(self, member: Member, process: Process, http: HttpClient) -> FastAPI:
        """The app of one start of a worker."""
        platform = self.platform
        assert platform is not None
        clock, instance = ProcessClock(platform.scheduler, process), platform.nonce()
        meta = MetaClient(http, platform.meta_urls)
        end: Callable[[], None] = lambda: platform.end_superseded(process)  # noqa: E731
        membership = Membership(meta, member.name, "changefeed", member.url, instance=instance, end=end)
        registry = CollectorRegistry()
        metrics = ChangefeedMetrics(registry)
        self.metrics.append(metrics)

        def pause(seconds: float) -> None:
            platform.scheduler.sleep(int(seconds * 1e6))
            platform.may_die(process)

        clients = self.kafka.clients(pause, lambda: process.name not in platform.network.alone)

        def new_holder(work: FeedWork) -> Holder:
            of = work.shard
            fence = Fence(of.generation, work.epoch)
            tenant = TenantKey(of.cluster_id, of.tenant_id)
            order = Order(
                tenant,
                of.changefeed_id,
                of.shard,
                fence,
                work.start_ts,
                work.end_ts,
                Revision(work.revision, work.moved),
                work.shards,
                work.known_ts,
                work.cutting,
            )
            feed = parsed(work.sink_uri, work.config)
            return Holder(
                Shard(order, Random(self.rng.random())),
                lambda: self.pool,
                lambda: KafkaSink(feed.target, order, clock, clients),
                feed.pipeline(ownership=Ownership(of.shard, work.shards)),
                clock,
                Budget(rows=self.chunk_rows, first_rows=self.chunk_rows),
                self.window_bytes,
                metrics,
            )

        threads = HolderThreads(clock)
        quotas = TenantQuotas(lambda _: NO_LIMITS, clock)
        driver = Driver(meta, member.name, instance, new_holder, metrics, threads, quotas, clock, self.rng)
        loops = [
            Loop("membership", membership.beat, interval_ms=1_000, new_id=platform.nonce),
            Loop("feeds", driver.beat, interval_ms=500, new_id=platform.nonce),
            Loop("rest", threads.start_due, interval_ms=100, new_id=platform.nonce),
        ]
        threads.on_rest = loops[-1].wake

        @contextmanager
        def running() -> Iterator[None]:
            for loop in loops:
                loop.start()
            try:
                yield
            finally:
                driver.stop()

        return new_app("changefeed", ready=lambda: None, registry=registry, running=running, clock=clock)
