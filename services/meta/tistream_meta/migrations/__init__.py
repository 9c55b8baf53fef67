"""Migrates a database to the newest schema: numbered SQL files, each applied once, in the order of their numbers.

A number may be missing. Each applied file is recorded, so a file that is added later with a lower number than the
newest is applied all the same. Files do not build on those with higher numbers.

A file's statements end in `;` at the end of a line. MySQL commits DDL at once, so a migration that was cut short is run
again, and its statements must allow that: `IF NOT EXISTS`. MySQL has no such words for columns and indexes, so an
`ALTER TABLE … ADD COLUMN` of one column and a `CREATE INDEX` are skipped if they have been done. MODIFY may be
repeated. `$NAME` stands for the type modifiers of a name: compared by its bytes, which is not MySQL's default. A file
named `….mysql.sql` is for MySQL only.

On MySQL one process at a time migrates, under a lock that the server holds for its connection. A statement that takes
longer than the timeout of an answer continues in the server, and holds the lock until it is done.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import resources
from string import Template

from sqlalchemy import Connection, Engine, inspect, text

from tistream.errors import Unavailable

LOCK_WAIT_S = 2  # less than the timeout of an answer
_FILE = re.compile(r"(\d{4})_[a-z_]+(?:\.(mysql))?\.sql")
_ADD_COLUMN = re.compile(r"\s*ALTER TABLE (\w+) ADD COLUMN (\w+) ")
_CREATE_INDEX = re.compile(r"\s*CREATE INDEX (\w+) ON (\w+) ")
_NAME_TYPE = {"mysql": "CHARACTER SET ascii COLLATE ascii_bin", "sqlite": "COLLATE BINARY"}


@functools.cache
def files(dialect: str) -> dict[int, str]:
    """The SQL of every migration, by its number. The text is empty if the file is for another database."""
    found: dict[int, str] = {}
    for entry in resources.files(__name__).iterdir():
        matched = _FILE.fullmatch(entry.name)
        if matched:
            assert int(matched[1]) not in found, f"two migrations have the number of {entry.name}"
            found[int(matched[1])] = entry.read_text("utf-8") if matched[2] in (None, dialect) else ""
    return dict(sorted(found.items()))


class NewerDatabase(Exception):
    """Raised if a newer version of the program created the database's schema."""


def migrate(engine: Engine, then: Callable[[Connection], None] | None = None) -> int:
    """Apply the missing files, then call `then` in a transaction. Returns the schema's version, which is the highest
    number.

    Raises:
        NewerDatabase: the database was made by a newer program.
        Unavailable: another process is migrating.
    """
    known = files(engine.dialect.name)
    with _alone(engine) as connection:
        with connection.begin():
            connection.execute(text("CREATE TABLE IF NOT EXISTS schema_migrations (version BIGINT PRIMARY KEY)"))
        with connection.begin():
            resumes = inspect(connection).get_table_names() != ["schema_migrations"]
            applied = set(connection.execute(text("SELECT version FROM schema_migrations")).scalars())
        if unknown := applied - known.keys():
            raise NewerDatabase(
                f"the database has schema version {max(unknown)}; this program knows {max(known)}: run the newer "
                "program, or restore an older backup"
            )
        for number, sql in known.items():
            if number not in applied:
                with connection.begin():
                    _apply(connection, number, sql, resumes=resumes)
        if then is not None:
            with connection.begin():
                then(connection)
    return max(known)


@contextmanager
def _alone(engine: Engine) -> Iterator[Connection]:
    """A context manager with a connection. On MySQL only one process at a time is in such a block."""
    with engine.connect() as connection:
        if engine.dialect.name == "mysql":
            connection.detach()  # it is closed at the end in any case, and the lock ends with it
            with connection.begin():
                # The lock's name counts in the whole server, which may have the databases of several platforms.
                lock = text("SELECT GET_LOCK(CONCAT('tistream.', SHA1(DATABASE())), :seconds)")
                if connection.execute(lock, {"seconds": LOCK_WAIT_S}).scalar_one() != 1:
                    raise Unavailable("another process is bringing the meta database up to date")
        yield connection


def _apply(connection: Connection, number: int, sql: str, *, resumes: bool) -> None:
    """Run a file's statements. `resumes`: the database had tables before, so an earlier attempt may have run some."""
    filled = Template(sql).substitute(NAME=_NAME_TYPE[connection.dialect.name])
    for statement in re.split(r";\s*$", filled, flags=re.MULTILINE):
        if statement.strip() and not (resumes and _is_there(connection, statement)):
            connection.exec_driver_sql(statement)
    connection.execute(text("INSERT INTO schema_migrations (version) VALUES (:version)"), {"version": number})


def _is_there(connection: Connection, statement: str) -> bool:
    """Whether the statement adds a column or an index that an earlier attempt has added."""
    index = _CREATE_INDEX.match(statement)
    if index is not None:
        return index[1] in {one["name"] for one in inspect(connection).get_indexes(index[2])}
    added = _ADD_COLUMN.match(statement)
    return added is not None and added[2] in {column["name"] for column in inspect(connection).get_columns(added[1])}
