"""A client of Confluent's schema registry, or of another one with its REST interface."""

from __future__ import annotations

from ssl import SSLContext
from typing import Any
from urllib.parse import quote, unquote, urlsplit, urlunsplit

import httpx
import orjson

from tistream.errors import SchemaRefused, Unavailable

_CONTENT_TYPE = "application/vnd.schemaregistry.v1+json"
_DEADLINE_S = 10.0
_CONNECT_S = 2.0
_MAY_PASS = frozenset({401, 403, 404, 408, 429})  # credentials are rotated, a proxy has no backend, too many requests


class ConfluentRegistry:
    """Registers schemas under subjects. Each (subject, schema) is registered once, and its id is cached."""

    def __init__(self, url: str, *, tls: SSLContext | None = None, deadline_s: float = _DEADLINE_S) -> None:
        """`url` may contain a user and a password, percent-encoded; no error and no log shows them. `tls` None: the
        system's certificate authorities are trusted. `deadline_s`: seconds to wait for an answer."""
        parts = urlsplit(url)
        self._url = urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path.rstrip("/"), "", ""))
        user, password = unquote(parts.username or ""), unquote(parts.password or "")
        auth = httpx.BasicAuth(user, password) if user else None
        # The registry is named by the changefeed: a proxy variable of the environment must not interfere.
        self._http = httpx.Client(
            trust_env=False,
            verify=True if tls is None else tls,
            auth=auth,
            timeout=httpx.Timeout(deadline_s, connect=_CONNECT_S),
            headers={"content-type": _CONTENT_TYPE, "accept": f"{_CONTENT_TYPE}, application/json"},
        )
        self._ids: dict[tuple[str, str], int] = {}

    def close(self) -> None:
        """Close every connection."""
        self._http.close()

    def id_of(self, subject: str, schema: str) -> int:
        """Return the id of a schema. Registers the schema under the subject first, if it is new. Raises Unavailable if
        the registry does not answer, or refuses the credentials; SchemaRefused if it does not accept the schema."""
        known = self._ids.get((subject, schema))
        if known is None:
            known = self._ids[subject, schema] = self._register(subject, schema)
        return known

    def _register(self, subject: str, schema: str) -> int:
        path = f"/subjects/{quote(subject, safe='')}/versions"
        answer = self._call("POST", path, {"schema": schema})
        body = _json_of(answer)
        if answer.is_success and isinstance(body.get("id"), int):
            return int(body["id"])
        reason = str(body.get("message") or f"status {answer.status_code}")
        if answer.is_success or answer.status_code in _MAY_PASS or answer.status_code >= 500:
            raise Unavailable(f"schema registry {self._url}: POST of subject {subject}: {reason}")
        if answer.status_code == httpx.codes.CONFLICT:
            raise SchemaRefused(
                f"schema registry {self._url}: subject {subject}: the new schema is not compatible with the registered "
                f"one: {reason}. New schema: {schema}. Registered schema: {self._latest(path)}. Set the subject's "
                "compatibility to NONE, or remove the subject, then resume the changefeed."
            )
        raise SchemaRefused(
            f"schema registry {self._url}: subject {subject}: the schema is refused: {reason}. Schema: {schema}. "
            "Leave the column out by a column selector, or use another protocol."
        )

    def _latest(self, path: str) -> str:
        """The newest schema of a subject, for an error text. `path`: the URL path of the subject's versions."""
        try:
            return str(_json_of(self._call("GET", f"{path}/latest", None)).get("schema") or "unknown")
        except Unavailable as error:
            return f"unknown, because {error}"

    def _call(self, method: str, path: str, body: dict[str, str] | None) -> httpx.Response:
        content = None if body is None else orjson.dumps(body)
        try:
            return self._http.request(method, self._url + path, content=content)
        except (httpx.TransportError, httpx.InvalidURL) as error:
            raise Unavailable(f"schema registry {self._url}: {type(error).__name__}: {error}") from error


def _json_of(answer: httpx.Response) -> dict[str, Any]:
    try:
        body = orjson.loads(answer.content)
    except orjson.JSONDecodeError:
        return {}
    return body if isinstance(body, dict) else {}
