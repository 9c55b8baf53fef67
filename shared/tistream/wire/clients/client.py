"""The HTTP client of a process. Every call has a deadline, problems become errors, and calls are retried where that is
safe."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from ssl import SSLContext
from typing import Any, TypeVar

import httpx
import orjson
from pydantic import BaseModel, ValidationError

from tistream import acting, cause, concurrency, trace
from tistream.errors import RetryableError, Unavailable
from tistream.wire import problem

DEADLINE_S = 10.0
KEEP_ALIVE_S = 15.0  # how long a connection without requests is kept: heartbeats at rest are ten seconds apart
_CONNECT_S = 2.0
_POOL_S = 5.0
_PAUSE_S = (0.05, 0.2, 0.5, 1.0, 2.0)

M = TypeVar("M", bound=BaseModel)
Params = Mapping[str, str | int | None]


@functools.cache
def _public_authorities() -> SSLContext:
    """The TLS context of a client without settings of its own, which trusts the public certificate authorities. Cached,
    because loading them takes some milliseconds."""
    return httpx.create_ssl_context(trust_env=False)


class HttpClient:
    """Calls peers by full URL. Thread-safe; connections are kept and shared.

    `deadline_s` is the time in seconds that one attempt waits for the peer's answer, once it is connected. A call with
    `attempts` above 1 is repeated after a RetryableError, up to this number of attempts in all. The default is one
    attempt, because most callers are loops that run again anyway. `auth` returns the `Authorization` of each call.
    `tls` holds the trusted authorities for https:// and the client's certificate.
    """

    def __init__(
        self,
        *,
        deadline_s: float = DEADLINE_S,
        sleep: Callable[[float], None] = concurrency.sleep,
        transport: httpx.BaseTransport | None = None,
        headers: Mapping[str, str] | None = None,
        auth: Callable[[], str] | None = None,
        tls: SSLContext | None = None,
    ) -> None:
        self._deadline_s = deadline_s
        self._sleep = sleep
        self._auth = auth
        # Peers are named by our own settings: a proxy variable of the environment must not interfere.
        self._http = httpx.Client(
            trust_env=False,
            limits=httpx.Limits(max_connections=256, max_keepalive_connections=64, keepalive_expiry=KEEP_ALIVE_S),
            transport=transport,
            verify=_public_authorities() if tls is None else tls,
            headers=dict(headers or {}),  # sent with every call
        )

    def close(self) -> None:
        """Close every connection. A call under way, or a later one, raises Unavailable."""
        self._http.close()

    def get(
        self,
        url: str,
        model: type[M],
        params: Params | None = None,
        *,
        wait_ms: int = 0,
        attempts: int = 1,
        deadline_s: float | None = None,
    ) -> M:
        """GET `url`, and parse the answer as `model`. For a long poll, `wait_ms` is added to the deadline and to the
        query. `attempts` is as for the class. `deadline_s`: a shorter deadline than the client's own; None: the
        client's own. Raises the errors of `request`."""
        patience_s = self._patience_s(deadline_s)
        query = dict(params or {})
        if wait_ms:
            query["wait_ms"] = wait_ms
        answer = self.request("GET", url, params=query, deadline_s=patience_s + wait_ms / 1000, attempts=attempts)
        return parse(url, answer, model)

    def send(
        self,
        method: str,
        url: str,
        body: BaseModel,
        model: type[M],
        *,
        attempts: int = 1,
        deadline_s: float | None = None,
    ) -> M:
        """Send `body` as JSON by PUT or POST, and parse the answer as `model`. `attempts` and `deadline_s` are as for
        `get`. Raises the errors of `request`."""
        content, kind = body.model_dump_json().encode(), "application/json"
        patience_s = self._patience_s(deadline_s)
        answer = self.request(method, url, content=content, content_type=kind, deadline_s=patience_s, attempts=attempts)
        return parse(url, answer, model)

    def _patience_s(self, deadline_s: float | None) -> float:
        """The deadline of a call, in seconds: the given one, but at most the client's own."""
        return self._deadline_s if deadline_s is None else min(deadline_s, self._deadline_s)

    def request(
        self,
        method: str,
        url: str,
        *,
        params: Params | None = None,
        content: bytes | None = None,
        content_type: str | None = None,
        deadline_s: float | None = None,
        attempts: int = 1,
    ) -> httpx.Response:
        """Send a request; returns the response with its body. `deadline_s`: seconds to wait for the answer to each
        attempt; None: the client's own deadline. `attempts` is as for the class.

        Raises:
            Unavailable: no answer came, or the peer asked to come back later (PeerBusy).
            InvalidRequest: the peer's own 4xx of that class or a subclass.
            PeerFailed: any other error of the peer.
        """
        query = {name: value for name, value in (params or {}).items() if value is not None}
        headers = {"content-type": content_type} if content_type else {}
        if (cause_id := cause.current()) is not None:
            headers[cause.HEADER] = cause_id
        if (actor := acting.current()) is not None:
            headers[acting.HEADER] = acting.to_header(actor)
        read_s = self._deadline_s if deadline_s is None else deadline_s
        timeout = httpx.Timeout(read_s, connect=_CONNECT_S, pool=_POOL_S)
        for attempt in range(1, attempts + 1):
            try:
                # None and not {}, because {} would remove the query of the URL.
                return self._traced(method, url, headers, params=query or None, content=content, timeout=timeout)
            except RetryableError:
                if attempt == attempts:
                    raise
                self._sleep(_PAUSE_S[min(attempt, len(_PAUSE_S)) - 1])
        raise AssertionError("attempts must be at least 1")

    def _signed(self, headers: Mapping[str, str]) -> dict[str, str]:
        return {**headers, "authorization": self._auth()} if self._auth is not None else dict(headers)

    def _traced(self, method: str, url: str, headers: Mapping[str, str], **how: Any) -> httpx.Response:
        """Send one attempt of a request. If a trace is current, the attempt becomes a span of it, and the peer
        continues the trace."""
        with trace.child(method, kind="client") as span:
            if (context := span.context or trace.here().context) is None:
                return self._once(method, url, headers, **how)
            span.set({"http.request.method": method, "server.address": _host_of(url)})
            response = self._once(method, url, {**headers, trace.HEADER: str(context)}, **how)
            span.set({"http.response.status_code": response.status_code})
            return response

    def _once(self, method: str, url: str, headers: Mapping[str, str], **how: Any) -> httpx.Response:
        where = f"{method} {url}"
        try:
            response = self._http.request(method, url, headers=self._signed(headers), **how)
        except httpx.TransportError as error:
            raise Unavailable(f"{where}: {type(error).__name__}: {error}") from error
        except httpx.InvalidURL as error:
            raise Unavailable(f"{where}: {error}") from error
        except Exception as error:  # httpx has no exception class for a closed client
            if not self._http.is_closed:
                raise
            raise Unavailable(f"{where}: this process is stopping") from error
        if response.status_code < 400:
            return response
        if response.status_code == httpx.codes.UNAUTHORIZED and self._auth is not None:
            # Keys are being rotated, or clocks differ: the failure is temporary, like an outage.
            reason = _json_object(response).get("detail", "the answer has no detail")
            raise Unavailable(f"{where}: the token of this process is not accepted: {reason}")
        raise problem.to_error(where, response.status_code, _json_object(response), response.headers.get("retry-after"))


def _host_of(url: str) -> str:
    """The host and port of a URL. The path is left out, because it contains names of tenants."""
    try:
        return httpx.URL(url).netloc.decode("ascii", "replace").rpartition("@")[2]
    except httpx.InvalidURL:
        return ""


def parse(url: str, response: httpx.Response, model: type[M]) -> M:
    """Parse the body of an answer as `model`. Raises PeerFailed if it does not match."""
    try:
        return model.model_validate_json(response.content)
    except ValidationError as error:
        reason = f"{url}: not a {model.__name__}: {error.errors(include_url=False, include_input=False)}"
        raise problem.PeerFailed(reason, status=response.status_code, peer_code=None) from error


def _json_object(response: httpx.Response) -> dict[str, Any]:
    try:
        body = orjson.loads(response.content)
    except orjson.JSONDecodeError:
        return {}
    return body if isinstance(body, dict) else {}
