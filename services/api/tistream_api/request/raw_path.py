"""Routes match the path as it was sent, percent-encoded, because names in a path may contain any character, even a
slash. This module has the middleware that provides that path, and decodes the names."""

from __future__ import annotations

from urllib.parse import unquote_to_bytes

from starlette.types import ASGIApp, Receive, Scope, Send

from tistream.errors import UnknownName


class RawPath:
    """Middleware that uses `raw_path` as `path`, so that an encoded slash is not a separator."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope.get("raw_path"):
            raw: bytes = scope["raw_path"]
            scope = {**scope, "path": raw.partition(b"?")[0].decode("latin-1")}
        await self._app(scope, receive, send)


def name_of(segment: str) -> str:
    """The name that a path segment encodes. Raises UnknownName if it is not UTF-8."""
    try:
        return unquote_to_bytes(segment.encode("latin-1")).decode()
    except UnicodeError as error:
        raise UnknownName(
            f"the name {segment[:80]!r} in the path is not UTF-8: percent-encode its UTF-8 bytes"
        ) from error
