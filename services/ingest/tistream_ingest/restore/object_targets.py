"""Restores tables into an object store, as Parquet files or SQL files.

URL/shop.orders/restore.json                   Parquet: one folder a table
URL/shop.orders/schema.sql
URL/shop.orders/{id}-000001.parquet            one file a chunk

URL/restore.json                               SQL files, to be run in the order of their names
URL/1-tables.{id}.000001.sql                   one file a table
URL/2-rows.{id}.000001.000001.sql              one file a chunk
URL/3-foreign-keys.{id}.000001.sql
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

import pyarrow as pa
import pyarrow.parquet as pq

from tistream.format.run import GROUP_ROWS
from tistream.restore.fingerprint import Fingerprint, of_rows
from tistream.restore.insert_sql import insert_statements
from tistream.restore.undo_sql import SESSION
from tistream.schema.tidb.create_table import Dialect
from tistream.schema.tidb.quoting import quoted_name
from tistream.storage.object_store import ObjectStore
from tistream.targets.files import directory_of
from tistream.targets.mysql import EXPLICIT_RANDOM, STRICT
from tistream_ingest.restore.chunk_target import NumberedTable
from tistream_ingest.restore.object_folder import ObjectFolder

SCHEMA = "schema.sql"
_PARQUET = re.compile(r"(?P<id>[0-9a-f]{32})-(?P<chunk>\d{6})\.parquet")
_SQL = re.compile(
    r"[123]-(?:tables|rows|foreign-keys)\.(?P<id>[0-9a-f]{32})\.(?P<table>\d{6})(?:\.(?P<chunk>\d{6}))?\.sql"
)


class ParquetObjects:
    """A ChunkTarget that writes Parquet files into an object store."""

    chunk_rows = 12 * GROUP_ROWS  # whole row groups of a base run, so that none is read for two chunks

    def __init__(self, objects: ObjectStore, dialect: Dialect) -> None:
        """Create the target. `dialect` is the SQL dialect of schema.sql."""
        self._objects, self._dialect = objects, dialect

    def taken(self, one: NumberedTable) -> bool:
        """Implement ChunkTarget.taken: whether the table's folder has files that this restore did not create. Writes
        nothing."""
        return self._folder(one).taken()

    def begin(self, one: NumberedTable, *, replace: bool) -> None:
        """Implement ChunkTarget.begin: claim the table's folder, and write schema.sql. With `replace`, files of other
        restores are deleted."""
        folder, statements = self._folder(one), one.table.statements
        folder.claim(replace=replace)
        text = ";\n\n".join(filter(None, (statements.create, statements.foreign_keys))) + ";\n"
        self._objects.put(folder.prefix + SCHEMA, text.encode())

    def there(self, one: NumberedTable) -> frozenset[int]:
        """Implement ChunkTarget.there: the numbers of the chunks that the target has."""
        found = map(_PARQUET.fullmatch, self._folder(one).names())
        return frozenset(int(name["chunk"]) for name in found if name and name["id"] == one.table.restore_id)

    def write(self, one: NumberedTable, number: int, batches: Sequence[pa.RecordBatch], rows: int) -> None:  # noqa: ARG002
        """Implement ChunkTarget.write: write a chunk, unless the target has it."""
        sink, schema = pa.BufferOutputStream(), batches[0].schema
        numbers = [column.name for column in schema if pa.types.is_primitive(column.type)]  # bounds of texts cost more
        options = {"compression": "zstd", "compression_level": 1, "write_statistics": numbers}
        with pq.ParquetWriter(sink, schema, **options) as writer:
            for batch in batches:
                writer.write_batch(batch)
        self._folder(one).put(_parquet(one, number), sink.getvalue().to_pybytes())

    def parts(self, one: NumberedTable, chunks: int) -> list[int]:  # noqa: ARG002 - see ChunkTarget
        """Implement ChunkTarget.parts: one part for each chunk in the target, including chunks that are not in the
        plan."""
        return sorted(self.there(one))

    def fingerprint(self, one: NumberedTable, part: int) -> Fingerprint:
        """Implement ChunkTarget.fingerprint: the fingerprint of the rows in the file of one chunk."""
        total = Fingerprint()
        with pq.ParquetFile(pa.BufferReader(self._folder(one).get(_parquet(one, part)))) as file:
            for group in range(file.num_row_groups):
                for batch in file.read_row_group(group, use_threads=False).to_batches():
                    total += of_rows(batch, one.table.columns, None)
        return total

    def add_foreign_keys(self, one: NumberedTable) -> None:
        """Implement ChunkTarget.add_foreign_keys. Does nothing, because `begin` has written the foreign keys into
        schema.sql."""

    def _folder(self, one: NumberedTable) -> ObjectFolder:
        name = directory_of(*one.table.name)
        return ObjectFolder(self._objects, f"{name}/", f"folder {name} of the target", one.table.restore_id, _PARQUET)


class SqlObjects:
    """A ChunkTarget that writes SQL files into an object store."""

    chunk_rows = 10_000

    def __init__(self, objects: ObjectStore, dialect: Dialect) -> None:
        """Create the target. `dialect` is the SQL dialect of the server that will run the files."""
        self._objects, self._dialect = objects, dialect

    def taken(self, one: NumberedTable) -> bool:
        """Implement ChunkTarget.taken: whether the target, which all tables of a restore share, has files that this
        restore did not create. Writes nothing."""
        return self._folder(one).taken()

    def begin(self, one: NumberedTable, *, replace: bool) -> None:
        """Implement ChunkTarget.begin: claim the target for this restore, and write the file that creates the table,
        unless this restore has written it. With `replace`, files of other restores are deleted."""
        self._folder(one).claim(replace=replace)
        database = f"CREATE DATABASE IF NOT EXISTS {quoted_name(one.table.name[0])}"
        self._put(one, f"1-tables.{one.table.restore_id}.{one.number:06d}.sql", [database, one.table.statements.create])

    def there(self, one: NumberedTable) -> frozenset[int]:
        """Implement ChunkTarget.there: the numbers of the chunks that the target has."""
        found = (name for name in map(_SQL.fullmatch, self._folder(one).names()) if name and name["chunk"])
        ours = (one.table.restore_id, one.number)
        return frozenset(int(name["chunk"]) for name in found if (name["id"], int(name["table"])) == ours)

    def write(self, one: NumberedTable, number: int, batches: Sequence[pa.RecordBatch], rows: int) -> None:  # noqa: ARG002
        """Implement ChunkTarget.write: write a chunk, unless the target has it."""
        inserts = (sql for batch in batches for sql in insert_statements(batch, one.table.columns, one.table.name))
        name = f"2-rows.{one.table.restore_id}.{one.number:06d}.{number:06d}.sql"
        self._put(one, name, ["BEGIN", *inserts, "COMMIT"])

    def parts(self, one: NumberedTable, chunks: int) -> list[int]:  # noqa: ARG002 - see ChunkTarget
        """Implement ChunkTarget.parts: no parts, because SQL files are not read back."""
        return []

    def fingerprint(self, one: NumberedTable, part: int) -> Fingerprint:
        """Implement ChunkTarget.fingerprint. It is never called, because `parts` returns no part."""
        raise AssertionError(f"part {part} of {one.table.name}: SQL files are not read back")

    def add_foreign_keys(self, one: NumberedTable) -> None:
        """Implement ChunkTarget.add_foreign_keys: write the file that adds the table's foreign keys, if it has some,
        unless this restore has written it."""
        if one.table.statements.foreign_keys is not None:
            name = f"3-foreign-keys.{one.table.restore_id}.{one.number:06d}.sql"
            self._put(one, name, [one.table.statements.foreign_keys])

    def _put(self, one: NumberedTable, name: str, statements: Iterable[str]) -> None:
        session = (*SESSION, STRICT, *([EXPLICIT_RANDOM] if self._dialect is Dialect.TIDB else []))
        self._folder(one).put(name, b"".join(sql.encode() + b";\n" for sql in (*session, *statements)))

    def _folder(self, one: NumberedTable) -> ObjectFolder:
        return ObjectFolder(self._objects, "", "the target", one.table.restore_id, _SQL)


def _parquet(one: NumberedTable, number: int) -> str:
    return f"{one.table.restore_id}-{number:06d}.parquet"
