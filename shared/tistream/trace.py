"""Tracing: nested spans across threads and processes (docs/operations/traces.md).

Nothing is recorded, at almost no cost, unless a tracer is installed; the service shell installs one if its settings
name a collector. Names and attributes of spans contain no key, no value and no text of a request.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Protocol

HEADER = "traceparent"  # W3C Trace Context, level 1
_FORM = re.compile(r"00-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})")
_SAMPLED = 1

Attributes = Mapping[str, str | int | float | bool]
NONE: Attributes = {}


@dataclass(frozen=True, slots=True)
class Context:
    """The identity of a span: hexadecimal ids, and whether it is sampled."""

    trace_id: str
    span_id: str
    sampled: bool

    @classmethod
    def parse(cls, text: str | None) -> Context | None:
        """Parse the W3C header `traceparent`. Returns None unless the text is a valid one of version 00."""
        found = None if text is None else _FORM.fullmatch(text)
        if found is None or not int(found[1], 16) or not int(found[2], 16):
            return None
        return cls(found[1], found[2], bool(int(found[3], 16) & _SAMPLED))

    def __str__(self) -> str:
        """Format as a `traceparent` header."""
        return f"00-{self.trace_id}-{self.span_id}-{_SAMPLED if self.sampled else 0:02x}"


@dataclass(frozen=True, slots=True)
class Mark:
    """A point in a trace from which another thread or process continues the trace. `at_ns`: its Unix time in ns."""

    context: Context
    at_ns: int


class Span(Protocol):
    """An operation that is traced, from its beginning to its end. Thread-safe."""

    @property
    def context(self) -> Context | None:
        """The span's identity; None if nothing is recorded."""

    def set(self, attributes: Attributes) -> None:
        """Add attributes to the span."""

    def rename(self, name: str) -> None:
        """Change the span's name, if the right name was not known when the span began."""

    def fail(self, kind: str) -> None:
        """Mark the operation as failed. `kind` is a class of errors, not an error text."""

    def count_child(self) -> bool:
        """Count one more child of this span. Returns False if the span has too many children; the caller then must not
        begin one."""

    def end(self, ended_ns: int | None = None) -> None:
        """End the span, now or at an earlier time (Unix ns)."""


class Tracer(Protocol):
    """Creates spans, and exports them after they have ended. No method blocks."""

    def now_ns(self) -> int:
        """Unix time in ns."""

    def begin(
        self,
        name: str,
        kind: str,
        parent: Context | None,
        links: Sequence[Context],
        began_ns: int,
        attributes: Attributes,
    ) -> Span: ...


class _Nothing:
    """The span that is used while nothing is recorded; its methods do nothing."""

    context = None

    def set(self, attributes: Attributes) -> None:
        pass

    def rename(self, name: str) -> None:
        pass

    def fail(self, kind: str) -> None:
        pass

    def count_child(self) -> bool:
        return False

    def end(self, ended_ns: int | None = None) -> None:
        pass


NOTHING: Span = _Nothing()
_current: ContextVar[Span] = ContextVar("tistream_span", default=NOTHING)
_installed: Tracer | None = None


def install(tracer: Tracer | None) -> None:
    """Set the tracer of the whole process; None disables tracing."""
    global _installed  # noqa: PLW0603  # one per process, as with logging
    _installed = tracer


def on() -> bool:
    """Whether a tracer is installed in this process."""
    return _installed is not None


def now_ns() -> int:
    """The time for the beginning or end of a span, as Unix time in ns; 0 without a tracer."""
    return 0 if _installed is None else _installed.now_ns()


def here() -> Span:
    """The current span; the constant NOTHING outside of a span."""
    return _current.get()


def mark() -> Mark | None:
    """The current point in the trace; None outside of a trace."""
    context = here().context
    return None if context is None else Mark(context, now_ns())


def begin(
    name: str,
    *,
    kind: str = "internal",
    parent: Context | None = None,
    links: Sequence[Context] = (),
    began_ns: int | None = None,
    attributes: Attributes = NONE,
) -> Span:
    """Begin a span, which the caller must end. Without a parent it begins a new trace."""
    if _installed is None:
        return NOTHING
    return _installed.begin(name, kind, parent, links, now_ns() if began_ns is None else began_ns, attributes)


@contextmanager
def inside(span: Span) -> Iterator[Span]:
    """Make `span` the current span during a `with` block, also for calls that the block submits to other threads. An
    exception marks the span as failed."""
    token = _current.set(span)
    try:
        yield span
    except BaseException as error:
        span.fail(type(error).__name__)
        raise
    finally:
        _current.reset(token)


@contextmanager
def root(name: str, *, began_ns: int | None = None, attributes: Attributes = NONE) -> Iterator[Span]:
    """Run a `with` block in the first span of a new trace, even inside another trace."""
    span = begin(name, began_ns=began_ns, attributes=attributes)
    try:
        with inside(span):
            yield span
    finally:
        span.end()


@contextmanager
def child(name: str, *, kind: str = "internal", attributes: Attributes = NONE) -> Iterator[Span]:
    """Run a `with` block in a span inside the current span. Nothing is recorded (the span is NOTHING) if there is no
    current span, or if it has too many children."""
    around = here()
    if around.context is None or not around.count_child():
        yield NOTHING
        return
    span = begin(name, kind=kind, parent=around.context, attributes=attributes)
    try:
        with inside(span):
            yield span
    finally:
        span.end()


def record(
    name: str,
    began_ns: int,
    ended_ns: int,
    parent: Context | None,
    *,
    links: Sequence[Context] = (),
    attributes: Attributes = NONE,
    failed: str | None = None,
) -> Context | None:
    """Record a finished span inside `parent`, and return its Context, for spans inside it. Without a parent nothing is
    recorded, and None is returned."""
    if parent is None:
        return None
    span = begin(name, parent=parent, links=links, began_ns=began_ns, attributes=attributes)
    if failed is not None:
        span.fail(failed)
    span.end(max(began_ns, ended_ns))
    return span.context
