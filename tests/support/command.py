"""The `tistream` command, run in this process: as a process of its own it takes a second of a processor."""

from __future__ import annotations

import os
import subprocess

from typer.testing import CliRunner

from tistream_cli.app import app, load_commands
from tistream_client.cli.errors import CliError

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
