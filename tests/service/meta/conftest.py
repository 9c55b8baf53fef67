"""The meta database of a test: an empty one, on each kind of database that there is."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.mariadb import MariaDb, running

# What is tried is not the disk: in memory where there is room for that.
MEMORY = Path("/dev/shm")
QUICK = ("--innodb-flush-log-at-trx-commit=0", "--innodb-doublewrite=0", "--skip-log-bin", "--innodb-log-file-size=8M")


@pytest.fixture(scope="session")
def mariadb() -> Iterator[MariaDb]:
    """A real server, one for all tests."""
    where = MEMORY if os.access(MEMORY, os.W_OK) else None
    scratch = tempfile.TemporaryDirectory(prefix="tistream-mariadb-", dir=where)
    with scratch as directory, running(Path(directory), options=QUICK) as server:
        yield server


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
