"""A meta database as the meta server leaves it after its first start: the migrations run once in a process of tests."""

from __future__ import annotations

import functools
import tempfile
from pathlib import Path

from tistream_meta.database.repository import Repository


@functools.cache
def _migrated() -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        repository = Repository.open(f"sqlite:///{folder}/meta.db", "meta-1")
        repository.prepare()
        repository.close()  # what is in its write-ahead log goes into the file
        return (Path(folder) / "meta.db").read_bytes()


def database_url(folder: Path) -> str:
    """The URL of the database of `folder`, whose tables are there."""
    path = folder / "meta.db"
    if not path.exists():
        path.write_bytes(_migrated())
    return f"sqlite:///{path}"
