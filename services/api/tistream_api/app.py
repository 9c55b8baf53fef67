"""Builds the API server: its parts, routes, middleware and background loops."""

from __future__ import annotations

import logging
import os
import secrets
import socket
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, Protocol

from fastapi import APIRouter, Depends, FastAPI
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from nacl.public import PublicKey
from prometheus_client import CollectorRegistry, Gauge
from starlette.middleware import Middleware
from starlette.routing import BaseRoute

from tistream import decode
from tistream.clock import Clock
from tistream.concurrency import Event, new_event, new_executor, start_thread
from tistream.follow.tenants import Tenants
from tistream.model.ids import TenantKey
from tistream.pool.footers import FooterCache
from tistream.read.group_cache import CacheExpiry, GroupCache
from tistream.read.scan import Budget
from tistream.secrets.sealing import BadKey, public_key
from tistream.service.http.app import THREADS, new_app
from tistream.service.http.guard import METRICS
from tistream.service.http.peer_clients import PeerClients
from tistream.service.ids import random_id
from tistream.service.lifetime import end_in_order
from tistream.service.observe.metrics import LoopMetrics, new_registry, stale_routes
from tistream.service.observe.store_metrics import measured
from tistream.service.observe.usage import UsageMeter
from tistream.service.settings import SettingsError
from tistream.service.worker import Loop
from tistream.storage.backends.tenant_keys import keys_of
from tistream.storage.object_store import ObjectStore, SignsRanges
from tistream.wire.clients.client import DEADLINE_S, HttpClient
from tistream.wire.clients.membership import Membership
from tistream.wire.clients.meta_client import MetaClient
from tistream.wire.clients.token_client import TokenClient
from tistream_api.admission.delayed_rejections import DelayedRejections
from tistream_api.admission.gate import SCHEME, SECURITY, Access, Gate, every_route, refuse_undeclared
from tistream_api.admission.memory_budget import MemoryBudget
from tistream_api.admission.memory_limit import give_back, memory_limit, pull_bytes
from tistream_api.admission.metering import MeteringMiddleware
from tistream_api.admission.metrics_gate import MetricsGate
from tistream_api.admission.reject_throttle import RejectionLimit
from tistream_api.admission.request_queue import new_request_queue
from tistream_api.admission.tenant_limits import TenantLimits
from tistream_api.admission.token_bucket import EnforcedLimits, own_or
from tistream_api.agents.territory_routes import build_territory_router
from tistream_api.auth.callers import Callers
from tistream_api.auth.jwt_callers import JwtCallers
from tistream_api.auth.key_set import reader
from tistream_api.feeds.feed_routers import build_feed_routers
from tistream_api.feeds.secret_routes import build_secret_router
from tistream_api.metrics import ApiMetrics
from tistream_api.points.cached_reader import CachedReader
from tistream_api.points.point_reads import PointReads
from tistream_api.points.table_definition import Definitions
from tistream_api.pull.admitted import Admission
from tistream_api.pull.decode_slots import DecodeSlots, slots_for
from tistream_api.pull.start import Pulls
from tistream_api.raw.raw_routes import build_raw_router
from tistream_api.request.head_requests import HeadRequests
from tistream_api.request.params import LAG_MINUTES_MAX
from tistream_api.request.query_string import on_invalid, strict_query
from tistream_api.request.raw_path import RawPath
from tistream_api.routes.audit_routes import build_audit_router
from tistream_api.routes.backfill_routes import build_backfill_router
from tistream_api.routes.console_pages import build_pages
from tistream_api.routes.insight_routes import build_insight_router
from tistream_api.routes.openapi import schemas
from tistream_api.routes.operator_routes import build_operator_router
from tistream_api.routes.point_routes import build_point_router
from tistream_api.routes.pull_routes import build_router
from tistream_api.routes.restore_routes import build_platform_restore_router, build_restore_router
from tistream_api.routes.source_routes import build_source_router
from tistream_api.routes.store_routes import build_store_router
from tistream_api.routes.tenant_end_routes import build_tenant_end_router
from tistream_api.routes.token_routes import build_token_router
from tistream_api.routes.usage_routes import build_usage_router
from tistream_api.settings import ApiSettings
from tistream_api.signed.signed_answer import SignedAnswers, Signing
from tistream_api.signed.signed_changes import SignedReads
from tistream_api.signed.signed_routes import build_signed_router
from tistream_api.signed.stretch import StretchLimits
from tistream_api.status.backfill_progress import BackfillProgress
from tistream_api.status.lag_history import LagHistory
from tistream_api.status.lag_sampler import LagSampler
from tistream_api.status.tenant_status import TenantStatus
from tistream_api.tenant.lists import Lists
from tistream_api.tenant.readiness import Readiness
from tistream_api.tenant.ts_validator import TsValidator
from tistream_api.undo.undo_reads import UndoReads

