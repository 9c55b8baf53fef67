"""One version of a table, parsed from TiDB's TableInfo JSON (upstream-formats 5.1).

`tistream.schema.history` decides which version is visible at a ts.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

STATE_PUBLIC = 5

FLAG_NOT_NULL = 1
FLAG_PRIMARY = 2
FLAG_UNSIGNED = 32

TINY, SHORT, LONG, FLOAT, DOUBLE, NULL, TIMESTAMP, LONGLONG, INT24, DATE, DURATION, DATETIME, YEAR, NEWDATE = range(
    1, 15
)
VARCHAR, BIT = 15, 16
VECTOR, JSON, DECIMAL, ENUM, SET = 0xE1, 0xF5, 0xF6, 0xF7, 0xF8
TINYBLOB, MEDIUMBLOB, LONGBLOB, BLOB, VARSTRING, STRING, GEOMETRY = range(0xF9, 0x100)

INTEGERS = frozenset({TINY, SHORT, INT24, LONG, LONGLONG})
TEXTS = frozenset({VARCHAR, VARSTRING, STRING, TINYBLOB, MEDIUMBLOB, LONGBLOB, BLOB})
TIMES = frozenset({DATE, NEWDATE, DATETIME, TIMESTAMP})


@dataclass(frozen=True, slots=True)
class Column:
    """One column of a table version. `offset` is its index among all columns, including non-public and hidden ones.
    `stored`: whether the values of a `generated` column are stored. `array`: whether it is the hidden column of a
    multi-valued index."""

    id: int
    name: str
    offset: int
    tp: int  # MySQL type code
    flag: int
    flen: int
    decimal: int  # fraction digits, or fsp of time types; -1 = unspecified
    charset: str
    collate: str
    elems: tuple[str, ...]
    state: int
    hidden: bool
    generated: bool
    stored: bool
    array: bool
    origin_default: Any  # JSON: the default when the column was added, as text, or None
    origin_default_bit: bytes | None
    version: int

    @property
    def public(self) -> bool:
        return self.state == STATE_PUBLIC

    @property
    def visible(self) -> bool:
        """Whether a row in an event has the column: it is public, not hidden, and not a virtual generated column."""
        return self.public and not self.hidden and not (self.generated and not self.stored)

    @property
    def unsigned(self) -> bool:
        return bool(self.flag & FLAG_UNSIGNED)

    @property
    def not_null(self) -> bool:
        return bool(self.flag & FLAG_NOT_NULL)

    @property
    def binary(self) -> bool:
        """Whether the column is a string column of charset `binary`, whose values are bytes and not text."""
        return self.tp in TEXTS and self.charset == "binary"


@dataclass(frozen=True, slots=True)
class IndexColumn:
    """One column of an index. `length` is the length of the indexed prefix; -1 means the whole value."""

    name: str
    offset: int
    length: int


@dataclass(frozen=True, slots=True)
class Index:
    """One index. `plain` is false for a partial, multi-valued, vector, inverted or full-text index."""

    id: int
    name: str
    columns: tuple[IndexColumn, ...]
    state: int
    unique: bool
    primary: bool
    plain: bool

    @property
    def public(self) -> bool:
        return self.state == STATE_PUBLIC


@dataclass(frozen=True, slots=True)
class TableHead:
    """What is kept in memory for every table: its definition without columns and indexes."""

    id: int
    name: str
    state: int
    partition_ids: tuple[int, ...] | None
    kind: str
    importing: bool = False  # whether rows may arrive as SST files, which are in no log

    @property
    def public(self) -> bool:
        return self.state == STATE_PUBLIC

    @property
    def physical_ids(self) -> tuple[int, ...]:
        """The physical ids that the row keys of the table contain."""
        if self.kind != "table":
            return ()
        return (self.id,) if self.partition_ids is None else self.partition_ids


@dataclass(frozen=True, slots=True)
class Table:
    """One version of a base table, view or sequence. `id` is its logical id. The key of a row ends with the row's
    handle: an integer primary key (`pk_is_handle`), another clustered primary key (`is_common_handle`), or else a
    hidden _tidb_rowid."""

    id: int
    name: str
    columns: tuple[Column, ...]
    indexes: tuple[Index, ...]
    state: int
    pk_is_handle: bool
    is_common_handle: bool
    partition_ids: tuple[int, ...] | None  # visible partitions, in order; None = not partitioned
    kind: str  # "table", "view" or "sequence"

    @property
    def public(self) -> bool:
        return self.state == STATE_PUBLIC

    @property
    def visible_columns(self) -> tuple[Column, ...]:
        return tuple(column for column in self.columns if column.visible)

    @property
    def physical_ids(self) -> tuple[int, ...]:
        """The physical ids that the row keys of the table contain."""
        if self.kind != "table":
            return ()
        return (self.id,) if self.partition_ids is None else self.partition_ids

    @property
    def handle_columns(self) -> tuple[Column, ...]:
        """The columns that are encoded in the row key, in key order; empty if the key has a hidden _tidb_rowid. Raises
        ValueError if the definition contradicts itself."""
        if self.pk_is_handle:
            return next(((column,) for column in self.columns if column.flag & FLAG_PRIMARY), ())
        if self.is_common_handle:
            primary = next((index for index in self.indexes if index.primary), None)
            if primary is None:
                raise ValueError(f"table {self.id} has a common handle and no primary index")
            return tuple(self.columns[part.offset] for part in primary.columns)
        return ()

    @property
    def key_columns(self) -> tuple[Column, ...]:
        """The columns of the `key` of an event (design.md 5); empty means that the key is `_tidb_rowid`."""
        if self.pk_is_handle:
            return self.handle_columns
        for index in self.indexes:
            if index.primary and index.public:
                return tuple(self.columns[part.offset] for part in index.columns)
        for index in self.indexes:
            columns = tuple(self.columns[part.offset] for part in index.columns)
            whole = all(part.length == -1 for part in index.columns)
            fit = all(column.not_null and column.visible and not column.array for column in columns)
            if index.unique and index.public and index.plain and whole and fit:
                return columns
        return ()


def parse_table(info: dict[str, Any]) -> Table:
    """Parse TableInfo JSON. Absent members mean zero values, unknown members are ignored, and a list may be null."""
    head = parse_head(info)
    return Table(
        id=head.id,
        name=head.name,
        columns=tuple(map(_column, sorted(info.get("cols") or (), key=lambda c: c.get("offset", 0)))),
        indexes=tuple(map(_index, info.get("index_info") or ())),
        state=head.state,
        pk_is_handle=bool(info.get("pk_is_handle")),
        is_common_handle=bool(info.get("is_common_handle")),
        partition_ids=head.partition_ids,
        kind=head.kind,
    )


def parse_head(info: dict[str, Any]) -> TableHead:
    """Parse the TableInfo JSON of a table, except its columns and indexes."""
    partition = info.get("partition")
    return TableHead(
        id=info["id"],
        name=info["name"]["O"],
        state=info.get("state", 0),
        partition_ids=_visible_partitions(partition) if partition and partition.get("enable") else None,
        kind="view" if info.get("view") else "sequence" if info.get("sequence") else "table",
        importing=info.get("mode") in _IMPORT_MODES,
    )


_IMPORT_MODES = (1, 2)  # TiDB's TableModeImport and TableModeRestore
_ACTION_DROP_PARTITION = 20


def visible_definitions(partition: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The partitions in `definitions` of a PartitionInfo, without those that DROP PARTITION has hidden in its first
    step (upstream-formats 7)."""
    hidden: set[int] = set()
    if partition.get("ddl_action") == _ACTION_DROP_PARTITION:
        hidden = {definition["id"] for definition in partition.get("dropping_definitions") or ()}
    return [definition for definition in partition.get("definitions") or () if definition["id"] not in hidden]


