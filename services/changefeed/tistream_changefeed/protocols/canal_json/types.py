"""Describes columns for canal-json: MySQL type, number in java.sql.Types, and how values are written. Pure."""

from __future__ import annotations

from tistream.decode.cells.kinds import Kind
from tistream.decode.kernels.render_kernel import Form
from tistream.schema.tidb import table as t
from tistream.schema.tidb.table import Column
from tistream_changefeed.protocols.members import is_bytes, numbered_kind
from tistream_changefeed.protocols.type_names import type_name

_FLAG_ZEROFILL = 64
_UNSET = -1

_BIT, _TINY, _SMALL, _INT, _BIG, _REAL, _DOUBLE, _DECIMAL = -7, -6, 5, 4, -5, 7, 8, 3
_CHAR, _VARCHAR, _CLOB, _BLOB, _DATE, _TIME, _TIMESTAMP = 1, 12, 2005, 2004, 91, 92, 93
_SQL_TYPES = {
    t.TINY: _TINY,
    t.SHORT: _SMALL,
    t.INT24: _INT,
    t.LONG: _INT,
    t.LONGLONG: _BIG,
    t.FLOAT: _REAL,
    t.DOUBLE: _DOUBLE,
    t.DECIMAL: _DECIMAL,
    t.STRING: _CHAR,
    t.TINYBLOB: _CLOB,
    t.MEDIUMBLOB: _CLOB,
    t.LONGBLOB: _CLOB,
    t.BLOB: _CLOB,
    t.DATE: _DATE,
    t.NEWDATE: _DATE,
    t.DURATION: _TIME,
    t.DATETIME: _TIMESTAMP,
    t.TIMESTAMP: _TIMESTAMP,
    t.BIT: _BIT,
    t.SET: _BIT,
    t.ENUM: _INT,
}
_WIDER = {  # of unsigned columns: the largest value of the type, and the type of larger values
    t.TINY: (0x7F, _SMALL),
    t.SHORT: (0x7FFF, _INT),
    t.LONG: (0x7FFFFFFF, _BIG),
    t.LONGLONG: (0x7FFFFFFFFFFFFFFF, _DECIMAL),
}

_LENGTHS = {t.TINY: 4, t.SHORT: 6, t.INT24: 9, t.LONG: 11, t.LONGLONG: 20, t.BIT: 1, t.STRING: 1}  # unless declared
_SIZED = frozenset({*_LENGTHS, t.VARCHAR, t.VARSTRING, t.YEAR})
_FLOATS = {t.FLOAT: 12, t.DOUBLE: 22}
_DECIMAL_LENGTH = 10

_FORMS = {
    Kind.INT: Form.INT_TEXT,
    Kind.UINT: Form.UINT_TEXT,
    Kind.FLOAT: Form.SINGLE_TEXT,
    Kind.DOUBLE: Form.DOUBLE_TEXT,
    Kind.DECIMAL: Form.QUOTED,
    Kind.TIME: Form.QUOTED,
    Kind.DURATION: Form.QUOTED,
    Kind.ENUM_NUMBER: Form.UINT_TEXT,
    Kind.SET_NUMBER: Form.UINT_TEXT,
    Kind.TEXT: Form.HTML_CODED,
    Kind.BINARY: Form.LATIN1,
    Kind.JSON: Form.HTML_DOCUMENT,
    Kind.VECTOR: Form.QUOTED,
    Kind.NOTHING: Form.QUOTED,
}


def form_of(column: Column, *, faults: bool) -> Form:
    """How a column's values are written: always as strings. Byte strings are read as ISO-8859-1. `faults`: treat text
    with the attribute BINARY as byte strings, as TiCDC does by mistake."""
    if column.tp in t.TEXTS and is_bytes(column, faults=faults):
        return Form.LATIN1
    return _FORMS[numbered_kind(column)]


def sql_type(column: Column, *, faults: bool) -> int:
    """The number of a column's type in java.sql.Types. Large values of an unsigned column have another number (see
    `wider`). `faults`: treat text with the attribute BINARY as byte strings, as TiCDC does by mistake."""
    if column.tp in t.TEXTS and is_bytes(column, faults=faults):
        return _BLOB
    return _SQL_TYPES.get(column.tp, _VARCHAR)


def wider(column: Column) -> tuple[int, int] | None:
    """For an unsigned column, (bound, the number in java.sql.Types of values above the bound). None if all values have
    one number."""
    return _WIDER.get(column.tp) if column.unsigned else None


def mysql_type(column: Column, *, full: bool) -> str:
    """The MySQL type, such as `bigint unsigned`; with `full` including its length or elements, such as `bigint(20)
    unsigned`."""
    signed = column.tp in (t.BIT, t.YEAR) or not column.unsigned
    fill = column.tp != t.YEAR and bool(column.flag & _FLAG_ZEROFILL)
    size = _size(column) if full else ""
    return f"{type_name(column)}{size}{'' if signed else ' unsigned'}{' zerofill' if fill else ''}"


def _size(column: Column) -> str:
    length = column.flen if column.flen != _UNSET else _LENGTHS.get(column.tp, _UNSET)
    decimals = column.decimal if column.decimal > 0 else 0
    if column.tp in (t.ENUM, t.SET):
        return f"({','.join(_element(elem) for elem in column.elems)})"
    if column.tp in (t.TIMESTAMP, t.DATETIME, t.DURATION):
        return f"({decimals})" if decimals else ""
    if column.tp in _FLOATS:
        return f"({_FLOATS[column.tp] if length == _UNSET else length},{decimals})" if decimals else ""
    if column.tp == t.DECIMAL:
        return f"({_DECIMAL_LENGTH if length == _UNSET else length},{decimals})"
    if column.tp in _SIZED or (column.tp == t.VECTOR and length != _UNSET):
        return f"({length})"
    return "(0)" if column.tp == t.NULL else ""


def _element(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace("'", "''")
    return f"'{escaped}'"
