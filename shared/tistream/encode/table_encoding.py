"""Decides how rows that were read by SQL are encoded as TiKV stores them: which columns are needed, and how the record
key is made. Pure.

A string is part of a handle unchanged only if strings are compared by their bytes. Otherwise the upstream has to encode
the record key, by its function TIDB_ENCODE_RECORD_KEY.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from tistream.decode.cells.kinds import Kind, kind_of
from tistream.schema.tidb import table as t
from tistream.schema.tidb.table import Column, Table

ROWID = "_tidb_rowid"
_TRIMMED = frozenset({"utf8mb4_bin", "utf8_bin", "ascii_bin", "latin1_bin"})
_KEPT = frozenset({"utf8mb4_0900_bin", "binary"})
_NUMBERS = frozenset({Kind.INT, Kind.UINT, Kind.DECIMAL, Kind.TIME, Kind.DURATION})


class KeyForm(Enum):
    """What the record key of a row is made from: certain columns, or a function that the upstream runs."""

    ROWID = "rowid"  # the hidden column _tidb_rowid
    INT = "int"  # one integer column
    COMMON = "common"  # the datums of the columns of a clustered key
    UPSTREAM = "upstream"  # a function that the upstream executes


@dataclass(frozen=True, slots=True)
class TableEncoding:
    """How the rows of one version of a table are encoded.

    key: columns of the handle in key order. stored: columns whose cells are in the row value, by ascending id. trimmed:
    ids of key columns whose trailing spaces are not in the key. reason: why the key form is UPSTREAM; None for other
    forms.
    """

    table: Table
    form: KeyForm
    key: tuple[Column, ...]
    stored: tuple[Column, ...]
    trimmed: frozenset[int]
    reason: str | None = None


def encoding_of(table: Table, *, new_collations: bool) -> TableEncoding:
    """The encoding of a table's rows. new_collations: the upstream's `new_collation_enabled`; if it is false, TiDB
    compares all strings by their bytes."""
    handle = table.handle_columns
    stored = tuple(
        sorted(
            (
                column
                for column in table.visible_columns
                if column not in handle or _restored(column, table, new_collations)
            ),
            key=lambda column: column.id,
        )
    )
    if not handle:
        return TableEncoding(table, KeyForm.ROWID, (), stored, frozenset())
    if table.pk_is_handle:
        return TableEncoding(table, KeyForm.INT, handle, stored, frozenset())
    reason = _foreign(table, new_collations)
    form = KeyForm.COMMON if reason is None else KeyForm.UPSTREAM
    trimmed = frozenset(
        one.id for one in handle if new_collations and kind_of(one) is Kind.TEXT and one.collate in _TRIMMED
    )
    return TableEncoding(table, form, handle, stored, trimmed, reason)


def changing_column(table: Table) -> str | None:
    """The name of a column that a DDL job is adding, dropping or converting; None without such a column. Stored rows
    have its cells, but SQL does not show them, so rows that SQL returns cannot be encoded exactly as TiKV stores
    them."""
    return next((column.name for column in table.columns if not column.public), None)


def _restored(column: Column, table: Table, new_collations: bool) -> bool:
    """Whether the row value stores a column of the clustered key too, because the key alone does not determine the
    column's text (upstream-formats 4.3)."""
    if table.pk_is_handle or kind_of(column) is not Kind.TEXT or not new_collations or column.collate in _KEPT:
        return False
    return column.collate not in _TRIMMED or column.tp in (t.VARCHAR, t.VARSTRING)


def _foreign(table: Table, new_collations: bool) -> str | None:
    primary = next(index for index in table.indexes if index.primary)
    for part, column in zip(primary.columns, table.handle_columns, strict=True):
        kind = kind_of(column)
        if part.length != -1:
            return f"its primary key has a prefix of column {column.name}"
        if kind is Kind.TEXT:
            if new_collations and column.collate not in _TRIMMED | _KEPT:
                return f"column {column.name} of its primary key has the collation {column.collate}"
            if column.charset not in ("utf8mb4", "utf8", "ascii", "latin1"):
                return f"column {column.name} of its primary key has the character set {column.charset}"
        elif column.tp == t.BIT or (kind not in _NUMBERS and kind is not Kind.BINARY):
            return f"column {column.name} of its primary key has a type whose order SQL does not show"
    return None
