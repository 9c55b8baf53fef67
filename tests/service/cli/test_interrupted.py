"""Ctrl-C before a command has begun: 130, and not a word."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from support.waiting import PATIENCE_S

WITHIN_IMPORTS = """
import os, signal, sys
from tistream_cli.main import main

class Interrupting:
    def find_spec(self, name, *_):
        if name == {name!r}:
            os.kill(os.getpid(), signal.SIGINT)

sys.meta_path.insert(0, Interrupting())
sys.argv = ["tistream", "verify", "http://127.0.0.1:1", "--cluster", "c", "--tenant", "t"]
main()
"""


@pytest.mark.parametrize("name", ["typer", "pydantic", "tistream_cli.verify.verify", "tistream_upstream.command"])
def test_in_the_middle_of_an_import(name: str) -> None:
    done = subprocess.run([sys.executable, "-c", WITHIN_IMPORTS.format(name=name)], capture_output=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (130, b"", b"")


BEFORE_IMPORTS = """
import atexit, os, runpy, signal, sys

class Watching:
    names, handled = [], False

    def find_spec(self, name, *_):
        self.handled |= signal.getsignal(signal.SIGINT) is not signal.default_int_handler
        if not self.handled:
            self.names.append(name)

sys.meta_path.insert(0, Watching())
atexit.register(lambda: print(*Watching.names))
sys.argv = ["tistream", "--version"]
"""
STARTS = {
    "tistream_client.cli.main": "from tistream_client.cli.main import main; main()",  # the script that pipx installs
    "tistream_cli.main": "from tistream_cli.main import main; main()",
    "tistream_cli.__main__": "runpy.run_module('tistream_cli', run_name='__main__')",
    "tistream_client.cli.__main__": "runpy.run_module('tistream_client.cli', run_name='__main__')",
}


@pytest.mark.parametrize("start", STARTS)
def test_few_modules_are_imported_before_it_is_handled(start: str) -> None:
    """Each takes a moment in which Ctrl-C is a traceback."""
    code = [sys.executable, "-c", BEFORE_IMPORTS + STARTS[start]]
    done = subprocess.run(code, capture_output=True, text=True, check=False, timeout=PATIENCE_S)
    version, names = done.stdout.splitlines()
    assert (done.returncode, version.split()[0], done.stderr) == (0, "tistream", "")
    package = start.rpartition(".")[0]
    own = {"__future__", start, package, f"{package}.main", package.partition(".")[0]}
    own |= {f"tistream_client{one}" for one in ("", ".cli", ".cli.main", ".cli.importing")}
    assert set(names.split()) <= own


AFTER_IMPORTS = """
import os, signal, sys
from tistream_cli.main import main

class Interrupting:
    left = {count}

    def find_spec(self, *_):
        self.left -= 1
        if self.left == 0:
            open({sent!r}, "w").close()
            os.kill(os.getpid(), signal.SIGINT)

sys.meta_path.insert(0, Interrupting())
sys.argv = ["tistream", "verify", "http://127.0.0.1:1", "--cluster", "c", "--tenant", "t"]
main()
"""


@pytest.mark.parametrize("count", [1, 30, 100, 170, 240])
def test_after_so_many_imports(tmp_path: Path, count: int) -> None:
    """Whatever was being done: at worst a line that nothing was done, never a traceback."""
    sent = tmp_path / "sent"
    code = [sys.executable, "-c", AFTER_IMPORTS.format(count=count, sent=str(sent))]
    done = subprocess.run(code, capture_output=True, text=True, check=False, timeout=PATIENCE_S)
    assert sent.exists(), f"the command imports less than {count} modules"
    assert "Traceback" not in done.stderr
    assert done.returncode in (3, 130)
