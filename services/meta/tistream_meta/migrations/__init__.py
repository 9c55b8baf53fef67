"""Brings a database to the newest schema: numbered SQL files, each applied once, in the order of their numbers.

A number may be missing: what is applied is noted file by file, so that one which comes later, with a lower number than
the newest, is applied all the same. Files do not build on those with higher numbers.

A file's statements end in `;` at the end of a line. MySQL commits DDL at once, so a migration that was cut short is
run again: its statements must bear that (`IF NOT EXISTS`; MySQL has no such words for columns and indexes: an `ALTER
TABLE … ADD COLUMN` of one column and a `CREATE INDEX` are left out where they have been done). `$NAME` stands for the
type modifiers of a name: compared by its bytes, which MySQL does not do by default.
"""

from __future__ import annotations

import re
from importlib import resources
from string import Template

from sqlalchemy import Connection, Engine, inspect, text

_FILE = re.compile(r"(\d{4})_[a-z_]+\.sql")
_ADD_COLUMN = re.compile(r"\s*ALTER TABLE (\w+) ADD COLUMN (\w+) ")
_CREATE_INDEX = re.compile(r"\s*CREATE INDEX (\w+) ON (\w+) ")
_NAME_TYPE = {"mysql": "CHARACTER SET ascii COLLATE ascii_bin", "sqlite": "COLLATE BINARY"}


def files() -> dict[int, str]:
    """The SQL of every migration by its number."""
    found: dict[int, str] = {}
    for entry in resources.files(__name__).iterdir():
        matched = _FILE.fullmatch(entry.name)
        if matched:
            assert int(matched[1]) not in found, f"two migrations have the number of {entry.name}"
            found[int(matched[1])] = entry.read_text("utf-8")
    return dict(sorted(found.items()))


class NewerDatabase(Exception):
    """The database was made by a newer program."""


def migrate(engine: Engine) -> int:
    """Apply what is missing and return the schema's version, the highest number. Raises NewerDatabase."""
    known = files()
    with engine.begin() as connection:
        connection.execute(text("CREATE TABLE IF NOT EXISTS schema_migrations (version BIGINT PRIMARY KEY)"))
    with engine.begin() as connection:
        applied = set(connection.execute(text("SELECT version FROM schema_migrations")).scalars())
    if unknown := applied - known.keys():
        raise NewerDatabase(f"the database has schema version {max(unknown)}; this program knows {max(known)}")
    for number, sql in known.items():
        if number not in applied:
            with engine.begin() as connection:
                _apply(connection, number, sql)
    return max(known)


def _apply(connection: Connection, number: int, sql: str) -> None:
    filled = Template(sql).substitute(NAME=_NAME_TYPE[connection.dialect.name])
    for statement in re.split(r";\s*$", filled, flags=re.MULTILINE):
        if statement.strip() and not _is_there(connection, statement):
            connection.execute(text(statement))
    connection.execute(text("INSERT INTO schema_migrations (version) VALUES (:version)"), {"version": number})


def _is_there(connection: Connection, statement: str) -> bool:
    """Whether the statement adds what an attempt cut short has added."""
    index = _CREATE_INDEX.match(statement)
    if index is not None:
        return index[1] in {one["name"] for one in inspect(connection).get_indexes(index[2])}
    added = _ADD_COLUMN.match(statement)
    return added is not None and added[2] in {column["name"] for column in inspect(connection).get_columns(added[1])}
