"""Encodes a DDL in Debezium's JSON, with the table as it is afterwards."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tistream.schema.ddl_event import DdlEvent
from tistream.schema.tidb import table as t
from tistream_changefeed.protocols.debezium.field_schema import NOW
from tistream_changefeed.protocols.debezium.options import DebeziumOptions
from tistream_changefeed.protocols.debezium.source import INT64, SOURCE_SCHEMA, STRING, physical_ms, source_of
from tistream_changefeed.protocols.go_strings import go_quoted
from tistream_changefeed.protocols.table_change import TableChange
from tistream_changefeed.protocols.table_facts import (
    FLAG_AUTO_INCREMENT,
    FLAG_BINARY,
    FLAG_ON_UPDATE_NOW,
    ColumnFacts,
    TableFacts,
    table_facts,
)

_TIMESTAMP_WITH_ZONE = 2014
_CREATED = frozenset({"create schema", "create table", "create tables", "create view"})
_DROPPED = frozenset({"drop schema", "drop table", "drop index", "drop view", "truncate table"})
_ALTERED = frozenset(
    {
        "add column", "modify column", "drop column", "alter table multi-schema change", "add partition",
        "alter table remove partitioning", "alter table reorganize partition", "exchange partition",
        "alter table partition by", "truncate partition", "drop partition", "rebase auto_increment ID",
        "set default value", "modify table comment", "modify table charset and collate",
        "modify schema charset and collate", "add index", "alter index visibility", "rename index", "rename table",
        "rename tables", "add primary key", "drop primary key",
    }
)  # fmt: skip
_WITHOUT_TABLE = "truncate table"
_RENAMED = frozenset({"rename table", "rename tables"})
_SEVERAL = frozenset({"create tables", "rename tables"})
_JDBC = {
    t.TINY: 5, t.SHORT: 5, t.INT24: 4, t.LONG: 4, t.YEAR: 4, t.LONGLONG: -5, t.FLOAT: 6, t.DOUBLE: 8, t.DECIMAL: 3,
    t.BIT: -7, t.DATE: 91, t.NEWDATE: 91, t.DATETIME: 93, t.TIMESTAMP: _TIMESTAMP_WITH_ZONE, t.DURATION: 92,
    t.ENUM: 1, t.SET: 1, t.JSON: 1111,
}  # fmt: skip
_JDBC_BYTES = {t.STRING: -2, t.VARCHAR: -3, t.VARSTRING: -3}
_JDBC_BLOB, _JDBC_CHAR, _JDBC_VARCHAR = 2004, 1, 12
# The display width that TiDB gives a type without one.
_WIDTHS = {
    t.TINY: 4, t.SHORT: 6, t.INT24: 9, t.LONG: 11, t.LONGLONG: 20, t.FLOAT: 12, t.DOUBLE: 22, t.BIT: 1, t.VARCHAR: 5,
    t.STRING: 1, t.VARSTRING: 5, t.VECTOR: -1,
}  # fmt: skip
_SMALL = frozenset({t.TINY, t.SHORT, t.INT24, t.LONG})
_WITH_CHARSET = frozenset(
    {
        t.TIMESTAMP,
        t.DURATION,
        t.DECIMAL,
        t.STRING,
        t.VARCHAR,
        t.BLOB,
        t.TINYBLOB,
        t.MEDIUMBLOB,
        t.LONGBLOB,
        t.ENUM,
        t.SET,
    }
)
_PLAIN_NAMES = frozenset({t.YEAR, t.BIT, t.VARCHAR, t.STRING, t.DECIMAL})  # without length and sign


def payload(event: DdlEvent, changes: Sequence[TableChange], options: DebeziumOptions) -> str | None:
    """Build the payload as JSON. None for a kind of DDL for which TiCDC has no message. TiCDC splits a DDL that creates
    or renames several tables into several messages; here one message has all tables in its `tableChanges`."""
    kind = _kind(event.action)
    if kind is None:
        return None
    source = source_of(options.cluster, event.database, event.table, event.commit_ts)
    listed_changes: Sequence[TableChange | None] = ()
    if event.table and event.action != _WITHOUT_TABLE:
        listed_changes = changes if event.action in _SEVERAL else [changes[0] if changes else None]
    listed = ",".join(_change(event, change, kind) for change in listed_changes)
    return (
        f'{{{source},"ts_ms":{physical_ms(event.commit_ts)},"databaseName":{go_quoted(event.database)},"schemaName":null,'
        f'"ddl":{go_quoted(event.query)},"tableChanges":[{listed}]}}'
    )


def _kind(action: str) -> str | None:
    if action in _CREATED:
        return "CREATE"
    if action in _DROPPED:
        return "DROP"
    return "ALTER" if action in _ALTERED else None


def _change(event: DdlEvent, change: TableChange | None, kind: str) -> str:
    before, after = (change.before, change.after) if change else (None, None)
    own = change.names[-1] if change and event.action in _SEVERAL else (event.database, event.table)
    names = f'"{own[0]}"."{own[1]}"'
    if event.action in _RENAMED and before is not None:
        names = f'"{before.name[0]}"."{before.name[1]}",{names}'
    head = f'{{"type":"{kind}","id":{go_quoted(names)},"table":'
    shown = after or before
    if event.action == "drop table" or shown is None:
        return f"{head}null}}"
    return f"{head}{_table(table_facts(shown))}}}"


def _table(facts: TableFacts) -> str:
    keys = ",".join(go_quoted(column.name) for column in facts.key)
    columns = ",".join(_column(column, place) for place, column in enumerate(facts.columns, 1))
    return (
        f'{{"defaultCharsetName":{go_quoted(facts.charset)},"primaryKeyColumnNames":[{keys}],"columns":[{columns}],'
        '"comment":null}'
    )


def _column(column: ColumnFacts, place: int) -> str:
    one = column.column
    jdbc = _jdbc(column)
    automatic = bool(one.flag & FLAG_AUTO_INCREMENT) or (
        bool(one.flag & FLAG_ON_UPDATE_NOW) and jdbc == _TIMESTAMP_WITH_ZONE
    )
    elements = "[" + ",".join(go_quoted(f"'{name}'") for name in one.elems) + "]" if one.elems else "null"
    charset = one.charset if one.charset != "binary" and one.tp in _WITH_CHARSET else ""
    name, expression = _names(column)
    generated = "true" if automatic else "false"
    return (
        f'{{"name":{go_quoted(one.name)},"jdbcType":{jdbc},"nativeType":null,'
        f'"comment":{go_quoted(column.comment) if column.comment else "null"},'
        f'"defaultValueExpression":{_default(column)},"enumValues":{elements},"typeName":"{name}",'
        f'"typeExpression":"{expression}","charsetName":{go_quoted(charset) if charset else "null"},'
        f'"length":{_length(column)},"scale":{_scale(column)},"position":{place},'
        f'"optional":{"false" if one.not_null else "true"},"autoIncremented":{generated},"generated":{generated}}}'
    )


def _jdbc(column: ColumnFacts) -> int:
    one = column.column
    if one.tp in t.TEXTS and one.flag & FLAG_BINARY:
        return _JDBC_BYTES.get(one.tp, _JDBC_BLOB)
    if one.tp == t.STRING:
        return _JDBC_CHAR
    return _JDBC.get(one.tp, _JDBC_VARCHAR)


def _default(column: ColumnFacts) -> str:
    value: Any = column.default
    if value is None:
        return "null"
    if isinstance(value, bytes):
        return go_quoted(_bit_text(value, column.column.flen))
    if not isinstance(value, str):
        return go_quoted(str(value))
    return go_quoted("1970-01-01 00:00:00" if value.upper() == NOW else value)


def _bit_text(value: bytes, width: int) -> str:
    """The bits of a BIT column's default, as TiCDC writes them: the first byte has at least `width` modulo 8 digits,
    and each other byte has 8."""
    if not value:
        return ""
    return f"{value[0]:0{max(width % 8, 1)}b}" + "".join(f"{byte:08b}" for byte in value[1:])


def _length(column: ColumnFacts) -> str:
    """The length of a column as JSON; null if it is the type's usual length. For times without fractions TiCDC writes 0
    or null, depending on whether the DDL names the column; here it is always null."""
    one = column.column
    length = -1
    match one.tp:
        case t.TIMESTAMP | t.DURATION | t.DATETIME:
            length = one.decimal if one.decimal > 0 else -1
        case t.DECIMAL:
            length = one.flen
        case t.SET:
            length = 2 * len(one.elems) - 1
        case t.ENUM:
            length = 1
        case _ if one.tp in _WIDTHS:
            usual = _WIDTHS[one.tp]
            if one.tp in _SMALL and one.unsigned and not (one.tp == t.TINY and column.zerofill):
                usual -= 1
            length = -1 if one.flen == usual else one.flen
    return "null" if length == -1 else str(length)


def _scale(column: ColumnFacts) -> str:
    one = column.column
    return str(one.decimal) if one.tp in (t.DECIMAL, t.FLOAT, t.DOUBLE) and one.decimal != -1 else "null"


def _names(column: ColumnFacts) -> tuple[str, str]:
    """Returns (typeName, typeExpression) of a column in Debezium's schema, without quotes."""
    one = column.column
    name = column.type_name.upper()
    if one.tp in _PLAIN_NAMES:
        return name, name
    sign = " UNSIGNED ZEROFILL" if column.zerofill else " UNSIGNED" if one.unsigned else ""
    length = ""
    if one.tp == t.DOUBLE and one.decimal > 0:
        length = f"({one.flen if one.flen != -1 else _WIDTHS[t.DOUBLE]},{one.decimal})"
    elif one.tp == t.VECTOR and one.flen != -1:
        length = f"({one.flen})"
    return name + sign, name + length + sign


