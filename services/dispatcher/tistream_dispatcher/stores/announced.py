"""Keeps the announcements of a tenant's files that have not been read yet. Pure. Any caller that may push may announce
any file, faster than the dispatcher can check them. So the number of announcements is limited."""

from __future__ import annotations

ANNOUNCED_MAX = 4_096  # further files are found by LIST
KEPT_STAMPS = 256  # announcements kept per store for a retry after a failure; LIST finds the other files


class AnnouncedFiles:
    """The announced files, by store. Not thread-safe: callers must hold a lock of their own."""

    def __init__(self) -> None:
        self._stamps: dict[int, set[int]] = {}
        self._count = 0

    def add(self, store_id: int, ts: int) -> bool:
        """Add the file `ts` of a store, unless it is there. Returns False if it was dropped because there are too
        many."""
        if ts in self._stamps.get(store_id, ()):
            return True
        if self._count >= ANNOUNCED_MAX:
            return False
        self._stamps.setdefault(store_id, set()).add(ts)
        self._count += 1
        return True

    def again(self, store_id: int, stamps: set[int]) -> None:
        """Add files of a store again, at most the KEPT_STAMPS newest, because the object store did not answer for them.
        `stamps`: the ts of the files."""
        self._stamps.setdefault(store_id, set()).update(sorted(stamps)[-KEPT_STAMPS:])

    def pop_all(self) -> dict[int, set[int]]:
        """Remove all announcements. Returns the ts of the announced files by store."""
        found, self._stamps, self._count = self._stamps, {}, 0
        return found
