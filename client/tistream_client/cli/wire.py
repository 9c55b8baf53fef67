"""HTTP by the standard library: a command that asks one question need not wait for a larger client to be imported."""

from __future__ import annotations

import json
import ssl
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection, IncompleteRead
from urllib.parse import urlencode, urlsplit

from tistream_client.core.asking import is_page
from tistream_client.core.steps import Answer

PIECE = 1 << 16
FAILURES = (OSError, HTTPException)  # what requests raise: no connection, no answer, a cut answer


@dataclass(slots=True)
class Server:
    """Sends requests to one server, and keeps connections to it that are idle. Thread-safe: a connection serves one
    request at a time. `connect_s`, `read_s`: timeouts in seconds. `tls` None: for https, the authorities that the
    system trusts."""

    url: str
    connect_s: float
    read_s: float
    tls: ssl.SSLContext | None = None
    _idle: list[HTTPConnection] = field(default_factory=list)

    def ask(self, method: str, path: str, headers: Mapping[str, str], body: Mapping[str, object] | None) -> Answer:
        """Send a request, and read its answer. Raises FAILURES."""
        connection, got = self._send(method, path, headers, body)
        read = got.read()
        self._idle.append(connection)
        return Answer(got.status, {name.lower(): value for name, value in got.getheaders()}, read)

    def stream(self, path: str, params: Mapping[str, str], headers: Mapping[str, str]) -> Iterator[Answer | bytes]:
        """Send a GET. Yield its answer's pieces as they arrive or, for an error or a page, the Answer. Raises FAILURES,
        also if the answer is cut off."""
        connection, got = self._send("GET", f"{path}?{urlencode(params)}", headers, None)
        try:
            if not 200 <= got.status < 300 or is_page(got.getheader("content-type")):
                yield Answer(got.status, {name.lower(): value for name, value in got.getheaders()}, got.read())
            while piece := got.read1(PIECE):
                yield piece
            if got.length:
                raise IncompleteRead(b"", got.length)
        finally:
            if got.isclosed():
                self._idle.append(connection)
            else:
                connection.close()

    def _send(
        self, method: str, path: str, headers: Mapping[str, str], body: Mapping[str, object] | None
    ) -> tuple[HTTPConnection, HTTPResponse]:
        text = None if body is None else json.dumps(body).encode()
        more = {} if text is None else {"content-type": "application/json"}
        prefix = urlsplit(self.url).path.rstrip("/")
        while True:
            kept = bool(self._idle)
            connection = self._idle.pop() if kept else self._connected()
            try:
                connection.request(method, prefix + path, text, {**headers, **more})
                return connection, connection.getresponse()
            except FAILURES:
                connection.close()
                if not (kept and method == "GET"):  # the server may have closed a connection that was idle
                    raise

    def _connected(self) -> HTTPConnection:
        parts = urlsplit(self.url)
        host = parts.hostname or ""
        if parts.scheme == "https":
            context = ssl.create_default_context() if self.tls is None else self.tls
            connection: HTTPConnection = HTTPSConnection(host, parts.port, timeout=self.connect_s, context=context)
        else:
            connection = HTTPConnection(host, parts.port, timeout=self.connect_s)
        connection.connect()
        connection.sock.settimeout(self.read_s)
        return connection
