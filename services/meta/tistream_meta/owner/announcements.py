"""Keeps the announcements of new change files in memory for a short time. A lost announcement costs latency only.

Each announcement has a sequence number. The numbers grow across restarts: those of owner_rev r lie in (r << 32, (r + 1)
<< 32]. The answer to a reader is marked `lost` if the reader's number is from an earlier owner, or if announcements
after it were dropped.
"""

from __future__ import annotations

from collections import deque

from tistream.clock import Clock
from tistream.concurrency import new_condition
from tistream.wire.meta import Announcement, Announcements

_REV_BITS = 32


class AnnouncementRing:
    """The newest announcements under one owner_rev, at most `capacity`. Pure."""

    def __init__(self, owner_rev: int, capacity: int) -> None:
        self._first = (owner_rev << _REV_BITS) + 1  # sequence of the oldest one kept
        self._kept: deque[Announcement] = deque()
        self._capacity = capacity

    @property
    def last(self) -> int:
        """The sequence number of the newest announcement."""
        return self._first + len(self._kept) - 1

    def add(self, announcement: Announcement) -> int:
        """Store an announcement and return its sequence number."""
        self._kept.append(announcement)
        if len(self._kept) > self._capacity:
            self._kept.popleft()
            self._first += 1
        return self.last

    def after(self, sequence: int) -> Announcements:
        """The announcements with a higher sequence number. If some of them were dropped, or if this ring never issued
        `sequence`, the result is marked `lost` and has all announcements in the ring."""
        lost = not self._first - 1 <= sequence <= self.last
        skip = 0 if lost else sequence - self._first + 1
        kept = [self._kept[index] for index in range(skip, len(self._kept))]
        return Announcements(next_after=self.last, lost=lost, announcements=kept)


class AnnouncementBoard:
    """An AnnouncementRing on which readers can wait. Thread-safe."""

    def __init__(self, owner_rev: int, capacity: int, clock: Clock) -> None:
        self.owner_rev = owner_rev
        self._ring = AnnouncementRing(owner_rev, capacity)
        self._clock = clock
        self._ended = False
        self._changed = new_condition()

    def add(self, announcement: Announcement) -> int:
        """Store an announcement, wake the waiting readers, and return its sequence number."""
        with self._changed:
            sequence = self._ring.add(announcement)
            self._changed.notify_all()
        return sequence

    def after(self, sequence: int, wait_ms: int) -> Announcements:
        """The announcements with a higher sequence number, as AnnouncementRing.after returns them. Waits up to
        `wait_ms` for a new announcement, unless some were lost."""
        with self._changed:
            until_ms = self._clock.monotonic_ms() + wait_ms
            while sequence == self._ring.last and not self._ended:
                left_ms = until_ms - self._clock.monotonic_ms()
                if left_ms <= 0 or not self._changed.wait(left_ms / 1000):
                    break
            return self._ring.after(sequence)

    def end(self) -> None:
        """Answer the waiting readers now, because the process is stopping, or another board replaces this one."""
        with self._changed:
            self._ended = True
            self._changed.notify_all()
