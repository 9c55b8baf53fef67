"""A network of namespaces on this machine: one for each process, any two of which can be cut off from each other.

Cut means silence, as when a switch fails: packets go nowhere, in both directions, and nobody is told. All go through
one namespace that routes; there a rule makes those of the two vanish. Nothing of the machine's own network is touched.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

_CLONE_NEWNET = 0x40000000


class NoNamespaces(Exception):
    """The reason why network namespaces cannot be created here."""


@dataclass
class Lan:
    """Members by name, each with an address of its own. Needs root; `close` takes everything away."""

    prefix: str  # of the namespaces' names: short, and unique on the machine
    addresses: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        try:
            self._ip("netns", "add", self._router)
            self._within(self._router, "sysctl", "-qw", "net.ipv4.ip_forward=1")
            for action in ("add", "del"):  # whether the kernel knows how
                self._ip("-n", self._router, "rule", action, "to", "10.77.255.2", "blackhole")
        except (OSError, subprocess.CalledProcessError) as error:
            raise NoNamespaces(f"{error}: {getattr(error, 'stderr', '')}") from error

    def join(self, name: str) -> str:
        """Add a member; returns its address."""
        number = len(self.addresses) + 1
        address, gateway = f"10.77.{number}.2", f"10.77.{number}.1"
        space, wire = self.space(name), f"wire{number}"
        self._ip("netns", "add", space)
        self.addresses[name] = address
        self._ip("-n", self._router, "link", "add", wire, "type", "veth", "peer", "name", "eth0", "netns", space)
        self._ip("-n", self._router, "addr", "add", f"{gateway}/30", "dev", wire)
        self._ip("-n", self._router, "link", "set", wire, "up")
        self._ip("-n", space, "addr", "add", f"{address}/30", "dev", "eth0")
        self._ip("-n", space, "link", "set", "eth0", "up")
        self._ip("-n", space, "link", "set", "lo", "up")
        self._ip("-n", space, "route", "add", "default", "via", gateway)
        return address

    def space(self, name: str) -> str:
        """The name of a member's namespace."""
        return f"{self.prefix}-{name}"

    def command(self, name: str, argv: Sequence[str]) -> list[str]:
        """The command line that runs `argv` as the member."""
        return ["ip", "netns", "exec", self.space(name), *argv]

    @contextlib.contextmanager
    def within(self, name: str) -> Iterator[None]:
        """Open sockets of this thread in the member's namespace during the `with` block."""
        libc = ctypes.CDLL(None, use_errno=True)
        own = os.open("/proc/thread-self/ns/net", os.O_RDONLY)
        theirs = os.open(f"/run/netns/{self.space(name)}", os.O_RDONLY)
        try:
            assert libc.setns(theirs, _CLONE_NEWNET) == 0, os.strerror(ctypes.get_errno())
            yield
        finally:
            assert libc.setns(own, _CLONE_NEWNET) == 0, os.strerror(ctypes.get_errno())
            os.close(own)
            os.close(theirs)

    @contextlib.contextmanager
    def cut(self, one: str, other: str) -> Iterator[None]:
        """Drop all packets between two members, in both directions, during the `with` block."""
        for here, there in ((one, other), (other, one)):
            self._rule("add", here, there)
        try:
            yield
        finally:
            for here, there in ((one, other), (other, one)):
                self._rule("del", here, there)

    def close(self) -> None:
        """Take it all away; what still runs in it has no network any more."""
        for name in [self.space(name) for name in self.addresses] + [self._router]:
            if Path(f"/run/netns/{name}").exists():
                self._ip("netns", "del", name)

    @property
    def _router(self) -> str:
        return f"{self.prefix}-router"

    def _rule(self, action: str, here: str, there: str) -> None:
        route = ("from", self.addresses[here], "to", self.addresses[there])
        self._ip("-n", self._router, "rule", action, *route, "blackhole")

    def _within(self, space: str, *argv: str) -> None:
        self._ip("netns", "exec", space, *argv)

    @staticmethod
    def _ip(*arguments: str) -> None:
        subprocess.run(["ip", *arguments], check=True, capture_output=True, text=True)
