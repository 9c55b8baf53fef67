"""Versions of the databases and tables that SELECT shows, and the signature of a table, which changes when SELECT shows
a change."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any

from tistream.schema.records import TableText
from tistream.schema.tidb.limits import shown_bytes
from tistream.schema.tidb.table import FLAG_UNSIGNED, Table, TableHead, parse_head, parse_table

SYSTEM_SCHEMAS = frozenset(
    {"mysql", "sys", "information_schema", "performance_schema", "metrics_schema", "workload_schema"}
)
_FLAGS_SEEN = FLAG_UNSIGNED | 64  # the flags unsigned and zerofill, which SELECT shows

Name = tuple[str, str]
"""(database, table); the table is "" for the database itself."""


def fold(name: str) -> str:
    """Convert a name to the form in which TiDB compares names: lower case, character by character as Go's ToLower does,
    so the length stays."""
    return name.lower() if name.isascii() else "".join(char.lower()[0] for char in name)


@dataclass(frozen=True, slots=True)
class Database:
    """One version of a database. `public` is false while a DDL creates or drops it."""

    id: int
    name: str
    public: bool

    @property
    def visible(self) -> bool:
        """Whether the database is public and not a system schema."""
        return self.public and fold(self.name) not in SYSTEM_SCHEMAS


# What changes by itself, or by a DDL that TiCDC does not replicate. Other DDLs make a new version of the table: some
# protocols send its update_timestamp as the version of the schema.
_VOLATILE = ("update_timestamp", "revision", "auto_rand_id", "auto_id_cache", "Lock", "tiflash_replica")


class StoredTable:
    """One version of a table. A part of its definition (the head) is parsed at once, the rest at the first access."""

    __slots__ = ("_shown_bytes", "_table", "_text", "head")

    def __init__(self, text: TableText, info: dict[str, Any]) -> None:
        """`info` is the parsed JSON of `text`."""
        self.head = parse_head(info)
        self._text = text
        self._table: Table | None = None
        self._shown_bytes: int | None = None

    @property
    def table(self) -> Table:
        """The whole definition of the table, parsed at the first access."""
        if self._table is None:
            self._table = parse_table(self._text.info())
        return self._table

    @property
    def shown_bytes(self) -> int:
        """The largest number of bytes that a decoded row needs in memory beyond its stored bytes (limits.py).
        Cached."""
        if self._shown_bytes is None:
            self._shown_bytes = shown_bytes(self.table)
        return self._shown_bytes

    def info(self) -> dict[str, Any]:
        """Parse the whole TableInfo JSON. Each call parses it again."""
        return self._text.info()

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, StoredTable) or self.head != other.head:
            return False
        return self._text == other._text or (self.table == other.table and self._definition() == other._definition())

    def _definition(self) -> dict[str, Any]:
        """The TableInfo without the members that may change while the table's definition stays the same. CREATE TABLE
        depends only on the rest."""
        return {name: value for name, value in self.info().items() if name not in _VOLATILE}

    def __hash__(self) -> int:
        return hash(self.head)


@dataclass(frozen=True, slots=True)
class TableVersion:
    """One version of a visible table, view or sequence, with the database that it is in. Equal versions are the same
    Python object."""

    database_id: int
    database: str
    stored: StoredTable

    @property
    def table(self) -> Table:
        """The table's full definition, parsed at the first access."""
        return self.stored.table

    @property
    def head(self) -> TableHead:
        """The part of the definition that has been parsed already."""
        return self.stored.head

    @property
    def name(self) -> Name:
        """The name (database, table), spelled as the user wrote it."""
        return self.database, self.head.name

    @property
    def folded(self) -> Name:
        """The folded name (database, table), for comparisons."""
        return fold(self.database), fold(self.head.name)

    @property
    def signature(self) -> Hashable:
        """A value that changes if and only if SELECT shows a change: of the names, the visible columns, or the physical
        ids of the rows.

        The flags of keys and NOT NULL are left out: online DDL sets and clears them in steps that SELECT does not show.
        """
        table = self.table
        columns = tuple(
            (c.id, c.name, c.tp, c.flag & _FLAGS_SEEN, c.flen, c.decimal, c.charset, c.collate, c.elems)
            for c in table.columns
            if c.public and not c.hidden  # virtual columns are included: SELECT shows them, although events do not
        )
        return self.database, table.name, table.id, table.kind, columns, table.physical_ids


def named_ids(info: dict[str, Any]) -> set[int]:
    """Every physical id that a TableInfo contains, also those of tables that are not visible, and of partitions that a
    DDL adds or drops."""
    ids = {info["id"]}
    partition = info.get("partition") or {}
    for definitions in ("definitions", "adding_definitions", "dropping_definitions"):
        ids.update(definition["id"] for definition in partition.get(definitions) or ())
    ids.update(partition.get("new_partition_ids") or ())
    if partition.get("new_table_id"):
        ids.add(partition["new_table_id"])
    return ids
