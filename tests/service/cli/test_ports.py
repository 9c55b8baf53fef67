from __future__ import annotations

import random
import socket

import pytest

from tistream_cli.platform.ports import free_ports, listen
from tistream_client.cli.errors import CliError


def test_listening_on_any_port() -> None:
    with listen(0, patience_ms=0, sleep=lambda s: None) as listening:
        assert listening.getsockname()[0] == "127.0.0.1"
        assert not listening.get_inheritable()


def test_port_that_is_taken_is_named() -> None:
    with listen(0, patience_ms=0, sleep=lambda s: None) as holder:
        port = holder.getsockname()[1]
        with pytest.raises(CliError, match=f"127.0.0.1:{port}: Address already in use"):
            listen(port, patience_ms=0, sleep=lambda s: None)


def test_port_that_becomes_free_in_time_is_taken() -> None:
    holder = listen(0, patience_ms=0, sleep=lambda s: None)
    port = holder.getsockname()[1]
    slept: list[float] = []

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        if len(slept) == 3:
            holder.close()

    with listen(port, patience_ms=1_000, sleep=sleep) as listening:
        assert listening.getsockname()[1] == port
    assert slept == [0.1, 0.1, 0.1]


def test_free_ports_differ_and_can_be_bound() -> None:
    ports = free_ports(5, random.Random(1))
    assert len(set(ports)) == 5
    for port in ports:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", port))


def test_free_ports_pass_over_those_in_use() -> None:
    first = free_ports(1, random.Random(1))[0]
    with listen(first, patience_ms=0, sleep=lambda s: None):
        assert first not in free_ports(3, random.Random(1))
