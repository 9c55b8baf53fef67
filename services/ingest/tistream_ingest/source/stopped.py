"""Errors that stop a source (a log backup that is read) for good, and errors from which it recovers by itself."""

from __future__ import annotations

from tistream.errors import FatalError, RetryableError

HEALS = "a sound copy in its place lets the source go on"


class SourceStopped(FatalError):
    """Raised if a source has stopped for good. The text states the reason, and what to do. The tenant keeps the rows
    that it has."""

    code = "source-stopped"


class SourceHeld(RetryableError):
    """Raised if a source cannot continue now, but recovers by itself. `stage` is as in a status's `held_by`. `object`
    is the object that the source waits for."""

    code = "source-held"

    def __init__(self, stage: str, reason: str, object_: str | None = None) -> None:
        super().__init__(reason if object_ is None else f"{object_}: {reason}")
        self.stage, self.reason, self.object = stage, reason, object_
