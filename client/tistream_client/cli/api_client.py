"""The HTTP client of commands for the public API."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import quote

import httpx

from tistream_client.cli import bearer, trust
from tistream_client.cli.errors import NoAnswer, failed
from tistream_client.core.asking import failed as api_error
from tistream_client.core.errors import ApiError
from tistream_client.core.steps import Answer

_CONNECT_SECONDS = 5.0
_READ_SECONDS = 75.0  # above the longest long poll


class ApiClient:
    """Calls one API server. `call` converts every failure to a CliError with the request and the answer."""

    def __init__(self, url: str, read_seconds: float = _READ_SECONDS) -> None:
        self.url = url.rstrip("/")
        timeout = httpx.Timeout(read_seconds, connect=_CONNECT_SECONDS)
        tls, headers = trust.tls_context(), bearer.headers()
        plain = {"accept-encoding": "identity"}  # decompression costs more than the network here
        self._http = httpx.Client(
            trust_env=False,
            timeout=timeout,
            headers=plain | headers,
            verify=tls if tls is not None else url.startswith("https:"),
            auth=None if headers else bearer.signer(),
        )

    def call(self, method: str, path: str, body: Mapping[str, object] | None = None) -> Any:
        """Send a request and return the answer's JSON. Raises CliError."""
        return self.answer(method, path, body).json()

    def answer(self, method: str, path: str, body: Mapping[str, object] | None = None) -> httpx.Response:
        """Send a request and return the answer. Raises CliError."""
        try:
            answer = self._http.request(method, self.url + path, json=body)
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise self._no_answer(error) from error
        if answer.is_error:
            raise failed(_failure(path, answer))
        return answer

    def lines(self, path: str, params: Mapping[str, str]) -> Iterator[bytes]:
        """Yield the lines of an NDJSON answer, without line ends, as they arrive. Raises ApiError for an error
        response, and NoAnswer."""
        yield from split_lines(self.chunks(path, params))

    def chunks(self, path: str, params: Mapping[str, str]) -> Iterator[bytes]:
        """Yield an answer's bytes, as they arrive. Raises ApiError for an error response, and NoAnswer."""
        try:
            with self._http.stream("GET", self.url + path, params=params) as answer:
                if answer.is_error:
                    answer.read()
                    raise _failure(path, answer)
                yield from answer.iter_bytes()
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise self._no_answer(error) from error

    def _no_answer(self, error: Exception) -> NoAnswer:
        return NoAnswer(f"no answer from {self.url} (--url): {error or type(error).__name__}")


def _failure(path: str, answer: httpx.Response) -> ApiError:
    return api_error(path, Answer(answer.status_code, answer.headers, answer.content))


def split_lines(chunks: Iterator[bytes]) -> Iterator[bytes]:
    """Split chunks of bytes into lines, without line ends. The last line may lack its line end."""
    rest = b""
    for chunk in chunks:
        *lines, rest = (rest + chunk).split(b"\n")
        yield from lines
    if rest:
        yield rest


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
