"""Ends processes: this process when its parent process (the supervisor) has ended, and this process in order or by
force."""

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
    """If TISTREAM_PARENT_PID is set, end this process as soon as that parent process has gone, even after a kill -9.

    On Linux the kernel does this. A thread also watches the parent, for other systems, and for a parent that ended
    before the kernel watched it.
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
    """End this process as a SIGTERM would: open requests get their grace period, and the exit status is 0."""
    os.kill(os.getpid(), signal.SIGTERM)


def end_after(seconds: float) -> None:
    """End the process after this time, even if something hangs. After a restart it recovers as after a crash."""

    def end() -> None:
        log.warning("ended by force: something did not stop in time", extra={"after_seconds": seconds})
        os._exit(0)

    timer = threading.Timer(seconds, end)
    timer.daemon = True
    timer.start()
