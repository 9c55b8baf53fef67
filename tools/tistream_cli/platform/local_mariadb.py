"""Runs a MariaDB server for the demo on 127.0.0.1, with its data below one directory."""

from __future__ import annotations

import os
import secrets
import shutil
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tistream.clock import SystemClock
from tistream.targets.mysql import MySqlTarget, TargetFailed
from tistream.targets.mysql_url import MySqlUrl
from tistream_client.cli.errors import CliError

_READY_SECONDS = 60
_STOP_SECONDS = 30
_POLL_SECONDS = 0.2
_USER = "demo"
# Debian installs the server in sbin.
_PLACES = os.pathsep.join((os.environ.get("PATH", ""), "/usr/sbin", "/usr/local/sbin"))


def programs() -> tuple[str, str]:
    """The paths of the server, and of the program that creates its data directory. Raises CliError, which states how to
    get them."""
    found = [shutil.which(name, path=_PLACES) for name in ("mariadbd", "mariadb-install-db")]
    if found[0] is None or found[1] is None:
        raise CliError("this demo restores into a MariaDB, and mariadbd is not on PATH: apt-get install mariadb-server")
    return found[0], found[1]


@contextmanager
def mariadb(directory: Path, port: int) -> Iterator[MySqlUrl]:
    """Run a server with an empty data directory for a `with` block. Yields its URL when it answers. Raises CliError."""
    server, install = programs()
    data, log, start = directory / "data", directory / "mariadb.log", directory / "start.sql"
    directory.mkdir(parents=True, exist_ok=True)
    common = ["--no-defaults", f"--datadir={data.resolve()}", f"--tmpdir={directory.resolve()}"]
    if os.geteuid() == 0:
        common.append("--user=root")  # otherwise the server refuses to run as root
    made = subprocess.run([install, *common, "--skip-test-db"], capture_output=True, text=True, check=False)
    if made.returncode:
        raise CliError(f"mariadb-install-db could not make a database: {(made.stderr or made.stdout)[-500:].strip()}")
    password = secrets.token_urlsafe(16)
    start.touch(mode=0o600)
    start.write_text(
        f"CREATE USER '{_USER}'@'127.0.0.1' IDENTIFIED BY '{password}';\nGRANT ALL ON *.* TO '{_USER}'@'127.0.0.1';\n"
    )
    options = [f"--init-file={start.resolve()}", "--bind-address=127.0.0.1", f"--port={port}", "--skip-log-bin"]
    options += [f"--socket={os.path.relpath(directory / 'sock', data)}", "--pid-file=mariadb.pid"]
    with log.open("ab") as out:
        process = subprocess.Popen(
            [server, *common, *options], stdin=subprocess.DEVNULL, stdout=out, stderr=out, start_new_session=True
        )
    try:
        url = MySqlUrl("127.0.0.1", port, _USER, password, None)
        _wait(url, process, log)
        yield url
    finally:
        process.terminate()
        try:
            process.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()


def _wait(url: MySqlUrl, process: subprocess.Popen[bytes], log: Path) -> None:
    clock, pause = SystemClock(), threading.Event()
    deadline = clock.monotonic_ms() + _READY_SECONDS * 1000
    while True:
        try:
            with MySqlTarget(url):
                return
        except TargetFailed as error:
            if process.poll() is not None or clock.monotonic_ms() > deadline:
                raise CliError(f"MariaDB did not start: {error}; see {log}") from error
        pause.wait(_POLL_SECONDS)
