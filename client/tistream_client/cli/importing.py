"""Handles Ctrl-C while modules are imported, where a KeyboardInterrupt may turn into any other exception."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager

INTERRUPTED = 130  # the convention of shells: 128 plus the number of SIGINT


@contextmanager
def importing() -> Iterator[None]:
    """Run a `with` block in which Ctrl-C ends the process at once, with status 130 and without output."""
    if signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield
        return
    signal.signal(signal.SIGINT, lambda *_: os._exit(INTERRUPTED))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)
