"""Limits of a table's definition, and of the memory that its decoded rows need. Pure.

A few stored bytes can become very many when a row is decoded: an ENUM's number becomes the element's name, and a
missing cell becomes the column's default. So definitions that no TiDB writes are rejected before the history applies
them, and memory budgets count the decoded size of rows (`shown_bytes`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import orjson

from tistream.schema.tidb import table as t

# These are TiDB's own limits, or more where a setting of TiDB raises them: no definition that TiDB has written is
# rejected.
COLUMNS_MAX = 4_096  # columns that SELECT shows; hidden ones and those that a DDL is changing are not counted
ENUM_ELEMENTS_MAX = 65_535
SET_ELEMENTS_MAX = 64
ELEMENT_BYTES_MAX = 6 << 20  # TiDB: 255 characters, or unlimited with `enable-enum-length-limit = false`
DEFAULT_BYTES_MAX = 256 << 10  # TiDB: 65,535 characters; the default of a SET may have all its elements
INDEX_COLUMNS_MAX = 32  # TiDB: 16
# Bytes of elements and defaults in a row; TiDB limits a TableInfo to 6 MiB (`txn-entry-size-limit`).
ROW_BYTES_MAX = 32 << 20

CELL_BYTES = 32  # a cell's position (16 bytes), and its value or the end of its text
PADDED_MAX = 255  # BINARY(n)
JSON_EXPANSION = 5  # `1e15` is shown as 1000000000000000.0
VECTOR_EXPANSION = 12  # `1e38` is shown as 1 and 38 zeros
_SHOWN_CHARS = 80


def check_info(info: dict[str, Any]) -> None:
    """Check that `parse_table` and the decoders can process a TableInfo. Raises ValueError, KeyError, TypeError or
    AttributeError if they cannot."""
    head = t.parse_head(info)
    _typed(int, head.id, head.state, *(head.partition_ids or ()))
    _typed(str, head.name)
    columns = info.get("cols") or ()
    for column in columns:
        kind = column.get("type") or {}
        _typed(int, column["id"], column.get("offset", 0), column.get("state", 0))
        _typed(int, *(kind.get(name, 0) for name in ("Tp", "Flag", "Flen", "Decimal")))
        _typed(str, column["name"]["O"], *(kind.get("Elems") or ()))
    for index in info.get("index_info") or ():
        _typed(int, index["id"], index.get("state", 0))
        _typed(str, index["idx_name"]["O"])
        for part in index.get("idx_cols") or ():
            _typed(str, part["name"]["O"])
            _typed(int, part["offset"], part.get("length", -1))
            if not 0 <= part["offset"] < len(columns):
                raise ValueError(f"index {index['idx_name']['O']!r} has a column at offset {part['offset']}")
    if info.get("is_common_handle") and not any(index.get("is_primary") for index in info.get("index_info") or ()):
        raise ValueError("the table has a common handle but no primary index")
    _check_sizes(info)


def _typed(wanted: type, *values: object) -> None:
    for value in values:
        if not isinstance(value, wanted) or isinstance(value, bool):
            raise TypeError(f"{repr(value)[:_SHOWN_CHARS]} is not of type {wanted.__name__}")
        if isinstance(value, int) and not -(1 << 63) <= value < 1 << 63:
            raise ValueError(f"{value} has more than 64 bits")


def _check_sizes(info: dict[str, Any]) -> None:
    """Check a definition against the limits. Raises ValueError, which names the table, the column or index if it is
    about one, and the limit."""
    columns = info.get("cols") or ()
    table = f"table {_short(info['name']['O'])}"
    shown = sum(column.get("state", 0) == t.STATE_PUBLIC and not column.get("hidden") for column in columns)
    if not info.get("view"):  # a view has no rows, and TiDB does not limit its columns
        _within(f"{table}: visible columns", shown, COLUMNS_MAX)
    row_bytes = 0
    for column in columns:
        row_bytes += _checked_column(table, column)
        _within(f"{table}, up to column {_short(column['name']['O'])}: bytes of a row", row_bytes, ROW_BYTES_MAX)
    for index in info.get("index_info") or ():
        parts = len(index.get("idx_cols") or ())
        _within(f"{table}, index {_short(index['idx_name']['O'])}: columns", parts, INDEX_COLUMNS_MAX)


def _checked_column(table: str, column: dict[str, Any]) -> int:
    """Check a column's definition. Returns the largest number of bytes that an element's name or the default can add to
    a row. Raises ValueError."""
    kind = column.get("type") or {}
    tp, elems = kind.get("Tp", 0), kind.get("Elems") or ()
    where = f"{table}, column {_short(column['name']['O'])}"
    default, bits = (_text_bytes(column.get(name)) for name in ("origin_default", "origin_default_bit"))
    longest = 0
    if tp in (t.ENUM, t.SET):
        _within(f"{where}: elements", len(elems), SET_ELEMENTS_MAX if tp == t.SET else ENUM_ELEMENTS_MAX)
        for number, elem in enumerate(elems, 1):
            _within(f"{where}: bytes of element {number}", _text_bytes(elem), ELEMENT_BYTES_MAX)
        longest = _longest(tp, elems)
    _within(f"{where}: bytes of the default", max(default, bits), max(DEFAULT_BYTES_MAX, longest))
    return max(longest, default)


def _within(what: str, found: int, limit: int) -> None:
    if found > limit:
        raise ValueError(f"{what}: {found}; the limit is {limit}")


def _short(name: str) -> str:
    return repr(name[:_SHOWN_CHARS])


def _text_bytes(value: Any) -> int:
    """The length of a text in bytes; for any other JSON value, that of its text form; 0 for None."""
    if isinstance(value, str):
        return len(value) if value.isascii() else len(value.encode())
    return 0 if value is None else len(orjson.dumps(value))


def _longest(tp: int, elems: Sequence[str]) -> int:
    """The length in bytes of the longest text that a value of an ENUM or SET column can have; 0 for other types."""
    if tp == t.SET:
        return sum(map(_text_bytes, elems[:SET_ELEMENTS_MAX])) + len(elems[:SET_ELEMENTS_MAX])
    return max(map(_text_bytes, elems), default=0) if tp == t.ENUM else 0


def shown_bytes(table: t.Table) -> int:
    """The largest number of bytes that a decoded and rendered row of the table needs in memory, beyond its stored
    bytes."""
    return sum(map(_column_bytes, (*table.visible_columns, *table.key_columns)))  # an event's `key` repeats its columns


def _column_bytes(column: t.Column) -> int:
    default = _text_bytes(column.origin_default)
    if column.tp == t.JSON or column.array:
        default *= JSON_EXPANSION
    elif column.tp == t.VECTOR:
        default *= VECTOR_EXPANSION
    elif column.tp == t.STRING and column.binary and (default or column.not_null):
        default = max(default, min(column.flen, PADDED_MAX))
    text = max(_longest(column.tp, column.elems), default)
    return CELL_BYTES + len(column.name.encode()) + text
