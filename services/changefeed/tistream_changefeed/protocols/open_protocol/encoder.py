"""Encodes events in TiCDC's open protocol. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from tistream.arrays import Int64s
from tistream.decode.json_lines import LineColumn, LineGroup, LineWriter
from tistream.decode.kernels.render_kernel import Form
from tistream.schema.ddl_event import DdlEvent
from tistream.schema.tidb.actions import action_number
from tistream.schema.tidb.table import Column
from tistream_changefeed.protocols.go_strings import go_quoted
from tistream_changefeed.protocols.limits import RECORD_BYTES, Limit, in_base64, within
from tistream_changefeed.protocols.members import all_parts, changed_parts, check_numbered
from tistream_changefeed.protocols.messages import Message, Messages
from tistream_changefeed.protocols.open_protocol import columns as described
from tistream_changefeed.protocols.open_protocol.faults import updated_parts
from tistream_changefeed.protocols.open_protocol.frames import FRAME_BYTES, framed_key, framed_value
from tistream_changefeed.protocols.table_change import TableChange
from tistream_changefeed.rows.row_batch import RowBatch

_ROW, _DDL, _RESOLVED, _ADMIN = 1, 2, 3, 4


@dataclass(frozen=True, slots=True)
class OpenOptions:
    """Options of the protocol, by TiCDC's names with underscores. `faults`: reproduce the values that TiCDC falsifies
    (`compatible = "ticdc"`)."""

    only_output_updated_columns: bool = False
    delete_only_output_handle_key_columns: bool = False
    output_old_value: bool = True
    faults: bool = False
    limit: Limit = field(default_factory=Limit)


class OpenProtocol:
    """Encodes events in TiCDC's open protocol. Events of rows are combined into Kafka messages later (frames.py); other
    events are framed here."""

    numbered = True
    describes_tables = False

    def __init__(self, options: OpenOptions) -> None:
        self._options = options

    def rows(self, batch: RowBatch) -> Messages:
        """Encode each event. Raises MessageTooLarge, and ValueError if ENUM and SET were decoded as names, not
        numbers."""
        check_numbered(batch)
        whole = self._encoded(batch, batch.columns, "")
        overhead = RECORD_BYTES + FRAME_BYTES
        return within(batch, whole, self._options.limit, overhead, self._reduced, _claimed)

    def ddl(self, event: DdlEvent, changes: Sequence[TableChange] = ()) -> Message | None:  # noqa: ARG002
        """Encode a DDL, worded as the user wrote it. Returns None for the rollback of a DDL: no statement expresses it,
        and readers need none, because the message of a row names its columns."""
        number = action_number(event.action)
        if number is None:
            return None
        scope = f'"scm":{go_quoted(event.database)},"tbl":{go_quoted(event.table)}'
        key = f'{{"ts":{event.commit_ts},{scope},"t":{_DDL}}}'
        value = f'{{"q":{go_quoted(event.query)},"t":{number}}}'
        return Message(framed_key(key.encode()), framed_value(self._options.limit.packed(value.encode())))

    def resolved(self, ts: int) -> Message:
        """Encode a resolved ts as a Kafka message of one event."""
        return Message(framed_key(f'{{"ts":{ts},"t":{_RESOLVED}}}'.encode()), framed_value(b""))

    def admin(self, ts: int, partitions: int) -> Message:
        """Encode the message which says that rows above `ts` are spread over `partitions` partitions."""
        key = f'{{"ts":{ts},"t":{_ADMIN},"n":{partitions}}}'
        return Message(framed_key(key.encode()), framed_value(b""))

    def _reduced(self, batch: RowBatch, locations: Sequence[str] | None) -> Messages:
        """Encode row events with only the columns of the handle key. `locations`: the file in which each whole message
        is stored; None: they are not stored."""
        if locations is None:
            return self._encoded(batch, batch.handle, ',"ohk":true')
        return self._encoded(batch, batch.handle, ',"ohk":false,"ccl":', locations)

    def _encoded(
        self, batch: RowBatch, columns: Sequence[Column], mark: str, locations: Sequence[str] | None = None
    ) -> Messages:
        return Messages(self._keys(batch, mark, locations), self._values(batch, columns))

    def _keys(self, batch: RowBatch, mark: str, locations: Sequence[str] | None) -> pa.Array:
        database, table = batch.version.name
        scope = f',"scm":{go_quoted(database)},"tbl":{go_quoted(table)},"t":{_ROW}{mark}'
        partition = f',"ptn":{batch.physical_id}' if batch.version.table.partition_ids is not None else ""
        parts = [LineColumn('{"ts":', Form.INT, pa.array(batch.commit_ts))]
        if locations is None:
            return LineWriter(len(batch), [LineGroup("", parts)], f"{scope}{partition}}}").lines()
        parts.append(LineColumn(scope, Form.GO_ESCAPED, pa.array(locations, pa.large_string())))
        return LineWriter(len(batch), [LineGroup("", parts)], f"{partition}}}").lines()

    def _values(self, batch: RowBatch, columns: Sequence[Column]) -> pa.Array:
        options = self._options
        shape = _Shape(batch, options.faults)
        deleted = columns
        if options.delete_only_output_handle_key_columns and batch.handle:
            deleted = [column for column in columns if column in batch.handle]
        both = np.where(batch.new_at < 0, -1, batch.old_at)
        groups = [
            shape.all('{"u":{', batch.new, columns, batch.new_at),
            shape.all('{"d":{', batch.old, deleted, np.where(batch.new_at < 0, batch.old_at, -1)),
        ]
        if options.output_old_value and (both >= 0).any():
            lead = ',"p":{'
            updated = options.only_output_updated_columns
            groups.append(shape.updated(lead, columns, both) if updated else shape.all(lead, batch.old, columns, both))
        return LineWriter(len(batch), groups, "}").lines()


class _Shape:
    """Builds the JSON objects of the rows of one batch."""

    def __init__(self, batch: RowBatch, faults: bool) -> None:
        self._batch, self._faults = batch, faults
        self._flags = described.flags_of(batch.version.table, batch.handle)

    def all(self, lead: str, arrays: Sequence[pa.Array], columns: Sequence[Column], places: Int64s) -> LineGroup:
        """The JSON text of these columns of the rows at `places`, after the text `lead`. A line with a negative place
        gets nothing."""
        parts = all_parts(self._batch, arrays, columns, self._head, self._form, "}")
        return LineGroup(lead, parts, places, optional=True, end="}}" if parts else "}")

    def updated(self, lead: str, columns: Sequence[Column], places: Int64s) -> LineGroup:
        """The JSON text of the old values of the columns that each update changes, after the text `lead`. `places`: the
        index of each event's old row; negative if it is not an update."""
        if self._faults:
            parts = updated_parts(self._batch, columns, self._head, self._description, self._form)
        else:
            parts = changed_parts(self._batch, columns, self._head, self._form, "}")
        return LineGroup(lead, parts, places, optional=True, sparse=True, end="}")

    def _head(self, column: Column) -> str:
        return f"{go_quoted(column.name)}:{{{self._description(column)}"

    def _description(self, column: Column) -> str:
        return described.describe(column, self._flags[column.id], handle=column in self._batch.handle)

    def _form(self, column: Column) -> Form:
        return described.form_of(column, faults=self._faults)


def _claimed(key: bytes | None, value: bytes) -> bytes:
    """The content of a claim-check file: the whole message, framed as one Kafka message would be."""
    assert key is not None
    return in_base64(framed_key(key), framed_value(value))
