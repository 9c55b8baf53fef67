"""The `tistream` command, run in this process: as a process of its own it takes a second of a processor."""

from __future__ import annotations

import os
import subprocess
import threading
import time

from typer.testing import CliRunner

from support.waiting import PATIENCE_S
from tistream_cli.app import app, load_commands
from tistream_client.cli.errors import AGAIN, CliError

load_commands()


def command(*words: str) -> subprocess.CompletedProcess[str]:
    """What `tistream WORDS` prints, and its status. What it sets in the environment goes with it."""
    before = dict(os.environ)
    try:
        done = CliRunner().invoke(app, words)
    finally:
        os.environ.clear()
        os.environ.update(before)
    if isinstance(done.exception, CliError):  # as `main` does
        return subprocess.CompletedProcess(words, done.exception.status, done.stdout, f"tistream: {done.exception}\n")
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    return subprocess.CompletedProcess(words, done.exit_code, done.stdout, done.stderr)


def patient_command(*words: str) -> subprocess.CompletedProcess[str]:
    """The same for a user who runs a command again that says so: a service missed a deadline, and nothing is broken."""
    deadline = time.monotonic() + PATIENCE_S
    while (done := command(*words)).returncode == AGAIN and time.monotonic() < deadline:
        threading.Event().wait(0.5)
    return done
