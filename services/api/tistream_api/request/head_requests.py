"""Answers HEAD requests with the headers of the answer to GET, without the body. Readers of remote files send HEAD
first."""

from __future__ import annotations

from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

_ASKED = "tistream.head"


def is_head(scope: Scope) -> bool:
    """Whether the request is a HEAD, so that only headers are sent."""
    return bool(scope.get(_ASKED, False))


class HeadRequests:
    """Middleware that answers HEAD like GET. The middleware that counts and logs requests is outside of it, so metrics
    and logs show the method HEAD."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] != "HEAD":
            await self._app(scope, receive, send)
            return
        inner = {**scope, "method": "GET", _ASKED: True}
        over = False

        async def head(message: Message) -> None:
            nonlocal over
            if message["type"] == "http.response.start":
                scope.update({name: inner[name] for name in ("route", "path_params", "endpoint") if name in inner})
                await send(message)
            elif not over:
                over = True
                await send({"type": "http.response.body", "body": b"", "more_body": False})
            if over and message.get("more_body", False):
                raise ClientDisconnect  # the rest of the body is not computed

        try:
            await self._app(inner, receive, head)
        except ClientDisconnect:
            if not over:
                raise
