"""A proxy between a client and an S3 server, on which requests and answers meet what they meet on a network."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import Enum
from http.client import HTTPConnection, HTTPResponse
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, unquote, urlsplit

from support.waiting import PATIENCE_S

_NOT_PASSED_ON = {"expect", "connection", "keep-alive", "transfer-encoding", "content-length"}


class Fate(Enum):
    """What befalls one request."""

    ANSWERED = "answered"
    LOST = "lost"  # reset before the server has heard of it
    UNANSWERED = "unanswered"  # the server has done it; its answer is lost, the connection reset
    SILENT = "silent"  # the server has done it, and nothing comes until the client gives up
    CUT = "cut"  # half of the answer's body comes
    DAMAGED = "damaged"  # the answer's body comes with one bit flipped
    SPOILT = "spoilt"  # the server gets the body with one bit flipped
    SLOWED = "slowed"  # 503 SlowDown; of this and the next three the server has not heard
    REFUSED = "refused"  # 403
    CONFLICTING = "conflicting"  # 409, as S3 answers a conditional put while another one is under way
    NOT_IMPLEMENTED = "not implemented"  # 501
    DELAYED = "delayed"  # reset; the server gets it when `deliver` is called


_OWN_ANSWERS = {
    Fate.SLOWED: (503, "SlowDown"),
    Fate.REFUSED: (403, "AccessDenied"),
    Fate.CONFLICTING: (409, "ConditionalRequestConflict"),
    Fate.NOT_IMPLEMENTED: (501, "NotImplemented"),
}


@dataclass(frozen=True, slots=True)
class Request:
    """One as it came in. `operation` is its method, and of multipart uploads the step."""

    method: str
    path: str
    query: dict[str, str]
    headers: dict[str, str]
    body: bytes = field(repr=False)

    @property
    def operation(self) -> str:
        step = {("POST", "uploads"): "begin", ("PUT", "partNumber"): "part", ("POST", "uploadId"): "complete"}
        step[("DELETE", "uploadId")] = "abort"
        return next(
            (name for (method, key), name in step.items() if method == self.method and key in self.query), self.method
        )

    @property
    def key(self) -> str:
        """Without the bucket."""
        return self.path.split("/", 2)[2] if self.path.count("/") > 1 else ""


class Wire:
    """Listens at `endpoint`, passes on to `server` (host, port)."""

    def __init__(self, port: int) -> None:
        self.requests: list[Request] = []
        self.missing: list[Request] = []  # of them those whose object the server does not have
        self.drop_headers: set[str] = set()  # in lower case: the server never sees them
        self._port = port
        self._fates: list[tuple[str, Fate]] = []
        self._delayed: list[tuple[str, Request]] = []
        self._lock = threading.Lock()
        wire = self

        class Handler(_Handler):
            def fate(self, request: Request) -> Fate:
                return wire._fate(request)

            def forward(self, request: Request, body: bytes) -> tuple[HTTPResponse, bytes]:
                return wire._forwarded(self.path, request, body)

            def delay(self, request: Request) -> None:
                with wire._lock:
                    wire._delayed.append((self.path, request))

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()

    @property
    def endpoint(self) -> str:
        """For clients."""
        return f"http://127.0.0.1:{self._server.server_port}"

    def befall(self, operation: str, *fates: Fate) -> None:
        """The next requests of `operation` (see Request) meet these, one each; those after them are answered."""
        with self._lock:
            self._fates += [(operation, fate) for fate in fates]

    def made(self, operation: str, key: str = "") -> int:
        """How many requests of `operation` have come, of those for `key` if it is given."""
        with self._lock:
            return sum(one.operation == operation and key in ("", one.key) for one in self.requests)

    def deliver(self) -> list[int]:
        """Let what was delayed reach the server; the statuses that nobody hears."""
        with self._lock:
            delayed, self._delayed = self._delayed, []
        return [self._forwarded(path, request, request.body)[0].status for path, request in delayed]

    def close(self) -> None:
        """Stop listening."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def _fate(self, request: Request) -> Fate:
        with self._lock:
            self.requests.append(request)
            for at, (operation, fate) in enumerate(self._fates):
                if operation == request.operation:
                    del self._fates[at]
                    return fate
        return Fate.ANSWERED

    def _forwarded(self, path: str, request: Request, body: bytes) -> tuple[HTTPResponse, bytes]:
        """The server's answer, read to its end."""
        connection = HTTPConnection("127.0.0.1", self._port, timeout=PATIENCE_S)
        connection.putrequest(request.method, path, skip_host=True, skip_accept_encoding=True)
        for name, value in request.headers.items():  # Host too: the signature covers it
            if name.lower() not in _NOT_PASSED_ON | self.drop_headers:
                connection.putheader(name, value)
        connection.putheader("Content-Length", str(len(body)))
        connection.endheaders(body)
        answer = connection.getresponse()
        read = answer.read()
        connection.close()
        if answer.status == 404:
            with self._lock:
                self.missing.append(request)
        return answer, read


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    fate: Callable[[Request], Fate]
    forward: Callable[[Request, bytes], tuple[HTTPResponse, bytes]]
    delay: Callable[[Request], None]

    def handle_one(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        split = urlsplit(self.path)
        query = {name: values[0] for name, values in parse_qs(split.query, keep_blank_values=True).items()}
        request = Request(self.command, unquote(split.path), query, dict(self.headers.items()), body)
        fate = self.fate(request)
        if fate in _OWN_ANSWERS:
            status, code = _OWN_ANSWERS[fate]
            said = b"" if self.command == "HEAD" else f"<Error><Code>{code}</Code></Error>".encode()
            self._answer(status, {"Content-Type": "application/xml"}, said, len(said))
        elif fate is Fate.DELAYED:
            self.delay(request)
            self._reset()
        elif fate is Fate.LOST:
            self._reset()
        else:
            answer, read = self.forward(request, flipped(body) if fate is Fate.SPOILT else body)
            headers = {name: value for name, value in answer.getheaders() if name.lower() not in _NOT_PASSED_ON}
            size = int(answer.getheader("Content-Length", len(read)))  # HEAD states one, and has no body
            if fate is Fate.SILENT:
                self.given_up()
            if fate in (Fate.UNANSWERED, Fate.SILENT):
                self._reset()
            elif fate is Fate.CUT:
                self._answer(answer.status, headers, read[: len(read) // 2], size)
                self._reset()
            else:
                self._answer(answer.status, headers, flipped(read) if fate is Fate.DAMAGED else read, size)

    do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = handle_one

    def given_up(self) -> None:
        """Until the client has closed the connection."""
        self.connection.settimeout(PATIENCE_S)
        self.connection.recv(1)

    def _answer(self, status: int, headers: dict[str, str], body: bytes, size: int) -> None:
        self.send_response_only(status)
        for name, value in headers.items():
            self.send_header(name, value)
        if status != 204:
            self.send_header("Content-Length", str(size))
        self.end_headers()
        self.wfile.write(body)
        self.wfile.flush()

    def _reset(self) -> None:
        """RST, not FIN: what a router does that has forgotten the connection."""
        self.close_connection = True
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.connection.close()

    def finish(self) -> None:
        if self.connection.fileno() >= 0:  # not reset
            super().finish()

    def log_message(self, *_: object) -> None:
        return


def flipped(body: bytes) -> bytes:
    """With one bit in its middle the other way round."""
    damaged = bytearray(body)
    damaged[len(body) // 2] ^= 1
    return bytes(damaged)


@contextmanager
def wired(port: int) -> Iterator[Wire]:
    """A proxy to 127.0.0.1:`port`."""
    wire = Wire(port)
    try:
        yield wire
    finally:
        wire.close()
