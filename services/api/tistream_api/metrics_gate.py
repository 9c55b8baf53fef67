"""`/metrics` of an API server with auth: for who may operate the whole platform."""

from __future__ import annotations

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from tistream.errors import Forbidden, TiStreamError
from tistream.service import problems
from tistream_api.access import Resource, may
from tistream_api.callers import Callers

METRICS = "/metrics"


class MetricsGate:
    """Middleware: the route is made where there are no callers (tistream.service.app)."""

    def __init__(self, app: ASGIApp, callers: Callers) -> None:
        self._app, self._callers = app, callers

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["path"] == METRICS:
            try:
                caller = self._callers.of(Headers(scope=scope).get("authorization"))
                if not may(caller.grants, "operate", Resource()):
                    raise Forbidden("the token does not grant operate of this platform")
            except TiStreamError as error:
                await problems.for_error(error)(scope, receive, send)
                return
        await self._app(scope, receive, send)
