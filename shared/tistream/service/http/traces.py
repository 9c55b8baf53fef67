"""Decides whether a process traces, and for which requests it creates spans (docs/adr/0016)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

from starlette.datastructures import Headers
from starlette.types import Scope

from tistream import trace
from tistream.service.http.guard import METRICS, OPEN, Guard
from tistream.service.settings import ServiceSettings, SettingsError
from tistream.trace import NOTHING, Context, Span, Tracer

UNTRACED = OPEN | {METRICS}  # requested every few seconds
END_SECONDS = 1.5  # for sending the last spans when the process ends


class SpanSender(Tracer, Protocol):
    """A tracer that sends spans to a collector."""

    def end(self, limit_s: float) -> None:
        """Send the spans that have not been sent yet. Gives up after `limit_s` seconds."""


_sender: SpanSender | None = None


def begin_traces(settings: ServiceSettings) -> None:
    """Send spans of this process to the collector in its settings; without one, do nothing. Raises SettingsError."""
    global _sender  # noqa: PLW0603  # one per process, as with logging
    if settings.traces_url is None:
        return
    try:
        from tistream.service.observe import otel  # noqa: PLC0415  # optional, and takes 100 ms to import
    except ImportError as error:
        variable = f"{settings.model_config['env_prefix']}TRACES_URL"
        raise SettingsError(f"{variable} needs OpenTelemetry: pip install 'tistream[otel]' ({error})") from error
    try:
        _sender = otel.new_tracer(settings)
    except (OSError, ValueError) as error:
        raise SettingsError(f"the traces of {settings.service_name()} cannot be sent: {error}") from error
    trace.install(_sender)


def end_traces() -> None:
    """Send the spans that have not been sent yet. If the collector does not answer within END_SECONDS, they are
    lost."""
    global _sender
    sender, _sender = _sender, None
    if sender is not None:
        trace.install(None)
        sender.end(END_SECONDS)


class RequestSpans:
    """Creates the spans of the requests to a process.

    A request between services becomes part of its caller's trace. It has no span if the caller has no trace, as a
    background loop, or if the request has no valid token. A request from outside the platform (`public`) gets a trace
    of its own, which links to the caller's trace: callers must not decide which traces are kept, or add spans to other
    traces.
    """

    def __init__(self, guard: Guard | None, *, public: bool) -> None:
        self._guard, self._public = guard, public

    @contextmanager
    def around(self, scope: Scope) -> Iterator[Span]:
        """Run a `with` block in the span of one request. The block must record the outcome with `describe_request`."""
        if not trace.on() or scope["path"] in UNTRACED:
            yield NOTHING
            return
        span = self._span(scope["path"], Headers(scope=scope))
        try:
            with trace.inside(span):
                yield span
        finally:
            span.end()

    def _span(self, path: str, headers: Headers) -> Span:
        values = headers.getlist(trace.HEADER)
        context = Context.parse(values[0]) if len(values) == 1 else None
        if self._public:
            return trace.begin("request", kind="server", links=[] if context is None else [context])
        if context is None or not self._is_a_peer(path, headers):
            return NOTHING
        return trace.begin("request", kind="server", parent=context)

    def _is_a_peer(self, path: str, headers: Headers) -> bool:
        """Whether the request comes from another service. In a process without keys, every request counts as one,
        because only processes of this machine can connect."""
        return self._guard is None or self._guard.refusal(path, headers.get("authorization")) is None


def describe_request(span: Span, scope: Scope, method: str, route: str, status: int) -> None:
    """Set the span's attributes: method, route, status and tenant. Nothing else of the path or the query is
    recorded."""
    if span.context is None:
        return
    span.rename(f"{method} {route}")
    said: dict[str, str | int] = {"http.request.method": method, "http.route": route}
    if status:
        said["http.response.status_code"] = status
    found = scope.get("path_params", {})
    if status < 400 and {"cluster_id", "tenant_id"} <= found.keys():
        said["tistream.tenant"] = f"{found['cluster_id']}/{found['tenant_id']}"
    span.set(said)
    if status >= 500:
        span.fail(str(status))
