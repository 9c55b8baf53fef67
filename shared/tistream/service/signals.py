"""Catches SIGTERM and SIGINT, so that a command can finish its work before it exits."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def stop_signals() -> Iterator[threading.Event]:
    """Catch SIGTERM and SIGINT during a `with` block of the main thread. Yields an event, which is set when the first
    of these signals arrives. After the block the previous handlers are active again, so that a signal ends the
    process."""
    stopped = threading.Event()
    before = {number: signal.signal(number, lambda *_: stopped.set()) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield stopped
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
