"""Builds the schema of a column in Debezium's messages."""

from __future__ import annotations

import base64
import math
import re
from typing import Any

import pyarrow as pa

from tistream.schema.tidb import table as t
from tistream_changefeed.protocols.columns.bits import bits_width
from tistream_changefeed.protocols.columns.epochs import DAY, MICROSECOND, MILLISECOND, microseconds, since_epoch
from tistream_changefeed.protocols.go_numbers import number
from tistream_changefeed.protocols.go_strings import go_quoted
from tistream_changefeed.protocols.names import allowed
from tistream_changefeed.protocols.table_facts import ColumnFacts

NOW = "CURRENT_TIMESTAMP"
START = "1970-01-01T00:00:00Z"
_MILLISECOND_DIGITS = 3
_DATE = re.compile(r"\d{4}-\d{2}-\d{2}")
_DATETIME = re.compile(r"\d{4}-\d{2}-\d{2} \d{2}:\d{2}:\d{2}(\.\d{1,6})?")
_DURATION = re.compile(r"-?\d+:\d{2}:\d{2}(\.\d{1,6})?")
_INTEGERS = {
    t.TINY: ("int16", "int16"),
    t.SHORT: ("int16", "int32"),
    t.INT24: ("int32", "int32"),
    t.LONG: ("int32", "int64"),
    t.LONGLONG: ("int64", "int64"),
}
_NAMES = {
    t.ENUM: "io.debezium.data.Enum",
    t.SET: "io.debezium.data.EnumSet",
    t.DATE: "io.debezium.time.Date",
    t.NEWDATE: "io.debezium.time.Date",
    t.TIMESTAMP: "io.debezium.time.ZonedTimestamp",
    t.DURATION: "io.debezium.time.MicroTime",
    t.YEAR: "io.debezium.time.Year",
    t.JSON: "io.debezium.data.Json",
}
_NUMBERS = frozenset({*t.INTEGERS, t.FLOAT, t.DOUBLE, t.DECIMAL, t.YEAR})
_UNSIGNED_PLAIN = frozenset({t.YEAR, t.BIT, t.VARCHAR, t.STRING, t.DECIMAL})  # types without `unsigned` in tidb_type


def field_schema(column: ColumnFacts, *, tidb_type: bool) -> str:
    """The schema of a column as one JSON object. With `tidb_type` TiDB's type is a member, as with the TiDB
    extension."""
    one = column.column
    optional = "false" if one.not_null else "true"
    members = [f'"tidb_type":"{tidb_type_of(column)}"'] if tidb_type else []
    members += [f'"type":"{connect_type(column)}"', f'"optional":{optional}']
    name = _semantic_name(column)
    if name:
        members.append(f'"name":"{name}"')
        if one.tp != t.VECTOR:
            members.append('"version":1')
    if one.tp == t.BIT and bits_width(one) > 1:
        members.append(f'"parameters":{{"length":"{bits_width(one)}"}}')
    elif one.tp in (t.ENUM, t.SET):
        members.append(f'"parameters":{{"allowed":{go_quoted(allowed(one.elems, escaped=one.tp == t.ENUM))}}}')
    members.append(f'"field":{go_quoted(one.name)}')
    default = None if column.default is None else default_json(column)
    if default is not None:
        members.append(f'"default":{default}')
    return "{" + ",".join(members) + "}"


def connect_type(column: ColumnFacts) -> str:
    """The type of a column's values in Kafka Connect."""
    one = column.column
    if one.tp in _INTEGERS:
        return _INTEGERS[one.tp][one.unsigned]
    if one.tp == t.BIT:
        return "boolean" if bits_width(one) == 1 else "bytes"
    if one.tp == t.FLOAT:
        return "float" if one.decimal == -1 else "double"
    return {
        t.DOUBLE: "double",
        t.DECIMAL: "double",
        t.DATE: "int32",
        t.NEWDATE: "int32",
        t.YEAR: "int32",
        t.DATETIME: "int64",
        t.DURATION: "int64",
    }.get(one.tp, "string")


def tidb_type_of(column: ColumnFacts) -> str:
    """TiDB's name of the type, including `unsigned`."""
    one = column.column
    return column.type_name + (" unsigned" if one.unsigned and one.tp not in _UNSIGNED_PLAIN else "")


def in_milliseconds(column: ColumnFacts) -> bool:
    """Whether a DATETIME column is sent in milliseconds, and not in microseconds."""
    return column.column.decimal <= _MILLISECOND_DIGITS


def default_json(column: ColumnFacts) -> str | None:  # noqa: PLR0911  # one for each kind of type
    """The column's default as JSON, in the form of the column's values. If the default is not a value, such as an
    expression: None for numbers, DATE, TIME and a nullable TIMESTAMP; 0 for DATETIME and BIT (false for one bit);
    the start of 1970 for a TIMESTAMP that is NOT NULL; the text of the default for other types."""
    one, value = column.column, column.default
    if one.tp == t.BIT:
        bits = int.from_bytes(value, "big") if isinstance(value, bytes) else 0
        if bits_width(one) == 1:
            return "true" if bits else "false"
        size = -(-bits_width(one) // 8)
        return go_quoted(base64.b64encode((bits % (1 << (8 * size))).to_bytes(size, "little")).decode())
    if one.tp in _NUMBERS:
        return _number_json(column, value)
    text = value if isinstance(value, str) else str(value)
    if one.tp in (t.DATE, t.NEWDATE):
        return _epoch_json(text, DAY, not_null=one.not_null) if _DATE.fullmatch(text) else None
    if one.tp == t.DATETIME:
        if not _DATETIME.fullmatch(text):
            return "0"
        return _epoch_json(text, MILLISECOND if in_milliseconds(column) else MICROSECOND, not_null=one.not_null)
    if one.tp == t.TIMESTAMP:
        return _timestamp_json(text, one.decimal, not_null=one.not_null)
    if one.tp == t.DURATION:
        found = _DURATION.fullmatch(text)
        return str(microseconds(pa.array([text], pa.large_string()))[0].as_py()) if found else None
    return go_quoted(text)


def _number_json(column: ColumnFacts, value: Any) -> str | None:
    try:
        found = float(value)
    except (TypeError, ValueError):
        return None
    if column.column.tp == t.YEAR and found < 100:
        found += 2000 if found < 70 else 1900
    return number(found) if math.isfinite(found) else None


def _epoch_json(text: str, unit: int, *, not_null: bool) -> str | None:
    found = since_epoch(pa.array([text], pa.large_string()), unit, not_null=not_null)[0].as_py()
    return None if found is None else str(found)


def _timestamp_json(text: str, decimal: int, *, not_null: bool) -> str | None:
    if not _DATETIME.fullmatch(text) or text.startswith("0000"):
        return go_quoted(START) if not_null else None
    seconds, _, fraction = text.partition(".")
    digits = "." + fraction.ljust(6, "0")[:decimal] if decimal > 0 else ""
    return go_quoted(f"{seconds.replace(' ', 'T')}{digits}Z")


def _semantic_name(column: ColumnFacts) -> str:
    one = column.column
    if one.tp == t.BIT:
        return "io.debezium.data.Bits" if bits_width(one) > 1 else ""
    if one.tp == t.DATETIME:
        return f"io.debezium.time.{'Timestamp' if in_milliseconds(column) else 'MicroTimestamp'}"
    if one.tp == t.VECTOR:
        return "io.debezium.data.TiDBVectorFloat32"
    return _NAMES.get(one.tp, "")
