"""The garbage of one task, and the time since which each object is garbage. Thread-safe; times are monotonic ms."""

from __future__ import annotations

from collections.abc import Iterable

from tistream.concurrency import new_lock


class Garbage:
    """Keys of objects that no manifest names any more, each with the time at which that was first seen. The tick thread
    and the deleting thread use it."""

    def __init__(self) -> None:
        self._lock = new_lock()
        self._since_ms: dict[str, int] = {}  # ordered by time

    def note(self, keys: Iterable[str], now_ms: int) -> bool:
        """Add garbage; keys that are known keep their time. Returns whether any key is new."""
        with self._lock:
            known = len(self._since_ms)
            for key in keys:
                self._since_ms.setdefault(key, now_ms)
            return len(self._since_ms) > known

    def due(self, now_ms: int, grace_ms: int, count_max: int) -> list[str]:
        """At most `count_max` keys whose grace time is over, oldest first."""
        with self._lock:
            ready = (key for key, since_ms in self._since_ms.items() if now_ms - since_ms >= grace_ms)
            return [key for key, _ in zip(ready, range(count_max), strict=False)]

    def deleted(self, keys: Iterable[str]) -> None:
        """Remove keys that have been deleted."""
        with self._lock:
            for key in keys:
                self._since_ms.pop(key, None)
