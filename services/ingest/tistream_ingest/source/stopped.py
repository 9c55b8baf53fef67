"""Errors that end a source, and holds from which it recovers."""

from __future__ import annotations

from tistream.errors import FatalError, RetryableError

HEALS = "a sound copy in its place lets the source go on"


class SourceStopped(FatalError):
    """The source has stopped for good. The text states the reason and the remedy. The tenant keeps the rows that it
    has."""

    code = "source-stopped"


class SourceHeld(RetryableError):
    """The source cannot continue now, and recovers by itself. `stage` is as in `held_by` (design.md 5). `object` is the
    object that it waits for."""

    code = "source-held"

    def __init__(self, stage: str, reason: str, object_: str | None = None) -> None:
        super().__init__(reason if object_ is None else f"{object_}: {reason}")
        self.stage, self.reason, self.object = stage, reason, object_
