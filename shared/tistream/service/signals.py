"""SIGTERM and SIGINT of a command that ends in order."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def stop_signals() -> Iterator[threading.Event]:
    """Catch SIGTERM and SIGINT during a `with` block of the main thread. Yields an event that the first of them sets.
    Afterwards the handlers are those from before, so that a signal ends the process again."""
    stopped = threading.Event()
    before = {number: signal.signal(number, lambda *_: stopped.set()) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield stopped
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