log = logging.getLogger(__name__)

# Bodies of concurrent requests are in memory together. The longest valid body is a token's grants
BODY_BYTES_MAX = 64 << 10
CHUNK_THREADS = 8  # that read the footers of base chunks
STATUS_DEADLINE_S = 2.0  # for each peer: status must answer, and say so, when a service hangs


def draw_token() -> tuple[str, str]:
    """Draw a new token at random. Returns its id (16 hexadecimal digits) and its secret (32 random bytes as URL-safe
    Base64)."""
    return secrets.token_hex(8), secrets.token_urlsafe(32)


class NewHttp(Protocol):
    """A function that makes an HttpClient for this process."""

    def __call__(self, *, deadline_s: float = DEADLINE_S) -> HttpClient: ...


def build_app(
    settings: ApiSettings,
    objects: ObjectStore,
    clock: Clock,
    new_http: NewHttp | None = None,
    new_instance: Callable[[], str] = random_id,
    end: Callable[[], None] = end_in_order,
    new_secret: Callable[[], tuple[str, str]] = draw_token,
) -> FastAPI:
    """Build the ASGI app. Its background loops run while it serves. The app calls `end` to end the process."""
    peers = PeerClients(settings, clock)
    new_http = new_http or peers.new_http
    registry = new_registry()
    loop_metrics = LoopMetrics(registry)
    keys, signing = keys_of(objects), _signing(settings, objects)
    objects = counted = measured(objects, registry)
    http = new_http()
    asking = new_http(deadline_s=STATUS_DEADLINE_S)
    meta = MetaClient(http, settings.meta_url, on_stale=stale_routes(registry).inc)
    tokens = TokenClient(meta)
    callers = _callers(settings, tokens, clock)
    executor, counting = new_executor("refresh", settings.refresh_threads), new_executor("chunks", CHUNK_THREADS)
    warm = new_event()

    instance = new_instance()
    member = Membership(meta, settings.node, "api", settings.url, instance=instance, end=end, calm=lambda: True)
    meter = UsageMeter(settings.node, instance, clock, counted.requests_of_tenants, meta.usage)

    @contextmanager
    def running() -> Iterator[None]:
        loops = [
            Loop("membership", member.beat, interval_ms=1_000, metrics=loop_metrics),
            Loop("routes", tenants.follow, interval_ms=100, backoff_max_ms=1_000, metrics=loop_metrics),
            Loop("usage", meter.report, interval_ms=settings.usage_ms, metrics=loop_metrics),
            _refreshing(tenants, loop_metrics),
            Loop("memory", lambda: _tidy(pulls), interval_ms=500, metrics=loop_metrics),
            Loop("lag", sampler.sample, interval_ms=settings.lag_every_ms, metrics=loop_metrics),
        ]
        if callers is not None:
            loops += callers.loops(loop_metrics)
        else:
            log.warning("no authentication: who reaches this server may do everything", extra={"url": settings.url})
        start_thread("warm", partial(_warm, warm))
        try:
            with _going(loops, app.state.stopping):
                yield
        finally:
            for pool in (executor, counting):
                pool.shutdown(wait=False, cancel_futures=True)
            for end_of in (points.reader.close, meter.last_report, http.close, asking.close):
                end_of()

    app = new_app(
        "tistream-api",
        ready=lambda: readiness.first_missing(),  # noqa: PLW0108  # made below, of the app's own state
        registry=registry,
        running=running,
        clock=clock,
        peers=peers,
        guarded=False,  # users have their own tokens, which the gate checks
        body_bytes_max=BODY_BYTES_MAX,
    )
    expiry, metrics = CacheExpiry(keys, settings.keyed_cache_ms, clock), ApiMetrics(registry)
    cache = GroupCache(objects, settings.cache_bytes, expiry)
    tenants = Tenants(http, meta, objects, cache, clock, executor, app.state.stopping, metrics.undecodable, keys)
    metrics.follow_lag(tenants.lag_seconds)
    readiness = Readiness(http, meta, tenants, warm)
    limits, slots, working = _limits(settings, tenants, clock), threading.Semaphore(settings.pulls_max), _working(clock)
    pulls = Pulls(clock, _budget(settings), slots, limits, metrics, working, _memory(settings, clock, registry))
    lists, status = Lists(clock, settings.list_wait_ms), TenantStatus(asking, tenants, clock, meta)
    sampler = LagSampler(asking, tenants, clock, LagHistory(LAG_MINUTES_MAX * 60_000 // settings.lag_every_ms))
    gate = Gate(callers, limits, new_request_queue(THREADS, settings.pulls_max), socket.gethostname())
    routers = [
        build_router(tenants, pulls, points := _points(settings, objects, cache, pulls), lists, status, meta, gate),
        build_point_router(tenants, points, gate),
        build_signed_router(tenants, _signed(settings, points, SignedAnswers(objects, signing), meta), gate),
        build_raw_router(tenants, pulls, points, gate),
        build_restore_router(tenants, Definitions(points.times), UndoReads(points), gate),
        build_insight_router(tenants, lists, status, sampler),
        build_operator_router(meta),
        build_token_router(tokens, callers, clock, new_secret),
        build_usage_router(meta),
        build_tenant_end_router(meta),
        build_store_router(meta, asking, lambda key: tenants.view(key.cluster_id, key.tenant_id).route),
        build_audit_router(meta),
        build_platform_restore_router(tenants, points, meta, http, lambda: secrets.token_hex(16)),
        build_source_router(meta, status.sources.of),
        build_territory_router(meta),
        *build_feed_routers(tenants, meta, http),
        build_secret_router(meta, _sealing_key(settings)),
        build_backfill_router(
            meta, BackfillProgress(objects, counting), lambda key: tenants.view(key.cluster_id, key.tenant_id)
        ),
    ]
    _include(app, gate, routers)
    if callers is not None:
        _add_gates(app, callers, peers, RejectionLimit(clock, settings.refusals_per_second))
    app.add_middleware(MeteringMiddleware, meter=meter, clock=clock, access_log=settings.access_log)
    app.add_middleware(RawPath)
    return app


@contextmanager
def _going(loops: Sequence[Loop], stopping: Event) -> Iterator[None]:
    """A context manager in which the background loops run. At its end, long polls and streams are stopped first, then
    the loops."""
    for loop in loops:
        loop.start()
    try:
        yield
    finally:
        stopping.set()
        for loop in loops:
            loop.stop(timeout_s=0.5)


def _refreshing(tenants: Tenants, metrics: LoopMetrics) -> Loop:
    """The loop that refreshes tenants, which a request for an idle tenant wakes."""
    loop = Loop("refresh", tenants.refresh_due, interval_ms=20, metrics=metrics)
    tenants.wake = loop.wake
    return loop


def _callers(settings: ApiSettings, tokens: TokenClient, clock: Clock) -> Callers | None:
    """Build the object that authenticates requests; None if authentication is off."""
    if settings.auth == "off":
        return None
    oidc = settings.oidc
    return Callers(tokens, clock, None if oidc.issuer is None else JwtCallers(oidc, reader(oidc), clock))


def _budget(settings: ApiSettings) -> Budget:
    return Budget(rows=settings.chunk_rows, chunk_bytes=settings.chunk_bytes)


def _working(clock: Clock) -> DecodeSlots:
    return DecodeSlots(slots_for(os.cpu_count() or 1, memory_limit()), clock)


def _memory(settings: ApiSettings, clock: Clock, registry: CollectorRegistry) -> MemoryBudget:
    memory = MemoryBudget(pull_bytes(settings.pull_memory_bytes), clock)
    held = Gauge("tistream_api_pull_memory_bytes", "Memory that pulls have shares of.", registry=registry)
    held.set_function(lambda: memory.held)
    return memory


def _tidy(pulls: Pulls) -> None:
    """Loop body: release the slots of answers that were dropped without being closed. If pulls have released much
    memory, also let the allocators give it back to the system."""
    pulls.dropped.release()
    if pulls.memory.freed_much():
        give_back()


def _points(settings: ApiSettings, objects: ObjectStore, cache: GroupCache, pulls: Pulls) -> PointReads:
    """Build the reads at a point in time. They share the limits of pulls."""
    admission = Admission(pulls.clock, pulls.slots, pulls.limits, pulls.metrics, pulls.memory, pulls.dropped)
    times = TsValidator(pulls.clock, settings.list_wait_ms)
    rows = CachedReader(objects, cache, FooterCache())
    return PointReads(rows, admission, pulls.working, times, pulls.budget)


def _signing(settings: ApiSettings, objects: ObjectStore) -> Signing:
    """How URLs of the object store are signed, if it can sign."""
    sign = objects.range_signer(settings.signed.endpoint) if isinstance(objects, SignsRanges) else None
    return Signing(sign, settings.signed.seconds)


def _signed(settings: ApiSettings, points: PointReads, answers: SignedAnswers, meta: MetaClient) -> SignedReads:
    return SignedReads(points, answers, StretchLimits(rows_min=settings.signed.rows_min), meta.record_signed)


def _limits(settings: ApiSettings, tenants: Tenants, clock: Clock) -> TenantLimits:
    """Build the object that enforces the rate limits of tenants: a tenant's own limits, or else the platform's
    defaults."""
    defaults = EnforcedLimits(**settings.limits.model_dump())

    def limits_of(tenant: tuple[str, str]) -> EnforcedLimits:
        return own_or(defaults, tenants.limits(TenantKey(*tenant)))

    return TenantLimits(clock, limits_of, settings.pulls_max)


def _sealing_key(settings: ApiSettings) -> PublicKey | None:
    """The public key that encrypts secrets of tenants; None if the settings name no key. Raises SettingsError if its
    file cannot be read."""
    path = settings.secrets_public_file
    if path is None:
        return None
    try:
        return public_key(path.read_text())
    except (OSError, BadKey) as error:
        raise SettingsError(f"TISTREAM_API__SECRETS_PUBLIC_FILE {path}: {error}") from error


def _add_gates(app: FastAPI, callers: Callers, peers: PeerClients, refusals: RejectionLimit) -> None:
    """Add the middleware that authorizes requests for /metrics, and the one that delays rejections."""
    # Inside the middleware that sets cause ids, as the other gate is. add_middleware adds outside.
    app.user_middleware.append(Middleware(MetricsGate, callers=callers, guard=peers.guard))
    app.add_middleware(DelayedRejections, refusals=refusals, stopping=app.state.stopping)
    waiting = Gauge(
        "tistream_api_refusals_waiting",
        "Rejections that are delayed, because their sender is rejected too often.",
        registry=app.state.metrics,
    )
    waiting.set_function(lambda: refusals.waiting)


def _include(app: FastAPI, gate: Gate, routers: Sequence[APIRouter]) -> None:
    """Add the routes that are behind the gate. Raises UndeclaredAccess if one of them does not declare its access, or
    if any other route of the app is not in the list of routes that need no token."""
    app.add_exception_handler(RequestValidationError, on_invalid)
    app.router.redirect_slashes = False  # a redirect would be sent before the gate, to any host that the request names
    app.include_router(build_pages())
    for router in routers:
        app.include_router(router, dependencies=[Depends(gate.check), Depends(strict_query)])
    guarded = [route for router in routers for route in router.routes]
    refuse_undeclared(app.routes, guarded)
    _complete_document(app, guarded)
    app.user_middleware.append(Middleware(HeadRequests))  # inside all middleware that counts requests


def _complete_document(app: FastAPI, guarded: Sequence[BaseRoute]) -> None:
    """Add to the OpenAPI document the security scheme of the tokens, the access that each route requires, and the
    schemas of problems and events."""
    made = app.openapi

    def openapi() -> dict[str, Any]:
        document = made()
        components = document.setdefault("components", {})
        components["securitySchemes"] = SCHEME
        components["schemas"] |= schemas()
        for route in every_route(guarded):
            assert isinstance(route, APIRoute)
            for method in route.methods or ():
                document["paths"][route.path_format][method.lower()] |= Access.of(route).shown()
        document["paths"][METRICS]["get"]["security"] = SECURITY  # metrics_gate.py
        return document

    app.openapi = openapi  # type: ignore[method-assign]


def _warm(done: Event) -> None:
    """Compile the decoder before the first pull needs it."""
    decode.warm()
    done.set()
