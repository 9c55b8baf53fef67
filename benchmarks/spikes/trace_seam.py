"""`python -m spikes.trace_seam`: the cost of a span in tistream.trace and in opentelemetry-api (docs/adr/0026).

Prints nanoseconds of processor time for each span: the least of ROUNDS rounds, since other work only adds to one.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from opentelemetry import trace as otel
from opentelemetry.sdk.trace import TracerProvider

from tistream import trace
from tistream.trace import NOTHING, Attributes, Context, Span

ROUNDS, SPANS = 9, 20_000
IMPORTS = ("tistream.trace", "opentelemetry.trace")


class Recording:
    """A trace.Tracer over the SDK that sends nothing, as otel.OtelTracer without its exporter."""

    def __init__(self, tracer: otel.Tracer) -> None:
        self._tracer = tracer

    def now_ns(self) -> int:
        return time.time_ns()

    def begin(
        self,
        name: str,
        _kind: str,
        parent: Context | None,
        _links: object,
        began_ns: int,
        attributes: Attributes,
    ) -> Span:
        known = None if parent is None else otel.SpanContext(int(parent.trace_id, 16), int(parent.span_id, 16), True)
        around = None if known is None else otel.set_span_in_context(otel.NonRecordingSpan(known))
        return _Sdk(self._tracer.start_span(name, around, attributes=dict(attributes), start_time=began_ns))


class _Sdk:
    def __init__(self, span: otel.Span) -> None:
        self._span = span
        known = span.get_span_context()
        self.context = Context(f"{known.trace_id:032x}", f"{known.span_id:016x}", known.trace_flags.sampled)

    def set(self, attributes: Attributes) -> None:
        self._span.set_attributes(dict(attributes))

    def rename(self, name: str) -> None:
        self._span.update_name(name)

    def fail(self, kind: str) -> None:
        self._span.set_status(otel.Status(otel.StatusCode.ERROR, kind))

    def count_child(self) -> bool:
        return True

    def end(self, ended_ns: int | None = None) -> None:
        self._span.end(ended_ns)


@contextmanager
def installed(tracer: Recording | None) -> Iterator[None]:
    """tistream.trace with this tracer."""
    trace.install(tracer)
    try:
        yield
    finally:
        trace.install(None)


def cost_ns(spans: Callable[[], None]) -> float:
    """Processor time of one span in `spans`, which makes SPANS of them."""
    spans()
    found = []
    for _ in range(ROUNDS):
        began = time.process_time_ns()
        spans()
        found.append((time.process_time_ns() - began) / SPANS)
    return min(found)


def _ours() -> None:
    for _ in range(SPANS):
        with trace.child("part", attributes={"tistream.rows": 7}):
            pass


def _api(tracer: otel.Tracer) -> Callable[[], None]:
    def spans() -> None:
        for _ in range(SPANS):
            # Exceptions would be recorded with their texts, which hold keys and values (docs/adr/0016, 6).
            with tracer.start_as_current_span(
                "part", attributes={"tistream.rows": 7}, record_exception=False, set_status_on_exception=False
            ):
                pass

    return spans


def _import_ms(module: str) -> float:
    code = f"import time; began = time.process_time_ns(); import {module}; print(time.process_time_ns() - began)"
    ran = [subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True) for _ in range(5)]
    return min(int(one.stdout) for one in ran) / 1e6


def main() -> None:
    """Print the figures."""
    sdk = TracerProvider(shutdown_on_exit=False).get_tracer("spike")
    off = otel.NoOpTracerProvider().get_tracer("spike")
    print(f"off: tistream.trace {cost_ns(_ours):.0f} ns")
    print(f"off: opentelemetry-api {cost_ns(_api(off)):.0f} ns")
    print(f"off, global proxy: opentelemetry-api {cost_ns(_api(otel.get_tracer('spike'))):.0f} ns")
    with installed(Recording(sdk)), trace.root("work") as around:
        assert around is not NOTHING
        print(f"on: tistream.trace {cost_ns(_ours):.0f} ns")
    with sdk.start_as_current_span("work"):
        print(f"on: opentelemetry-api {cost_ns(_api(sdk)):.0f} ns")
    for module in IMPORTS:
        print(f"import {module}: {_import_ms(module):.1f} ms of processor time")


if __name__ == "__main__":
    main()
