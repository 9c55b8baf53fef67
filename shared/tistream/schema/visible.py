"""What SELECT shows: table versions under their names, and the signature by which a visible change is known."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any

from tistream.schema.limits import shown_bytes
from tistream.schema.records import TableText
from tistream.schema.table import FLAG_UNSIGNED, Table, TableHead, parse_head, parse_table

SYSTEM_SCHEMAS = frozenset(
    {"mysql", "sys", "information_schema", "performance_schema", "metrics_schema", "workload_schema"}
)
_FLAGS_SEEN = FLAG_UNSIGNED | 64  # zerofill

Name = tuple[str, str]
"""(database, table); the table is "" where the database itself is meant."""


def fold(name: str) -> str:
    """A name as TiDB compares it: lower case character by character (Go's ToLower keeps the length)."""
    return name.lower() if name.isascii() else "".join(char.lower()[0] for char in name)


@dataclass(frozen=True, slots=True)
class Database:
    """One version of a database."""

    id: int
    name: str
    public: bool

    @property
    def visible(self) -> bool:
        """Public, and no system schema."""
        return self.public and fold(self.name) not in SYSTEM_SCHEMAS


class StoredTable:
    """One version of a table: its head at hand, the rest parsed when it is asked for."""

    __slots__ = ("_shown_bytes", "_table", "_text", "head")

    def __init__(self, text: TableText, info: dict[str, Any]) -> None:
        """`info` is what `text` says."""
        self.head = parse_head(info)
        self._text = text
        self._table: Table | None = None
        self._shown_bytes: int | None = None

    @property
    def table(self) -> Table:
        """The whole of it."""
        if self._table is None:
            self._table = parse_table(self._text.info())
        return self._table

    @property
    def shown_bytes(self) -> int:
        """The most bytes that a row of it takes in memory beside those stored (limits.py); found out once."""
        if self._shown_bytes is None:
            self._shown_bytes = shown_bytes(self.table)
        return self._shown_bytes

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, StoredTable) or self.head != other.head:
            return False
        return self._text == other._text or self.table == other.table

    def __hash__(self) -> int:
        return hash(self.head)


@dataclass(frozen=True, slots=True)
class TableVersion:
    """One version of a visible table, view or sequence, in its database. Equal versions are one object."""

    database_id: int
    database: str
    stored: StoredTable

    @property
    def table(self) -> Table:
        """The table itself."""
        return self.stored.table

    @property
    def head(self) -> TableHead:
        """What is known of the table without parsing it."""
        return self.stored.head

    @property
    def name(self) -> Name:
        """(database, table) as written."""
        return self.database, self.head.name

    @property
    def folded(self) -> Name:
        """(database, table) as compared."""
        return fold(self.database), fold(self.head.name)

    @property
    def signature(self) -> Hashable:
        """What SELECT shows of it: its name, columns, and where its rows are.

        Flags of keys and NOT NULL are left out: online DDL sets and clears them in steps that no SELECT can see.
        """
        table = self.table
        columns = tuple(
            (c.id, c.name, c.tp, c.flag & _FLAGS_SEEN, c.flen, c.decimal, c.charset, c.collate, c.elems)
            for c in table.columns
            if c.public and not c.hidden  # virtual ones, too: SELECT shows them, though no event does
        )
        return self.database, table.name, table.id, table.kind, columns, table.physical_ids


def named_ids(info: dict[str, Any]) -> set[int]:
    """Every physical id that a TableInfo names, visible or not: of partitions to come and to go, too."""
    ids = {info["id"]}
    partition = info.get("partition") or {}
    for definitions in ("definitions", "adding_definitions", "dropping_definitions"):
        ids.update(definition["id"] for definition in partition.get(definitions) or ())
    ids.update(partition.get("new_partition_ids") or ())
    if partition.get("new_table_id"):
        ids.add(partition["new_table_id"])
    return ids
