"""The process that imports Python packages once, and forks the services of `tistream up` (Linux).

The services import nearly the same packages, which takes each process one to two seconds of processor time. A fork of a
process that has imported them shares that memory, and starts in milliseconds. This process has only one thread, because
a fork copies only the thread that forks, and it imports modules without running their code.

A request is a JSON object, in one message of the socket. The modules in `imports` are imported; then a fork runs what
`argv` names, `python -m MODULE ARGUMENT…`, and has that name in `ps`. `env` is the whole environment. The message
carries descriptors: the first is the reading end of a pipe (the gate), the second is the output of the new process, and
the others get the numbers in `fds`. The answer is `{"pid": …}`. The new process does nothing before it has read one
byte from the gate, which the supervisor writes once it has the answer. If the answer is lost, the supervisor closes the
gate and starts another process, and the new process ends: two processes of one name would share the port that they
inherit.
"""

from __future__ import annotations

import fcntl
import gc
import importlib
import json
import os
import runpy
import socket
import sys
import time
from typing import Any

from setproctitle import getproctitle, setproctitle

MESSAGE_BYTES_MAX = 1 << 20
FDS_MAX = 16
_PARENT_POLL_SECONDS = 0.001


def main(control_fd: int) -> None:
    """Answer requests until the other end of the socket is closed, so that this process ends with its parent. In a
    forked process, this function runs the requested module, and returns when the module has returned."""
    getproctitle()  # it finds the place of the title by the environment, which forks replace
    with socket.socket(fileno=control_fd) as control:
        forked = _serve(control)
    if forked is not None:
        _run(*forked)


def _serve(control: socket.socket) -> tuple[dict[str, Any], list[int]] | None:
    """Answer requests. In a forked process, returns the request and its descriptors; in this process, returns None when
    there are no more requests."""
    while True:
        message, fds, _flags, _address = socket.recv_fds(control, MESSAGE_BYTES_MAX, FDS_MAX)
        if not message:
            return None
        request = json.loads(message)
        for module in request["imports"]:
            importlib.import_module(module)
        pid = _fork()
        if pid == 0:
            return request, fds
        for fd in fds:
            os.close(fd)
        control.sendall(json.dumps({"pid": pid}).encode())


def _fork() -> int:
    """Fork a process that is not a child of this one. Returns 0 in the new process, and its id in this one.

    A process in between forks and ends. The orphan becomes a child of the supervisor, the nearest subreaper (prctl(2)),
    which can wait for it as for any child.
    """
    gc.freeze()  # garbage collection in the forks then copies no page of what was imported
    reader, writer = os.pipe()
    between = os.fork()
    if between == 0:
        between = os.getpid()
        pid = os.fork()
        if pid:
            os.write(writer, str(pid).encode())
            os._exit(0)
        os.close(reader)
        os.close(writer)
        while os.getppid() == between:
            time.sleep(_PARENT_POLL_SECONDS)
        return 0
    os.close(writer)
    os.waitpid(between, 0)
    with os.fdopen(reader) as written:
        return int(written.read())


def _run(request: dict[str, Any], fds: list[int]) -> None:
    gate, output, *others = fds
    if not os.read(gate, 1):
        return
    os.close(gate)
    os.setsid()
    os.environ.clear()
    os.environ.update(request["env"])
    setproctitle(" ".join(request["argv"]))
    # Descriptors first move above all numbers that are wanted, so that none is overwritten before it has its own.
    above = max([2, *request["fds"]]) + 1
    moved = [fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, above) for fd in (output, *others)]
    for fd in (output, *others):
        os.close(fd)
    for fd, number in zip([moved[0], *moved], [1, 2, *request["fds"]], strict=True):
        os.dup2(fd, number)
    for fd in moved:
        os.close(fd)
    _python, _m, module, *arguments = request["argv"]
    sys.argv = [module, *arguments]  # run_module sets the first to the module's path
    runpy.run_module(module, run_name="__main__", alter_sys=True)