def _field(name: str, kind: str, *, optional: bool) -> str:
    return f'{{"field":"{name}","optional":{"true" if optional else "false"},{kind}}}'


def _struct(name: str, fields: tuple[str, ...]) -> str:
    return f'"type":"struct","name":"io.debezium.connector.schema.{name}","version":1,"fields":[{",".join(fields)}]'


_NAMES_ARRAY = '"type":"array","items":{"type":"string","optional":false}'
_INT32, _BOOLEAN = '"type":"int32"', '"type":"boolean"'
_COLUMN_SCHEMA = (
    _field("name", STRING, optional=False), _field("jdbcType", _INT32, optional=False),
    _field("nativeType", _INT32, optional=True), _field("typeName", STRING, optional=False),
    _field("typeExpression", STRING, optional=True), _field("charsetName", STRING, optional=True),
    _field("length", _INT32, optional=True), _field("scale", _INT32, optional=True),
    _field("position", _INT32, optional=False), _field("optional", _BOOLEAN, optional=True),
    _field("autoIncremented", _BOOLEAN, optional=True), _field("generated", _BOOLEAN, optional=True),
    _field("comment", STRING, optional=True), _field("defaultValueExpression", STRING, optional=True),
    _field("enumValues", _NAMES_ARRAY, optional=True),
)  # fmt: skip


