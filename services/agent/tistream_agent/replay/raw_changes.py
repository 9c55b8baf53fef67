"""Reads the changes of a RawKV tenant from the API (PullRaw) over HTTP."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from urllib.parse import quote

import httpx
import orjson

from tistream.errors import Unavailable
from tistream.model.ids import TenantKey
from tistream.wire.problem import to_error

_TIMEOUT = httpx.Timeout(60.0, connect=5.0)


@dataclass(frozen=True, slots=True)
class RawChanges:
    """The changes of one tenant, as one API server returns them. `keyspace` is None for all keyspaces."""

    http: httpx.Client
    url: str
    tenant: TenantKey
    keyspace: int | None

    def __str__(self) -> str:
        part = "" if self.keyspace is None else f" keyspace {self.keyspace}"
        return f"{self.tenant}{part}"

    def pages(self, params: Mapping[str, str]) -> Iterator[bytes]:
        """Send one request of PullRaw with the query parameters `params`. Yields the lines of the answer as they
        arrive. Raises TiStreamError if the API answers with an error, and Unavailable if the server does not answer, or
        the answer ends early."""
        names = (quote(name, safe="") for name in (self.tenant.cluster_id, self.tenant.tenant_id))
        path = "/v1/clusters/{}/tenants/{}/raw/changes".format(*names)
        query = dict(params) if self.keyspace is None else {**params, "keyspace": str(self.keyspace)}
        try:
            with self.http.stream("GET", self.url.rstrip("/") + path, params=query, timeout=_TIMEOUT) as answer:
                if answer.is_error:
                    body = _json(answer.read())
                    raise to_error(f"GET {path}", answer.status_code, body, answer.headers.get("retry-after"))
                rest = b""
                for chunk in answer.iter_bytes():
                    *lines, rest = (rest + chunk).split(b"\n")
                    yield from lines
        except (httpx.TransportError, httpx.InvalidURL) as error:
            raise Unavailable(f"no answer from {self.url}: {error or type(error).__name__}") from error


def _json(body: bytes) -> dict[str, object]:
    try:
        found = orjson.loads(body)
    except orjson.JSONDecodeError:
        return {}
    return found if isinstance(found, dict) else {}
