"""Files that were read before their turn: how much of them is kept, and which. No I/O.

What is not kept is read again when its turn comes, so no limit here stops anything; it only costs a second request.
The bytes of a file's watermarks are written by outsiders, and a few kilobytes can hold very many of them: so they are
counted as they lie in memory, and not as files.
"""

from __future__ import annotations

from collections.abc import Callable

from sortedcontainers import SortedDict

from tistream.concurrency import new_lock
from tistream_dispatcher.change_source import ReadFile

FILES_MAX = 128  # of one store
STORE_BYTES = 16 << 20
TENANT_BYTES = 64 << 20
PROCESS_BYTES = 192 << 20  # of the GiB that a dispatcher has


class Room:
    """Bytes that may be kept; in parts, each of which has its own limit within the whole's."""

    def __init__(self, bytes_max: int, within: Room | None = None) -> None:
        self.used = 0
        self._bytes_max, self._within, self._closed = bytes_max, within, False
        self._lock = new_lock()

    def take(self, count: int) -> bool:
        """Whether there was room for so many bytes, here and in the whole."""
        with self._lock:
            fits = not self._closed and self.used + count <= self._bytes_max
            if fits and (self._within is None or self._within.take(count)):
                self.used += count
                return True
        return False

    def give(self, count: int) -> None:
        """So many bytes are not kept any more."""
        with self._lock:
            if not self._closed:
                self._give(count)

    def close(self) -> None:
        """Nothing of it is kept any more, and nothing will be: a thread may still be at it."""
        with self._lock:
            self._give(self.used)
            self._closed = True

    def _give(self, count: int) -> None:
        self.used -= count
        if self._within is not None:
            self._within.give(count)


class ReadAhead:
    """One store's files, by their ts. The lowest are kept: they are needed first."""

    def __init__(self, room: Room | None = None) -> None:
        self.room = Room(STORE_BYTES, within=room)
        self._files: SortedDict = SortedDict()  # ts -> (ReadFile, its weight)

    def keep(self, file: ReadFile, waits: Callable[[int], bool]) -> None:
        """Keep a file if there is room; `waits` says which files are still waited for. Later ones make room for it."""
        ts, weight = file.seen.ts, file.weight
        self.pop(ts)
        fits = self.room.take(weight)
        if not fits:
            self.only(waits)
            fits = self.room.take(weight)
        while not fits and self._files and self._files.keys()[-1] > ts:
            self.pop(self._files.keys()[-1])
            fits = self.room.take(weight)
        if fits:
            self._files[ts] = (file, weight)
        if len(self._files) > FILES_MAX:
            self.only(waits)
        while len(self._files) > FILES_MAX:
            self.pop(self._files.keys()[-1])

    def pop(self, ts: int) -> ReadFile | None:
        """Take a file out, if it is here."""
        file, weight = self._files.pop(ts, (None, 0))
        self.room.give(weight)
        kept: ReadFile | None = file
        return kept

    def only(self, waits: Callable[[int], bool]) -> None:
        """Let go of the files that nobody waits for any more."""
        for ts in [ts for ts in self._files if not waits(ts)]:
            self.pop(ts)

    def clear(self) -> None:
        """Let go of all."""
        self.only(lambda _: False)

    def close(self) -> None:
        """Let go of all, and keep nothing from now on."""
        self._files.clear()
        self.room.close()
