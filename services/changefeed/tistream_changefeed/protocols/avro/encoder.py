"""Encodes row events as Avro records, with the ids that a registry has assigned to their schemas."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tistream.arrays import Int64s
from tistream.decode.kernels.arrow_buffers import binary_array
from tistream.decode.kernels.column_views import ColumnViews
from tistream.errors import CannotEncode
from tistream.schema.ddl_event import DdlEvent
from tistream.schema.tidb import table as t
from tistream.schema.tidb.table import FLAG_PRIMARY, Column
from tistream.schema.visible import TableVersion
from tistream_changefeed.protocols.avro.decimal_kernel import unscaled_bytes
from tistream_changefeed.protocols.avro.options import AvroOptions
from tistream_changefeed.protocols.avro.record_kernel import (
    VARINT_BYTES,
    AvroEncoding,
    NullEncoding,
    put_records,
    string_bytes,
)
from tistream_changefeed.protocols.avro.schema import null_first, record_schema
from tistream_changefeed.protocols.columns.bits import bit_bytes
from tistream_changefeed.protocols.columns.json_spacing import spaced
from tistream_changefeed.protocols.key_rows import key_rows
from tistream_changefeed.protocols.messages import Message, Messages
from tistream_changefeed.protocols.table_change import TableChange
from tistream_changefeed.protocols.table_facts import ColumnFacts, table_facts
from tistream_changefeed.rows.row_batch import RowBatch

_MAGIC = b"\0"  # of Confluent's framing; the schema's id follows, 4 bytes big endian
_FIELD_BYTES = VARINT_BYTES + 8
_OPS = pa.array(["c", "u"], pa.large_string())
_KNOWN_MAX = 40_000  # keys and values of table versions that are kept
_LOGICAL_BITS = 18  # of a TSO; the physical milliseconds are above


class SchemaIds(Protocol):
    """Assigns ids to Avro schemas, as a schema registry does."""

    def id_of(self, subject: str, schema: str) -> int:
        """Return the id of a schema. Registers the schema under the subject first, if it is new."""


@dataclass(frozen=True, slots=True)
class _Field:
    union: NullEncoding
    wire: AvroEncoding
    array: Any
    itself: bool = False  # one value for each event, instead of for each row


@dataclass(frozen=True, slots=True)
class _Columns:
    """The columns of a record, and the bytes before it (magic byte and schema id). The encoder derives them once from a
    table version and the columns that are sent."""

    columns: tuple[ColumnFacts, ...]
    head: bytes


class AvroEncoder:
    """Encodes row events as Avro in Confluent's framing. The message of a delete has a null value; those of a table
    without a primary key have null keys."""

    numbered = False  # ENUM and SET are names
    describes_tables = False

    def __init__(self, options: AvroOptions, registry: SchemaIds) -> None:
        self._options = options
        self._registry = registry
        self._known: dict[tuple[TableVersion, tuple[Column, ...], bool], _Columns] = {}

    def rows(self, batch: RowBatch) -> Messages:
        """Encode each event. The schemas of a new table version are registered first. Raises CannotEncode if a
        NOT NULL column is null, or if two columns have one Avro name; and the errors of the registry."""
        key = tuple(column for column in batch.columns if column.flag & FLAG_PRIMARY)
        keys = None
        if key:
            arrays, places = key_rows(batch, key)
            prepared = self._prepared(batch.version, key, value=False)
            keys = self._records(batch, prepared, self._fields(prepared, arrays), places)
        if (batch.new_at < 0).all():
            return Messages(keys, pa.nulls(len(batch), pa.large_binary()))
        prepared = self._prepared(batch.version, batch.columns, value=True)
        fields = self._fields(prepared, batch.new)
        if self._options.enable_tidb_extension:
            fields += _extension(batch)
        return Messages(keys, self._records(batch, prepared, fields, batch.new_at))

    def ddl(self, event: DdlEvent, changes: Sequence[TableChange] = ()) -> Message | None:  # noqa: ARG002  # the protocol has no message of it
        """Return None, because the schemas in the registry describe the change."""
        return None

    def resolved(self, ts: int) -> Message | None:  # noqa: ARG002
        """Return None, because the protocol has no resolved messages."""
        return None

    def _prepared(self, version: TableVersion, columns: tuple[Column, ...], *, value: bool) -> _Columns:
        found = self._known.get((version, columns, value))
        if found is None:
            facts = table_facts(version)
            chosen = facts.of(columns)
            schema = record_schema(facts, chosen, self._options, extended=value)
            topic = self._options.topic_of(*version.name).replace(".", "_")
            subject = f"{topic}-{'value' if value else 'key'}"
            head = _MAGIC + self._registry.id_of(subject, schema).to_bytes(4, "big")
            found = self._known[version, columns, value] = _Columns(chosen, head)
            if len(self._known) > _KNOWN_MAX:
                del self._known[next(iter(self._known))]  # the oldest; it can be made again
        return found

    def _fields(self, prepared: _Columns, arrays: Sequence[Any]) -> list[_Field]:
        return [
            _Field(_union(null_first(facts, self._options)), *self._wired(facts.column, array))
            for facts, array in zip(prepared.columns, arrays, strict=True)
        ]

    def _wired(self, column: Column, array: Any) -> tuple[AvroEncoding, Any]:
        if pa.types.is_float32(array.type):
            return AvroEncoding.FLOAT, array
        if pa.types.is_float64(array.type):
            return AvroEncoding.DOUBLE, array
        if column.tp == t.BIT:
            return AvroEncoding.BYTES, bit_bytes(column, array, little_endian=False)
        if column.tp == t.DECIMAL and self._options.precise:
            return AvroEncoding.BYTES, unscaled_bytes(array, max(column.decimal, 0))
        if column.tp == t.JSON or (column.tp == t.LONGLONG and column.unsigned and self._options.unsigned_as_text):
            return AvroEncoding.BYTES, spaced(array) if column.tp == t.JSON else pc.cast(array, pa.large_string())
        return (AvroEncoding.LONG if pa.types.is_integer(array.type) else AvroEncoding.BYTES), array

    def _records(self, batch: RowBatch, prepared: _Columns, fields: Sequence[_Field], places: Int64s) -> Any:
        views = ColumnViews([field.array for field in fields])
        found = np.array([(field.wire, field.union, field.itself) for field in fields], np.int64).reshape(-1, 3)
        wires, unions, itself = found.T.copy()
        count = len(places)
        room = count * (len(prepared.head) + len(fields) * _FIELD_BYTES)
        room += string_bytes(places, itself, wires, views.offsets, views.rows)
        out = np.empty(room + _FIELD_BYTES, np.uint8)
        offsets = np.empty(count + 1, np.int64)
        head = np.frombuffer(prepared.head, np.uint8)
        bad = put_records(
            places, itself, wires, unions, views.values, views.value_bytes, views.offsets, views.rows, views.nulls,
            views.null_starts, head, out, offsets,
        )  # fmt: skip
        if bad >= 0:
            raise CannotEncode(
                f"table {'.'.join(batch.version.name)}: the row of commit_ts {batch.commit_ts[bad]} is null in a "
                "column that is NOT NULL, and its Avro schema has no null. Skip the event by name to go on without it."
            )
        valid = places >= 0
        return binary_array(out[: offsets[-1]], offsets, None if valid.all() else valid, text=False)


def _extension(batch: RowBatch) -> list[_Field]:
    updated = (batch.old_at >= 0).astype(np.int64)
    return [
        _Field(NullEncoding.NEVER, AvroEncoding.BYTES, _OPS.take(pa.array(updated)), itself=True),
        _Field(NullEncoding.NEVER, AvroEncoding.LONG, pa.array(batch.commit_ts), itself=True),
        _Field(NullEncoding.NEVER, AvroEncoding.LONG, pa.array(batch.commit_ts >> _LOGICAL_BITS), itself=True),
    ]


def _union(first: bool | None) -> NullEncoding:
    if first is None:
        return NullEncoding.NEVER
    return NullEncoding.FIRST if first else NullEncoding.SECOND
