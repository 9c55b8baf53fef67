"""Remembers, for the request or step that is running, its action and its actor. The audit log records them with each
change."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

from tistream import acting, cause

PLATFORM = acting.Actor("the platform", None)
UNNAMED = "Unnamed"

_action: ContextVar[str | None] = ContextVar("tistream_action", default=None)


@dataclass(frozen=True, slots=True)
class Act:
    """An action that the audit log records: a request of an operator, or a step that the platform takes by itself; and
    its actor."""

    action: str
    actor: acting.Actor
    cause: str | None


@contextmanager
def doing(action: str) -> Iterator[None]:
    """A context manager: changes made inside are recorded under `action`, with the actor that `acting` has set."""
    token = _action.set(action)
    try:
        yield
    finally:
        _action.reset(token)


def current() -> Act:
    """The action that is running, with its actor."""
    return Act(_action.get() or UNNAMED, acting.current() or PLATFORM, cause.current())
