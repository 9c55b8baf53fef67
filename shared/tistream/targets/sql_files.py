"""Restores tables as SQL files, which a client of the server runs in the order of their names:

    cat DIR/*.sql | mysql …

    DIR/000001.sql     CREATE DATABASE and CREATE TABLE of one table
    DIR/000002.sql     INSERT statements of one chunk, in one transaction
    DIR/restore.json

The files with foreign keys come last. Each file sets the session variables that it needs.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import IO

from tistream.restore.fingerprint import Fingerprint
from tistream.restore.insert_sql import insert_statements
from tistream.restore.undo_sql import SESSION
from tistream.schema.tidb.create_table import Dialect
from tistream.schema.tidb.quoting import quoted_name
from tistream.targets.directory_marks import DirectoryMarks
from tistream.targets.files import write_whole
from tistream.targets.mysql import EXPLICIT_RANDOM, STRICT
from tistream.targets.restored_table import Chunk, Mark, RestoredTable

CHUNK_ROWS = 10_000  # rows of a transaction


class SqlFiles:
    """A RestoreTarget that writes SQL files into a directory."""

    chunk_rows = CHUNK_ROWS
    compared: Dialect | None = None

    def __init__(self, directory: Path, dialect: Dialect) -> None:
        """Open the directory. `dialect` is that of the server that will run the files. Raises TargetRefused."""
        self.dialect = dialect
        self._directory = directory
        self._marks = DirectoryMarks(directory)

    def begin(self, table: RestoredTable, *, replace: bool) -> Mark:
        """Implement RestoreTarget.begin: write a file with CREATE DATABASE and CREATE TABLE, unless this restore has
        written it before; return the table's progress."""
        found = self._marks.begin(table, replace=replace)
        if found is not None:
            return found.mark
        database = f"CREATE DATABASE IF NOT EXISTS {quoted_name(table.name[0])}"
        name = self._put([database, table.statements.create])
        begun = Mark(0, 0, None)
        self._marks.set(table, begun, (name,))
        return begun

    def write(self, table: RestoredTable, before: Mark, chunk: Chunk) -> Mark:
        """Implement RestoreTarget.write: write the next chunk of rows."""
        inserts = (sql for batch in chunk.batches for sql in insert_statements(batch, table.columns, table.name))
        name = self._put(inserts, transaction=True)
        after = before.after(*chunk.end())
        self._marks.set(table, after, (*self._marks.of(table).files, name))
        return after

    def add_foreign_keys(self, table: RestoredTable) -> None:
        """Implement RestoreTarget.add_foreign_keys: add the table's foreign keys, unless it has them."""
        found = self._marks.of(table)
        if table.statements.foreign_keys is not None and len(found.files) <= found.mark.chunk + 1:
            name = self._put([table.statements.foreign_keys])
            self._marks.set(table, found.mark, (*found.files, name))

    def fingerprint(self, table: RestoredTable) -> Fingerprint | None:  # noqa: ARG002 - see RestoreTarget
        """Implement RestoreTarget.fingerprint: return None, because SQL files are not read back."""
        return None

    def _put(self, statements: Iterable[str], *, transaction: bool = False) -> str:
        """Write the next file, and return its name. A file that was written but not recorded in the progress has the
        same name, and is replaced."""
        name = f"{max((int(one[:-4]) for one in self._marks.files), default=0) + 1:06d}.sql"
        write_whole(self._directory / name, lambda file: self._write(file, statements, transaction=transaction))
        return name

    def _write(self, file: IO[bytes], statements: Iterable[str], *, transaction: bool) -> None:
        session = (*SESSION, STRICT, *([EXPLICIT_RANDOM] if self.dialect is Dialect.TIDB else []))
        begin, end = (("BEGIN",), ("COMMIT",)) if transaction else ((), ())
        for group in (session, begin, statements, end):
            for sql in group:
                file.write(sql.encode() + b";\n")
