"""Ctrl-C while modules are loaded: an exception in the middle of an import may come out as anything."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager

INTERRUPTED = 130  # as shells tell it: 128 and the number of SIGINT


@contextmanager
def importing() -> Iterator[None]:
    """Within it Ctrl-C ends the process at once, with status 130 and not a word."""
    if signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield
        return
    signal.signal(signal.SIGINT, lambda *_: os._exit(INTERRUPTED))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)
