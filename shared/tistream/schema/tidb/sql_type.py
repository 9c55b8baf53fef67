"""Formats a column's type in SQL syntax, as `SHOW COLUMNS` does."""

from __future__ import annotations

from tistream.schema.tidb import table as t
from tistream.schema.tidb.table import Column

_FLAG_ZEROFILL = 64

_INTEGERS = {t.TINY: "tinyint", t.SHORT: "smallint", t.INT24: "mediumint", t.LONG: "int", t.LONGLONG: "bigint"}
_BLOBS = {t.TINYBLOB: "tiny", t.BLOB: "", t.MEDIUMBLOB: "medium", t.LONGBLOB: "long"}
_NUMBERS = {t.FLOAT: "float", t.DOUBLE: "double", t.DECIMAL: "decimal"}
_TIMES = {t.DURATION: "time", t.DATETIME: "datetime", t.TIMESTAMP: "timestamp"}
_PLAIN = {t.NULL: "null", t.DATE: "date", t.NEWDATE: "date", t.JSON: "json", t.GEOMETRY: "geometry"}
_WIDE = {t.VECTOR: "vector", t.BIT: "bit", t.YEAR: "year"}
_BOOLEAN_WIDTH = 1


def sql_type(column: Column) -> str:
    """The SQL type of a column, for example `bigint unsigned`, `varchar(20)`, `decimal(10,2)`, `enum('a','b')`."""
    if column.tp in _INTEGERS:
        return _INTEGERS[column.tp] + _integer_width(column) + _sign(column)
    if column.tp in _NUMBERS:
        return _NUMBERS[column.tp] + _scale(column) + _sign(column)
    return _sized_name(column) or _PLAIN.get(column.tp, f"type {column.tp}")


def _sized_name(column: Column) -> str | None:
    match column.tp:
        case t.VARCHAR | t.VARSTRING | t.STRING:
            return f"{'var' if column.tp != t.STRING else ''}{'binary' if column.binary else 'char'}({column.flen})"
        case t.ENUM | t.SET:
            elements = ",".join("'" + elem.replace("'", "''") + "'" for elem in column.elems)
            return f"{'enum' if column.tp == t.ENUM else 'set'}({elements})"
        case t.DURATION | t.DATETIME | t.TIMESTAMP:
            return _TIMES[column.tp] + (f"({column.decimal})" if column.decimal > 0 else "")
        case t.TINYBLOB | t.BLOB | t.MEDIUMBLOB | t.LONGBLOB:
            return _BLOBS[column.tp] + ("blob" if column.binary else "text")
        case t.VECTOR | t.BIT | t.YEAR:
            return _WIDE[column.tp] + (f"({column.flen})" if column.flen > 0 else "")
    return None


def _integer_width(column: Column) -> str:
    boolean = column.tp == t.TINY and column.flen == _BOOLEAN_WIDTH
    return f"({column.flen})" if boolean or column.flag & _FLAG_ZEROFILL else ""


def _scale(column: Column) -> str:
    if column.tp == t.DECIMAL:
        return f"({column.flen},{max(column.decimal, 0)})"
    return f"({column.flen},{column.decimal})" if column.decimal >= 0 and column.flen >= 0 else ""


def _sign(column: Column) -> str:
    return (" unsigned" if column.unsigned else "") + (" zerofill" if column.flag & _FLAG_ZEROFILL else "")
