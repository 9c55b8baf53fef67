"""A child of the supervisor ends with it, however that ended."""

from __future__ import annotations

import ctypes
import logging
import os
import signal
import sys
import threading

log = logging.getLogger(__name__)

PARENT_VARIABLE = "TISTREAM_PARENT_PID"
_PR_SET_PDEATHSIG = 1  # linux/prctl.h
_POLL_SECONDS = 0.5


def die_with_parent() -> None:
    """If TISTREAM_PARENT_PID is set, end this process at once when that parent is gone, also after its kill -9.

    On Linux the kernel does it; a watching thread does it elsewhere, and where the kernel was asked too late.
    """
    parent = os.environ.get(PARENT_VARIABLE)
    if not parent:
        return
    if sys.platform == "linux":
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0) != 0:
            log.warning("prctl failed", extra={"errno": ctypes.get_errno()})
    threading.Thread(target=_watch, args=(int(parent),), name="watch-parent", daemon=True).start()


def _watch(parent: int) -> None:
    pause = threading.Event()
    while os.getppid() == parent:
        pause.wait(_POLL_SECONDS)
    os._exit(1)


def end_in_order() -> None:
    """End this process as a SIGTERM from outside does: open requests have their grace, the exit status is 0."""
    os.kill(os.getpid(), signal.SIGTERM)


def end_after(seconds: float) -> None:
    """Whatever still hangs then, the process ends: recovery is the same as after a crash."""

    def end() -> None:
        log.warning("ended by force: something did not stop in time", extra={"after_seconds": seconds})
        os._exit(0)

    timer = threading.Timer(seconds, end)
    timer.daemon = True
    timer.start()
