"""Builds the HTTP app of the schema registry."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from fastapi import FastAPI

from tistream import concurrency
from tistream.clock import Clock
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
from tistream_schema.keeping import LogKeepingRules
from tistream_schema.metrics import SchemaMetrics
from tistream_schema.registry import Options, Registry
from tistream_schema.routes import router
from tistream_schema.settings import SchemaSettings

_BEAT_MS = 1_000


def build_app(
    settings: SchemaSettings,
    objects: ObjectStore,
    http: HttpClient | None,
    clock: Clock,
    new_nonce: Callable[[], str] = random_id,
    end: Callable[[], None] = end_in_order,
) -> FastAPI:
    """Build the app. Its loops run while it serves. `end` is a function that ends the process. Without `http`, the app
    creates its own HTTP client."""
    peers = PeerClients(settings, clock)
    http = http or peers.new_http()
    metrics_registry = new_registry()
    loop_metrics = LoopMetrics(metrics_registry)
    meta = MetaClient(http, settings.meta_url, on_stale=stale_routes(metrics_registry).inc)
    instance = new_nonce()
    membership = Membership(meta, settings.node, "schema", settings.url, instance=instance, end=end, calm=lambda: True)
    counted = measured(objects, metrics_registry)
    meter = UsageMeter(settings.node, instance, clock, counted.requests_of_tenants, meta.usage)
    registry = Registry(
        counted,
        meta,
        SorterClient(http),
        Options(
            settings.poll_ms,
            settings.poll_idle_ms,
            settings.poll_quiet_ms,
            settings.route_wait_ms,
            LogKeepingRules(settings.quiet_segments, settings.quiet_ms, settings.base_objects, settings.grace_ms),
            settings.snapshot_bytes,
        ),
        clock,
        new_nonce=new_nonce,
        sleep=concurrency.sleep,
        metrics=SchemaMetrics(metrics_registry),
        loop_metrics=loop_metrics,
        keys=keys_of(objects),
    )

    @contextmanager
    def running() -> Iterator[None]:
        loops = [
            Loop("membership", membership.beat, interval_ms=_BEAT_MS, metrics=loop_metrics).start(),
            Loop("usage", meter.report, interval_ms=settings.usage_ms, metrics=loop_metrics).start(),
            Loop("routes", registry.follow_routes, interval_ms=0, metrics=loop_metrics).start(),
        ]
        try:
            yield
        finally:
            for loop in loops:
                loop.stop(0.1)
            registry.stop()
            meter.last_report()
            http.close()

    app = new_app(
        "tistream-schema",
        ready=registry.not_ready,
        registry=metrics_registry,
        running=running,
        clock=clock,
        peers=peers,
    )
    app.state.registry = registry
    app.state.clock = clock
    app.include_router(router)
    return app
