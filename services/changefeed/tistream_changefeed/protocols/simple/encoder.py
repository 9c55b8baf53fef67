"""Encodes events as messages of the simple protocol."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from tistream.decode.cells.kinds import Kind, kind_of
from tistream.decode.json_lines import LineColumn, LineGroup, LineWriter
from tistream.decode.kernels.render_kernel import Form
from tistream.schema.ddl_event import DdlEvent
from tistream.schema.tidb import table as t
from tistream.schema.tidb.table import Column
from tistream.schema.visible import TableVersion
from tistream_changefeed.protocols.columns.enclosed import enclosed
from tistream_changefeed.protocols.debezium.source import physical_ms
from tistream_changefeed.protocols.go_strings import html_quoted
from tistream_changefeed.protocols.limits import RECORD_BYTES, Limit, within
from tistream_changefeed.protocols.members import check_numbered, places_of
from tistream_changefeed.protocols.messages import Message, Messages
from tistream_changefeed.protocols.op_texts import ABSENT, DELETE, INSERT, UPDATE, chosen, ops_of
from tistream_changefeed.protocols.simple.table_schema import table_schema
from tistream_changefeed.protocols.table_change import TableChange
from tistream_changefeed.protocols.table_facts import FLAG_BINARY, VersionCache, table_facts
from tistream_changefeed.rows.row_batch import RowBatch

_FORMS = {
    Kind.INT: Form.INT_TEXT,
    Kind.UINT: Form.UINT_TEXT,
    Kind.ENUM_NUMBER: Form.UINT_TEXT,
    Kind.SET_NUMBER: Form.UINT_TEXT,
    Kind.FLOAT: Form.SINGLE_TEXT,
    Kind.DOUBLE: Form.DOUBLE_TEXT,
    Kind.DECIMAL: Form.QUOTED,
    Kind.TIME: Form.QUOTED,
    Kind.DURATION: Form.QUOTED,
    Kind.JSON: Form.HTML_DOCUMENT,
    Kind.VECTOR: Form.QUOTED,
}

_TYPES = {
    "create table": "CREATE", "rename table": "RENAME", "rename tables": "RENAME", "add index": "CINDEX",
    "add foreign key": "CINDEX", "add primary key": "CINDEX", "drop index": "DINDEX", "drop foreign key": "DINDEX",
    "drop primary key": "DINDEX", "drop table": "ERASE", "truncate table": "TRUNCATE",
}  # fmt: skip
_ALTERED = frozenset(
    {
        "add column", "drop column", "modify column", "rebase auto_increment ID", "set default value",
        "modify table comment", "rename index", "add partition", "drop partition",
        "modify table charset and collate", "truncate partition", "alter index visibility",
        "alter table multi-schema change", "alter table reorganize partition", "alter table partition by",
        "alter table remove partitioning", "exchange partition",
    }
)  # fmt: skip


class SimpleEncoder:
    """Encodes events in the simple protocol. Messages have null keys. A row names the version of its schema, which
    `bootstrap` encodes and which is sent before the first row of that version. `buildTs` is the commit's time, so that
    a repeat after a crash writes equal bytes."""

    numbered = True
    describes_tables = True

    def __init__(self, time_zone: str = "UTC", limit: Limit | None = None) -> None:
        """`time_zone` is the name of the time zone in which TIMESTAMP values of batches are."""
        self._time_zone = time_zone
        self._limit = limit or Limit()
        self._versions = VersionCache(lambda version: table_facts(version).update_ts)

    def rows(self, batch: RowBatch) -> Messages:
        """Encode each event. Raises MessageTooLarge, and ValueError if ENUM and SET were decoded as names, not
        numbers."""
        check_numbered(batch)
        whole = Messages(None, self._values(batch, batch.columns, []))
        return within(batch, whole, self._limit, RECORD_BYTES, self._reduced)

    def _reduced(self, batch: RowBatch, locations: Sequence[str] | None) -> Messages:
        """Encode row events with only the columns of the handle key. `locations`: the file in which each whole message
        is stored; None: they are not stored."""
        mark = ',"handleKeyOnly":true'
        groups = [LineGroup(mark, [])]
        if locations is not None:
            part = LineColumn("", Form.HTML_CODED, pa.array(locations, pa.large_string()))
            groups = [LineGroup(',"claimCheckLocation":', [part], end=mark)]
        return Messages(None, self._values(batch, batch.handle, groups))

    def _values(self, batch: RowBatch, columns: Sequence[Column], marks: Sequence[LineGroup]) -> pa.Array:
        kinds = ops_of(batch)
        database, table = batch.version.name
        head = (
            f'{{"version":1,"database":{html_quoted(database)},"table":{html_quoted(table)},'
            f'"tableID":{batch.physical_id},"type":"'
        )
        types = {INSERT: "INSERT", DELETE: "DELETE", UPDATE: "UPDATE"}
        groups = [
            LineGroup(head, chosen([types[op] for op in sorted(types)], kinds).parts, kinds),
            LineGroup('","commitTs":', [LineColumn("", Form.INT, pa.array(batch.commit_ts))]),
            LineGroup(',"buildTs":', [LineColumn("", Form.INT, pa.array(physical_ms(batch.commit_ts)))]),
            LineGroup(f',"schemaVersion":{self._versions.of(batch.version)}', []),
            *marks,
        ]
        at = places_of(batch, columns)
        for name, arrays, places in (("data", batch.new, batch.new_at), ("old", batch.old, batch.old_at)):
            if (places >= 0).any():
                parts = self._parts([batch.columns[one] for one in at], [arrays[one] for one in at])
                groups.append(chosen([f',"{name}":'], (places >= 0) + ABSENT))
                groups.append(LineGroup("", parts, places, brackets=True, silent=True))
        return LineWriter(len(batch), groups, "}").lines()

    def ddl(self, event: DdlEvent, changes: Sequence[TableChange] = ()) -> Message | None:
        """Encode a DDL with the schema that its table has afterwards, or had last if the table was dropped; for
        EXCHANGE PARTITION also the schema from before. Other tables that the DDL changes get a `bootstrap` before their
        next row."""
        change = changes[0] if changes else None
        shown = change and (change.after or change.before)
        schema = f',"tableSchema":{table_schema(shown)}' if shown else ""
        if shown and change and event.action == "exchange partition" and change.before and change.after:
            schema += f',"preTableSchema":{table_schema(change.before)}'
        kind = _TYPES.get(event.action) or ("ALTER" if event.action in _ALTERED else "QUERY")
        return self._message(kind, event.commit_ts, event.commit_ts, f'"sql":{html_quoted(event.query)},', schema)

    def resolved(self, ts: int) -> Message | None:
        """Encode a resolved ts as a message of type WATERMARK."""
        return self._message("WATERMARK", ts, ts)

    def bootstrap(self, version: TableVersion) -> Message:
        """Encode the schema of a table. It is sent before the first row of the version, and again from time to time."""
        return self._message(
            "BOOTSTRAP", 0, self._versions.of(version), schema=f',"tableSchema":{table_schema(version)}'
        )

    def _message(self, kind: str, ts: int, built: int, sql: str = "", schema: str = "") -> Message:
        value = f'{{"version":1,"type":"{kind}",{sql}"commitTs":{ts},"buildTs":{physical_ms(built)}{schema}}}'
        return Message(None, self._limit.packed(value.encode()))

    def _parts(self, columns: Sequence[Column], arrays: Sequence[Any]) -> list[LineColumn]:
        """The members of a JSON object with these columns, sorted by the bytes of their names, as Go does."""
        ordered = sorted(zip(columns, arrays, strict=True), key=lambda pair: pair[0].name.encode())
        parts = []
        comma = ""
        for column, array in ordered:
            name = f"{comma}{html_quoted(column.name)}:"
            comma = ","
            parts.append(LineColumn(name, self._form(column), self._shown(column, array)))
        return parts

    def _form(self, column: Column) -> Form:
        if column.tp == t.TIMESTAMP:
            return Form.RAW
        if column.tp in t.TEXTS:
            return Form.BASE64 if column.flag & FLAG_BINARY or column.binary else Form.HTML_CODED
        return _FORMS.get(kind_of(column, numbered=True), Form.HTML_CODED)

    def _shown(self, column: Column, array: Any) -> Any:
        if column.tp != t.TIMESTAMP:
            return array
        head, tail = f'{{"location":{html_quoted(self._time_zone)},"value":"', '"}'
        return enclosed(array, head, tail)
