"""Encodes events as Debezium's JSON."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from tistream.decode.json_lines import LineColumn, LineGroup, LineWriter
from tistream.decode.kernels.render_kernel import Form
from tistream.schema.ddl_event import DdlEvent
from tistream.schema.visible import TableVersion
from tistream_changefeed.protocols.debezium import ddl
from tistream_changefeed.protocols.debezium.field_schema import field_schema
from tistream_changefeed.protocols.debezium.options import DebeziumOptions
from tistream_changefeed.protocols.debezium.source import (
    ENVELOPE_END,
    physical_ms,
    schema_name,
    source_of,
    source_texts,
)
from tistream_changefeed.protocols.debezium.values import value_parts
from tistream_changefeed.protocols.go_strings import go_quoted
from tistream_changefeed.protocols.key_rows import key_rows
from tistream_changefeed.protocols.messages import Message, Messages
from tistream_changefeed.protocols.names import safe_name
from tistream_changefeed.protocols.op_texts import ABSENT, UPDATE, chosen, ops_of
from tistream_changefeed.protocols.table_change import TableChange
from tistream_changefeed.protocols.table_facts import ColumnFacts, TableFacts, VersionCache, table_facts
from tistream_changefeed.rows.row_batch import RowBatch


@dataclass(frozen=True, slots=True)
class _Fields:
    """The schemas of a table version's columns as JSON texts, by column id, without the commas between them."""

    facts: TableFacts
    by_id: dict[int, str]

    def of(self, columns: tuple[ColumnFacts, ...]) -> str:
        return ",".join(self.by_id[column.column.id] for column in columns)


class DebeziumEncoder:
    """Encodes events as Debezium JSON, with or without schemas. Rows of a table without a handle key have the key `{}`.
    The member `ts_ms` outside of `source` is the commit's time too, so that a repeat after a crash writes equal bytes.
    The TIMESTAMP values of the row batches are in UTC."""

    numbered = False  # ENUM and SET are names
    describes_tables = True

    def __init__(self, options: DebeziumOptions) -> None:
        self._options = options
        self._versions = VersionCache(self._fields)

    def rows(self, batch: RowBatch) -> Messages:
        """Encode each event as a key and a value."""
        fields = self._versions.of(batch.version)
        columns = fields.facts.of(batch.columns)
        return Messages(self._keys(batch, fields), self._values(batch, fields, columns))

    def ddl(self, event: DdlEvent, changes: Sequence[TableChange] = ()) -> Message | None:
        """Encode a DDL, with its tables as they are afterwards. Returns None for a kind of DDL for which TiCDC has no
        message."""
        found = ddl.payload(event, changes, self._options)
        if found is None:
            return None
        key = f'{{"payload":{{"databaseName":{go_quoted(event.database)}}}'
        value = f'{{"payload":{found}'
        if not self._options.debezium_disable_schema:
            key += f',"schema":{ddl.KEY_SCHEMA}'
            value += f',"schema":{ddl.VALUE_SCHEMA}'
        return Message(f"{key}}}".encode(), f"{value}}}".encode())

    def resolved(self, ts: int) -> Message | None:
        """Encode a watermark. Returns None without the TiDB extension."""
        if not self._options.enable_tidb_extension:
            return None
        source = source_of(self._options.cluster, "", "", ts)
        key = '{"payload":{}'
        value = f'{{"payload":{{{source},"ts_ms":{physical_ms(ts)},"transaction":null,"op":"m"}}'
        if not self._options.debezium_disable_schema:
            name = f"{safe_name(self._options.cluster)}.watermark"
            key += f',"schema":{{"type":"struct","name":"{name}.Key","optional":false,"fields":[]}}'
            value += (
                f',"schema":{{"type":"struct","optional":false,"name":"{name}.Envelope","version":1,'
                f'"fields":[{ENVELOPE_END}]}}'
            )
        return Message(f"{key}}}".encode(), f"{value}}}".encode())

    def _fields(self, version: TableVersion) -> _Fields:
        facts = table_facts(version)
        extended = self._options.enable_tidb_extension
        by_id = {column.column.id: field_schema(column, tidb_type=extended) for column in facts.columns}
        return _Fields(facts, by_id)

    def _keys(self, batch: RowBatch, fields: _Fields) -> pa.Array:
        handle = {column.id for column in batch.handle}
        columns = tuple(column for column in batch.columns if column.id in handle)  # in the order of the table
        facts = fields.facts.of(columns)
        arrays, places = key_rows(batch, columns)
        parts = value_parts(facts, arrays, defaults=self._options.compatible)
        tail = "}"
        if not self._options.debezium_disable_schema:
            name = schema_name(self._options.cluster, *batch.version.name)
            tail = f',"schema":{{"type":"struct","name":"{name}.Key","optional":false,"fields":[{fields.of(facts)}]}}}}'
        return LineWriter(len(batch), [LineGroup('{"payload":', parts, places, brackets=True)], tail).lines()

    def _values(self, batch: RowBatch, fields: _Fields, columns: tuple[ColumnFacts, ...]) -> pa.Array:
        options = self._options
        kinds = ops_of(batch)
        updated = kinds == UPDATE
        head, middle, end = source_texts(options.cluster, *batch.version.name)
        commit_ms = pa.array(physical_ms(batch.commit_ts))
        before = '"u","before":' if options.output_old_value else '"u","after":'
        ops = ['"c","before":null,"after":', '"d","after":null,"before":', before]
        groups = [
            LineGroup(f'{{"payload":{{{head}', [LineColumn("", Form.INT, commit_ms)]),
            LineGroup(middle, [LineColumn("", Form.INT, pa.array(batch.commit_ts))]),
            LineGroup(f'{end},"ts_ms":', [LineColumn("", Form.INT, commit_ms)]),
            LineGroup(',"transaction":null,"op":', chosen(ops, kinds).parts, kinds),
        ]
        old_at = batch.old_at if options.output_old_value else np.where(updated, ABSENT, batch.old_at)
        if len(batch.old) and (old_at >= 0).any():
            old = value_parts(columns, batch.old, defaults=options.compatible)
            groups.append(LineGroup("", old, old_at, brackets=True, silent=True))
        if options.output_old_value and updated.any():
            groups.append(chosen([',"after":'], np.where(updated, 0, ABSENT)))
        if len(batch.new) and (batch.new_at >= 0).any():
            new = value_parts(columns, batch.new, defaults=options.compatible)
            groups.append(LineGroup("", new, batch.new_at, brackets=True, silent=True))
        tail = "}}" if options.debezium_disable_schema else f'}},"schema":{self._envelope(batch, fields, columns)}}}'
        return LineWriter(len(batch), groups, tail).lines()

    def _envelope(self, batch: RowBatch, fields: _Fields, columns: tuple[ColumnFacts, ...]) -> str:
        name = schema_name(self._options.cluster, *batch.version.name)
        row = f'{{"type":"struct","optional":true,"name":"{name}.Value","field":"%s","fields":['
        members = f"{fields.of(columns)}]}}"
        sides = f"{row.replace('%s', 'before')}{members},{row.replace('%s', 'after')}{members}"
        return (
            f'{{"type":"struct","optional":false,"name":"{name}.Envelope","version":1,'
            f'"fields":[{sides},{ENVELOPE_END}]}}'
        )
