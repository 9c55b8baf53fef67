"""TiDB's names of column types, such as `varbinary`. Pure."""

from __future__ import annotations

from tistream.schema.tidb import table as t
from tistream.schema.tidb.table import Column

_NAMES = {
    0: "unspecified",
    t.TINY: "tinyint",
    t.SHORT: "smallint",
    t.INT24: "mediumint",
    t.LONG: "int",
    t.LONGLONG: "bigint",
    t.FLOAT: "float",
    t.DOUBLE: "double",
    t.DECIMAL: "decimal",
    t.NULL: "null",
    t.TIMESTAMP: "timestamp",
    t.DATE: "date",
    t.NEWDATE: "date",
    t.DURATION: "time",
    t.DATETIME: "datetime",
    t.YEAR: "year",
    t.BIT: "bit",
    t.JSON: "json",
    t.VECTOR: "vector",
    t.ENUM: "enum",
    t.SET: "set",
    t.GEOMETRY: "geometry",
    t.VARSTRING: "var_string",
}
_TEXT_NAMES = {
    t.STRING: ("char", "binary"),
    t.VARCHAR: ("varchar", "varbinary"),
    t.TINYBLOB: ("tinytext", "tinyblob"),
    t.BLOB: ("text", "blob"),
    t.MEDIUMBLOB: ("mediumtext", "mediumblob"),
    t.LONGBLOB: ("longtext", "longblob"),
}


def type_name(column: Column) -> str:
    """The name of a column's type, without length and sign, such as `varbinary`."""
    names = _TEXT_NAMES.get(column.tp)
    if names is None:
        return _NAMES.get(column.tp, "unspecified")
    return names[column.charset == "binary"]
