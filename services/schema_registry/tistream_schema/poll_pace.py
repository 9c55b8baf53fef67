"""Decides how often a sorter is polled for progress. Pure."""

from __future__ import annotations

MOVING_MS = 3_000  # ticks may be a second apart, so a sorter is polled often until no task has moved for this long


class PollPace:
    """Chooses the pauses between requests to one sorter: short while its tasks advance, and growing up to `idle_ms`
    afterwards. The time that a request takes is part of the pause, because the sorter waits for tasks to advance before
    it answers. Times are monotonic, in ms."""

    def __init__(self, busy_ms: int, idle_ms: int, now_ms: int) -> None:
        self._busy_ms, self._idle_ms = busy_ms, idle_ms
        self._moved_ms = now_ms
        self._pause_ms = busy_ms

    def answered(self, asked_ms: int, now_ms: int, *, moved: bool) -> int:
        """Record that the request which began at `asked_ms` has ended at `now_ms`, with an answer or without, and
        whether any task had advanced (`moved`). Returns the pause until the next request, in milliseconds."""
        if moved:
            self._moved_ms = now_ms
        longer_ms = min(self._pause_ms * 2, max(self._busy_ms, self._idle_ms))
        self._pause_ms = self._busy_ms if now_ms - self._moved_ms < MOVING_MS else longer_ms
        return max(0, self._pause_ms - (now_ms - asked_ms))
