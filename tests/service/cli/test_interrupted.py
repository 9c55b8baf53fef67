"""Ctrl-C before a command has begun: 130, and not a word."""

from __future__ import annotations

import signal
import subprocess
import sys
import time

import pytest

from support.platform import COMMAND
from support.waiting import PATIENCE_S

WITHIN_IMPORTS = """
import os, signal, sys
from tistream.cli.main import main

class Interrupting:
    def find_spec(self, name, *_):
        if name == {name!r}:
            os.kill(os.getpid(), signal.SIGINT)

sys.meta_path.insert(0, Interrupting())
sys.argv = ["tistream", "verify", "http://127.0.0.1:1", "--cluster", "c", "--tenant", "t"]
main()
"""


@pytest.mark.parametrize("name", ["typer", "httpx", "tistream.cli.verify", "tistream_upstream.command"])
def test_in_the_middle_of_an_import(name: str) -> None:
    done = subprocess.run([sys.executable, "-c", WITHIN_IMPORTS.format(name=name)], capture_output=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (130, b"", b"")


@pytest.mark.parametrize("seconds", [0.2, 0.5, 0.9])
def test_a_moment_after_the_start(seconds: float) -> None:
    """Whatever was being done: at worst a line that nothing was done, never a traceback."""
    command = [COMMAND, "verify", "http://127.0.0.1:1", "--cluster", "c", "--tenant", "t"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        time.sleep(seconds)
        process.send_signal(signal.SIGINT)
        _, error = process.communicate(timeout=PATIENCE_S)
    assert "Traceback" not in error
    assert process.returncode in (3, 130)
