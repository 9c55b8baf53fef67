"""A collector of traces: OTLP over HTTP, on a port of its own. What it was sent is parsed by
OpenTelemetry's own types."""

from __future__ import annotations

import gzip
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from support.waiting import PATIENCE_S
from tistream.service.http.traces import begin_traces, end_traces
from tistream.service.observe import otel
from tistream.service.settings import ServiceSettings


@dataclass(frozen=True)
class Sent:
    """A span as the collector received it. Times are in ns of Unix time; `links` are (trace, span)."""

    service: str
    node: str
    name: str
    kind: int
    trace_id: str
    span_id: str
    parent_id: str
    began_ns: int
    ended_ns: int
    failed: str | None
    attributes: dict[str, Any]
    links: list[tuple[str, str]]


@dataclass
class Collector:
    """`hold()` makes it take requests and answer none, until `release()`; `waiting` are those without an answer."""

    url: str = ""
    headers: list[dict[str, str]] = field(default_factory=list)
    bodies: list[bytes] = field(default_factory=list)
    status: int = 200
    waiting: int = 0
    _spans: list[Sent] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _free: threading.Event = field(default_factory=threading.Event)

    def hold(self) -> None:
        self._free.clear()

    def release(self) -> None:
        self._free.set()

    def take(self, headers: dict[str, str], body: bytes) -> int:
        with self._lock:
            self.headers.append(headers)
            self.waiting += 1
        self._free.wait()
        with self._lock:
            self.waiting -= 1
        if self.status == 200:
            request = ExportTraceServiceRequest.FromString(body)
            with self._lock:
                self.bodies.append(body)
                self._spans += spans_of(request)
        return self.status

    def spans(self, wanted: Callable[[Sent], bool] = lambda _: True) -> list[Sent]:
        """The received spans in the order in which they began."""
        with self._lock:
            return sorted(filter(wanted, self._spans), key=lambda span: span.began_ns)

    def named(self, name: str) -> list[Sent]:
        return self.spans(lambda span: span.name == name)

    def trace(self, trace_id: str) -> list[Sent]:
        return self.spans(lambda span: span.trace_id == trace_id)


def spans_of(request: ExportTraceServiceRequest) -> list[Sent]:
    found = []
    for resource_spans in request.resource_spans:
        resource = {one.key: one.value.string_value for one in resource_spans.resource.attributes}
        for scope_spans in resource_spans.scope_spans:
            for span in scope_spans.spans:
                found.append(
                    Sent(
                        resource["service.name"],
                        resource["service.instance.id"],
                        span.name,
                        span.kind,
                        span.trace_id.hex(),
                        span.span_id.hex(),
                        span.parent_span_id.hex(),
                        span.start_time_unix_nano,
                        span.end_time_unix_nano,
                        span.status.message if span.status.code == 2 else None,
                        {one.key: _value(one.value) for one in span.attributes},
                        [(link.trace_id.hex(), link.span_id.hex()) for link in span.links],
                    )
                )
    return found


def _value(value: Any) -> Any:
    return getattr(value, value.WhichOneof("value"))


@contextmanager
def collecting(tls: ssl.SSLContext | None = None) -> Iterator[Collector]:
    """A collector that runs during the `with` block; with `tls` over https."""
    collector = Collector()
    collector.release()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            if self.headers.get("content-encoding") == "gzip":
                body = gzip.decompress(body)
            status = collector.take({name.lower(): value for name, value in self.headers.items()}, body)
            self.send_response(status)
            self.send_header("content-length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    if tls is not None:
        server.socket = tls.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    collector.url = f"http{'s' if tls else ''}://127.0.0.1:{server.server_address[1]}/v1/traces"
    try:
        yield collector
    finally:
        collector.release()
        server.shutdown()
        server.server_close()
        thread.join(PATIENCE_S)


@contextmanager
def traced(url: str, **settings: Any) -> Iterator[None]:
    """Send spans of this process to the collector during the `with` block. No batch is dropped because one of the two
    is slow."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(otel, "SEND_SECONDS", max(otel.SEND_SECONDS, PATIENCE_S))
        begin_traces(ServiceSettings(node_id="node-7", traces_url=url, **settings))
        try:
            yield
        finally:
            end_traces()
