"""Builds the meta server: its parts, routes and background loops."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Protocol

from fastapi import FastAPI

from tistream.clock import Clock
from tistream.concurrency import Event, start_thread
from tistream.service.http.app import new_app
from tistream.service.http.peer_clients import PeerClients
from tistream.service.ids import random_id
from tistream.service.observe.metrics import LoopMetrics, new_registry
from tistream.service.observe.store_metrics import measured
from tistream.service.observe.usage import UsageMeter
from tistream.service.worker import Loop
from tistream.storage.backends.tenant_keys import EncryptingStore
from tistream.storage.object_store import ObjectStore
from tistream.storage.open import open_existing
from tistream.wire.clients.client import HttpClient
from tistream.wire.clients.meta_client import MetaClient
from tistream_meta.backfills.backfill_book import BackfillBook
from tistream_meta.backfills.backfill_rules import BackfillRules
from tistream_meta.database.repository import Repository
from tistream_meta.decide.liveness import Timings
from tistream_meta.decide.model import Retention
from tistream_meta.decide.options import Options
from tistream_meta.feeds.feed_book import FeedBook
from tistream_meta.feeds.feed_usage import FeedUsageBook
from tistream_meta.feeds.feed_watch import WATCH_MS, FeedCounts, FeedWatch
from tistream_meta.feeds.secret_book import SecretBook
from tistream_meta.feeds.worker_board import WorkerBoard
from tistream_meta.metrics import MetaMetrics
from tistream_meta.owner.audit_keeping import AuditKeeping
from tistream_meta.owner.server import MetaServer
from tistream_meta.owner.usage_keeping import UsageKeeping
from tistream_meta.restores.book import RestoreBook
from tistream_meta.routes.audit_routes import refuse_unaudited
from tistream_meta.routes.audit_routes import router as audit_router
from tistream_meta.routes.backfill_routes import router as backfill_router
from tistream_meta.routes.feed_routes import router as feed_router
from tistream_meta.routes.forwarding import FORWARDED
from tistream_meta.routes.meta_routes import router
from tistream_meta.routes.restore_routes import router as restore_router
from tistream_meta.routes.secret_routes import router as secret_router
from tistream_meta.routes.signed_read_routes import router as signed_read_router
from tistream_meta.routes.source_routes import router as source_router
from tistream_meta.routes.store_routes import router as store_router
from tistream_meta.routes.tenant_end_routes import router as tenant_end_router
from tistream_meta.routes.territory_routes import router as territory_router
from tistream_meta.routes.token_routes import router as token_router
from tistream_meta.routes.usage_routes import router as usage_router
from tistream_meta.settings import MetaSettings
from tistream_meta.tenants.erasing import PAUSE_MS, TenantEraser
from tistream_meta.tenants.first_token import first_token
from tistream_meta.tenants.source_rules import SourceRules
from tistream_meta.tenants.token_board import LOOK_MS, TokenBoard
from tistream_meta.territories.agent_board import AgentBoard
from tistream_meta.territories.territory_book import TerritoryBook
from tistream_meta.territories.territory_watch import WATCH_MS as TERRITORIES_MS
from tistream_meta.territories.territory_watch import TerritoryWatch

KEEPING_MS = 60_000


class NewHttp(Protocol):
    """A function that makes an HttpClient for this process. The client sends `headers` with every call."""

    def __call__(self, *, headers: Mapping[str, str]) -> HttpClient: ...


def _repository(settings: MetaSettings) -> Repository:
    return Repository.open(settings.database_url, settings.node, settings.database_limits)


def build_app(
    settings: MetaSettings,
    objects: ObjectStore,
    clock: Clock,
    open_repository: Callable[[MetaSettings], Repository] = _repository,
    new_http: NewHttp | None = None,
    new_instance: Callable[[], str] = random_id,
    open_log: Callable[[str], ObjectStore] = open_existing,
) -> FastAPI:
    """Build the ASGI app. Its background loops run while it serves."""
    peers = PeerClients(settings, clock)
    registry = new_registry()
    metrics, loop_metrics = MetaMetrics(registry), LoopMetrics(registry)

    @contextmanager
    def running() -> Iterator[None]:
        starts = Loop("activation", server.activate_tenants, interval_ms=100, metrics=loop_metrics)
        follow = Loop("follow", server.follow_owner, interval_ms=0, backoff_max_ms=1_000, metrics=loop_metrics)
        looks = Loop(
            "nodes", partial(_look, server, settings.check_ms), interval_ms=settings.check_ms, metrics=loop_metrics
        )
        server.on_news(starts=starts.wake, looks=looks.wake, follow=follow.wake)
        loops = [
            Loop("lease", server.hold_lease, interval_ms=max(50, settings.lease_ms // 6), metrics=loop_metrics),
            looks,
            starts,
            _reading(tokens, loop_metrics),
            Loop("usage", meter.report, interval_ms=settings.usage_ms, metrics=loop_metrics),
            Loop("quotas", keeping.step, interval_ms=KEEPING_MS, metrics=loop_metrics),
            Loop("audit", audit.step, interval_ms=KEEPING_MS, metrics=loop_metrics),
            Loop("changefeeds", feed_watch.step, interval_ms=WATCH_MS, metrics=loop_metrics),
            Loop("territories", territory_watch.step, interval_ms=TERRITORIES_MS, metrics=loop_metrics),
            Loop("erasing", erasing.step, interval_ms=PAUSE_MS, backoff_max_ms=10_000, metrics=loop_metrics),
            follow,
        ]
        for loop in loops:
            loop.start()
        start_thread("ends-waits", partial(_end_waits, app.state.stopping, server, tokens))
        try:
            yield
        finally:
            app.state.stopping.set()
            for loop in loops:
                loop.stop(timeout_s=0.5)
            erasing.close()
            http.close()
            repository.close()

    def not_ready() -> str | None:
        return server.not_ready()

    app = new_app("tistream-meta", ready=not_ready, registry=registry, running=running, clock=clock, peers=peers)
    repository = open_repository(settings)
    http = (new_http or peers.new_http)(headers={FORWARDED: settings.node})
    counted = measured(objects, registry)
    server = MetaServer(
        repository,
        counted,
        clock,
        metrics,
        Options(
            own_url=settings.url,
            ranges_per_tenant=settings.ranges_per_tenant,
            lease_ms=settings.lease_ms,
            timings=Timings(settings.suspect_ms, settings.lost_ms),
            snapshot_retry_max_ms=settings.snapshot_retry_max_ms,
            announcements_max=settings.announcements_max,
            retention=Retention(settings.retention_ms),
            encrypts=isinstance(objects, EncryptingStore),
        ),
        new_client=partial(MetaClient, http),
    )
    metrics.follow_ownership(server.is_owner)
    tokens = TokenBoard(repository, clock, server.is_owner, first=first_token(settings.first_token_file))
    meter = UsageMeter(settings.node, new_instance(), clock, counted.requests_of_tenants, repository.usage.take)
    keeping = UsageKeeping(server, repository, clock, settings.usage_keep_ms, metrics)
    erasing = TenantEraser(counted, server, repository.ends, clock, settings.erase_quiet_ms, metrics)
    audit = AuditKeeping(repository.audit, server.is_owner, settings.audit_keep_ms)
    backfills = repository.part(BackfillBook)
    app.state.audit, app.state.backfills = repository.audit, backfills
    app.state.backfill_rules = BackfillRules(backfills, repository.sources, open_log)
    app.state.source_rules = SourceRules(repository, counted, open_log, backfills.start_all)
    app.state.restores = repository.part(RestoreBook)
    app.state.feed_counts = feed_counts = repository.part(FeedCounts)
    feed_watch = FeedWatch(feed_counts, server.is_owner, metrics)
    territories = repository.part(TerritoryBook)
    territory_watch = TerritoryWatch(territories, lambda: server.owned().agents(), server.is_owner, metrics)
    app.state.feeds, app.state.secrets = repository.part(FeedBook), repository.part(SecretBook)
    app.state.workers = WorkerBoard(clock)
    app.state.feed_usage = repository.part(FeedUsageBook)
    app.state.territories, app.state.agents = territories, AgentBoard()
    app.state.server, app.state.tokens, app.state.usage = server, tokens, keeping
    for each in (
        router,
        store_router,
        source_router,
        backfill_router,
        restore_router,
        feed_router,
        secret_router,
        territory_router,
        tenant_end_router,
        token_router,
        usage_router,
        audit_router,
        signed_read_router,
    ):
        app.include_router(each)
    refuse_unaudited(app.routes)
    return app


def _reading(tokens: TokenBoard, metrics: LoopMetrics) -> Loop:
    """Make the loop that reads the tokens from the database. The loop makes long pauses while no API server polls the
    tokens; the first API server that polls again wakes it."""
    loop = Loop("tokens", tokens.look, interval_ms=LOOK_MS, backoff_max_ms=LOOK_MS, metrics=metrics)
    tokens.wake = loop.wake
    return loop


def _look(server: MetaServer, check_ms: int) -> int:
    """Loop body: look after the nodes. Returns the ms until the next call: at least `check_ms`."""
    return max(check_ms, server.look_after_nodes() or 0)


def _end_waits(stopping: Event, server: MetaServer, tokens: TokenBoard) -> None:
    """Wait until `stopping` is set, and then let all long polls answer, so that they do not delay the end of the
    process. Until then no long poll checks `stopping`."""
    stopping.wait()
    server.end_waits()
    tokens.end()