def _items(name: str, fields: tuple[str, ...]) -> str:
    head = f'"name":"io.debezium.connector.schema.{name}","optional":false,"type":"struct","version":1'
    return f'"type":"array","items":{{{head},"fields":[{",".join(fields)}]}}'


_TABLE_SCHEMA = (
    _field("defaultCharsetName", STRING, optional=True),
    _field("primaryKeyColumnNames", _NAMES_ARRAY, optional=True),
    _field("columns", _items("Column", _COLUMN_SCHEMA), optional=False),
    _field("comment", STRING, optional=True),
)
_CHANGE_SCHEMA = (
    _field("type", STRING, optional=False),
    _field("id", STRING, optional=False),
    _field("table", _struct("Table", _TABLE_SCHEMA), optional=True),
)
KEY_SCHEMA = (
    '{"type":"struct","name":"io.debezium.connector.mysql.SchemaChangeKey","optional":false,"version":1,"fields":['
    + _field("databaseName", STRING, optional=False)
    + "]}"
)
VALUE_SCHEMA = (
    '{"optional":false,"type":"struct","version":1,"name":"io.debezium.connector.mysql.SchemaChangeValue","fields":['
    + ",".join(
        (
            SOURCE_SCHEMA,
            _field("ts_ms", INT64, optional=False),
            _field("databaseName", STRING, optional=True),
            _field("schemaName", STRING, optional=True),
            _field("ddl", STRING, optional=True),
            _field("tableChanges", _items("Change", _CHANGE_SCHEMA), optional=False),
        )
    )
    + "]}"
)
