"""Stops processes by a signal, so that none of their threads runs any more."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterable
from pathlib import Path

from support.waiting import eventually


def halt(pids: Iterable[int]) -> None:
    """SIGSTOP, and wait until every thread has stopped. Before the one that takes the signal is scheduled, the others
    of its process go on: on a busy machine they still answer."""
    halted = list(pids)
    for pid in halted:
        os.kill(pid, signal.SIGSTOP)
    eventually(lambda: all(_is_halted(pid) for pid in halted))


def _is_halted(pid: int) -> bool:
    """Whether each thread is stopped (T), or has ended."""
    states = []
    for task in Path(f"/proc/{pid}/task").glob("*"):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # the thread has ended meanwhile
            states.append((task / "stat").read_text().rpartition(")")[2].split()[0])
    return all(state in "TtZX" for state in states)
