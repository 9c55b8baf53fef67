"""Ends processes: this process when its parent process (the supervisor) has ended, and this process in order or by
force."""

from __future__ import annotations

import ctypes
import logging
import os
import select
import signal
import sys
import threading
from collections.abc import Callable

log = logging.getLogger(__name__)

PARENT_VARIABLE = "TISTREAM_PARENT_PID"
_PR_SET_PDEATHSIG = 1  # linux/prctl.h
_POLL_SECONDS = 0.5
_LOOK_SECONDS = 5  # also look for the parent this often where the kernel reports its end


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
    has_ended = _wait_for_end(parent)
    while os.getppid() == parent and not has_ended():
        pass
    os._exit(1)


def _wait_for_end(parent: int) -> Callable[[], bool]:
    """A function that waits until the process `parent` ends, for _LOOK_SECONDS at most, and returns whether it has
    ended. Where the kernel cannot report that (pidfd_open(2)), it waits for _POLL_SECONDS and returns False."""
    if sys.platform == "linux":
        try:
            pidfd = os.pidfd_open(parent)
        except OSError as error:
            log.debug("pidfd_open failed", extra={"error": str(error)})
        else:
            return lambda: bool(select.select([pidfd], [], [], _LOOK_SECONDS)[0])
    pause = threading.Event()
    return lambda: pause.wait(_POLL_SECONDS)


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
