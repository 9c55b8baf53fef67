"""Restores tables into a MySQL, MariaDB or TiDB server; each chunk and its marker row are one transaction."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from tistream.restore.fingerprint import Fingerprint
from tistream.restore.insert_sql import insert_statements
from tistream.targets.mysql import MySqlTarget
from tistream.targets.mysql_tables import CHUNK_ROWS, MySqlTables
from tistream.targets.restore_marks import RestoredTables
from tistream_ingest.restore.chunk_target import NumberedTable

WHOLE = 0


class MySqlChunks:
    """A ChunkTarget over one connection to a server."""

    chunk_rows = CHUNK_ROWS

    def __init__(self, target: MySqlTarget) -> None:
        """Prepare the session of `target`, which is connected. Raises TargetFailed."""
        self._target, self._tables = target, MySqlTables(target)

    def taken(self, one: NumberedTable) -> bool:
        """Implement ChunkTarget.taken: whether the target has a table of that name that this restore did not create.
        Creates nothing."""
        database, table = one.table.name
        found = self._target.rows(
            "SELECT COUNT(*) FROM information_schema.tables WHERE table_schema = %s AND table_name = %s",
            (database, table),
        )
        if not found[0][0]:
            return False
        return self._marks(one).mark(table) is None

    def begin(self, one: NumberedTable, *, replace: bool) -> None:
        """Implement ChunkTarget.begin: create the table, unless this restore has created it."""
        with self._marks(one).create_lock():
            self._tables.begin(one.table, replace=replace)

    def there(self, one: NumberedTable) -> frozenset[int]:
        """Implement ChunkTarget.there: the numbers of the chunks that the target has."""
        return self._marks(one).chunks(one.table.name[1])

    def write(self, one: NumberedTable, number: int, batches: Sequence[pa.RecordBatch], rows: int) -> None:
        """Implement ChunkTarget.write: write a chunk, unless the target has it."""
        inserts = (sql for batch in batches for sql in insert_statements(batch, one.table.columns, one.table.name))
        self._marks(one).write_numbered(one.table.name[1], number, inserts, rows)

    def parts(self, one: NumberedTable, chunks: int) -> list[int]:  # noqa: ARG002 - see ChunkTarget
        """Implement ChunkTarget.parts: one part, the whole table, because its rows do not show which chunk they are
        from."""
        return [WHOLE]

    def fingerprint(self, one: NumberedTable, part: int) -> Fingerprint:  # noqa: ARG002 - see ChunkTarget
        """Implement ChunkTarget.fingerprint: the fingerprint of all rows of the table."""
        return self._tables.fingerprint(one.table)

    def add_foreign_keys(self, one: NumberedTable) -> None:
        """Implement ChunkTarget.add_foreign_keys: add the table's foreign keys, unless it has them."""
        self._tables.add_foreign_keys(one.table)

    def _marks(self, one: NumberedTable) -> RestoredTables:
        return RestoredTables(self._target, one.table.name[0], one.table.restore_id)