def _visible_partitions(partition: dict[str, Any]) -> tuple[int, ...]:
    return tuple(definition["id"] for definition in visible_definitions(partition))


def _column(info: dict[str, Any]) -> Column:
    kind = info.get("type") or {}
    return Column(
        id=info["id"],
        name=info["name"]["O"],
        offset=info.get("offset", 0),
        tp=kind.get("Tp", 0),
        flag=kind.get("Flag", 0),
        flen=kind.get("Flen", -1),
        decimal=kind.get("Decimal", -1),
        charset=kind.get("Charset") or "",
        collate=kind.get("Collate") or "",
        elems=tuple(kind.get("Elems") or ()),
        state=info.get("state", 0),
        hidden=bool(info.get("hidden")),
        generated=bool(info.get("generated_expr_string")),
        stored=bool(info.get("generated_stored")),
        array=bool(kind.get("Array")),
        origin_default=info.get("origin_default"),
        origin_default_bit=_bytes(info.get("origin_default_bit")),
        version=info.get("version", 0),
    )


def _bytes(text: Any) -> bytes | None:
    """Decode base64. Returns None for anything else, because `check_info` does not validate this member."""
    try:
        return base64.b64decode(text, validate=True)
    except (TypeError, ValueError):  # binascii.Error is a ValueError
        return None


_SPECIAL = ("mv_index", "vector_index", "inverted_index", "full_text_index", "condition_expr_string")


def _index(info: dict[str, Any]) -> Index:
    return Index(
        id=info["id"],
        name=info["idx_name"]["O"],
        columns=tuple(
            IndexColumn(part["name"]["O"], part["offset"], part.get("length", -1))
            for part in info.get("idx_cols") or ()
        ),
        state=info.get("state", 0),
        unique=bool(info.get("is_unique")),
        primary=bool(info.get("is_primary")),
        plain=not any(info.get(name) for name in _SPECIAL),
    )
