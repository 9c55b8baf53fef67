"""Builds the schema of a table version in the messages of the simple protocol."""

from __future__ import annotations

from typing import Any

from tistream.schema.tidb import table as t
from tistream.schema.tidb.table import Index
from tistream.schema.visible import TableVersion
from tistream_changefeed.protocols.go_numbers import number
from tistream_changefeed.protocols.go_strings import html_quoted
from tistream_changefeed.protocols.table_facts import ColumnFacts, TableFacts, table_facts


def table_schema(version: TableVersion) -> str:
    """The member `tableSchema` as JSON. A handle key without an index, such as an integer primary key, is shown as an
    index `primary`."""
    facts = table_facts(version)
    columns = ",".join(map(_column, facts.columns))
    indexes = [_index(facts, index) for index in facts.indexes]
    if facts.key and not any(index.primary for index in facts.indexes):
        indexes.append(_index_text("primary", [column.name for column in facts.key], unique=True, primary=True))
    database, table = version.name
    return (
        f'{{"schema":{html_quoted(database)},"table":{html_quoted(table)},"tableID":{facts.table.id},'
        f'"version":{facts.update_ts},"columns":[{columns}],"indexes":[{",".join(indexes)}]}}'
    )


def _column(column: ColumnFacts) -> str:
    one = column.column
    members = [
        f'"mysqlType":{html_quoted(column.type_name)}',
        f'"charset":{html_quoted(one.charset)}',
        f'"collate":{html_quoted(one.collate)}',
    ]
    if one.flen:
        members.append(f'"length":{one.flen}')
    if one.decimal and one.tp not in (t.FLOAT, t.DOUBLE):
        members.append(f'"decimal":{one.decimal}')
    if one.elems:
        members.append(f'"elements":[{",".join(map(html_quoted, one.elems))}]')
    if one.unsigned:
        members.append('"unsigned":true')
    if column.zerofill:
        members.append('"zerofill":true')
    return (
        f'{{"name":{html_quoted(one.name)},"dataType":{{{",".join(members)}}},'
        f'"nullable":{_boolean(not one.not_null)},"default":{_default(column.default)}}}'
    )


def _default(value: Any) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return _boolean(value)
        case bytes():
            return str(int.from_bytes(value, "big"))
        case int() | float():
            return number(value)
    return html_quoted(str(value))


def _index(facts: TableFacts, index: Index) -> str:
    columns = [facts.table.columns[part.offset] for part in index.columns]
    nullable = not all(column.not_null for column in columns)
    names = [part.name for part in index.columns]
    return _index_text(index.name, names, unique=index.unique, primary=index.primary, nullable=nullable)


def _index_text(name: str, columns: list[str], *, unique: bool, primary: bool, nullable: bool = False) -> str:
    return (
        f'{{"name":{html_quoted(name)},"unique":{_boolean(unique)},"primary":{_boolean(primary)},'
        f'"nullable":{_boolean(nullable)},"columns":[{",".join(map(html_quoted, columns))}]}}'
    )


def _boolean(value: bool) -> str:
    return "true" if value else "false"
