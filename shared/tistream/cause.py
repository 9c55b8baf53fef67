"""The cause of work: a request, or one run of a loop. The id of the cause is in every log line, in every problem that
an API call returns, and in every call to another process, which continues under the same id."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

HEADER = "tistream-cause"
_FORM = re.compile(r"[0-9A-Za-z_.-]{1,64}")
_current: ContextVar[str | None] = ContextVar("tistream_cause", default=None)


def current() -> str | None:
    """The cause id of the current work; None if it has no cause."""
    return _current.get()


def accepted(text: str | None) -> str | None:
    """Accept a cause id from another process. Returns the text if it is 1 to 64 letters, digits, dots, dashes or
    underscores, and None otherwise."""
    return text if text is not None and _FORM.fullmatch(text) else None


@contextmanager
def caused_by(cause_id: str) -> Iterator[None]:
    """Set the cause id during a `with` block, also for calls that the block submits to other threads."""
    token = _current.set(cause_id)
    try:
        yield
    finally:
        _current.reset(token)
