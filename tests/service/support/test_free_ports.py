"""The ports that tests give to servers."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from support import platform
from support.platform import free_port, ports_of


def test_no_outgoing_connection_and_no_other_test_takes_a_port_that_was_given() -> None:
    lowest = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    found = [free_port() for _ in range(200)]
    assert len(set(found)) == 200
    assert max(found) < lowest


def test_a_port_that_somebody_listens_at_is_not_given(monkeypatch: pytest.MonkeyPatch) -> None:
    taken, other = free_port(), free_port()
    monkeypatch.setattr(platform, "_PORTS", [taken, other])
    monkeypatch.setattr(platform, "_given", set())
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", taken))
        listening.listen()
        assert free_port() == other


def test_processes_of_pytest_give_different_ports() -> None:
    shares = [set(ports_of(worker, 4)) for worker in range(4)]
    assert sum(map(len, shares)) == len(set().union(*shares)) == 10_000
