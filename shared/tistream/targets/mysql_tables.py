"""Restores tables into a MySQL, MariaDB or TiDB server."""

from __future__ import annotations

from tistream.restore.fingerprint import Fingerprint, of_selected, select_list
from tistream.restore.insert_sql import insert_statements
from tistream.schema.tidb.create_table import Dialect
from tistream.schema.tidb.quoting import quoted_name
from tistream.targets.mysql import EXPLICIT_RANDOM, MySqlTarget
from tistream.targets.restore_marks import MARKS, RestoredTables
from tistream.targets.restored_table import Chunk, Mark, RestoredTable, TargetRefused

CHUNK_ROWS = 10_000  # rows of a transaction
_SELECTED_ROWS = 10_000


class MySqlTables:
    """A RestoreTarget that writes into a server. After the restore, AUTO_INCREMENT and AUTO_RANDOM continue above the
    highest restored value, because the servers raise these counters when a row is inserted."""

    chunk_rows = CHUNK_ROWS

    def __init__(self, target: MySqlTarget) -> None:
        """Recognize the server behind `target`, and set its session up for explicit values of AUTO_RANDOM columns if it
        is a TiDB. Raises TargetFailed."""
        self.dialect = target.dialect
        self.compared: Dialect | None = target.dialect
        self._target = target
        self._begun: dict[str, RestoredTables] = {}  # by restore_id
        if self.dialect is Dialect.TIDB:
            target.execute(EXPLICIT_RANDOM)

    def begin(self, table: RestoredTable, *, replace: bool) -> Mark:
        """Implement RestoreTarget.begin: create the table, unless this restore has created it before; return its
        progress. Raises TableExists and TargetFailed as RestoredTables.begin does, and TargetRefused if the table has
        the name of the restore's own table of marks."""
        if table.name[1].lower() == MARKS:
            raise TargetRefused(
                f"a restored table cannot be called {MARKS}, because that one has the restore's "
                "marks: leave the table out, or restore it into files"
            )
        return self._tables(table).begin(table.name[1], table.statements, replace=replace)

    def write(self, table: RestoredTable, before: Mark, chunk: Chunk) -> Mark:
        """Implement RestoreTarget.write: write the next chunk of rows. Raises TargetFailed."""
        inserts = (sql for batch in chunk.batches for sql in insert_statements(batch, table.columns, table.name))
        return self._tables(table).write(table.name[1], before, inserts, chunk.end)

    def add_foreign_keys(self, table: RestoredTable) -> None:
        """Implement RestoreTarget.add_foreign_keys: add the table's foreign keys, unless it has them. Raises
        TargetFailed."""
        if table.statements.foreign_keys is not None:
            self._tables(table).add_foreign_keys(table.name[1], table.statements.foreign_keys)

    def fingerprint(self, table: RestoredTable) -> Fingerprint:
        """Implement RestoreTarget.fingerprint: the fingerprint of the table's rows, which are read from the server.
        Raises TargetFailed."""
        sql = f"SELECT {select_list(table.columns)} FROM {'.'.join(map(quoted_name, table.name))}"
        total = Fingerprint()
        for rows in self._target.batches(sql, _SELECTED_ROWS):
            total += of_selected(rows, table.columns, self.dialect)
        return total

    def _tables(self, table: RestoredTable) -> RestoredTables:
        if table.restore_id not in self._begun:
            self._begun[table.restore_id] = RestoredTables(self._target, table.name[0], table.restore_id)
        return self._begun[table.restore_id]
