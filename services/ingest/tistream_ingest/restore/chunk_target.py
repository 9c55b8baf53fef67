"""Defines `ChunkTarget`, the interface of what a restore writes its chunks into: Parquet files, SQL files or a MySQL
server."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

import pyarrow as pa

from tistream.restore.fingerprint import Fingerprint
from tistream.schema.tidb.create_table import Dialect
from tistream.targets.mysql_url import MySqlUrl
from tistream.targets.restored_table import RestoredTable

Kind = Literal["parquet", "sql-files", "mysql"]


@dataclass(frozen=True, slots=True)
class TargetSpec:
    """Describes a target, so that an executor can open it. `place`: a URL, or the address of a server."""

    kind: Kind
    place: str | MySqlUrl
    dialect: Dialect

    @property
    def compared(self) -> Dialect | None:
        """The dialect of the server whose rows will be compared with those that were written; None if the target is
        files."""
        return self.dialect if self.kind == "mysql" else None


@dataclass(frozen=True, slots=True)
class NumberedTable:
    """A table of a restore with its number, counted from 1, by which targets name its files. `info`: its TableInfo
    (TiDB's JSON)."""

    number: int
    table: RestoredTable
    info: dict[str, Any]


class ChunkTarget(Protocol):
    """A target of a restore; `one` is the table that a call concerns. Chunks may be written in any order and by several
    processes. Each chunk is written once, and completely or not at all. Calls raise TargetFailed, TargetRefused,
    Unavailable."""

    chunk_rows: int  # of a chunk, at most

    def taken(self, one: NumberedTable) -> bool:
        """Whether the table's place in the target has a table or files that this restore did not create. Writes
        nothing."""

    def begin(self, one: NumberedTable, *, replace: bool) -> None:
        """Create the table, unless this restore has created it. If another table has its name, raises TableExists, or
        with `replace` puts the new one in its place."""

    def there(self, one: NumberedTable) -> frozenset[int]:
        """The numbers of the chunks that have been written into the target."""

    def write(self, one: NumberedTable, number: int, batches: Sequence[pa.RecordBatch], rows: int) -> None:
        """Write a chunk, unless the target has it."""

    def parts(self, one: NumberedTable, chunks: int) -> list[int]:
        """The numbers of the parts in which `fingerprint` reads the table back, after `chunks` chunks were written.
        Empty if the target cannot be read back."""

    def fingerprint(self, one: NumberedTable, part: int) -> Fingerprint:
        """The fingerprint of the rows in part `part`, read back from the target."""

    def add_foreign_keys(self, one: NumberedTable) -> None:
        """Add the table's foreign keys, unless it has them."""
