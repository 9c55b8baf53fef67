"""Handles Ctrl-C while modules are imported, where a KeyboardInterrupt may turn into any other exception.

An entry point imports this module before anything else, so it imports little: not contextlib or typing.
"""

from __future__ import annotations

import os
import signal

INTERRUPTED = 130  # the convention of shells: 128 plus the number of SIGINT


class _Importing:
    _handles = False

    def __enter__(self) -> None:
        if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            self._handles = True
            signal.signal(signal.SIGINT, lambda *_: os._exit(INTERRUPTED))

    def __exit__(self, *_: object) -> None:
        if self._handles:
            signal.signal(signal.SIGINT, signal.default_int_handler)


def importing() -> _Importing:
    """Run a `with` block in which Ctrl-C ends the process at once, with status 130 and without output."""
    return _Importing()
