"""Keeps child processes running, each in its own session, and leaves no processes behind.

Children are started by the thread that calls `start` and `poll`, because PR_SET_PDEATHSIG refers to the parent
*thread*. Processes that a child starts, such as the sorter's JVM and its Python workers, are found by session and end
with it.
"""

from __future__ import annotations

import logging
import logging.handlers
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from tistream.clock import Clock
from tistream.service.lifetime import PARENT_VARIABLE
from tistream_cli.processes.forking import ForkedProcess, ForkFailed, ForkServer
from tistream_cli.processes.restarts import Restarts

log = logging.getLogger(__name__)

LOG_BYTES_MAX = 10 << 20
LOG_FILES = 5
LOOK_MS = 5_000  # look for children that have ended this often, even if no signal reports one
_POLL_SECONDS = 0.05
_PARTS = 5  # the last 1/_PARTS of the grace period is for children that are `last`


@dataclass(frozen=True, slots=True)
class ChildSpec:
    """A child process to run. `env` is added to the supervisor's own environment; `pass_fds` are descriptors that the
    child inherits. A child that is `last` is stopped after the others have ended, because they send it reports when
    they end. A child with `imports` is forked by the fork server, after that has imported these modules, where this is
    possible; its `argv` must then be `python -m MODULE`."""

    name: str
    argv: tuple[str, ...]
    env: Mapping[str, str]
    pass_fds: tuple[int, ...] = ()
    last: bool = False
    imports: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ExitedChild:
    """A child that ended although the supervisor did not stop it. `status` is subprocess's return code (negative: a
    signal)."""

    name: str
    status: int
    restart_in_ms: int


Process = subprocess.Popen[bytes] | ForkedProcess


@dataclass(slots=True)
class _Child:
    spec: ChildSpec
    process: Process | None = None
    started_ms: int = 0
    restart_at_ms: int = 0
    restarts: Restarts = field(default_factory=Restarts)


class Supervisor:
    """Starts, monitors, restarts and stops the children."""

    def __init__(self, specs: Iterable[ChildSpec], logs: Path, clock: Clock) -> None:
        self._children = [_Child(spec) for spec in specs]
        self._logs = logs
        self._clock = clock
        self._forks: ForkServer | None = None

    def start(self) -> None:
        """Start every child."""
        for child in self._children:
            self._spawn(child)

    def poll(self) -> list[ExitedChild]:
        """Reap children that have ended, and restart those whose delay is over. Returns the children that ended since
        the last call."""
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
                ended.append(ExitedChild(child.spec.name, status, child.restarts.wait_ms))
        return ended

    def pause_ms(self) -> int:
        """The longest time until the next call of `poll`, in ms: until the next start of a child is due, LOOK_MS at
        most. The end of a child makes a call due sooner (SIGCHLD)."""
        now_ms = self._clock.monotonic_ms()
        due_ms = [child.restart_at_ms for child in self._children if child.process is None]
        return max(0, min([*due_ms, now_ms + LOOK_MS]) - now_ms)

    def stop(self, grace_ms: int, hurry: Callable[[], bool] = lambda: False) -> None:
        """Send SIGTERM to every child. Children that are `last` get the signal when the others have ended, or after
        most of `grace_ms`. After `grace_ms`, or when `hurry` returns True, send SIGKILL to the remaining processes of
        all sessions."""
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
        self._end_forks()

    def _terminate(self, processes: Sequence[Process], deadline_ms: int, hurry: Callable[[], bool]) -> None:
        """Send SIGTERM, and wait until the processes have ended, the deadline has passed, or `hurry` returns True."""
        for process in processes:
            process.terminate()
        pause = threading.Event()
        while not all(map(_has_ended, processes)) and self._clock.monotonic_ms() < deadline_ms and not hurry():
            pause.wait(_POLL_SECONDS)

    def _spawn(self, child: _Child) -> None:
        spec = child.spec
        env = {**os.environ, **spec.env, PARENT_VARIABLE: str(os.getpid())}
        reader, writer = os.pipe()
        try:
            child.process = self._forked(spec, env, writer) or subprocess.Popen(
                spec.argv,
                stdin=subprocess.DEVNULL,
                stdout=writer,
                stderr=subprocess.STDOUT,
                env=env,
                start_new_session=True,
                pass_fds=spec.pass_fds,
            )
        finally:
            os.close(writer)
        child.started_ms = self._clock.monotonic_ms()
        log.info("started", extra={"child": spec.name, "pid": child.process.pid, "restarts": child.restarts.count})
        pump = threading.Thread(
            target=_pump, args=(os.fdopen(reader, "rb"), self._logs / f"{spec.name}.log"), name=f"log-{spec.name}"
        )
        pump.daemon = True
        pump.start()

    def _forked(self, spec: ChildSpec, env: Mapping[str, str], output: int) -> ForkedProcess | None:
        """Start a child by the fork server; None if it cannot be forked. A fork server that has died is started again,
        once."""
        if not spec.imports or sys.platform != "linux":
            return None
        for _ in range(2):
            if self._forks is None:
                self._forks = ForkServer()
            try:
                return self._forks.fork(spec.argv, spec.imports, env=env, output=output, pass_fds=spec.pass_fds)
            except ForkFailed as error:
                log.warning("fork failed", extra={"child": spec.name, "error": str(error)})
                self._end_forks()
        return None

    def _end_forks(self) -> None:
        forks, self._forks = self._forks, None
        if forks is not None:
            forks.close()


def _has_ended(process: Process) -> bool:
    """Whether a process has ended. It is not reaped: as long as it is a zombie, its session id cannot be used again."""
    if process.returncode is not None:
        return True
    return os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None


def sweep_session(leader: int, *, leader_too: bool = False) -> None:
    """Send SIGKILL to all processes in the session of a child that was not reaped yet. The child itself, the session's
    leader, is killed only with `leader_too`."""
    for pid in session_members(leader):
        if pid != leader or leader_too:
            _kill(pid)


def session_members(leader: int) -> list[int]:
    """The process ids of a session. Where /proc does not exist (not Linux): the leader's id, and its negative, which
    stands for the leader's process group."""
    try:
        pids = [int(name) for name in os.listdir("/proc") if name.isdigit()]
    except OSError:
        return [-leader, leader]
    return [pid for pid in pids if _session_of(pid) == leader]


def _session_of(pid: int) -> int | None:
    try:
        return os.getsid(pid)
    except OSError:  # the process has ended in the meantime
        return None


def _kill(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except (ProcessLookupError, PermissionError) as error:
        log.debug("kill", extra={"pid": pid, "error": str(error)})


class _ChildLog(logging.handlers.RotatingFileHandler):
    """A log file that tolerates a full disk. Lines that cannot be written are lost, but the child's output is still
    read, so that the child does not block."""

    def handleError(self, record: logging.LogRecord) -> None:
        """Ignore the error, because there is no place to report it to."""


def _pump(stream: IO[bytes], path: Path) -> None:
    """Copy a child's output to its log file, which rotates by size."""
    handler = _ChildLog(path, maxBytes=LOG_BYTES_MAX, backupCount=LOG_FILES - 1, encoding="utf-8", errors="replace")
    with stream:
        for line in stream:
            text = line.decode("utf-8", "replace").rstrip("\n")
            handler.emit(logging.LogRecord("child", logging.INFO, "", 0, text, None, None))
    handler.close()
