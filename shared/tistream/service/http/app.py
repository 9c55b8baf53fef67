"""The HTTP app that every service has around its routes: health, readiness, metrics, and errors as RFC 9457
problems."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractContextManager, asynccontextmanager
from typing import Any

import anyio.to_thread
from fastapi import FastAPI
from fastapi.concurrency import contextmanager_in_threadpool
from fastapi.responses import PlainTextResponse, Response
from prometheus_client import CollectorRegistry, generate_latest
from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

import tistream
from tistream import cause
from tistream.clock import Clock, SystemClock
from tistream.concurrency import new_event
from tistream.service.http import problems
from tistream.service.http.guard import GuardMiddleware
from tistream.service.http.peer_clients import PeerClients
from tistream.service.http.traces import RequestSpans, describe_request
from tistream.service.ids import random_id
from tistream.service.observe.metrics import HttpMetrics
from tistream.trace import Span

log = logging.getLogger(__name__)

# Every long poll and stream occupies a thread while it waits; the default of 40 threads would starve /healthz.
THREADS = 256
BODY_BYTES_MAX = 64 << 20
# Methods that are values of the metric's label; all others share one value.
METHODS = frozenset(("GET", "HEAD", "POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE"))

_NOT_READY: dict[int | str, dict[str, Any]] = {
    503: {"description": "not ready", "content": {problems.MEDIA_TYPE: {"schema": {"type": "object"}}}}
}


def new_app(
    title: str,
    *,
    ready: Callable[[], str | None],
    registry: CollectorRegistry,
    running: Callable[[], AbstractContextManager[None]] | None = None,
    clock: Clock | None = None,
    new_id: Callable[[], str] = random_id,
    body_bytes_max: int = BODY_BYTES_MAX,
    peers: PeerClients | None = None,
    guarded: bool = True,
) -> FastAPI:
    """Create a FastAPI app with `/healthz`, `/readyz`, `/metrics` and `/openapi.json`, to which the caller adds its
    routes.

    `ready` returns why the service cannot do its work yet, or None; `/readyz` calls it in a thread, unless the process
    is stopping. `running` is entered before the first request and left at the end: it starts and stops background
    loops. `app.state.stopping` is an Event that `serve` sets when the process receives a signal to end: long polls and
    endless streams check it and finish. `app.state.metrics` is `registry`. `new_id` draws the cause id of a request
    that has none. A body above `body_bytes_max` bytes is answered with 413. `peers` has the certificates to serve with,
    and the keys of the services. With `guarded`, and if `peers` has keys, every request except `/healthz` and `/readyz`
    needs a token of a service; `/metrics` also accepts the token for metrics.
    """

    @asynccontextmanager
    async def lifespan(_app: FastAPI) -> AsyncIterator[None]:
        anyio.to_thread.current_default_thread_limiter().total_tokens = THREADS
        if running is None:
            yield
            return
        async with contextmanager_in_threadpool(running()):
            yield

    app = FastAPI(
        title=title,
        version=tistream.__version__,
        docs_url=None,  # the pages would be loaded from a CDN
        redoc_url=None,
        lifespan=lifespan,
        # FastAPI's own handler would report raw paths.
        telemetry={"tracing": False, "metrics": False, "logs": False, "auto_configure": False},
    )
    app.state.stopping = new_event()
    app.state.metrics = registry
    app.state.peers = peers
    problems.install(app)
    guard = peers.guard if guarded and peers is not None else None
    if guard is not None:
        app.add_middleware(GuardMiddleware, guard=guard)  # inside the shell, so that the shell counts rejected requests
    app.add_middleware(
        _Shell,
        metrics=HttpMetrics(registry),
        clock=clock or SystemClock(),
        new_id=new_id,
        body_bytes_max=body_bytes_max,
        spans=RequestSpans(guard, public=not guarded),
        stopping=app.state.stopping.is_set,
    )
    _add_probes(app, ready, registry)
    return app


def _add_probes(app: FastAPI, ready: Callable[[], str | None], registry: CollectorRegistry) -> None:
    @app.get("/healthz", tags=["operations"], operation_id="Health")
    async def healthz() -> dict[str, str]:
        """Answers 200 while the process is up."""
        return {"status": "ok", "service": app.title, "version": tistream.__version__}

    @app.get("/readyz", tags=["operations"], operation_id="Ready", response_model=dict[str, str], responses=_NOT_READY)
    def readyz() -> Response:
        """Answers 200 if the service can do its work; otherwise 503 and the reason."""
        reason = "stopping" if app.state.stopping.is_set() else ready()
        if reason is not None:
            return problems.problem_response(503, "not-ready", reason)
        return Response(b'{"status":"ready"}', media_type="application/json")

    @app.get("/metrics", tags=["operations"], operation_id="Metrics", response_class=PlainTextResponse)
    def metrics() -> Response:
        """Metrics in the Prometheus text format."""
        return Response(generate_latest(registry), media_type="text/plain; version=0.0.4; charset=utf-8")


class _Shell:
    """The outermost middleware of a service. It counts requests, sets the cause of each request, and rejects bodies
    that are too large. An unexpected exception becomes a problem that shows no internals. A request that is still
    running when the process ends gets 503. If a request has a cause id in a header, it keeps that id; every answer has
    the id of its cause."""

    def __init__(
        self,
        app: ASGIApp,
        *,
        metrics: HttpMetrics,
        clock: Clock,
        new_id: Callable[[], str],
        body_bytes_max: int,
        spans: RequestSpans,
        stopping: Callable[[], bool],
    ) -> None:
        self._app = app
        self._stopping = stopping
        self._metrics = metrics
        self._clock = clock
        self._new_id = new_id
        self._body_bytes_max = body_bytes_max
        self._spans = spans

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        cause_id = cause.accepted(Headers(scope=scope).get(cause.HEADER)) or self._new_id()
        with cause.caused_by(cause_id), self._spans.around(scope) as span:
            await self._watched(scope, receive, send, cause_id, span)

    async def _watched(self, scope: Scope, receive: Receive, send: Send, cause_id: str, span: Span) -> None:
        started_ms = self._clock.monotonic_ms()
        status = 0

        async def watched_send(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                MutableHeaders(scope=message)[cause.HEADER] = cause_id
                seconds = (self._clock.monotonic_ms() - started_ms) / 1000
                self._metrics.seconds.labels(_method(scope), _route(scope), str(status)).observe(seconds)
            await send(message)

        try:
            await self._app(scope, _limited(receive, self._body_bytes_max), watched_send)
        except ClientDisconnect:
            log.debug("client went away", extra={"path": scope["path"]})
        except asyncio.CancelledError:
            # uvicorn cancels open requests at the end of the grace period. It would answer 500 and log a traceback.
            if status or not self._stopping():
                raise
            stops = problems.problem_response(503, "unavailable", "this process is stopping: ask again")
            await stops(scope, receive, watched_send)
        except Exception as error:
            response = self._unexpected(scope, error, cause_id)
            if status:
                raise  # the answer has begun: the server closes the connection without its last chunk
            await response(scope, receive, watched_send)
        finally:
            describe_request(span, scope, _method(scope), _route(scope), status)

    def _unexpected(self, scope: Scope, error: Exception, cause_id: str) -> Response:
        self._metrics.failures.labels(_method(scope), _route(scope)).inc()
        log.error(
            "request failed",
            exc_info=error,
            extra={"method": scope["method"], "path": scope["path"]},
        )
        detail = f"an unexpected error; the service's log has it under cause_id {cause_id}"
        return problems.problem_response(500, "internal", detail)


def _method(scope: Scope) -> str:
    return scope["method"] if scope["method"] in METHODS else "other"


def _route(scope: Scope) -> str:
    return str(getattr(scope.get("route"), "path", "unmatched"))


def _limited(receive: Receive, bytes_max: int) -> Receive:
    seen = 0

    async def limited() -> Message:
        nonlocal seen
        message = await receive()
        seen += len(message.get("body", b""))
        if seen > bytes_max:
            raise HTTPException(413, f"the body is larger than {bytes_max} bytes")
        return message

    return limited
