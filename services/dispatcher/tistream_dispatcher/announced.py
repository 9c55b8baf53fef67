"""Announced files of a tenant that wait to be looked for. Pure.

Anybody who may push may say so of any file, faster than it can be looked for: no more are kept than there is time for.
"""

from __future__ import annotations

ANNOUNCED_MAX = 4_096  # beyond, LIST finds them
KEPT_STAMPS = 256  # asked for again, per store that failed; LIST finds the others


class Announced:
    """By store. Its owner's lock guards it."""

    def __init__(self) -> None:
        self._stamps: dict[int, set[int]] = {}
        self._count = 0

    def add(self, store_id: int, ts: int) -> bool:
        """One more; whether it is kept."""
        if self._count >= ANNOUNCED_MAX:
            return False
        self._stamps.setdefault(store_id, set()).add(ts)
        self._count += 1
        return True

    def again(self, store_id: int, stamps: set[int]) -> None:
        """They could not be looked for: the newest of them are kept for the next time."""
        self._stamps.setdefault(store_id, set()).update(sorted(stamps)[-KEPT_STAMPS:])

    def take(self) -> dict[int, set[int]]:
        """All of them; from here on there are none."""
        found, self._stamps, self._count = self._stamps, {}, 0
        return found
