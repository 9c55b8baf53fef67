"""A MariaDB server of its own on 127.0.0.1: the one on PATH, or Debian's package where the user may install it."""

from __future__ import annotations

import contextlib
import itertools
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pymysql

from support.platform import _die_with_us, free_port

STARTING_SECONDS = 60


class NoMariaDb(Exception):
    """There is none, and it cannot be installed here: why."""


def binary() -> str:
    """The server's program. Raises NoMariaDb."""
    wanted = ("mariadbd", "/usr/sbin/mariadbd")
    if (found := next(filter(None, map(shutil.which, wanted)), None)) is None and os.geteuid() == 0:
        quiet = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
        for command in (
            ("apt-get", "update"),
            ("apt-get", "install", "-y", "--no-install-recommends", "mariadb-server"),
        ):
            try:
                subprocess.run(command, check=True, capture_output=True, text=True, env=quiet)
            except (OSError, subprocess.CalledProcessError) as error:
                raise NoMariaDb(f"{' '.join(command)}: {error} {getattr(error, 'stderr', '')}") from error
        found = next(filter(None, map(shutil.which, wanted)), None)
    if found is None:
        raise NoMariaDb("no mariadbd on PATH, and only root can install it (apt-get install mariadb-server)")
    return found


@dataclass
class MariaDb:
    """Data below `directory`; a database `tistream` that a user `tistream` may change, with a password. `options` of
    mariadbd beside those that are needed."""

    directory: Path
    port: int = field(default_factory=free_port)
    options: tuple[str, ...] = ()
    _process: subprocess.Popen[bytes] | None = None
    _numbers: Iterator[int] = field(default_factory=lambda: itertools.count(1))

    @property
    def url(self) -> str:
        """For the meta server."""
        return self.url_of("tistream")

    def url_of(self, database: str) -> str:
        """For the meta server, of one of its databases."""
        return f"mysql+pymysql://tistream:secret@127.0.0.1:{self.port}/{database}"

    def new_database(self) -> str:
        """The URL of an empty database."""
        name = f"tistream_{next(self._numbers)}"
        self.run(f"CREATE DATABASE {name}")
        self.run(f"GRANT ALL ON {name}.* TO tistream@127.0.0.1")
        return self.url_of(name)

    def start(self) -> None:
        """Run it, and wait until it answers. The first time it is set up."""
        program, data, scratch = binary(), self.directory / "mysql", self.directory / "tmp"
        # One that starts removes what others have in a folder of temporary files that it shares with them.
        common = ["--no-defaults", f"--datadir={data}", f"--tmpdir={scratch}", "--user=root"]
        if fresh := not data.exists():
            scratch.mkdir(parents=True, exist_ok=True)
            subprocess.run(["mariadb-install-db", *common, "--skip-test-db"], check=True, capture_output=True)
        options = [*common, *self.options, "--bind-address=127.0.0.1"]
        options += [f"--port={self.port}", f"--socket={self.directory}/mysql.sock", f"--pid-file={self.directory}/pid"]
        with (self.directory / "mysql.log").open("ab") as log:
            self._process = subprocess.Popen(
                [program, *options],
                stdout=log,
                stderr=log,
                preexec_fn=_die_with_us,  # noqa: PLW1509 (as in platform.py)
            )
        self._wait(fresh)

    def _wait(self, fresh: bool) -> None:
        deadline = time.monotonic() + STARTING_SECONDS
        while True:
            try:
                connection = self.connect()
                break
            except pymysql.err.OperationalError as error:
                if time.monotonic() >= deadline:
                    raise NoMariaDb((self.directory / "mysql.log").read_text()[-2_000:]) from error
                time.sleep(0.1)
        with connection, connection.cursor() as cursor:
            if fresh:
                cursor.execute("CREATE DATABASE tistream")
                cursor.execute("CREATE USER tistream@127.0.0.1 IDENTIFIED BY 'secret'")
                cursor.execute("GRANT ALL ON tistream.* TO tistream@127.0.0.1")

    def connect(self, database: str | None = None) -> pymysql.Connection[Any]:
        """As root. Nothing is committed of itself."""
        return pymysql.connect(unix_socket=f"{self.directory}/mysql.sock", user="root", database=database)

    def run(self, sql: str) -> list[tuple[Any, ...]]:
        """One statement, as root."""
        with self.connect() as connection, connection.cursor() as cursor:
            cursor.execute(sql)
            connection.commit()
            return list(cursor.fetchall())

    def clients(self, state: str = "") -> list[int]:
        """The connections of the user `tistream`; those whose state (what a statement waits for) begins so."""
        rows = self.run("SELECT id, COALESCE(state, '') FROM information_schema.processlist WHERE user = 'tistream'")
        return [number for number, found in rows if found.startswith(state)]

    def fill(self, connections: int) -> list[pymysql.Connection[Any]]:
        """So many connections of the user `tistream`, or as many as there may be."""
        found: list[pymysql.Connection[Any]] = []
        with contextlib.suppress(pymysql.err.OperationalError):
            for _ in range(connections):
                found.append(pymysql.connect(host="127.0.0.1", port=self.port, user="tistream", password="secret"))
        return found

    def kill(self) -> int:
        """End every connection of the user `tistream`; how many there were."""
        numbers = self.clients()
        for number in numbers:
            with contextlib.suppress(pymysql.err.OperationalError):  # it has ended by itself
                self.run(f"KILL {number}")
        return len(numbers)

    @contextlib.contextmanager
    def hanging(self) -> Iterator[None]:
        """It accepts connections, as its machine does, and answers nothing."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)
        try:
            yield
        finally:
            self._process.send_signal(signal.SIGCONT)

    def stop(self) -> None:
        """As an operator would."""
        if self._process is not None:
            self._process.terminate()
            self._process.wait(60)
            self._process = None
