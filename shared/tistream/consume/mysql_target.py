"""Applies events to a MySQL, MariaDB or TiDB server. It writes rows and progress in one transaction."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from itertools import groupby

from tistream.consume.feed_events import DdlEvent, Row, RowEvent
from tistream.consume.ndjson_target import from_json, to_json
from tistream.consume.reorder import Ddl, ReadProgress, Step, Transaction
from tistream.errors import InvalidRequest
from tistream.schema.tidb.quoting import quoted_name
from tistream.targets.mysql import MySqlTarget, TargetFailed

PROGRESS = "`tistream`.`consumed`"
NAME_CHARS = 128
ROWS_AT_ONCE = 2_000  # most rows in one transaction of the target, unless one upstream transaction has more
_CREATE = f"""CREATE TABLE IF NOT EXISTS {PROGRESS} (
  `name` VARCHAR({NAME_CHARS}) CHARACTER SET ascii COLLATE ascii_bin PRIMARY KEY,
  `progress` LONGTEXT CHARACTER SET utf8mb4 NOT NULL,
  `ddl_begun` LONGTEXT CHARACTER SET utf8mb4 NULL
)"""
# Errors which show that a DDL was executed before: database exists, cannot drop database, table exists, unknown table,
# unknown column, duplicate column, duplicate key name, multiple primary key, cannot drop, no such key.
_DONE = frozenset({1007, 1008, 1050, 1051, 1054, 1060, 1061, 1068, 1091, 1176})


class RowsDiffer(TargetFailed):
    """A row that the upstream changed is not in the target as it was before the change: another program writes to the
    table."""


class MySqlRows:
    """A Target that applies rows and executes DDLs.

    `name` identifies this reader among the readers that write to the server. MySQL commits each DDL by itself, so the
    target first stores that the DDL has begun. After a crash the DDL is executed again; an error that shows that it was
    executed before counts as success. Not thread-safe.
    """

    def __init__(self, server: MySqlTarget, name: str) -> None:
        """Create the progress table if it does not exist. Raises InvalidRequest if `name` is not 1 to NAME_CHARS ASCII
        characters, and TargetFailed if the server refuses a statement."""
        if not name.isascii() or not 0 < len(name) <= NAME_CHARS:
            raise InvalidRequest(f"the name of a reader has 1 to {NAME_CHARS} ASCII characters")
        self._server, self._name = server, name
        server.execute_all(["CREATE DATABASE IF NOT EXISTS `tistream`", _CREATE])
        self._begun: str | None = None

    def progress(self) -> ReadProgress | None:
        """Read the progress that is stored under the reader's name. If the name has no progress yet, store empty
        progress, and return None."""
        found = self._server.rows(f"SELECT progress, ddl_begun FROM {PROGRESS} WHERE name = %s", (self._name,))
        if not found:
            with self._server.transaction():
                self._server.execute(
                    f"INSERT INTO {PROGRESS} (name, progress) VALUES (%s, %s)",
                    (self._name, json.dumps(to_json(ReadProgress()))),
                )
            return None
        progress, self._begun = found[0]
        return from_json(json.loads(progress))

    def write(self, steps: Iterable[Step]) -> None:
        """Apply transactions and DDLs in order. Raises TargetFailed; after a restart, writing continues behind the last
        one that was applied."""
        waiting: list[Transaction] = []
        for step in steps:
            if isinstance(step, Transaction):
                waiting.append(step)
                if sum(len(one.rows) for one in waiting) >= ROWS_AT_ONCE:
                    self._apply(waiting, step.progress)
                    waiting = []
                continue
            if isinstance(step, Ddl):
                if waiting:
                    self._apply(waiting, waiting[-1].progress)
                self._execute(step.event)
                self._apply([], step.progress)
            else:
                self._apply(waiting, step.progress)
            waiting = []

    def _apply(self, transactions: Sequence[Transaction], progress: ReadProgress) -> None:
        with self._server.transaction():
            for one in transactions:
                self._rows(one.rows)
            self._server.execute(
                f"UPDATE {PROGRESS} SET progress = %s, ddl_begun = NULL WHERE name = %s",
                (json.dumps(to_json(progress)), self._name),
            )

    def _rows(self, rows: Sequence[RowEvent]) -> None:
        """Apply rows. Deletes come first and inserts last, so that two rows never have the same value of a unique key,
        not even for a moment."""
        for row in rows:
            if row.new is None and row.old is not None:
                where, values = _where(row, row.old)
                self._one(row, f"DELETE FROM {_table(row)} WHERE {where} LIMIT 1", values)
        for row in rows:
            if row.new is not None and row.old is not None:
                where, values = _where(row, row.old)
                sets = ", ".join(f"{quoted_name(column)} = %s" for column in row.new)
                self._one(row, f"UPDATE {_table(row)} SET {sets} WHERE {where} LIMIT 1", (*row.new.values(), *values))
        inserts = [(_insert(row, row.new), tuple(row.new.values())) for row in rows if row.old is None and row.new]
        for sql, same in groupby(inserts, key=lambda one: one[0]):
            self._server.execute_many(sql, [values for _, values in same])

    def _one(self, row: RowEvent, sql: str, values: tuple[object, ...]) -> None:
        if self._server.execute(sql, values) != 1:
            key = " and ".join(row.key) or "all columns"
            raise RowsDiffer(
                f"{row.database}.{row.table}: no row has the values of {key} that the upstream changed at commit_ts "
                f"{row.commit_ts}. Something else writes to the table; restore it, or begin again under another name"
            )

    def _execute(self, event: DdlEvent) -> None:
        begun = json.dumps([str(event.commit_ts), event.query])
        again = self._begun == begun
        if not again:
            self._server.execute(f"UPDATE {PROGRESS} SET ddl_begun = %s WHERE name = %s", (begun, self._name))
            self._begun = begun
        try:
            if event.table:
                self._server.execute(f"USE {quoted_name(event.database)}")
            self._server.execute(event.query)
        except TargetFailed as error:
            if not again or error.code not in _DONE:
                raise TargetFailed(f"{error}, executing the DDL of commit_ts {event.commit_ts}", error.code) from error


def _table(row: RowEvent) -> str:
    return ".".join(map(quoted_name, row.name))


def _insert(row: RowEvent, new: Row) -> str:
    columns = ", ".join(map(quoted_name, new))
    return f"INSERT INTO {_table(row)} ({columns}) VALUES ({', '.join(['%s'] * len(new))})"


def _where(row: RowEvent, old: Row) -> tuple[str, tuple[object, ...]]:
    """Build the SQL condition that finds a row, with its arguments. It compares the handle key (RowEvent.key), or all
    values if the table has none."""
    columns = row.key or tuple(old)
    return " AND ".join(f"{quoted_name(column)} <=> %s" for column in columns), tuple(old[column] for column in columns)
