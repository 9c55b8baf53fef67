"""The HTTP client of commands for the public API."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from ssl import SSLCertVerificationError
from typing import Any
from urllib.parse import quote

from tistream_client.cli import bearer, trust
from tistream_client.cli.errors import FIX, CliError, NoAnswer, failed
from tistream_client.cli.wire import FAILURES, Server
from tistream_client.core.asking import failed as api_error
from tistream_client.core.asking import tenants_path, with_near_tenant
from tistream_client.core.errors import ApiError
from tistream_client.core.steps import Answer

_CONNECT_SECONDS = 5.0
_READ_SECONDS = 75.0  # above the longest long poll


class ApiClient:
    """Calls one API server. `call` converts every failure to a CliError with the request and the answer."""

    def __init__(self, url: str, read_seconds: float = _READ_SECONDS) -> None:
        self.url = url.rstrip("/")
        self._server = Server(self.url, _CONNECT_SECONDS, read_seconds, trust.tls_context())
        self._token = bearer.headers()
        self._sign = None if self._token else bearer.signer()

    def call(self, method: str, path: str, body: Mapping[str, object] | None = None) -> Any:
        """Send a request and return the answer's JSON. Raises CliError if the request fails, or if the answer is not
        JSON."""
        try:
            return json.loads(self.answer(method, path, body).body)
        except ValueError as error:
            raise CliError(f"{self.url}{path} has no JSON: is --url that of a TiStream API server?") from error

    def answer(self, method: str, path: str, body: Mapping[str, object] | None = None) -> Answer:
        """Send a request and return the answer. Raises CliError."""
        try:
            answer = self._server.ask(method, path, self._headers(), body)
        except FAILURES as error:
            raise self._no_answer(error) from error
        if not 200 <= answer.status < 300:
            try:
                raise failed(self._refused(path, answer))
            except FAILURES as error:
                raise self._no_answer(error) from error
        return answer

    def lines(self, path: str, params: Mapping[str, str]) -> Iterator[bytes]:
        """Yield the lines of an NDJSON answer, without line ends, as they arrive. Raises ApiError for an error
        response, and NoAnswer."""
        yield from split_lines(self.chunks(path, params))

    def chunks(self, path: str, params: Mapping[str, str]) -> Iterator[bytes]:
        """Yield an answer's bytes, as they arrive. Raises ApiError for an error response, and NoAnswer."""
        try:
            for piece in self._server.stream(path, params, self._headers()):
                if isinstance(piece, Answer):
                    raise self._refused(path, piece)
                yield piece
        except FAILURES as error:
            raise self._no_answer(error) from error

    def _refused(self, path: str, answer: Answer) -> ApiError:
        error = api_error(path, answer)
        tenants = tenants_path(error)
        if tenants is None:
            return error
        return with_near_tenant(error, self._server.ask("GET", tenants, self._headers(), None))

    def _headers(self) -> Mapping[str, str]:
        return self._token if self._sign is None else self._sign()

    def _no_answer(self, error: Exception) -> NoAnswer:
        text = f"no answer from {self.url} (--url): {error or type(error).__name__}"
        return (
            NoAnswer(f"{text}; give --ca-file", FIX) if isinstance(error, SSLCertVerificationError) else NoAnswer(text)
        )


def split_lines(chunks: Iterator[bytes]) -> Iterator[bytes]:
    """Split chunks of bytes into lines, without line ends. Raises NoAnswer if the last line has no line end: a proxy
    may end an answer inside a line without an error of the connection."""
    rest = b""
    for chunk in chunks:
        *lines, rest = (rest + chunk).split(b"\n")
        yield from lines
    if rest:
        raise NoAnswer("the answer ended inside a line, so the API server or a proxy may have stopped")


def json_line(value: object) -> bytes:
    """A line of JSON, as the API writes it."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode() + b"\n"


def tenant_path(cluster: str, tenant: str | None = None, *more: str) -> str:
    """The URL path of a cluster's tenants; with `tenant`, of that tenant; with `more`, of a resource below it. Names
    are percent-encoded."""
    parts = ["v1", "clusters", cluster, "tenants", *([tenant] if tenant is not None else []), *more]
    return "/" + "/".join(quote(part, safe="") for part in parts)


def changes_path(cluster: str, tenant: str, database: str | None, table: str | None, *, raw: bool = False) -> str:
    """The URL path of PullTable, PullDB or PullTenant, depending on the given names; with `raw`, of PullRaw."""
    names: list[str] = ["raw"] if raw else []
    if database is not None:
        names += ["databases", database]
    if table is not None:
        names += ["tables", table]
    return tenant_path(cluster, tenant, *names, "changes")
