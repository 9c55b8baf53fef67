"""The schema files of tables and databases, as TiCDC's storage sink writes them. Pure."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass

from tistream.schema.ddl_event import DdlEvent
from tistream.schema.tidb import table as t
from tistream.schema.tidb.actions import OF_SCHEMA, action_number
from tistream.schema.visible import Name, TableVersion
from tistream_changefeed.core.outgoing import Content
from tistream_changefeed.protocols.go_strings import html_quoted
from tistream_changefeed.protocols.table_change import TableChange
from tistream_changefeed.protocols.table_facts import ColumnFacts, table_facts
from tistream_changefeed.sinks.storage import paths

_FORMAT = 1
_EXCHANGE = 42  # the action of EXCHANGE PARTITION
_LENGTHS = {
    t.TINY: 4,
    t.SHORT: 6,
    t.INT24: 9,
    t.LONG: 11,
    t.LONGLONG: 20,
    t.BIT: 1,
    t.YEAR: 4,
    t.FLOAT: 12,
    t.DOUBLE: 22,
    t.DECIMAL: 10,
    t.STRING: 1,
    t.VARCHAR: 5,
    t.VARSTRING: 5,
    t.TINYBLOB: 255,
    t.BLOB: 65_535,
    t.MEDIUMBLOB: 16_777_215,
    t.LONGBLOB: 4_294_967_295,
}
"""The types whose ColumnPrecision is written, with the length of a column that declares none."""
_FRACTIONAL = frozenset({t.TIMESTAMP, t.DATETIME, t.DURATION, t.FLOAT, t.DOUBLE})


@dataclass(frozen=True, slots=True)
class SchemaFile:
    """One schema file: implements core.outgoing.Mark. `name` is that of the table, or of the database with an empty
    table; `key` that of the object below the root of the sink, and `body` its bytes."""

    name: Name
    key: str
    body: bytes

    @property
    def size(self) -> int:
        """The size of the file, in bytes (implements Mark.size)."""
        return len(self.body)

    @property
    def content(self) -> Content | None:
        """Return None: this mark is not a message (implements Mark.content)."""
        return None


@dataclass(frozen=True, slots=True)
class Definition:
    """The definition of a table, or of a database if `table` is empty. `columns` has a pair (name, members) for
    each column, in the order of the table. The members are those of the column's JSON object, each as JSON text,
    such as `"ColumnName": "id"`."""

    database: str
    table: str
    columns: tuple[tuple[str, tuple[str, ...]], ...] = ()

    @property
    def checksum(self) -> int:
        """The CRC-32 of the definition without its version and statement, with the columns sorted by name."""
        members = self._members(sorted(self.columns, key=lambda column: column[0].encode()), nothing="[]")
        return zlib.crc32(_object([*members[:2], '"Version": 0', *members[2:]]).encode())

    def file(self, version: int, query: str = "", action: int = 0) -> SchemaFile:
        """The schema file of the version that is visible from the ts `version` on. `query` and `action` are the
        statement that made it and TiDB's number of its kind, if it is to be executed by readers."""
        members = self._members(self.columns)
        head = [f'"Version": {_FORMAT}', f'"TableVersion": {version}', f'"Query": {html_quoted(query)}']
        body = _object([*members[:2], *head, f'"Type": {action}', *members[2:]])
        key = paths.schema_key(self.database, self.table, version, self.checksum)
        return SchemaFile((self.database, self.table), key, body.encode())

    def _members(self, columns: Sequence[tuple[str, tuple[str, ...]]], nothing: str = "null") -> list[str]:
        shown = ",\n".join(_object(members, 2) for _, members in columns)
        return [
            f'"Table": {html_quoted(self.table)}',
            f'"Schema": {html_quoted(self.database)}',
            f'"TableColumns": [\n{shown}\n    ]' if columns else f'"TableColumns": {nothing}',
            f'"TableColumnsTotal": {len(columns)}',
        ]


def definition(version: TableVersion, *, column_ids: bool = False) -> Definition:
    """The definition of a table version. `column_ids`: with the ids of columns (`output-column-id`)."""
    columns = table_facts(version).columns
    return Definition(*version.name, tuple((one.column.name, _column(one, column_ids)) for one in columns))


def schema_files(
    event: DdlEvent, changes: Sequence[TableChange], *, column_ids: bool = False
) -> tuple[SchemaFile, ...]:
    """The schema files of a DDL; none for the rollback of a DDL. `changes` are the tables that it changed. The file of
    one table has the statement, and those of other tables have none, so that readers execute it once: of the table that
    the DDL names, or of the one with partitions if a partition is exchanged. `column_ids`: whether the files have the
    ids of columns."""
    action = action_number(event.action)
    if action is None or not event.database:
        return ()
    if action in OF_SCHEMA:
        return (Definition(event.database, "").file(event.commit_ts, event.query, action),)
    shown = [one for change in changes if (one := change.after or change.before) and one.head.kind != "sequence"]
    if action == _EXCHANGE:
        shown.sort(key=lambda one: one.head.partition_ids is None)
    return tuple(
        definition(one, column_ids=column_ids).file(event.commit_ts, *(("", 0) if number else (event.query, action)))
        for number, one in enumerate(shown)
    )


def _column(facts: ColumnFacts, column_ids: bool) -> tuple[str, ...]:
    one = facts.column
    members = [f'"ColumnId": "{one.id}"'] if column_ids else []
    members.append(f'"ColumnName": {html_quoted(one.name)}')
    members.append(f'"ColumnType": {html_quoted(facts.type_name.upper() + (" UNSIGNED" if one.unsigned else ""))}')
    if facts.default is not None:
        members.append(f'"ColumnDefault": {html_quoted(_text(facts.default))}')
    if one.tp in _LENGTHS:
        members.append(f'"ColumnPrecision": "{_LENGTHS[one.tp] if one.flen == -1 else one.flen}"')
    if one.tp == t.DECIMAL:
        members.append(f'"ColumnScale": "{max(one.decimal, 0)}"')
    elif one.tp in _FRACTIONAL and one.decimal > 0:
        members.append(f'"ColumnScale": "{one.decimal}"')
    if one.not_null:
        members.append('"ColumnNullable": "false"')
    if one.flag & t.FLAG_PRIMARY:
        members.append('"ColumnIsPk": "true"')
    if one.elems and one.tp in (t.ENUM, t.SET):
        shown = ",\n".join(" " * 16 + html_quoted(text) for text in one.elems)
        members.append(f'"ColumnElems": [\n{shown}\n            ]')
    return tuple(members)


def _text(default: object) -> str:
    return default.decode(errors="replace") if isinstance(default, bytes) else str(default)


def _object(members: Sequence[str], depth: int = 0) -> str:
    """A JSON object with one member a line, indented by four blanks for each level as Go's MarshalIndent does."""
    outer, inner = " " * (4 * depth), " " * (4 * depth + 4)
    lines = ",\n".join(inner + member for member in members)
    return f"{outer}{{\n{lines}\n{outer}}}"
