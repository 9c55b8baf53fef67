"""The objects of one task that can be deleted, each with the time since which no manifest names it. Thread-safe. Times
are monotonic ms."""

from __future__ import annotations

from collections.abc import Iterable

from tistream.concurrency import new_lock


class Garbage:
    """Keys of objects that no manifest names any more, each with the time at which this was first seen. The thread of
    the ticks adds keys, and the thread that deletes removes them."""

    def __init__(self) -> None:
        self._lock = new_lock()
        self._since_ms: dict[str, int] = {}  # ordered by time

    def note(self, keys: Iterable[str], now_ms: int) -> bool:
        """Add keys; a known key keeps its time. Returns whether any key is new."""
        with self._lock:
            known = len(self._since_ms)
            for key in keys:
                self._since_ms.setdefault(key, now_ms)
            return len(self._since_ms) > known

    def due(self, now_ms: int, grace_ms: int, count_max: int) -> list[str]:
        """The oldest keys that were added `grace_ms` or longer ago, at most `count_max`."""
        with self._lock:
            ready = (key for key, since_ms in self._since_ms.items() if now_ms - since_ms >= grace_ms)
            return [key for key, _ in zip(ready, range(count_max), strict=False)]

    def deleted(self, keys: Iterable[str]) -> None:
        """Remove keys whose objects were deleted."""
        with self._lock:
            for key in keys:
                self._since_ms.pop(key, None)
