"""Builds the Avro schema of a table version, byte for byte as TiCDC registers it.

Bytes in `default` are base64, as Go's encoding/json writes them. Avro wants one character for each byte, so a reader
that fills in such a default gets other bytes. Messages of TiStream always have all fields, so no reader fills in a
default.
"""

from __future__ import annotations

import base64
import struct
from collections.abc import Sequence
from typing import Any

from tistream.errors import CannotEncode
from tistream.schema.tidb import table as t
from tistream_changefeed.protocols.avro.options import AvroOptions
from tistream_changefeed.protocols.go_numbers import number
from tistream_changefeed.protocols.go_strings import html_quoted
from tistream_changefeed.protocols.names import allowed, safe_name
from tistream_changefeed.protocols.table_facts import FLAG_BINARY, ColumnFacts, TableFacts

_DECIMAL_PRECISION, _DECIMAL_SCALE = 10, 0  # of a DECIMAL without them
_TIDB_TYPES = {
    **dict.fromkeys((t.TINY, t.SHORT, t.INT24, t.LONG), "INT"),
    **dict.fromkeys(t.TEXTS, "TEXT"),
    t.LONGLONG: "BIGINT",
    t.FLOAT: "FLOAT",
    t.DOUBLE: "DOUBLE",
    t.BIT: "BIT",
    t.DECIMAL: "DECIMAL",
    t.ENUM: "ENUM",
    t.SET: "SET",
    t.JSON: "JSON",
    t.DATE: "DATE",
    t.NEWDATE: "DATE",
    t.DATETIME: "DATETIME",
    t.TIMESTAMP: "TIMESTAMP",
    t.DURATION: "TIME",
    t.YEAR: "YEAR",
    t.VECTOR: "TiDBVECTORFloat32",
}
_PRIMITIVES = {
    **dict.fromkeys((t.TINY, t.SHORT, t.INT24, t.LONG, t.YEAR), "int"),
    t.LONGLONG: "long",
    t.FLOAT: "float",
    t.DOUBLE: "double",
    t.BIT: "bytes",
}
_EXTENSION = (
    '{"default":"","name":"_tidb_op","type":"string"}',
    '{"default":0,"name":"_tidb_commit_ts","type":"long"}',
    '{"default":0,"name":"_tidb_commit_physical_time","type":"long"}',
)


def record_schema(facts: TableFacts, columns: Sequence[ColumnFacts], options: AvroOptions, *, extended: bool) -> str:
    """The Avro schema of a record with these columns, as JSON. With `extended` it also has the fields of the TiDB
    extension, which values have and keys do not.

    Raises CannotEncode if two columns have one Avro name.
    """
    _check_names(facts, columns)
    fields = [_field(column, options) for column in columns]
    if extended and options.enable_tidb_extension:
        fields += _EXTENSION
    space = ".".join(part for part in (safe_name(options.keyspace), safe_name(facts.database)) if part)
    return (
        f'{{"type":"record","name":"{safe_name(facts.table.name)}","namespace":"{space}",'
        f'"fields":{"[" + ",".join(fields) + "]" if fields else "null"}}}'
    )


def is_bytes(column: ColumnFacts) -> bool:
    """Whether values of a string column are Avro bytes. As in TiCDC, the column's binary flag decides."""
    return column.column.tp in t.TEXTS and bool(column.column.flag & FLAG_BINARY)


def null_first(column: ColumnFacts, options: AvroOptions) -> bool | None:
    """Whether null is the first type in the union of a nullable column (True), or the second (False). None if the
    column is not nullable."""
    if column.column.not_null:
        return None
    return _is_decimal(column, options) or _default(column, options) is None


def _check_names(facts: TableFacts, columns: Sequence[ColumnFacts]) -> None:
    seen: dict[str, str] = {}
    for one in columns:
        name = safe_name(one.column.name)
        other = seen.setdefault(name, one.column.name)
        if other != one.column.name:
            raise CannotEncode(
                f"table {facts.database}.{facts.table.name}: the columns {other!r} and {one.column.name!r} have one "
                f"Avro name, {name!r}. Leave one out by a column selector, rename it, or use another protocol."
            )


def _field(column: ColumnFacts, options: AvroOptions) -> str:
    kind = _type(column, options)
    name = html_quoted(safe_name(column.column.name))
    default = None if _is_decimal(column, options) else _default(column, options)
    first = null_first(column, options)
    if first is None:
        head = "" if default is None else f'"default":{default},'
        return f'{{{head}"name":{name},"type":{kind}}}'
    union = f'["null",{kind}]' if first else f'[{kind},"null"]'
    return f'{{"default":{default or "null"},"name":{name},"type":{union}}}'


def _is_decimal(column: ColumnFacts, options: AvroOptions) -> bool:
    return column.column.tp == t.DECIMAL and options.precise


def _type(column: ColumnFacts, options: AvroOptions) -> str:
    one = column.column
    parameters = {"tidb_type": _tidb_type(column)}
    if one.tp == t.BIT:
        parameters["length"] = str(one.flen if one.flen >= 0 else 1)
    if one.tp in (t.ENUM, t.SET):
        parameters["allowed"] = allowed(one.elems, escaped=True)
    texts = ",".join(f"{html_quoted(name)}:{html_quoted(parameters[name])}" for name in sorted(parameters))
    logical = ""
    if _is_decimal(column, options):
        precision = one.flen if one.flen >= 0 else _DECIMAL_PRECISION
        scale = one.decimal if one.decimal >= 0 else _DECIMAL_SCALE
        logical = f',"logicalType":"decimal","precision":{precision},"scale":{scale}'
    return f'{{"type":"{_primitive(column, options)}","connect.parameters":{{{texts}}}{logical}}}'


def _primitive(column: ColumnFacts, options: AvroOptions) -> str:
    one = column.column
    kind = _PRIMITIVES.get(one.tp)
    if one.unsigned and one.tp == t.LONG:
        kind = "long"
    elif one.unsigned and one.tp == t.LONGLONG and options.unsigned_as_text:
        kind = "string"
    elif is_bytes(column) or _is_decimal(column, options):
        kind = "bytes"
    return kind or "string"


def _tidb_type(column: ColumnFacts) -> str:
    name = _TIDB_TYPES.get(column.column.tp, "")
    if column.column.unsigned and name in ("INT", "BIGINT"):
        return f"{name} UNSIGNED"
    return "BLOB" if is_bytes(column) else name


def _default(column: ColumnFacts, options: AvroOptions) -> str | None:
    """The column's default as JSON in the schema; None if it has no default, or if the default is an expression."""
    value = column.default
    if value is None:
        return None
    try:
        return _default_json(column, value, options)
    except ValueError:  # a default such as nextval(`s`) is no number
        return None


def _default_json(column: ColumnFacts, value: Any, options: AvroOptions) -> str:
    if isinstance(value, bytes) or is_bytes(column):
        return f'"{base64.b64encode(value if isinstance(value, bytes) else str(value).encode()).decode()}"'
    if isinstance(value, bool | int | float):
        return number(value)
    text = str(value)
    match _primitive(column, options):
        case "int" | "long":
            whole = int(text)
            return str(whole - (1 << 64) if whole >= 1 << 63 else whole)  # a long that wraps, as values do
        case "float":
            return number(float(struct.unpack("f", struct.pack("f", float(text)))[0]))
        case "double":
            return number(float(text))
    return html_quoted(text)
