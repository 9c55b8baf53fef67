"""The sorter's HTTP app and its background loops: the heartbeat to the meta server, the assignment of tasks, and
ticks."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Protocol

from fastapi import FastAPI

from tistream.clock import Clock
from tistream.concurrency import Event, new_event, start_thread
from tistream.errors import UnknownName
from tistream.model.ids import TenantKey
from tistream.service.http.app import new_app
from tistream.service.http.peer_clients import PeerClients
from tistream.service.ids import random_id
from tistream.service.lifetime import end_in_order
from tistream.service.observe.metrics import LoopMetrics, new_registry
from tistream.service.observe.store_metrics import measured
from tistream.service.observe.usage import UsageMeter
from tistream.service.worker import Loop
from tistream.storage.backends.tenant_keys import TenantKeys, keys_of
from tistream.storage.measured import MeasuredObjectStore
from tistream.storage.object_store import ObjectStore
from tistream.wire.clients.client import HttpClient
from tistream.wire.clients.membership import Membership
from tistream.wire.clients.meta_client import MetaClient
from tistream.wire.sorter import Hold
from tistream_sorter.jobs.shard import StorageRules
from tistream_sorter.metrics import HoldCollector, SorterMetrics
from tistream_sorter.node.assignment import TaskRules, coming_tasks, retentions, seal_orders, wanted_tasks
from tistream_sorter.node.base_converter import BaseConverter, ListedBackfill
from tistream_sorter.node.node import SorterNode
from tistream_sorter.node.pool_usage import PoolUsage
from tistream_sorter.node.progress import ProgressFeed
from tistream_sorter.node.tick_jobs import Runner
from tistream_sorter.routes import router
from tistream_sorter.settings import CollectSettings, CompactSettings, IndexSettings, SorterSettings, TickSettings
from tistream_sorter.state.task_state import TaskIdentity
from tistream_sorter.task.task_machine import TickLimits
from tistream_sorter.upkeep.compaction_plan import CompactRules
from tistream_sorter.upkeep.gc_plan import CollectRules
from tistream_sorter.upkeep.index_plan import IndexRules
from tistream_sorter.upkeep.shards import CutRules

log = logging.getLogger(__name__)

EXIT_NO_JVM = 70
ROUTES_WAIT_MS = 10_000
BEAT_MS = 1_000
PREPARE_MS = 500  # how often the log of a task that will move here is read
PREPARE_IDLE_MS = 10_000  # the same while there is no such task; new routes wake the loop
WARM_EVERY_MS = 50_000  # Spark ends Python workers that were idle for a minute
REST_MS = 1_000  # pause between two looks at the JVM while no task needs a tick; what comes for a task wakes the loop


class JobRunner(Runner, Protocol):
    """Runs Spark jobs, and can be started and stopped."""

    @property
    def slots(self) -> int:
        """The number of shards that run at the same time."""

    @property
    def alive(self) -> bool:
        """Whether the runner can still run jobs. This process cannot restart a dead runner."""

    def warm(self) -> None:
        """Prepare for the first job, which takes seconds on a cold runner."""

    def close(self) -> None:
        """Stop the runner."""


def tick_limits(
    tick: TickSettings,
    slots: int,
    collect: CollectSettings | None = None,
    compact: CompactSettings | None = None,
    index: IndexSettings | None = None,
) -> TickLimits:
    """Convert the settings to the limits of ticks. `slots`: the number of shards that the runner executes at the same
    time."""
    store = StorageRules(tick.point_bytes_min, tick.seal_bytes_min)
    cut = CutRules(slots, tick.shard_bytes_min, tick.shard_work_max, tick.rows_small, store)
    collect = collect or CollectSettings()
    compact = compact or CompactSettings()
    together = CompactRules(compact.fan_in, compact.fan_in_full, compact.small_bytes, compact.bytes_max)
    compacting = together if compact.enabled else None
    return TickLimits(
        tick.bytes_max,
        tick.idle_manifest_ms,
        tick.inbox_files_max,
        cut,
        tick.large_work,
        CollectRules(collect.grace_ms, collect.every_ms),
        compacting,
        None if index is None else index_rules(index),
    )


def index_rules(index: IndexSettings) -> IndexRules | None:
    """The rules for merges of the version index, from the settings; None if the index is disabled."""
    if not index.enabled:
        return None
    return IndexRules(
        age_ms=index.age_ms,
        wait_ms=index.wait_ms,
        run_bytes=index.run_bytes,
        bytes_max=index.bytes_max,
        unpacked_max=index.shard_bytes_max,
    )


@dataclass(frozen=True, slots=True)
class ProcessEnvironment:
    """Functions that the sorter's app takes from its surroundings: they build its Spark runner and its HTTP client,
    draw nonces, and end the process. A simulation replaces them."""

    new_runner: Callable[[SorterSettings], JobRunner]
    new_http: Callable[[], HttpClient] | None = None
    new_nonce: Callable[[], str] = random_id
    end: Callable[[int], None] = os._exit
    end_in_order: Callable[[], None] = end_in_order


class _Running:
    """What the background loops of the process share."""

    def __init__(
        self,
        settings: SorterSettings,
        counted: MeasuredObjectStore,
        keys: TenantKeys,
        clock: Clock,
        metrics: SorterMetrics,
        outside: ProcessEnvironment,
        peers: PeerClients,
    ) -> None:
        self._settings, self._keys, self._clock = settings, keys, clock
        self._http = (outside.new_http or peers.new_http)()
        self._end = outside.end
        meta = MetaClient(self._http, settings.meta_url, settings.node, on_stale=metrics.stale_routes.inc)
        self._meta = meta
        self._coming: list[TaskIdentity] = []
        self._runner = outside.new_runner(settings)
        limits = tick_limits(settings.tick, self._runner.slots, settings.collect, settings.compact, settings.index)
        # `backfills` means that retention waits until `_convert_bases` has the list of open backfills.
        limits = replace(limits, backfills=True)
        self.node = SorterNode(counted, self._runner, limits, clock, outside.new_nonce, metrics)
        self._bases = BaseConverter(counted, self._runner, clock, outside.new_nonce, metrics)
        instance = outside.new_nonce()
        pool = PoolUsage(lambda: [task.durable for task in self.node.tasks()])
        self.meter = UsageMeter(settings.node, instance, clock, counted.requests_of_tenants, meta.usage, pool)
        self._membership = Membership(
            meta,
            settings.node,
            "sorter",
            settings.url,
            instance=instance,
            end=outside.end_in_order,
            tasks=self.node.reports,
            calm=self._had_no_news,
        )
        self._news = True  # whether a report may say something new
        self._warm_at_ms = 0
        self._version = -1
        self._warm = new_event()

    def not_ready(self) -> str | None:
        """The reason why this process cannot serve tasks yet; None if it can."""
        if not self._warm.is_set():
            return "Spark is starting"
        if self._membership.registered is None:
            return f"not registered at {self._settings.meta_url} yet"
        return None if self._version >= 0 else "no route table yet"

    def holds(self) -> list[Hold]:
        """The holds of all tasks of this process: for each task, why its watermark does not advance."""
        wall_ms, monotonic_ms = self._clock.now_ms(), self._clock.monotonic_ms()
        return [hold for task in self.node.tasks() for hold in task.status(wall_ms, monotonic_ms).holds]

    def loops(self, metrics: LoopMetrics) -> list[Loop]:
        """Build the background loops, without starting them."""
        interval = self._settings.tick.interval_ms
        tick = Loop("tick", self._tick, interval_ms=interval, backoff_max_ms=1_000, metrics=metrics)
        self.node.wake = tick.wake
        beat = Loop("beat", self._membership.beat, interval_ms=BEAT_MS, backoff_max_ms=BEAT_MS, metrics=metrics)
        self.node.report_now = self._membership.wake = beat.wake
        self._preparing = Loop("prepare", self._prepare, interval_ms=PREPARE_MS, metrics=metrics)
        return [
            beat,
            Loop("assignment", self._assign, interval_ms=0, backoff_max_ms=1_000, metrics=metrics),
            self._preparing,
            tick,
            Loop("collect", self._collect, interval_ms=self._settings.collect.every_ms, metrics=metrics),
            Loop("usage", self.meter.report, interval_ms=self._settings.usage_ms, metrics=metrics),
            Loop("compact", self._compact, interval_ms=self._settings.compact.every_ms, metrics=metrics),
            Loop("bases", self._convert_bases, interval_ms=self._settings.bases_ms, metrics=metrics),
        ]

    def _assign(self) -> int:
        registered = self._membership.registered
        if registered is None:
            return 100
        routes = self._meta.routes(self._version, wait_ms=ROUTES_WAIT_MS if self._version >= 0 else 0)
        self._keys.update(routes.kms_key_ids())
        tick = self._settings.tick
        rules = TaskRules(tick.keep_index_keys, tick.checkpoint_every)
        me = self._settings.node, registered.start_epoch
        complete = self.node.assign(
            wanted_tasks(routes, *me, rules), seal_orders(routes, *me, rules), retentions(routes)
        )
        self._coming = coming_tasks(routes, *me, rules)
        self._preparing.wake()
        if self._version != routes.version:
            self.note_news()
        self._version = routes.version
        if not complete:
            self._version = -1  # request the routes again at once, because a claim is not made yet
            return 500
        return 0

    def note_news(self) -> None:
        """Note that the next report may say something new."""
        self._news = True
        self._membership.hurry()

    def _had_no_news(self) -> bool:
        news, self._news = self._news, False
        return not news

    def _prepare(self) -> int:
        coming = self._coming
        self.node.prepare(coming)
        if coming:
            self.note_news()
        return PREPARE_MS if coming else PREPARE_IDLE_MS

    def _tick(self) -> int | None:
        if not self._runner.alive:
            # Only a new process gets a new JVM. The manifests contain the state of the tasks, as after any crash.
            log.critical("the JVM of Spark has died: the process ends")
            self._end(EXIT_NO_JVM)
        now_ms = self._clock.monotonic_ms()
        if now_ms >= self._warm_at_ms:
            self._runner.warm()
            self._warm.set()
            self._warm_at_ms = self._clock.monotonic_ms() + WARM_EVERY_MS
        if self.node.tick():
            return 0
        return max(REST_MS, self._settings.tick.interval_ms) if self.node.rests else None

    def _collect(self) -> int | None:
        return 0 if self.node.collect() else None

    def _compact(self) -> int | None:
        return 0 if self._warm.is_set() and self.node.compact() else None

    def _convert_bases(self) -> int | None:
        if not self._warm.is_set() or not self.node.tasks():
            return None
        try:
            running = self._meta.running_backfills().backfills
        except UnknownName:  # the meta server's version has no backfills
            running = []
        self._bases.set_backfills(
            ListedBackfill(TenantKey(row.cluster_id, row.tenant_id), row.backfill_id, old_values=not row.log_backup)
            for row in running
        )
        if not self._bases.convert([task for task in self.node.tasks() if task.stopped is None]):
            return None
        self.node.wake()
        return 0

    def close(self) -> None:
        """Stop Spark, and with it the JVM."""
        self.node.close()
        self._http.close()
        self._runner.close()


def build_app(settings: SorterSettings, objects: ObjectStore, clock: Clock, outside: ProcessEnvironment) -> FastAPI:
    """Build the HTTP app of one sorter process."""
    peers = PeerClients(settings, clock)
    registry = new_registry()
    counted = measured(objects, registry)
    running = _Running(settings, counted, keys_of(objects), clock, SorterMetrics(registry), outside, peers)
    registry.register(HoldCollector(running.holds))

    feed = ProgressFeed(outside.new_nonce(), running.node.tasks, clock)

    def on_tick() -> None:
        if feed.look():
            running.note_news()

    running.node.on_tick = on_tick

    @contextmanager
    def run() -> Iterator[None]:
        loops = [loop.start() for loop in running.loops(LoopMetrics(registry))]
        start_thread("ends-waits", partial(_end_waits, app.state.stopping, feed))
        yield
        feed.end()
        for loop in loops:
            loop.stop(1.0)
        running.meter.last_report()
        running.close()

    app = new_app("tistream sorter", ready=running.not_ready, registry=registry, running=run, clock=clock, peers=peers)
    app.state.node, app.state.clock, app.state.node_id = running.node, clock, settings.node
    app.state.progress = feed
    app.include_router(router)
    return app


def _end_waits(stopping: Event, feed: ProgressFeed) -> None:
    """Wait until `stopping` is set, and then let all long polls answer, so that they do not delay the end of the
    process."""
    stopping.wait()
    feed.end()
