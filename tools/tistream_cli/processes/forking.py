"""The supervisor's side of the fork server (fork_server.py): starts it, makes it fork processes, and signals and reaps
these (Linux)."""

from __future__ import annotations

import ctypes
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass

from tistream.service import allocators
from tistream_cli.processes.fork_server import MESSAGE_BYTES_MAX

_PR_SET_CHILD_SUBREAPER = 36  # linux/prctl.h
_PROGRAM = "from tistream_cli.processes.fork_server import main; main({})"


class ForkFailed(Exception):
    """Raised if a process could not be forked. Usually the fork server has ended, but it may still run: close it. If it
    could not import a module, it has ended, and the reason is on the supervisor's stderr, where the server writes
    too."""


@dataclass(slots=True)
class ForkedProcess:
    """A child process that was forked by the fork server. Its members are those of subprocess.Popen."""

    pid: int
    returncode: int | None = None

    def terminate(self) -> None:
        """Send SIGTERM, unless the process has ended and was reaped."""
        if self.returncode is None:
            with suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGTERM)

    def wait(self) -> int:
        """Wait until the process ends, and reap it. Returns the exit status, or a negative signal number."""
        if self.returncode is None:
            _pid, status = os.waitpid(self.pid, 0)
            self.returncode = os.waitstatus_to_exitcode(status)
        return self.returncode


class ForkServer:
    """A running fork server. Only the supervisor's thread may use it."""

    def __init__(self) -> None:
        self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        # An allocator reads its settings when a process starts. A forked service has those of the fork server.
        environ = {**allocators.ENVIRON, **os.environ, "SPT_NOENV": "1"}  # setproctitle keeps /proc/PID/environ
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-c", _PROGRAM.format(theirs.fileno())],
                stdin=subprocess.DEVNULL,
                env=environ,
                pass_fds=(theirs.fileno(),),
                start_new_session=True,
            )

    @property
    def pid(self) -> int:
        """The process id of the server."""
        return self._process.pid

    def fork(
        self,
        argv: Sequence[str],
        imports: Sequence[str],
        *,
        env: Mapping[str, str],
        output: int,
        pass_fds: Sequence[int],
    ) -> ForkedProcess:
        """Run `python -m MODULE`, as `argv` says, in a new session and with the environment `env`, after the server has
        imported `imports`. Its stdout and stderr are the descriptor `output`; it has `pass_fds` under the same numbers.
        Raises ForkFailed; in that case the new process has run nothing, and ends."""
        request = {"argv": list(argv), "imports": list(imports), "env": dict(env), "fds": list(pass_fds)}
        try:
            gate, opening = os.pipe()
        except OSError as error:
            raise ForkFailed(str(error)) from error
        try:
            with _subreaper():
                socket.send_fds(self._control, [json.dumps(request).encode()], [gate, output, *pass_fds])
                answer = self._control.recv(MESSAGE_BYTES_MAX)
            if not answer:
                raise ForkFailed("no answer")
            os.write(opening, b"\0")
        except OSError as error:
            raise ForkFailed(str(error)) from error
        finally:
            os.close(gate)
            os.close(opening)
        return ForkedProcess(json.loads(answer)["pid"])

    def close(self) -> None:
        """End the server. The processes that it has forked continue."""
        self._control.close()
        self._process.terminate()
        self._process.wait()


@contextmanager
def _subreaper() -> Iterator[None]:
    """Make orphaned descendants of this process its children during a `with` block (subreaper, prctl(2)). Afterwards
    orphans go to init again, so that init reaps what a service leaves behind."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_CHILD_SUBREAPER)")
    try:
        yield
    finally:
        libc.prctl(_PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0)
