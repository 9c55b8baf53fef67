"""The tables that a restore creates, and the interface of the targets that it creates them in."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Protocol

import orjson
import pyarrow as pa

from tistream.restore.fingerprint import Fingerprint
from tistream.schema.tidb.create_table import Dialect, TableStatements
from tistream.schema.tidb.table import Column

Name = tuple[str, str]
"""(database, table)"""


class TableExists(Exception):
    """Raised if the target already has a table of that name, which this restore did not create. The text is the
    name."""


class TargetRefused(Exception):
    """Raised if the target cannot be used for the restore. The text says why, and what to do."""


@dataclass(frozen=True, slots=True)
class RestoredTable:
    """One table of a restore: its name at the source, its name in the target, and the statements that create it.
    `columns` are its visible columns, which are the fields of the rows, in order."""

    source: Name
    name: Name
    columns: tuple[Column, ...]
    statements: TableStatements
    restore_id: str


def restore_id(cluster_id: str, tenant_id: str, ts: int, source: Name, name: Name) -> str:
    """Compute the id of the restore of one table from the tenant, the ts, and the table's names at the source and in
    the target. If the command is repeated, it has the same id, and so continues the interrupted restore."""
    what = orjson.dumps([cluster_id, tenant_id, str(ts), source, name])
    return hashlib.blake2b(what, digest_size=16).hexdigest()


@dataclass(frozen=True, slots=True)
class Mark:
    """The progress of the restore of one table: `chunk` chunks with `rows` rows in total are written. `cursor`: where
    the next chunk begins. It is None before the first chunk (`chunk` is 0), and after the last one."""

    chunk: int
    rows: int
    cursor: str | None

    @property
    def complete(self) -> bool:
        """Whether all rows are written."""
        return self.chunk > 0 and self.cursor is None

    def after(self, rows: int, cursor: str | None) -> Mark:
        """The progress after one more chunk of `rows` rows. `cursor`: where the chunk after it begins; None: it was the
        last chunk."""
        return Mark(self.chunk + 1, self.rows + rows, cursor)


@dataclass(frozen=True, slots=True)
class Chunk:
    """One chunk of rows. After all `batches` have been read, `end` returns the number of rows, and the cursor after
    them (None: this was the last chunk)."""

    batches: Iterable[pa.RecordBatch]
    end: Callable[[], tuple[int, str | None]]


class RestoreTarget(Protocol):
    """A destination of restored tables. `write` takes effect completely or not at all. After an interruption, `begin`
    and `add_foreign_keys` can be called again."""

    dialect: Dialect
    compared: Dialect | None  # dialect of the server whose rows are compared with the written ones; None for files
    chunk_rows: int  # rows in a chunk

    def begin(self, table: RestoredTable, *, replace: bool) -> Mark:
        """Create the table, unless this restore has created it before. Returns the table's progress. A table of that
        name that this restore did not create is replaced with `replace`; without it, TableExists is raised."""

    def write(self, table: RestoredTable, before: Mark, chunk: Chunk) -> Mark:
        """Write the next chunk of rows. `before` is the table's progress until now. Returns the new progress."""

    def add_foreign_keys(self, table: RestoredTable) -> None:
        """Add the table's foreign keys, unless it has them. Called after all rows of all tables are written."""

    def fingerprint(self, table: RestoredTable) -> Fingerprint | None:
        """The fingerprint of the rows that the target holds, read back from it; None if it cannot be read back."""
