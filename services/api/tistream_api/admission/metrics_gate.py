"""Protects `/metrics` on an API server with authentication. Services, scrapers, and callers with the grant `operate` on
the platform may read it."""

from __future__ import annotations

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from tistream.errors import Forbidden, TiStreamError
from tistream.service.http import problems
from tistream.service.http.guard import METRICS, Guard
from tistream_api.auth.access import Resource, allows
from tistream_api.auth.callers import Callers


class MetricsGate:
    """Middleware that authorizes requests for `/metrics`. The route itself is in tistream.service.http.app."""

    def __init__(self, app: ASGIApp, callers: Callers, guard: Guard | None) -> None:
        self._app, self._callers, self._guard = app, callers, guard

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["path"] == METRICS:
            try:
                self._check(scope)
            except TiStreamError as error:
                await problems.for_error(error)(scope, receive, send)
                return
        await self._app(scope, receive, send)

    def _check(self, scope: Scope) -> None:
        """Raise a TiStreamError if the request may not read the metrics."""
        authorization = Headers(scope=scope).get("authorization")
        if self._guard is not None and self._guard.refusal(METRICS, authorization) is None:
            return
        caller = scope["state"]["caller"] = self._callers.of(authorization)
        if not allows(caller.grants, "operate", Resource()):
            raise Forbidden("/metrics needs the service key, or a token that grants operate of the platform")
