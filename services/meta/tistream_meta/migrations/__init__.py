"""Brings a database to the newest schema: numbered SQL files, each applied once and in order.

A file's statements end in `;` at the end of a line. MySQL commits DDL at once, so a migration that was cut short is
run again: its statements must bear that (`IF NOT EXISTS`; MySQL and SQLite have no such words for a column: an
`ALTER TABLE … ADD COLUMN` of one column is left out where the column is there). `$NAME` stands for the type modifiers
of a name: compared by its bytes, which MySQL does not do by default.
"""

from __future__ import annotations

import re
from importlib import resources
from string import Template

from sqlalchemy import Connection, Engine, inspect, text

_FILE = re.compile(r"(\d{4})_[a-z_]+\.sql")
_ADD_COLUMN = re.compile(r"\s*ALTER TABLE (\w+) ADD COLUMN (\w+) ")
_NAME_TYPE = {"mysql": "CHARACTER SET ascii COLLATE ascii_bin", "sqlite": "COLLATE BINARY"}


def files() -> dict[int, str]:
    """The SQL of every migration by its number."""
    found = {}
    for entry in resources.files(__name__).iterdir():
        matched = _FILE.fullmatch(entry.name)
        if matched:
            found[int(matched[1])] = entry.read_text("utf-8")
    assert sorted(found) == list(range(1, len(found) + 1)), "migrations are not numbered 1, 2, 3 …"
    return dict(sorted(found.items()))


class NewerDatabase(Exception):
    """The database was made by a newer program."""


def migrate(engine: Engine) -> int:
    """Apply what is missing and return the schema's version. Raises NewerDatabase."""
    known = files()
    with engine.begin() as connection:
        connection.execute(text("CREATE TABLE IF NOT EXISTS schema_migrations (version BIGINT PRIMARY KEY)"))
    with engine.begin() as connection:
        version = _version(connection)
    if version > len(known):
        raise NewerDatabase(f"the database has schema version {version}; this program knows {len(known)}")
    for number, sql in known.items():
        if number > version:
            with engine.begin() as connection:
                _apply(connection, number, sql)
    return len(known)


def _version(connection: Connection) -> int:
    return int(connection.execute(text("SELECT COALESCE(MAX(version), 0) FROM schema_migrations")).scalar_one())


def _apply(connection: Connection, number: int, sql: str) -> None:
    filled = Template(sql).substitute(NAME=_NAME_TYPE[connection.dialect.name])
    for statement in re.split(r";\s*$", filled, flags=re.MULTILINE):
        if statement.strip() and not _is_there(connection, statement):
            connection.execute(text(statement))
    connection.execute(text("INSERT INTO schema_migrations (version) VALUES (:version)"), {"version": number})


def _is_there(connection: Connection, statement: str) -> bool:
    """Whether the statement adds a column that an attempt cut short has added."""
    added = _ADD_COLUMN.match(statement)
    return added is not None and added[2] in {column["name"] for column in inspect(connection).get_columns(added[1])}
