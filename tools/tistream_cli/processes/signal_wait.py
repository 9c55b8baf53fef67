"""Lets the supervisor wait for signals: for the end of a child process, or for a request to stop."""

from __future__ import annotations

import os
import select
import signal
from contextlib import suppress

_READ_BYTES = 4_096


class SignalWait:
    """Waits until a signal arrives for which the process has a handler. A signal that arrives between two waits ends
    the next one. Only the main thread may use it, and a process has at most one. It sets a handler for SIGCHLD, which
    the kernel sends when a child process ends."""

    def __init__(self) -> None:
        self._reader, writer = os.pipe()
        for fd in (self._reader, writer):
            os.set_blocking(fd, False)
        signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)  # the interpreter writes to `writer` only if there is a handler

    def wait(self, seconds: float) -> None:
        """Wait for a signal, for this time at most."""
        select.select([self._reader], [], [], seconds)
        with suppress(BlockingIOError):
            while os.read(self._reader, _READ_BYTES):
                pass
