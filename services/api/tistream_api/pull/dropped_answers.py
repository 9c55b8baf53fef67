"""Releases the slots of answers that were dropped without being closed. The garbage collector finds such answers during
any allocation of any thread, even of a thread that holds the lock of a counter which the release needs. A finalizer
must therefore take no lock. It only stores the release here, and a later call executes it."""

from __future__ import annotations

from collections.abc import Callable
from queue import Empty, SimpleQueue


class DroppedAnswers:
    """Stores the releases that finalizers request. Thread-safe."""

    def __init__(self) -> None:
        self._releases: SimpleQueue[Callable[[], None]] = SimpleQueue()  # its put() may interrupt any other call of it

    def add(self, release: Callable[[], None]) -> None:
        """Store a function that releases a slot. Takes no lock."""
        self._releases.put(release)

    def release(self) -> None:
        """Call the stored functions. A finalizer, and a caller that holds a lock, must not call this."""
        while True:
            try:
                release = self._releases.get_nowait()
            except Empty:
                return
            release()
