"""What every target of a restore in chunks can do."""

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
    """Names a target, so that executors can open it. `place`: a URL, or a server."""

    kind: Kind
    place: str | MySqlUrl
    dialect: Dialect


@dataclass(frozen=True, slots=True)
class Numbered:
    """A table of a restore, and its number (from 1). `info`: its TableInfo."""

    number: int
    table: RestoredTable
    info: dict[str, Any]


class ChunkTarget(Protocol):
    """Where chunks are written, in any order and by several processes. A chunk is there whole or not at all, and once.
    Calls raise TargetFailed, TargetRefused, Unavailable."""

    chunk_rows: int  # of a chunk, at most

    def taken(self, one: Numbered) -> bool:
        """Whether the target has a table of that name that this restore has not begun. Writes nothing."""

    def begin(self, one: Numbered, *, replace: bool) -> None:
        """Make the table, unless this restore has made it. Raises TableExists, unless `replace`."""

    def there(self, one: Numbered) -> frozenset[int]:
        """The numbers of the chunks that the target has."""

    def write(self, one: Numbered, number: int, batches: Sequence[pa.RecordBatch], rows: int) -> None:
        """Write a chunk, unless it is there."""

    def parts(self, one: Numbered, chunks: int) -> list[int]:
        """What is read back by itself, for a table with this number of chunks. Empty: the target is not read back."""

    def fingerprint(self, one: Numbered, part: int) -> Fingerprint:
        """The rows of a part."""

    def add_foreign_keys(self, one: Numbered) -> None:
        """Add the table's foreign keys, unless they are there."""
