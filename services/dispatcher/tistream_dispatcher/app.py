"""Builds the dispatcher's HTTP app, with its routes and background loops."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Annotated

from fastapi import APIRouter, FastAPI, Query, Request

from tistream.clock import Clock
from tistream.model.ids import TenantKey
from tistream.service.http.app import new_app
from tistream.service.http.peer_clients import PeerClients
from tistream.service.ids import random_id
from tistream.service.lifetime import end_in_order
from tistream.service.observe.metrics import LoopMetrics, new_registry, stale_routes
from tistream.service.observe.store_metrics import measured
from tistream.service.observe.usage import UsageMeter
from tistream.service.worker import Loop
from tistream.storage.backends.tenant_keys import keys_of
from tistream.storage.object_store import ObjectStore
from tistream.wire.clients.client import HttpClient
from tistream.wire.clients.membership import Membership
from tistream.wire.clients.meta_client import MetaClient
from tistream.wire.clients.sorter_client import SorterClient
from tistream.wire.dispatcher import StoreList
from tistream_dispatcher.delivery.delivery import ResyncPauses
from tistream_dispatcher.delivery.window import WindowLimits
from tistream_dispatcher.metrics import DispatcherMetrics
from tistream_dispatcher.settings import DispatcherSettings
from tistream_dispatcher.stores.pacing import PollSettings
from tistream_dispatcher.stores.read_ahead import PROCESS_BYTES, ByteBudget
from tistream_dispatcher.tenant.collection import FileCollector
from tistream_dispatcher.tenant.driver import TenantDriver
from tistream_dispatcher.tenant.tenant_feed import TenantFeed

BEAT_MS = 1_000
GAUGES_MS = 5_000  # metrics are read less often

router = APIRouter()


@router.get("/v1/stores", operation_id="ListStores")
def list_stores(
    request: Request,
    cluster_id: Annotated[str | None, Query()] = None,
    tenant_id: Annotated[str | None, Query()] = None,
) -> StoreList:
    """List the status of every store that this dispatcher reads or will read: its chains, and what it waits for."""
    driver: TenantDriver = request.app.state.driver
    return driver.stores(cluster_id, tenant_id)


def build_app(
    settings: DispatcherSettings,
    objects: ObjectStore,
    clock: Clock,
    new_http: Callable[[], HttpClient] | None = None,
    new_instance: Callable[[], str] = random_id,
    end: Callable[[], None] = end_in_order,
) -> FastAPI:
    """Build the app. Its background loops run while it serves. The app calls `end` to end the process."""
    peers = PeerClients(settings, clock)
    registry = new_registry()
    metrics, loop_metrics = DispatcherMetrics(registry), LoopMetrics(registry)
    counted = measured(objects, registry)
    http = (new_http or peers.new_http)()
    meta = MetaClient(http, settings.meta_url, on_stale=stale_routes(registry).inc)
    sorters = SorterClient(http)
    limits = WindowLimits(settings.window_files, settings.window_bytes, settings.batch_files, settings.batch_bytes)
    polling = PollSettings(
        settings.poll_min_ms,
        settings.poll_max_ms,
        settings.discover_ms,
        settings.poll_idle_ms,
        settings.poll_announced_idle_ms,
    )
    collect = settings.collect
    resync = ResyncPauses(settings.resync_ms, settings.resync_idle_ms)

    room = ByteBudget(PROCESS_BYTES)

    def new_feed(tenant: TenantKey) -> TenantFeed:
        # The meta server must assign a new store before it is read, so `report_now` reports the store at once.
        collect_ms = collect.every_ms if collect.enabled else None
        return TenantFeed(
            tenant, counted, sorters, clock, metrics, limits, polling, resync, beat.wake, collect_ms, room
        )

    driver = TenantDriver(settings.node, meta, new_feed, metrics, loop_metrics, keys_of(objects))
    collector = FileCollector(driver.consumed, counted, clock, collect, metrics)
    instance = new_instance()
    meter = UsageMeter(settings.node, instance, clock, counted.requests_of_tenants, meta.usage)
    membership = Membership(
        meta,
        settings.node,
        "dispatcher",
        settings.url,
        instance=instance,
        end=end,
        stores=driver.reports,
        calm=driver.reports_nothing_new,
    )
    beat = Loop("beat", membership.beat, interval_ms=BEAT_MS, backoff_max_ms=BEAT_MS, metrics=loop_metrics)
    membership.wake = beat.wake

    @contextmanager
    def running() -> Iterator[None]:
        loops = [
            beat,
            Loop("routes", driver.follow_routes, interval_ms=0, backoff_max_ms=1_000, metrics=loop_metrics),
            Loop(
                "announcements", driver.follow_announcements, interval_ms=0, backoff_max_ms=1_000, metrics=loop_metrics
            ),
            Loop("usage", meter.report, interval_ms=settings.usage_ms, metrics=loop_metrics),
            Loop("gauges", driver.count, interval_ms=GAUGES_MS, metrics=loop_metrics),
        ]
        if collect.enabled:
            loops.append(Loop("collect", collector.step, interval_ms=collect.every_ms, metrics=loop_metrics))
        for loop in loops:
            loop.start()
        try:
            yield
        finally:
            driver.stop()
            for loop in loops:
                loop.stop(timeout_s=0.2)  # a long poll that hangs ends with the process
            collector.close()
            meter.last_report()

    app = new_app(
        "tistream-dispatcher", ready=driver.not_ready, registry=registry, running=running, clock=clock, peers=peers
    )
    app.state.driver = driver
    app.include_router(router)
    return app
