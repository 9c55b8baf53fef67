"""Restores tables into a server. Each chunk of rows and its marker row are written in one transaction.

The table `tistream_restore` of the target's database has one marker for the beginning of each restored table (chunk 0),
and one for each chunk of rows (1, 2, …), with the cursor at which the next chunk begins. A restore that was killed
reads the newest marker and continues there. So no row is missing and none is written twice, also in tables without a
key.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

from tistream.schema.tidb.create_table import TableStatements
from tistream.schema.tidb.quoting import quoted_name, quoted_text
from tistream.targets.mysql import MySqlTarget, TargetFailed
from tistream.targets.restored_table import Mark, TableExists

MARKS = "tistream_restore"
LOCK_WAIT_S = 5
_COLUMNS = """(
  restore_id varchar(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  table_name varchar(64) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
  chunk bigint NOT NULL,
  row_count bigint NOT NULL,
  next_cursor text CHARACTER SET ascii COLLATE ascii_bin,
  PRIMARY KEY (restore_id, table_name, chunk)
)"""


class RestoredTables:
    """Creates and fills the tables of one restore in one database of a server."""

    def __init__(self, target: MySqlTarget, database: str, restore_id: str) -> None:
        """Create the database and the marker table if they do not exist. Raises TargetFailed."""
        self._target, self._database, self._id = target, database, restore_id
        self._marks = f"{quoted_name(database)}.{quoted_name(MARKS)}"
        target.execute(f"CREATE DATABASE IF NOT EXISTS {quoted_name(database)}")
        target.execute(f"CREATE TABLE IF NOT EXISTS {self._marks} {_COLUMNS}")

    def mark(self, table: str) -> Mark | None:
        """The progress of a table; None if this restore has not begun it. Raises TargetFailed."""
        found = self._target.rows(
            f"SELECT chunk, row_count, next_cursor FROM {self._marks} WHERE restore_id = %s AND table_name = %s"
            " ORDER BY chunk",
            (self._id, table),
        )
        if not found:
            return None
        chunk, _, cursor = found[-1]
        return Mark(int(chunk), sum(int(rows) for _, rows, _ in found), cursor)

    def begin(self, table: str, statements: TableStatements, *, replace: bool) -> Mark:
        """Create the table, unless this restore has created it before. Returns the table's progress.

        Raises:
            TableExists: the target has the table already, and `replace` is false.
            TargetFailed: the server refused a statement.
        """
        begun = self.mark(table)
        place = f"{quoted_name(self._database)}.{quoted_name(table)}"
        if begun is not None and begun.chunk > 0 and not self._exists(table):
            self._forget(table)  # the table was dropped after this restore
            begun = None
        if begun is None:
            if self._exists(table):
                if not replace:
                    raise TableExists(f"{self._database}.{table}")
                self._target.execute(f"DROP TABLE {place}")
            with self._target.transaction():
                self._add(table, 0, 0, None)
            begun = Mark(0, 0, None)
        if begun.chunk == 0 and not self._exists(table):
            self._target.execute(statements.create)
        return begun

    def write(
        self, table: str, before: Mark, inserts: Iterable[str], end: Callable[[], tuple[int, str | None]]
    ) -> Mark:
        """Write the next chunk and its marker in one transaction. `before` is the table's progress until now. `end` is
        called after the inserts. It returns the number of rows in the chunk, and the cursor after them (None: it was
        the last chunk). Returns the new progress. Raises TargetFailed; the chunk is then written completely or not at
        all."""
        with self._target.transaction():
            self._target.execute_all(inserts)
            rows, cursor = end()
            after = before.after(rows, cursor)
            self._add(table, after.chunk, rows, cursor)
        return after

    def write_numbered(self, table: str, number: int, inserts: Iterable[str], rows: int) -> bool:
        """Write chunk `number` (from 1) and its marker in one transaction, for a restore whose chunks may come in any
        order. If the target has the chunk already, write nothing and return False. The marker is inserted first, so
        that one of two concurrent writers waits for the other. Raises TargetFailed."""
        with self._target.transaction():
            if not self._target.execute(
                f"INSERT IGNORE INTO {self._marks} (restore_id, table_name, chunk, row_count)"
                f" VALUES ({quoted_text(self._id)}, {quoted_text(table)}, {number}, {rows})"
            ):
                return False
            self._target.execute_all(inserts)
        return True

    def chunks(self, table: str) -> frozenset[int]:
        """The numbers of the chunks that the target has. Raises TargetFailed."""
        found = self._target.rows(
            f"SELECT chunk FROM {self._marks} WHERE restore_id = %s AND table_name = %s AND chunk > 0",
            (self._id, table),
        )
        return frozenset(int(chunk) for (chunk,) in found)

    @contextmanager
    def create_lock(self) -> Iterator[None]:
        """Run a `with` block under a lock of the server, so that no other process creates tables of this restore at the
        same time. The lock ends with the connection: a process that has lost its connection cannot drop a table that
        the next holder created. Raises TargetFailed."""
        name = f"tistream.{self._id}"
        if self._target.rows("SELECT GET_LOCK(%s, %s)", (name, LOCK_WAIT_S))[0][0] != 1:
            raise TargetFailed("another process begins tables of this restore")
        try:
            yield
        finally:
            self._target.rows("SELECT RELEASE_LOCK(%s)", (name,))

    def add_foreign_keys(self, table: str, statement: str) -> None:
        """Add the foreign keys of `table` by the ALTER TABLE `statement`, unless the table has foreign keys. Raises
        TargetFailed."""
        found = self._target.rows(
            "SELECT COUNT(*) FROM information_schema.referential_constraints"
            " WHERE constraint_schema = %s AND table_name = %s",
            (self._database, table),
        )
        if not found[0][0]:
            self._target.execute(statement)

    def _exists(self, table: str) -> bool:
        found = self._target.rows(
            "SELECT COUNT(*) FROM information_schema.tables WHERE table_schema = %s AND table_name = %s",
            (self._database, table),
        )
        return bool(found[0][0])

    def _forget(self, table: str) -> None:
        self._target.rows(f"DELETE FROM {self._marks} WHERE restore_id = %s AND table_name = %s", (self._id, table))

    def _add(self, table: str, chunk: int, rows: int, cursor: str | None) -> None:
        self._target.rows(
            f"INSERT INTO {self._marks} (restore_id, table_name, chunk, row_count, next_cursor)"
            " VALUES (%s, %s, %s, %s, %s)",
            (self._id, table, chunk, rows, cursor),
        )
