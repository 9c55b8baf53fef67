"""Answers that were dropped without being closed, and whose slots are still to be released.

The garbage collector finds them, at any allocation of any thread: also of one that holds the lock of a counter which
the release needs. A finalizer must therefore take no lock. It only notes the release here, and a later call does it.
"""

from __future__ import annotations

from collections.abc import Callable
from queue import Empty, SimpleQueue


class DroppedAnswers:
    """Releases that finalizers have noted. Thread-safe."""

    def __init__(self) -> None:
        self._releases: SimpleQueue[Callable[[], None]] = SimpleQueue()  # its put() may interrupt any other call of it

    def add(self, release: Callable[[], None]) -> None:
        """Note a release. Takes no lock."""
        self._releases.put(release)

    def release(self) -> None:
        """Do what was noted. Not from a finalizer, nor with a lock held."""
        while True:
            try:
                release = self._releases.get_nowait()
            except Empty:
                return
            release()
