"""Remembers the action of the request or step that is running. The audit log records it, and its actor, with each
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
class AuditedAction:
    """An action that the audit log records, its actor, and its cause id, which the log lines of the same request have
    too. The action is a request of an operator, or a step that the platform takes by itself."""

    action: str
    actor: acting.Actor
    cause: str | None


@contextmanager
def audited_as(action: str) -> Iterator[None]:
    """A context manager: changes made inside are recorded under `action`. Their actor is that of the request that is
    running (tistream.acting), or the platform."""
    token = _action.set(action)
    try:
        yield
    finally:
        _action.reset(token)


def current() -> AuditedAction:
    """The innermost action of `audited_as` around the caller, UNNAMED outside of one; with the actor of the request, or
    the platform, and the cause, if one is known."""
    return AuditedAction(_action.get() or UNNAMED, acting.current() or PLATFORM, cause.current())
