"""The announced files of a tenant that have not been read yet. Pure.

Any caller that may push may announce any file, faster than the dispatcher can check them. So the number of kept
announcements is limited.
"""

from __future__ import annotations

ANNOUNCED_MAX = 4_096  # further files are found by LIST
KEPT_STAMPS = 256  # announcements kept per store for a retry after a failure; LIST finds the other files


class Announced:
    """Announcements by store. Not thread-safe: callers hold the owner's lock."""

    def __init__(self) -> None:
        self._stamps: dict[int, set[int]] = {}
        self._count = 0

    def add(self, store_id: int, ts: int) -> bool:
        """Add a file; returns whether it is kept."""
        if self._count >= ANNOUNCED_MAX:
            return False
        self._stamps.setdefault(store_id, set()).add(ts)
        self._count += 1
        return True

    def again(self, store_id: int, stamps: set[int]) -> None:
        """Keep the newest of these files for another attempt, because the object store did not answer for them."""
        self._stamps.setdefault(store_id, set()).update(sorted(stamps)[-KEPT_STAMPS:])

    def pop_all(self) -> dict[int, set[int]]:
        """Remove and return all announcements."""
        found, self._stamps, self._count = self._stamps, {}, 0
        return found
