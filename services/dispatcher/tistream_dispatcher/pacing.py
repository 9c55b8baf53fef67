"""When to LIST. Pure.

A LIST costs money, so its pause grows while it finds nothing: because nothing comes, or because announcements bring
all that comes. The first file that only LIST finds makes it frequent again.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class PollSettings:
    """Pauses in milliseconds: between LISTs of a store, and between LISTs of the stores."""

    poll_min_ms: int
    poll_max_ms: int
    discover_ms: int


class Pace:
    """The polling of one tenant. Monotonic milliseconds."""

    def __init__(self, settings: PollSettings) -> None:
        self._settings = settings
        self._pause_ms = settings.poll_min_ms
        self._poll_ms = 0
        self._discover_ms = 0

    def discovery_due(self, now_ms: int) -> bool:
        """Whether to LIST the stores now; it is assumed that this is done."""
        if now_ms < self._discover_ms:
            return False
        self._discover_ms = now_ms + self._settings.discover_ms
        return True

    def poll_due(self, now_ms: int) -> bool:
        """Whether to LIST the stores' files now."""
        return now_ms >= self._poll_ms

    def polled(self, now_ms: int, *, found: bool) -> None:
        """The files were LISTed; whether any was new."""
        longer_ms = min(self._pause_ms * 2, self._settings.poll_max_ms)
        self._pause_ms = self._settings.poll_min_ms if found else longer_ms
        self._poll_ms = now_ms + self._pause_ms

    def hurry(self) -> None:
        """LIST everything at the next occasion."""
        self._poll_ms = self._discover_ms = 0

    def next_ms(self) -> int:
        """When the next LIST is due."""
        return min(self._poll_ms, self._discover_ms)
