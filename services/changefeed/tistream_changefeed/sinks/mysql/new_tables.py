"""Creates the tables into which a feed loads the rows that exist when it begins."""

from __future__ import annotations

from collections.abc import Sequence

from tistream.schema.tidb.create_table import Dialect, TableStatements, UnsupportedTable, table_statements
from tistream.schema.tidb.quoting import quoted_name
from tistream.schema.visible import Name, TableVersion, fold
from tistream.targets.mysql import MySqlTarget, TargetFailed
from tistream_changefeed.core.failure import FeedFailed, failed
from tistream_changefeed.sinks.mysql.connection import failure_of
from tistream_changefeed.sinks.mysql.faults import fault_of
from tistream_changefeed.sinks.mysql.target import MySqlServer

_COLUMNS = "SELECT table_schema, table_name, column_name FROM information_schema.columns WHERE table_schema = %s"
_KEYS = (
    "SELECT 1 FROM information_schema.table_constraints WHERE table_schema = %s AND table_name = %s "
    "AND constraint_type = 'FOREIGN KEY' LIMIT 1"
)
_BY_HAND = "create the table by hand, or leave it out by filter.rules, then resume"


def create(target: MySqlTarget, server: MySqlServer, dialect: Dialect, versions: Sequence[TableVersion]) -> None:
    """Create the tables that do not exist, with their definitions in the upstream. Then add the foreign keys of tables
    that have none. Idempotent, so it can be repeated after a crash. Raises FeedFailed if the server refuses a
    statement, or if an existing table has rows or lacks a column."""
    there: dict[tuple[str, str], set[str]] = {}
    for database in dict.fromkeys(version.name[0] for version in versions):
        _run(target, server, database, f"CREATE DATABASE IF NOT EXISTS {quoted_name(database)}")
        for found in target.rows(_COLUMNS, (database,)):
            there.setdefault((fold(found[0]), fold(found[1])), set()).add(fold(found[2]))
    keys: dict[Name, str] = {}
    for version in versions:
        name, known = ".".join(version.name), there.get((fold(version.name[0]), fold(version.name[1])))
        try:
            statements = table_statements(version.stored.info(), version.name, dialect)
        except UnsupportedTable as error:
            if known is None:
                raise failed("ddl", name, f"{error}: {_BY_HAND}") from error
            statements = TableStatements("", None)
        if known is None:
            _run(target, server, name, statements.create)
        else:
            _check(target, server, version, known)
        if statements.foreign_keys is not None:
            keys[version.name] = statements.foreign_keys
    for each, sql in keys.items():
        if not target.rows(_KEYS, each):
            _run(target, server, ".".join(each), sql)


def _check(target: MySqlTarget, server: MySqlServer, version: TableVersion, known: set[str]) -> None:
    name = ".".join(version.name)
    missing = [one.name for one in version.table.visible_columns if not one.generated and fold(one.name) not in known]
    if missing:
        raise failed("sink", name, f"{server.where} has the table without the columns {', '.join(missing)}: add them, "
                     "or drop the table, then resume")  # fmt: skip
    place = ".".join(map(quoted_name, version.name))
    if target.rows(f"SELECT 1 FROM {place} LIMIT 1"):
        remedy = "empty it or drop it, then resume; or create the feed without snapshot"
        raise failed("sink", name, f"{server.where} has rows in the table already: {remedy}")


def _run(target: MySqlTarget, server: MySqlServer, name: str, sql: str) -> None:
    try:
        target.execute(sql)
    except TargetFailed as error:
        raise _refused(error, server, name) from error


def _refused(error: TargetFailed, server: MySqlServer, name: str) -> FeedFailed:
    if fault_of(error.code) == "table":
        return failed("ddl", name, f"{error}: {_BY_HAND}")
    return failure_of(error, server)
