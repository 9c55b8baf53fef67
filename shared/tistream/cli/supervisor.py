"""Keeps child processes running, each in a session of its own, and leaves nothing behind.

Children are started from the thread that calls `start` and `poll` (PR_SET_PDEATHSIG follows the parent's *thread*).
What a child starts itself, the sorter's JVM and its Python workers, is found by session and ends with it.
"""

from __future__ import annotations

import logging
import logging.handlers
import os
import signal
import subprocess
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from tistream.cli.restarts import Restarts
from tistream.clock import Clock
from tistream.service.lifetime import PARENT_VARIABLE

log = logging.getLogger(__name__)

LOG_BYTES_MAX = 10 << 20
LOG_FILES = 5
_POLL_SECONDS = 0.05
_PARTS = 5  # of the time to end, the last of which is for those that are last


@dataclass(frozen=True, slots=True)
class ChildSpec:
    """What to run. `env` is added to the supervisor's own; `pass_fds` are inherited descriptors. What is `last` is
    stopped when the others have ended: they tell it something at their end."""

    name: str
    argv: tuple[str, ...]
    env: Mapping[str, str]
    pass_fds: tuple[int, ...] = ()
    last: bool = False


@dataclass(frozen=True, slots=True)
class Ended:
    """A child ended by itself: `status` as subprocess has it (negative: a signal)."""

    name: str
    status: int
    restart_in_ms: int


@dataclass(slots=True)
class _Child:
    spec: ChildSpec
    process: subprocess.Popen[bytes] | None = None
    started_ms: int = 0
    restart_at_ms: int = 0
    restarts: Restarts = field(default_factory=Restarts)


class Supervisor:
    """Starts, watches, restarts and stops the children."""

    def __init__(self, specs: Iterable[ChildSpec], logs: Path, clock: Clock) -> None:
        self._children = [_Child(spec) for spec in specs]
        self._logs = logs
        self._clock = clock

    def start(self) -> None:
        """Start every child."""
        for child in self._children:
            self._spawn(child)

    def poll(self) -> list[Ended]:
        """Reap children that ended, start again those whose pause is over; tells which ended since the last call."""
        ended = []
        now_ms = self._clock.monotonic_ms()
        for child in self._children:
            if child.process is None:
                if now_ms >= child.restart_at_ms:
                    self._spawn(child)
            elif _has_ended(child.process):
                sweep_session(child.process.pid)
                status = child.process.wait()
                child.process = None
                child.restarts = child.restarts.after(now_ms - child.started_ms)
                child.restart_at_ms = now_ms + child.restarts.wait_ms
                ended.append(Ended(child.spec.name, status, child.restarts.wait_ms))
        return ended

    def stop(self, grace_ms: int, hurry: Callable[[], bool] = lambda: False) -> None:
        """SIGTERM to every child, those that are last when the others have ended or have had most of `grace_ms`;
        SIGKILL, session by session, to what is left after all of it (or on `hurry`)."""
        first, last = (
            [child.process for child in self._children if child.process is not None and child.spec.last is is_last]
            for is_last in (False, True)
        )
        began_ms = self._clock.monotonic_ms()
        self._terminate(first, began_ms + grace_ms * (_PARTS - 1) // _PARTS, hurry)
        self._terminate(last, began_ms + grace_ms, hurry)
        for process in [*first, *last]:
            sweep_session(process.pid, leader_too=True)
            process.wait()

    def _terminate(
        self, processes: Sequence[subprocess.Popen[bytes]], deadline_ms: int, hurry: Callable[[], bool]
    ) -> None:
        """SIGTERM, and wait until they have ended, or no longer."""
        for process in processes:
            process.terminate()
        pause = threading.Event()
        while not all(map(_has_ended, processes)) and self._clock.monotonic_ms() < deadline_ms and not hurry():
            pause.wait(_POLL_SECONDS)

    def _spawn(self, child: _Child) -> None:
        spec = child.spec
        child.process = subprocess.Popen(
            spec.argv,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env={**os.environ, **spec.env, PARENT_VARIABLE: str(os.getpid())},
            start_new_session=True,
            pass_fds=spec.pass_fds,
        )
        child.started_ms = self._clock.monotonic_ms()
        log.info("started", extra={"child": spec.name, "pid": child.process.pid, "restarts": child.restarts.count})
        assert child.process.stdout is not None
        pump = threading.Thread(
            target=_pump, args=(child.process.stdout, self._logs / f"{spec.name}.log"), name=f"log-{spec.name}"
        )
        pump.daemon = True
        pump.start()


def _has_ended(process: subprocess.Popen[bytes]) -> bool:
    """Without reaping: as long as the leader is a zombie, its session's number cannot be given to another."""
    if process.returncode is not None:
        return True
    return os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None


def sweep_session(leader: int, *, leader_too: bool = False) -> None:
    """SIGKILL what runs in the session of a child that was not reaped yet (the leader itself only if told)."""
    for pid in session_members(leader):
        if pid != leader or leader_too:
            _kill(pid)


def session_members(leader: int) -> list[int]:
    """The processes of a session. Without /proc (not Linux) only the leader's process group is known."""
    try:
        pids = [int(name) for name in os.listdir("/proc") if name.isdigit()]
    except OSError:
        return [-leader, leader]
    return [pid for pid in pids if _session_of(pid) == leader]


def _session_of(pid: int) -> int | None:
    try:
        return os.getsid(pid)
    except OSError:  # it has ended meanwhile
        return None


def _kill(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except (ProcessLookupError, PermissionError) as error:
        log.debug("kill", extra={"pid": pid, "error": str(error)})


class _ChildLog(logging.handlers.RotatingFileHandler):
    """A log file whose disk may be full: what cannot be written is lost, and the pipe is read on."""

    def handleError(self, record: logging.LogRecord) -> None:
        """Nowhere to report it to."""


def _pump(stream: IO[bytes], path: Path) -> None:
    """Copy a child's output to its log file, which rotates by size."""
    handler = _ChildLog(path, maxBytes=LOG_BYTES_MAX, backupCount=LOG_FILES - 1, encoding="utf-8", errors="replace")
    with stream:
        for line in stream:
            text = line.decode("utf-8", "replace").rstrip("\n")
            handler.emit(logging.LogRecord("child", logging.INFO, "", 0, text, None, None))
    handler.close()
