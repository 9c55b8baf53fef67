"""A machine of a cluster: namespaces of network, mounts and processes. All of it ends with its first process."""

from __future__ import annotations

import contextlib
import os
import subprocess
import time
from dataclasses import dataclass, field
from pathlib import Path

# The first process gathers up what others leave behind. /run and /var/log are the machine's own.
_INIT = """
mount --make-rshared /
mount -t tmpfs tmpfs /run
mount -t tmpfs tmpfs /var/log
ip link set lo up
exec sh -c 'while :; do sleep 3600 & wait; done'
"""
_PATIENCE_S = 300


@dataclass
class Machine:
    """`name` is its host name. What runs on it writes its log to `folder`."""

    name: str
    folder: Path
    _first: subprocess.Popen[bytes] = field(init=False)
    _running: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        namespaces = ("--net", "--mount", "--pid", "--uts", "--fork", "--mount-proc", "--kill-child")
        init = ["sh", "-euc", f"hostname {self.name}\n{_INIT}"]
        with (self.folder / "init.log").open("ab") as log:
            self._first = subprocess.Popen(
                ["setpriv", "--pdeathsig", "KILL", "unshare", *namespaces, *init], stderr=log
            )
        deadline = time.monotonic() + _PATIENCE_S
        while not self._settled():
            assert self._first.poll() is None, f"{self.name} does not start"
            assert time.monotonic() < deadline, f"{self.name} is not there yet"
            time.sleep(0.02)

    def _settled(self) -> bool:
        """Whether the first process has come to its last line."""
        with contextlib.suppress(OSError, IndexError):
            return Path(f"/proc/{self.pid}/cmdline").read_bytes().split(b"\0")[1] == b"-c"
        return False

    @property
    def pid(self) -> int:
        """The pid of the machine's first process, as numbered on the host."""
        return int(_children(self._first.pid)[0])

    def command(self, *argv: str) -> list[str]:
        """The command line that runs `argv` on the machine."""
        return ["nsenter", "--target", str(self.pid), "--net", "--mount", "--pid", "--uts", "--", *argv]

    def run(self, *argv: str, stdin: str | None = None, check: bool = True, timeout: float = 120) -> str:
        """Run a command on the machine; returns its output. Raises AssertionError with the error output."""
        done = subprocess.run(
            self.command(*argv), input=stdin or "", capture_output=True, text=True, check=False, timeout=timeout
        )
        assert not check or done.returncode == 0, f"{self.name}: {argv}: {done.stdout[-2000:]}{done.stderr[-2000:]}"
        return done.stdout

    def start(self, *argv: str) -> None:
        """A process that stays, known by its program's name; its log is beside the others'."""
        name = Path(argv[0]).name
        with (self.folder / f"{name}.log").open("ab") as log:
            self._running[name] = subprocess.Popen(
                self.command(*argv), stdout=log, stderr=log, stdin=subprocess.DEVNULL
            )

    def ended(self) -> list[str]:
        """The programs that should run and do not."""
        return [name for name, process in self._running.items() if process.poll() is not None]

    def kill(self, name: str) -> None:
        """Kill one program by SIGKILL."""
        process = self._running.pop(name)
        for child in _children(process.pid):
            os.kill(int(child), 9)
        process.wait()

    def close(self) -> None:
        """As if its power failed: every process of it is gone, and every mount and interface with them."""
        if self._first.poll() is None:
            with contextlib.suppress(ProcessLookupError, IndexError):
                os.kill(self.pid, 9)
        self._first.wait()
        for process in self._running.values():
            process.wait()
        self._running.clear()


def _children(pid: int) -> list[str]:
    return Path(f"/proc/{pid}/task/{pid}/children").read_text().split()


def plug(machine: Machine, switch: Machine, address: str, *, bridge: str, gateway: str) -> None:
    """A wire between a machine and the bridge of another, which is the way to everywhere else."""
    wire = f"to-{machine.name}"
    ip = ["nsenter", "--target", str(switch.pid), "--net", "ip"]  # numbers processes as we do
    for command in (
        ["link", "add", wire, "type", "veth", "peer", "name", "eth0", "netns", str(machine.pid)],
        ["link", "set", wire, "master", bridge, "up"],
    ):
        subprocess.run([*ip, *command], check=True)
    machine.run("ip", "addr", "add", f"{address}/24", "dev", "eth0")
    machine.run("ip", "link", "set", "eth0", "up")
    machine.run("ip", "route", "add", "default", "via", gateway)


def plug_in_here(machine: Machine, wire: str, ours: str, theirs: str) -> None:
    """A wire between this machine itself and one of those; it is gone with that one."""
    for command in (
        ["link", "add", wire, "type", "veth", "peer", "name", "outside", "netns", str(machine.pid)],
        ["addr", "add", f"{ours}/30", "dev", wire],
        ["link", "set", wire, "up"],
    ):
        subprocess.run(["ip", *command], check=True)
    machine.run("ip", "addr", "add", f"{theirs}/30", "dev", "outside")
    machine.run("ip", "link", "set", "outside", "up")
