"""Checks the token of a request between services, before anything else of the request is processed."""

from __future__ import annotations

import hmac
import logging
from pathlib import Path

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from tistream.service.http import problems
from tistream.wire.auth.secret_file import SecretFile, bearer_text
from tistream.wire.auth.service_auth import BEARER, ServiceKeys
from tistream.wire.auth.service_token import BadToken

log = logging.getLogger(__name__)

OPEN = frozenset(("/healthz", "/readyz"))  # probes, which concern no tenant
METRICS = "/metrics"


class Guard:
    """Checks that a request has a valid service token. All paths except the probes of health and readiness require it.
    `/metrics` also accepts the token in the file that the settings name for metrics."""

    def __init__(self, keys: ServiceKeys, metrics_token_file: Path | None) -> None:
        self._keys = keys
        self._metrics = None if metrics_token_file is None else SecretFile(metrics_token_file, bearer_text)

    def refusal(self, path: str, authorization: str | None) -> str | None:
        """The reason why a request with this `Authorization` header is rejected; None if it is accepted."""
        if path in OPEN:
            return None
        if authorization is None:
            return "a token is needed: Authorization: Bearer …"
        scheme, _, token = authorization.partition(" ")
        if scheme.lower() != BEARER.strip().lower():
            return "a bearer token is needed"
        if path == METRICS and self._may_scrape(token):
            return None
        try:
            self._keys.verify(token)
        except BadToken as error:
            return str(error)
        return None

    def _may_scrape(self, token: str) -> bool:
        if self._metrics is None:
            return False
        self._metrics.look()
        return hmac.compare_digest(self._metrics.value.encode(), token.encode())


class GuardMiddleware:
    """ASGI middleware that answers 401 to requests that the Guard rejects."""

    def __init__(self, app: ASGIApp, guard: Guard) -> None:
        self._app, self._guard = app, guard

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            refusal = self._guard.refusal(scope["path"], Headers(scope=scope).get("authorization"))
            if refusal is not None:
                log.info("refused", extra={"path": scope["path"], "reason": refusal})
                answer = problems.problem_response(
                    401, "unauthenticated", refusal, headers={"WWW-Authenticate": "Bearer"}
                )
                await answer(scope, receive, send)
                return
        await self._app(scope, receive, send)
