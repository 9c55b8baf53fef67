"""A unit test that leaves its process fails, also where its code swallows the refusal."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from support import tiers
from support.tiers import LeftTheTier


def listen() -> None:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))


def connect() -> None:
    with socket.socket() as one:
        one.connect(("127.0.0.1", 9))


def run() -> None:
    subprocess.run([sys.executable, "-c", ""], check=True)


LEAVING = {"bind": listen, "connect": connect, "Popen": run, "fork": os.fork, "sleep": lambda: time.sleep(0.01)}


def swallowed(leave: Callable[[], object], refused: list[str]) -> None:
    """As code that goes on after any error would do it in a unit test."""
    with tiers.guard.watching():
        try:
            leave()
        except LeftTheTier as error:
            refused.append(str(error))


@pytest.mark.parametrize("leave", LEAVING.values(), ids=LEAVING)
def test_what_leaves_the_tier_is_refused_and_fails_the_test_though_it_is_swallowed(leave: Callable[[], object]) -> None:
    refused: list[str] = []
    with pytest.raises(pytest.fail.Exception, match="a unit test called"):
        swallowed(leave, refused)
    assert "tests/service" in refused[0]


def test_outside_of_unit_tests_nothing_is_refused() -> None:
    listen()
    run()
    time.sleep(0.001)


def test_a_test_outside_of_the_tiers_is_refused() -> None:
    with pytest.raises(pytest.UsageError, match="is in no tier"):
        tiers.tier_of(tiers.TESTS / "elsewhere" / "test_it.py")
    assert tiers.tier_of(Path(__file__)) == "service"
