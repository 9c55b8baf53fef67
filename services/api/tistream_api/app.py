"""Puts the API server together."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Protocol

from fastapi import FastAPI

from tistream import decode
from tistream.clock import Clock
from tistream.concurrency import Event, new_event, new_executor, start_thread
from tistream.service.app import new_app
from tistream.service.ids import random_id
from tistream.service.lifetime import end_in_order
from tistream.service.metrics import LoopMetrics, new_registry, stale_routes
from tistream.service.store_metrics import measured
from tistream.service.worker import Loop
from tistream.storage.object_store import ObjectStore
from tistream.wire.client import DEADLINE_S, HttpClient
from tistream.wire.meta_client import Membership, MetaClient
from tistream_api.console_pages import build_pages
from tistream_api.group_cache import GroupCache
from tistream_api.insight_routes import build_insight_router
from tistream_api.lag_history import LagHistory
from tistream_api.lag_sampler import LagSampler
from tistream_api.lists import Lists
from tistream_api.params import LAG_MINUTES_MAX
from tistream_api.pulls import Pulls
from tistream_api.raw_path import RawPath
from tistream_api.readiness import Readiness
from tistream_api.routes import build_router
from tistream_api.scan import Budget
from tistream_api.settings import ApiSettings
from tistream_api.tenant_status import TenantStatus
from tistream_api.tenants import Tenants

STATUS_DEADLINE_S = 2.0  # for each peer: a service that hangs must not keep status from saying so


class NewHttp(Protocol):
    """How HttpClients are made."""

    def __call__(self, *, deadline_s: float = DEADLINE_S) -> HttpClient: ...


def build_app(
    settings: ApiSettings,
    objects: ObjectStore,
    clock: Clock,
    new_http: NewHttp = HttpClient,
    new_instance: Callable[[], str] = random_id,
    end: Callable[[], None] = end_in_order,
) -> FastAPI:
    """The app, its loops running for as long as it serves; `end` ends the process."""
    registry = new_registry()
    loop_metrics = LoopMetrics(registry)
    objects = measured(objects, registry)
    http = new_http()
    asking = new_http(deadline_s=STATUS_DEADLINE_S)
    meta = MetaClient(http, settings.meta_url, on_stale=stale_routes(registry).inc)
    executor = new_executor("refresh", settings.refresh_threads)
    warm = new_event()

    member = Membership(meta, settings.node, "api", settings.url, instance=new_instance(), end=end)

    @contextmanager
    def running() -> Iterator[None]:
        loops = [
            Loop("membership", member.beat, interval_ms=1_000, metrics=loop_metrics),
            Loop("routes", tenants.follow, interval_ms=100, backoff_max_ms=1_000, metrics=loop_metrics),
            Loop("refresh", tenants.refresh_due, interval_ms=20, metrics=loop_metrics),
            Loop("lag", sampler.sample, interval_ms=settings.lag_every_ms, metrics=loop_metrics),
        ]
        start_thread("warm", partial(_warm, warm))
        for loop in loops:
            loop.start()
        try:
            yield
        finally:
            app.state.stopping.set()
            for loop in loops:
                loop.stop(timeout_s=0.5)
            executor.shutdown(wait=False, cancel_futures=True)
            http.close()
            asking.close()

    def not_ready() -> str | None:
        return readiness.missing()

    app = new_app("tistream-api", ready=not_ready, registry=registry, running=running, clock=clock)
    cache = GroupCache(objects, settings.cache_bytes)
    tenants = Tenants(http, meta, objects, cache, clock, executor, app.state.stopping, registry)
    readiness = Readiness(http, meta, tenants, warm)
    budget = Budget(rows=settings.chunk_rows, chunk_bytes=settings.chunk_bytes)
    pulls = Pulls(clock, budget, threading.Semaphore(settings.pulls_max), tenants.metrics)
    lists = Lists(clock, settings.list_wait_ms)
    status = TenantStatus(asking, tenants, clock)
    sampler = LagSampler(asking, tenants, clock, LagHistory(LAG_MINUTES_MAX * 60_000 // settings.lag_every_ms))
    app.include_router(build_router(tenants, pulls, lists, status, meta))
    app.include_router(build_insight_router(tenants, lists, status, sampler))
    app.include_router(build_pages())
    app.add_middleware(RawPath)
    return app


def _warm(done: Event) -> None:
    """Compile the decoder before the first pull needs it."""
    decode.warm()
    done.set()
