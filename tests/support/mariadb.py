"""A MariaDB server of its own on 127.0.0.1: the one on PATH, or Debian's package where root may install it, or its
container."""

from __future__ import annotations

import contextlib
import itertools
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pymysql

from support import kept
from support.certificates import Authority
from support.halting import halt
from support.not_run import not_run
from support.platform import _die_with_us, free_port
from support.waiting import PATIENCE_S

PROGRAMS = ("mariadbd", "/usr/sbin/mariadbd")
IMAGE = "mariadb:10.11.14"


def binary() -> str:
    """The server's program, which root installs if need be. Raises kept.NotHad."""
    found = kept.packaged("mariadb-server", *PROGRAMS)
    if found is None:
        raise kept.NotHad("no mariadbd on PATH, and only root can install it (apt-get install mariadb-server)")
    return found


def command(directory: Path, port: int) -> tuple[list[str], list[str]]:
    """What sets up a server's data below `directory`, and what runs it; options may follow. In a container, which is
    named as `container` says, with this user's rights and network. Raises kept.NotHad."""
    try:
        return ["mariadb-install-db"], [binary()]
    except kept.NotHad as reason:
        if not kept.docker_answers():
            raise kept.NotHad(f"{reason}, and no Docker that answers") from reason
    run = ["docker", "run", "--rm", "--init", "--network", "host", "--user", f"{os.geteuid()}:{os.getegid()}"]
    run += ["--volume", f"{directory}:{directory}"]
    return (
        [*run, "--entrypoint", "mariadb-install-db", IMAGE],
        [*run, "--name", container(port), "--entrypoint", "mariadbd", IMAGE],
    )


def container(port: int) -> str:
    """The name of the one that listens on `port`."""
    return f"tistream-tests-mariadb-{port}"


@dataclass
class MariaDb:
    """Data below `directory`; a database `tistream` that a user `tistream` may change, with a password. `options` of
    mariadbd beside those that are needed."""

    directory: Path
    port: int = field(default_factory=free_port)
    options: tuple[str, ...] = ()
    authority: Authority | None = None  # of its certificate, if it has one
    _process: subprocess.Popen[bytes] | None = None
    _in_container: bool = False
    _numbers: Iterator[int] = field(default_factory=lambda: itertools.count(1))

    @property
    def url(self) -> str:
        """The database URL for the meta server."""
        return self.url_of("tistream")

    def url_of(self, database: str) -> str:
        """The URL of one of the databases, for the meta server."""
        return f"mysql+pymysql://tistream:secret@127.0.0.1:{self.port}/{database}"

    def new_database(self) -> str:
        """The URL of an empty database."""
        name = f"tistream_{next(self._numbers)}"
        self.run(f"CREATE DATABASE {name}")
        self.run(f"GRANT ALL ON {name}.* TO tistream@127.0.0.1")
        return self.url_of(name)

    @property
    def pid(self) -> int:
        """The process of the server, which runs."""
        assert self._process is not None
        return self._process.pid

    def start(self) -> None:
        """Run it, and wait until it answers. The first time it is set up. Raises kept.NotHad; RuntimeError if it is
        there and does not start."""
        data, scratch = self.directory / "mysql", self.directory / "tmp"
        set_up, run = command(self.directory, self.port)
        self._in_container = run[0] == "docker"
        # One that starts removes what others have in a folder of temporary files that it shares with them.
        common = ["--no-defaults", f"--datadir={data}", f"--tmpdir={scratch}"]
        if os.geteuid() == 0:
            common.append("--user=root")  # else it refuses to run as root
        if fresh := not data.exists():
            scratch.mkdir(parents=True, exist_ok=True)
            # root's account has no password; by default it is for the user root of the machine alone.
            made = [*set_up, *common, "--skip-test-db", "--auth-root-authentication-method=normal"]
            done = subprocess.run(made, capture_output=True, text=True, check=False)
            if done.returncode:
                raise self._failed(done.stderr or done.stdout)
        options = [*common, *self.options, "--bind-address=127.0.0.1"]
        options += [f"--port={self.port}", f"--socket={self.directory}/mysql.sock", f"--pid-file={self.directory}/pid"]
        with (self.directory / "mysql.log").open("ab") as log:
            self._process = subprocess.Popen(
                [*run, *options],
                stdout=log,
                stderr=log,
                preexec_fn=_die_with_us,  # noqa: PLW1509 (as in platform.py)
            )
        self._wait(fresh)

    def _wait(self, fresh: bool) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while True:
            try:
                connection = self.connect()
                break
            except pymysql.err.OperationalError as error:
                assert self._process is not None
                if self._process.poll() is not None or time.monotonic() >= deadline:
                    raise self._failed((self.directory / "mysql.log").read_text()) from error
                time.sleep(0.1)
        with connection, connection.cursor() as cursor:
            if fresh:
                cursor.execute("CREATE DATABASE tistream")
                cursor.execute("CREATE USER tistream@127.0.0.1 IDENTIFIED BY 'secret'")
                cursor.execute("GRANT ALL ON tistream.* TO tistream@127.0.0.1")

    def _failed(self, said: str) -> Exception:
        """An image may be none that can be pulled; a program that is there has to start."""
        return kept.NotHad(said[-2_000:]) if self._in_container else RuntimeError(f"MariaDB: {said[-2_000:]}")

    def connect(self, database: str | None = None) -> pymysql.Connection[Any]:
        """Connect as root, without autocommit."""
        return pymysql.connect(unix_socket=f"{self.directory}/mysql.sock", user="root", database=database)

    def run(self, sql: str) -> list[tuple[Any, ...]]:
        """Run one statement as root."""
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
        """Run a `with` block during which the server accepts connections and answers nothing."""
        assert self._process is not None
        pid = self._process.pid
        if self._in_container:
            self._container("pause")
        else:
            halt([pid])
        try:
            yield
        finally:
            if self._in_container:
                self._container("unpause")
            else:
                os.kill(pid, signal.SIGCONT)

    def _container(self, verb: str) -> None:
        subprocess.run(["docker", verb, container(self.port)], capture_output=True, check=True)

    def stop(self) -> None:
        """Stop the server in an orderly way."""
        if self._process is not None:
            self._process.terminate()
            self._process.wait(PATIENCE_S)
            self._process = None
            if self._in_container:
                subprocess.run(["docker", "rm", "--force", container(self.port)], capture_output=True, check=False)


@contextlib.contextmanager
def running(directory: Path, options: tuple[str, ...] = ()) -> Iterator[MariaDb]:
    """A MariaDB server for a `with` block. The test is reported as not run if it cannot be installed."""
    server = MariaDb(directory, options=options)
    try:
        server.start()
    except kept.NotHad as reason:
        not_run(reason)
    try:
        yield server
    finally:
        server.stop()
