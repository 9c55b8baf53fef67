"""Decides when a resolved message is due: a promise to readers that all events up to its ts were sent
(docs/changefeeds.md, "Order"). Pure."""

from __future__ import annotations

from dataclasses import dataclass

BUSY_MS = 1_000
IDLE_MS = 10_000


@dataclass(slots=True)
class ResolvedSchedule:
    """Remembers when the last resolved message was sent, in monotonic ms. `idle_ms`: the time between two resolved
    messages while no rows are sent."""

    idle_ms: int = IDLE_MS
    _sent_ms: int | None = None
    _rows: bool = True  # sent since

    def sent_rows(self) -> None:
        """Record that rows were sent since the last resolved message, so that the next one is due sooner."""
        self._rows = True

    def resolved_sent(self, now_ms: int) -> None:
        """Record that the sink has acknowledged a resolved message. `now_ms`: monotonic."""
        self._sent_ms, self._rows = now_ms, False

    def due_in_ms(self, now_ms: int) -> int:
        """Milliseconds until the next resolved message is due; 0 before the first one. It is due `idle_ms` after the
        last one, and if rows were sent since then, one second after it at the latest. `now_ms`: monotonic."""
        if self._sent_ms is None:
            return 0
        every_ms = min(BUSY_MS, self.idle_ms) if self._rows else self.idle_ms
        return max(0, self._sent_ms + every_ms - now_ms)
