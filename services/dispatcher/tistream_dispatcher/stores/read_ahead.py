"""Keeps files that were read before their predecessors in the chain, within a budget of bytes. No I/O.

A file that is not kept is read again when its chain reaches it. So no limit here stops the dispatcher; it only costs a
second request. A file's watermarks are written by outsiders, and a few kilobytes can contain very many of them. So the
limit counts the bytes in memory, and not the files' sizes.
"""

from __future__ import annotations

from collections.abc import Callable

from sortedcontainers import SortedDict

from tistream.concurrency import new_lock
from tistream_dispatcher.stores.change_source import ReadFile

FILES_MAX = 128  # files kept for one store
STORE_BYTES = 16 << 20
TENANT_BYTES = 64 << 20
PROCESS_BYTES = 192 << 20  # of a dispatcher's 1 GiB of memory


class ByteBudget:
    """Counts bytes in memory up to a limit. Thread-safe. With `within`, the bytes also count in that larger budget."""

    def __init__(self, bytes_max: int, within: ByteBudget | None = None) -> None:
        self.used = 0
        self._bytes_max, self._within, self._closed = bytes_max, within, False
        self._lock = new_lock()

    def reserve(self, count: int) -> bool:
        """Reserve `count` bytes. Returns False if they do not fit, here or in the larger budget, or if this budget was
        closed."""
        with self._lock:
            fits = not self._closed and self.used + count <= self._bytes_max
            if fits and (self._within is None or self._within.reserve(count)):
                self.used += count
                return True
        return False

    def release(self, count: int) -> None:
        """Release `count` bytes of the budget."""
        with self._lock:
            if not self._closed:
                self._give(count)

    def close(self) -> None:
        """Release everything, here and in the larger budget, and refuse further reservations. A thread that still reads
        may try to reserve."""
        with self._lock:
            self._give(self.used)
            self._closed = True

    def _give(self, count: int) -> None:
        self.used -= count
        if self._within is not None:
            self._within.release(count)


class ReadAhead:
    """The files of one store that were read before their turn, by their ts. If there is no room for all, the files with
    the lowest ts are kept, because they are needed first."""

    def __init__(self, room: ByteBudget | None = None) -> None:
        self.room = ByteBudget(STORE_BYTES, within=room)
        self._files: SortedDict = SortedDict()  # ts -> (ReadFile, its weight)

    def keep(self, file: ReadFile, waits: Callable[[int], bool]) -> None:
        """Keep a file if it fits; files with a higher ts are dropped to make room. `waits(ts)` returns whether a file
        is still needed."""
        ts, weight = file.seen.ts, file.weight
        self.pop(ts)
        fits = self.room.reserve(weight)
        if not fits:
            self.only(waits)
            fits = self.room.reserve(weight)
        while not fits and self._files and self._files.keys()[-1] > ts:
            self.pop(self._files.keys()[-1])
            fits = self.room.reserve(weight)
        if fits:
            self._files[ts] = (file, weight)
        if len(self._files) > FILES_MAX:
            self.only(waits)
        while len(self._files) > FILES_MAX:
            self.pop(self._files.keys()[-1])

    def pop(self, ts: int) -> ReadFile | None:
        """Remove and return a file; None if it is not kept."""
        file, weight = self._files.pop(ts, (None, 0))
        self.room.release(weight)
        kept: ReadFile | None = file
        return kept

    def only(self, waits: Callable[[int], bool]) -> None:
        """Drop the files that are not needed any more: those for which `waits(ts)` is false."""
        for ts in [ts for ts in self._files if not waits(ts)]:
            self.pop(ts)

    def clear(self) -> None:
        """Drop all files."""
        self.only(lambda _: False)

    def close(self) -> None:
        """Drop all files, and keep no file from now on."""
        self._files.clear()
        self.room.close()
