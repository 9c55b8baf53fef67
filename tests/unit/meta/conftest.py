"""The meta database of a test: an empty one, on each kind of database that there is."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.mariadb import MariaDb, NoMariaDb
from support.not_run import not_run

# What is tried is not the disk: in memory where there is room for that.
MEMORY = Path("/dev/shm")
QUICK = ("--innodb-flush-log-at-trx-commit=0", "--innodb-doublewrite=0", "--skip-log-bin", "--innodb-log-file-size=8M")


@pytest.fixture(scope="session")
def mariadb_server() -> Iterator[MariaDb | str]:
    """One for all tests; or why there is none."""
    where = MEMORY if os.access(MEMORY, os.W_OK) else None
    with tempfile.TemporaryDirectory(prefix="tistream-mariadb-", dir=where) as directory:
        server = MariaDb(Path(directory), options=QUICK)
        try:
            server.start()
        except NoMariaDb as reason:
            yield str(reason)
            return
        yield server
        server.stop()


@pytest.fixture
def mariadb(mariadb_server: MariaDb | str) -> MariaDb:
    """A real server."""
    if isinstance(mariadb_server, str):
        not_run(mariadb_server)
    return mariadb_server


@pytest.fixture
def mysql_url(mariadb: MariaDb) -> str:
    """An empty database there."""
    return mariadb.new_database()


@pytest.fixture(params=["sqlite", "mariadb"])
def database_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """An empty database of either kind."""
    if request.param == "mariadb":
        url: str = request.getfixturevalue("mysql_url")
        return url
    return f"sqlite:///{tmp_path}/meta.db"
