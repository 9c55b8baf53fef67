"""A client of an app in this process: without a loop of events, a thread or a socket, which most of a request costs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import unquote_to_bytes

import httpx
from fastapi import FastAPI

from support.sim.asgi import in_fibers, serve_one


class InProcess(httpx.BaseTransport):
    """An HTTP transport to an app, whose loops do not run. `address` is the caller's. What the app raises reaches the
    caller, unless `answers_failures`: then it has the app's answer."""

    def __init__(self, app: FastAPI, address: str = "127.0.0.1", *, answers_failures: bool = False) -> None:
        self._app, self._address, self._answers_failures = app, address, answers_failures

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        told: list[dict[str, Any]] = []
        path, _, query = request.url.raw_path.partition(b"?")
        headers = [(name.lower(), value) for name, value in request.headers.raw]
        body = request.read()
        with in_fibers():
            try:
                serve_one(
                    self._app, request.method, unquote_to_bytes(path), query, headers, body, told.append, self._address
                )
            except Exception:
                if not (told and self._answers_failures):
                    raise
        start, *parts = told
        whole = b"".join(part.get("body", b"") for part in parts)
        return httpx.Response(start["status"], headers=start["headers"], stream=httpx.ByteStream(whole))


class AppClient(httpx.Client):
    """A client of `app`. Its arguments are those of InProcess and of httpx."""

    def __init__(
        self,
        app: FastAPI,
        address: str = "127.0.0.1",
        *,
        base_url: str = "http://testserver",
        headers: Mapping[str, str] | None = None,
        answers_failures: bool = False,
    ) -> None:
        transport = InProcess(app, address, answers_failures=answers_failures)
        super().__init__(transport=transport, base_url=base_url, headers=headers)
        self.app = app
