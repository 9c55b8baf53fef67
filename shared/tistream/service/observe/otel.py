"""Connects to OpenTelemetry's SDK, an optional dependency. Spans are queued, and sent to a collector in batches.

Ending a span never waits. While the collector is slow or unavailable, the queue drops spans; nothing else is affected.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from typing import Any

import requests
from opentelemetry.exporter.otlp.proto.http import Compression
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, SpanLimits, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExportResult
from opentelemetry.sdk.trace.sampling import ParentBased, TraceIdRatioBased
from opentelemetry.trace import (
    Link,
    NonRecordingSpan,
    SpanContext,
    SpanKind,
    Status,
    StatusCode,
    TraceFlags,
    set_span_in_context,
)
from opentelemetry.trace import Span as OtelSpan
from requests.auth import AuthBase

import tistream
from tistream import cause
from tistream.concurrency import start_thread
from tistream.service.settings import ServiceSettings
from tistream.trace import Attributes, Context, Span
from tistream.wire.auth.secret_file import SecretFile

log = logging.getLogger(__name__)

CHILDREN_MAX = 128  # of one span: an endless stream must not fill the collector
QUEUE_SPANS = 8_192
BATCH_SPANS = 512
EVERY_MS = 1_000
SEND_SECONDS = 5.0  # a batch is dropped after this time
TEXT_MAX = 200

_KINDS = {"internal": SpanKind.INTERNAL, "server": SpanKind.SERVER, "client": SpanKind.CLIENT}
_ROOT = set_span_in_context(NonRecordingSpan(SpanContext(0, 0, is_remote=False)))


class OtelTracer:
    """Implements trace.Tracer. It is not registered as OpenTelemetry's global tracer, so spans of libraries, which may
    contain raw paths, are not recorded."""

    def __init__(self, exporter: OTLPSpanExporter, service: str, node: str, ratio: float) -> None:
        self._provider = TracerProvider(
            sampler=ParentBased(TraceIdRatioBased(ratio)),
            resource=Resource.create(
                {
                    "service.name": f"tistream-{service}",
                    "service.instance.id": node,
                    "service.version": tistream.__version__,
                }
            ),
            shutdown_on_exit=False,  # otherwise the exit would wait for the collector
            span_limits=SpanLimits(max_span_attribute_length=TEXT_MAX),
        )
        self._provider.add_span_processor(
            BatchSpanProcessor(
                exporter,
                max_queue_size=QUEUE_SPANS,
                schedule_delay_millis=EVERY_MS,
                max_export_batch_size=BATCH_SPANS,
            )
        )
        self._tracer = self._provider.get_tracer("tistream", tistream.__version__)

    def now_ns(self) -> int:
        """Implement trace.Tracer.now_ns: the time in ns since the Unix epoch."""
        return time.time_ns()

    def begin(
        self,
        name: str,
        kind: str,
        parent: Context | None,
        links: Sequence[Context],
        began_ns: int,
        attributes: Attributes,
    ) -> Span:
        """Implement trace.Tracer.begin: begin a span, with the cause id of the present request as an attribute.
        `began_ns`: ns since the Unix epoch."""
        said = dict(attributes)
        if (cause_id := cause.current()) is not None:
            said["tistream.cause_id"] = cause_id
        around = _ROOT if parent is None else set_span_in_context(NonRecordingSpan(_known(parent)))
        linked = [Link(_known(link)) for link in links]
        return _Span(self._tracer.start_span(name, around, _KINDS[kind], said, linked, began_ns))

    def end(self, limit_s: float) -> None:
        """Implement traces.SpanSender.end: send the spans that have not been sent yet, for at most `limit_s`
        seconds."""
        start_thread("traces", self._provider.shutdown).join(limit_s)


class _Span:
    """Implements trace.Span."""

    def __init__(self, span: OtelSpan) -> None:
        self._span = span
        known = span.get_span_context()
        self.context = Context(f"{known.trace_id:032x}", f"{known.span_id:016x}", known.trace_flags.sampled)
        self._children = 0

    def set(self, attributes: Attributes) -> None:
        self._span.set_attributes(dict(attributes))

    def rename(self, name: str) -> None:
        self._span.update_name(name)

    def fail(self, kind: str) -> None:
        self._span.set_status(Status(StatusCode.ERROR, kind))

    def count_child(self) -> bool:
        self._children += 1
        return self._children <= CHILDREN_MAX

    def end(self, ended_ns: int | None = None) -> None:
        self._span.end(ended_ns)


def _known(context: Context) -> SpanContext:
    flags = TraceFlags(TraceFlags.SAMPLED if context.sampled else TraceFlags.DEFAULT)
    return SpanContext(int(context.trace_id, 16), int(context.span_id, 16), is_remote=True, trace_flags=flags)


def new_tracer(settings: ServiceSettings) -> OtelTracer:
    """Create a tracer from the settings. Raises OSError or ValueError if a file is missing or invalid."""
    assert settings.traces_url is not None
    # The SDK's logger writes a line for each lost batch; _Exporter logs only when the losses begin and when they end.
    logging.getLogger("opentelemetry").setLevel(logging.CRITICAL)
    session = requests.Session()
    session.trust_env = False  # no proxy, no .netrc: the collector is named by our own settings
    if settings.traces_headers_file is not None:
        session.auth = _Headers(SecretFile(settings.traces_headers_file, parse_headers))
    tls = settings.tls
    for file in (tls.ca_file, tls.cert_file, tls.key_file):
        if file is not None:
            file.stat()
    exporter = _Exporter(
        settings.traces_url,
        certificate_file=_text(tls.ca_file),
        client_key_file=_text(tls.key_file),
        client_certificate_file=_text(tls.cert_file),
        timeout=SEND_SECONDS,
        compression=Compression.Gzip,
        session=session,
    )
    return OtelTracer(exporter, settings.service_name(), settings.node, settings.traces_ratio)


def _text(path: object) -> str | None:
    return None if path is None else str(path)


def parse_headers(text: str) -> dict[str, str]:
    """Parse lines of the form `name: value`. Raises ValueError, whose text does not show the headers."""
    found = {}
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip():
            continue
        name, colon, value = line.partition(":")
        name, value = name.strip(), value.strip()
        if not colon or not name.replace("-", "").replace("_", "").isalnum() or not value.isascii():
            raise ValueError(f"line {number} is no `name: value`")
        if not value or not value.isprintable() or not name.isascii():
            raise ValueError(f"line {number} is no `name: value`")
        found[name] = value
    if not found:
        raise ValueError("it holds no header")
    return found


class _Headers(AuthBase):
    """Adds the configured headers to each request to the collector. They are read from their file at each request."""

    def __init__(self, file: SecretFile[dict[str, str]]) -> None:
        self._file = file

    def __call__(self, request: requests.PreparedRequest) -> requests.PreparedRequest:
        self._file.look()
        request.headers.update(self._file.value)
        return request


class _Exporter(OTLPSpanExporter):
    """Exports spans, and logs once when the collector stops accepting them, and once when it accepts them again."""

    def __init__(self, collector: str, **settings: Any) -> None:
        super().__init__(collector, **settings)
        self._collector, self._lost = collector, 0

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        result = super().export(spans)
        if result is not SpanExportResult.SUCCESS:
            if not self._lost:
                log.warning(
                    "the collector of traces does not accept spans: they are lost", extra={"collector": self._collector}
                )
            self._lost += len(spans)
        elif self._lost:
            log.info(
                "the collector of traces accepts spans again", extra={"collector": self._collector, "lost": self._lost}
            )
            self._lost = 0
        return result
