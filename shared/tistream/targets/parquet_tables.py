"""Restores tables as Parquet files: one directory for each table, with one file for each chunk and a file with the
CREATE TABLE.

    DIR/shop.orders/schema.sql
    DIR/shop.orders/000001.parquet
    DIR/restore.json

A file has one column for each visible column of the table, in the form of Arrow pulls: integers, floats, binary
strings, and text for every other type, which IMPORT INTO converts.
"""

from __future__ import annotations

from pathlib import Path
from typing import IO

import pyarrow.parquet as pq

from tistream.restore.fingerprint import Fingerprint, of_rows
from tistream.schema.tidb.create_table import Dialect
from tistream.targets.directory_marks import DirectoryMarks
from tistream.targets.files import directory_of, put_whole, write_whole
from tistream.targets.restored_table import Chunk, Mark, RestoredTable

CHUNK_ROWS = 100_000
_SCHEMA = "schema.sql"


class ParquetTables:
    """A RestoreTarget that writes Parquet files into a directory."""

    chunk_rows = CHUNK_ROWS
    compared: Dialect | None = None

    def __init__(self, directory: Path, dialect: Dialect) -> None:
        """Open the directory. `dialect` is the SQL dialect of schema.sql. Raises TargetRefused."""
        self.dialect = dialect
        self._directory = directory
        self._marks = DirectoryMarks(directory)

    def begin(self, table: RestoredTable, *, replace: bool) -> Mark:
        """Implement RestoreTarget.begin: create the directory of the table with schema.sql, which has CREATE TABLE and
        the foreign keys, unless this restore has created it before; return its progress."""
        found = self._marks.begin(table, replace=replace)
        if found is not None:
            return found.mark
        place = directory_of(*table.name)
        (self._directory / place).mkdir(exist_ok=True)
        text = ";\n\n".join(filter(None, (table.statements.create, table.statements.foreign_keys))) + ";\n"
        put_whole(self._directory / place / _SCHEMA, text.encode())
        begun = Mark(0, 0, None)
        self._marks.set(table, begun, (f"{place}/{_SCHEMA}",))
        return begun

    def write(self, table: RestoredTable, before: Mark, chunk: Chunk) -> Mark:
        """Implement RestoreTarget.write: write the next chunk of rows, as one file."""
        name = f"{directory_of(*table.name)}/{before.chunk + 1:06d}.parquet"
        write_whole(self._directory / name, lambda file: _write_batches(file, chunk))
        after = before.after(*chunk.end())
        self._marks.set(table, after, (*self._marks.of(table).files, name))
        return after

    def add_foreign_keys(self, table: RestoredTable) -> None:
        """Implement RestoreTarget.add_foreign_keys: do nothing, because `begin` has written the foreign keys into
        schema.sql."""

    def fingerprint(self, table: RestoredTable) -> Fingerprint:
        """Implement RestoreTarget.fingerprint: the fingerprint of the rows in the files, which are read again."""
        total = Fingerprint()
        for name in self._marks.of(table).files:
            if name.endswith(".parquet"):
                with pq.ParquetFile(self._directory / name) as file:
                    for batch in file.iter_batches():
                        total += of_rows(batch, table.columns, self.compared)
        return total


def _write_batches(file: IO[bytes], chunk: Chunk) -> None:
    writer: pq.ParquetWriter | None = None
    try:
        for batch in chunk.batches:
            if writer is None:
                writer = pq.ParquetWriter(file, batch.schema, compression="zstd", compression_level=1)
            writer.write_batch(batch)
    finally:
        if writer is not None:
            writer.close()
