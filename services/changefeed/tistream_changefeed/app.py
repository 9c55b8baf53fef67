"""Builds the changefeed service: its parts, routes and background loops."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from random import Random

from fastapi import APIRouter, FastAPI, Request

from tistream import decode
from tistream.clock import Clock
from tistream.concurrency import new_executor, start_thread
from tistream.follow.tenant_view import TenantView
from tistream.follow.tenants import Tenants
from tistream.model.ids import TenantKey
from tistream.pool.versions.reader import StoreReader
from tistream.read.cursor import Scope
from tistream.read.group_cache import CacheExpiry, GroupCache
from tistream.schema.visible import TableVersion
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
from tistream.wire.bulk.changefeeds import ChangefeedPlan, CheckChangefeed, FeedWork
from tistream.wire.bulk.feed_verify import FeedVerification, VerifyFeed
from tistream.wire.clients.client import HttpClient
from tistream.wire.clients.membership import Membership
from tistream.wire.clients.meta_client import MetaClient
from tistream_changefeed.core.progress import Fence, Revision
from tistream_changefeed.core.shard import Order, Shard
from tistream_changefeed.feed_checks import FeedChecks
from tistream_changefeed.hold.driver import Driver
from tistream_changefeed.hold.feed import Allowed
from tistream_changefeed.hold.holder import Holder
from tistream_changefeed.hold.holder_threads import HolderThreads
from tistream_changefeed.hold.quota import TenantQuotas
from tistream_changefeed.hold.secret_keys import SecretKeys
from tistream_changefeed.metrics import ChangefeedMetrics
from tistream_changefeed.settings import ChangefeedSettings
from tistream_changefeed.shard_metrics import ShardCollector
from tistream_changefeed.sinks.feeds import feed_of
from tistream_changefeed.verify.verification import Verifications
from tistream_changefeed.warmup import warm_kernels

KEYED_CACHE_MS = 300_000
LOOK_MS = 100  # between two looks at the pools of shards that rest
REST_MS = 5_000  # between two reports of a process without shards; a write of the meta server makes one due at once
router = APIRouter()


@router.post("/v1/changefeeds/checks", operation_id="CheckChangefeed")
def check_changefeed(request: Request, body: CheckChangefeed) -> ChangefeedPlan:
    """Check a feed's configuration, and return the tables and topics that it would have. With `look` in the request,
    its sink is contacted; nothing is created there. A feed that cannot run is refused, and the error names the
    remedy."""
    checks: FeedChecks = request.app.state.checks
    return checks.plan(body)


@router.post("/v1/changefeeds/verifications", operation_id="VerifyFeed")
def verify_feed(request: Request, body: VerifyFeed) -> FeedVerification:
    """Compare the messages or files of a feed that have a commit_ts in (from_ts, to_ts] with the tenant's committed
    rows, or the tables of a feed into a database. Returns the differences. With `repair_topic`, the missing messages
    are written into that topic."""
    verifications: Verifications = request.app.state.verifications
    return verifications.verify(body)


def build_app(
    settings: ChangefeedSettings,
    objects: ObjectStore,
    clock: Clock,
    rng: Random,
    new_http: Callable[[], HttpClient] | None = None,
    new_instance: Callable[[], str] = random_id,
    end: Callable[[], None] = end_in_order,
) -> FastAPI:
    """Build the ASGI app. Its background loops run while it serves. The app calls `end` to end the process.
    `new_instance` draws a random name for this start of the process."""
    peers, registry = PeerClients(settings, clock), new_registry()
    metrics, loop_metrics = ChangefeedMetrics(registry), LoopMetrics(registry)
    keys, counted = keys_of(objects), measured(objects, registry)
    http, secret_keys = (new_http or peers.new_http)(), SecretKeys(settings.secrets_key_file)
    allowed = Allowed(settings.hosts, settings.file_urls)
    meta = MetaClient(http, settings.meta_url, on_stale=stale_routes(registry).inc)
    executor, instance = new_executor("refresh", settings.refresh_threads), new_instance()
    member = Membership(meta, settings.node, "changefeed", settings.url, instance=instance, end=end)
    meter = UsageMeter(settings.node, instance, clock, counted.requests_of_tenants, meta.usage)

    def new_holder(work: FeedWork) -> Holder:
        of = work.shard
        tenant = TenantKey(of.cluster_id, of.tenant_id)
        fence = Fence(of.generation, work.epoch)
        revision = Revision(work.revision, work.moved)
        order = Order(
            tenant,
            of.changefeed_id,
            of.shard,
            fence,
            work.start_ts,
            work.end_ts,
            revision,
            work.shards,
            work.known_ts,
            work.cutting,
        )
        feed = feed_of(work.sink_uri, work.config, work.skips)
        feed.check_allowed(allowed)
        values = secret_keys.values(tenant, work.sink_uri, work.config, work.secrets)
        return Holder(
            Shard(order, rng),
            lambda: view_of(tenant),
            feed.sinks(order, clock, values, allowed),
            feed.pipeline_of(order, values),
            clock,
            settings.budget,
            settings.window_bytes,
            metrics,
            tuple(values.values()),
            charge=partial(quotas.charge, tenant),
            reader=reader,
        )

    @contextmanager
    def running() -> Iterator[None]:
        refresh = Loop("refresh", tenants.refresh_due, interval_ms=20, metrics=loop_metrics)
        tenants.wake = refresh.wake
        loops = [
            Loop("membership", member.beat, interval_ms=1_000, metrics=loop_metrics),
            Loop("routes", tenants.follow, interval_ms=100, backoff_max_ms=1_000, metrics=loop_metrics),
            refresh,
            *_feed_loops(settings.beat_ms, member, driver, loop_metrics),
            Loop("usage", meter.report, interval_ms=settings.usage_ms, metrics=loop_metrics),
        ]
        start_thread("warm", _warm)
        for loop in loops:
            loop.start()
        try:
            yield
        finally:
            app.state.stopping.set()
            driver.stop()
            for loop in loops:
                loop.stop(timeout_s=0.5)
            executor.shutdown(wait=False, cancel_futures=True)
            for end_of in (reader.close, meter.last_report, http.close):
                end_of()

    def not_ready() -> str | None:
        return driver.not_ready() or (None if tenants.routes() is not None else "the routes were not read yet")

    app = new_app("tistream-changefeed", ready=not_ready, registry=registry, running=running, clock=clock, peers=peers)
    reader = StoreReader(counted)
    cache = GroupCache(counted, settings.cache_bytes, CacheExpiry(keys, KEYED_CACHE_MS, clock))
    tenants = Tenants(http, meta, counted, cache, clock, executor, app.state.stopping, metrics.undecodable, keys)
    quotas = TenantQuotas(tenants.limits, clock)

    def view_of(tenant: TenantKey) -> TenantView:
        return tenants.view(tenant.cluster_id, tenant.tenant_id)

    def tables(tenant: TenantKey) -> Sequence[TableVersion]:
        view = view_of(tenant)
        view.wait_fresh()
        view.check_known()
        return view.source.tables_at(view.resolved_ts(), Scope(tenant))

    app.state.checks, app.state.verifications = (
        FeedChecks(allowed, secret_keys, tables),
        Verifications(
            settings.hosts, secret_keys, view_of, clock, settings.budget, reader, file_urls=settings.file_urls
        ),
    )
    driver = app.state.driver = Driver(
        meta, settings.node, instance, new_holder, metrics, HolderThreads(clock), quotas, clock, rng
    )
    registry.register(ShardCollector(driver.reports, clock, cache))
    app.include_router(router)
    return app


def _feed_loops(beat_ms: int, member: Membership, driver: Driver, metrics: LoopMetrics) -> list[Loop]:
    """Build two loops: one sends heartbeats with the reports of the shards to the meta server, and one starts a
    thread for each idle shard that has something to do."""

    def beat() -> int:
        driver.beat()
        return member.rest_ms(beat_ms, REST_MS) if driver.idle else beat_ms

    feeds = Loop("feeds", beat, interval_ms=beat_ms, metrics=metrics)
    rest = Loop("rest", driver.threads.start_due, interval_ms=LOOK_MS, metrics=metrics)
    member.on_writes, driver.threads.on_rest = feeds.wake, rest.wake
    return [feeds, rest]


def _warm() -> None:
    """Compile the numba code that decodes rows and encodes messages. Runs in a thread of its own when the service
    starts, so that the first events wait less for it."""
    decode.warm()
    warm_kernels()
