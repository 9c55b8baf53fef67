"""Encodes events in TiCDC's protocol canal-json. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tistream.arrays import Bools, Int64s
from tistream.decode.json_lines import LineColumn, LineGroup, LineWriter
from tistream.decode.kernels.render_kernel import Form
from tistream.schema.ddl_event import DdlEvent
from tistream.schema.tidb.actions import action_number
from tistream.schema.tidb.table import Column
from tistream_changefeed.protocols.canal_json import types
from tistream_changefeed.protocols.canal_json.ddl_types import ddl_type
from tistream_changefeed.protocols.go_strings import html_quoted
from tistream_changefeed.protocols.limits import RECORD_BYTES, Limit, within
from tistream_changefeed.protocols.members import all_parts, changed_parts, check_numbered, places_of
from tistream_changefeed.protocols.messages import Message, Messages
from tistream_changefeed.protocols.table_change import TableChange
from tistream_changefeed.rows.row_batch import RowBatch
from tistream_changefeed.rows.split import DELETE, UPDATE, kinds

_PHYSICAL_SHIFT = 18  # bits of a TSO below its milliseconds
_OPS = pa.array(["DELETE", "UPDATE", "INSERT"], pa.large_string())  # by kind of event
_WATERMARK = "TIDB_WATERMARK"
FLAG_PRIMARY = 2


@dataclass(frozen=True, slots=True)
class CanalOptions:
    """Options of the protocol, by TiCDC's names with underscores. `content_compatible` names types with their lengths,
    and sends the changed old values only. `faults`: reproduce the values that TiCDC falsifies (`compatible = "ticdc"`).

    A message that is larger than `limit` can be reduced only with `enable_tidb_extension`.
    """

    enable_tidb_extension: bool = False
    content_compatible: bool = False
    only_output_updated_columns: bool = False
    delete_only_output_handle_key_columns: bool = False
    output_row_key: bool = False
    faults: bool = False
    limit: Limit = field(default_factory=Limit)

    def __post_init__(self) -> None:
        if not self.limit.refuses and not self.enable_tidb_extension:
            raise ValueError("canal-json reduces large messages only with enable-tidb-extension = true")


class CanalJson:
    """Encodes events in canal-json. The member `ts` is the commit's time, so that a repeat of an event has the same
    bytes. In TiCDC it is the time of encoding."""

    numbered = True
    describes_tables = False

    def __init__(self, options: CanalOptions) -> None:
        self._options = options

    def rows(self, batch: RowBatch) -> Messages:
        """Encode each event. Raises MessageTooLarge, and ValueError if ENUM and SET were decoded as names, not
        numbers."""
        check_numbered(batch)
        whole = Messages(None, self._values(batch, batch.columns, "", None))
        return within(batch, whole, self._options.limit, RECORD_BYTES, self._reduced)

    def ddl(self, event: DdlEvent, changes: Sequence[TableChange] = ()) -> Message | None:  # noqa: ARG002
        """Encode a DDL, worded as the user wrote it, for partition 0. Returns None for the rollback of a DDL: no
        statement expresses it, and readers need none, because the message of a row names its columns."""
        number = action_number(event.action)
        if number is None:
            return None
        names = f'"database":{html_quoted(event.database)},"table":{html_quoted(event.table)}'
        value = _single(names, ddl_type(number), event.commit_ts, event.query, is_ddl=True)
        extension = f',"_tidb":{{"commitTs":{event.commit_ts}}}' if self._options.enable_tidb_extension else ""
        text = f"{value}{extension}}}".encode()
        return Message(None, self._options.limit.packed(text), every_partition=False)

    def resolved(self, ts: int) -> Message | None:
        """Encode a resolved ts; None without the extension."""
        if not self._options.enable_tidb_extension:
            return None
        value = _single('"database":"","table":""', _WATERMARK, ts, "", is_ddl=False)
        text = f'{value},"_tidb":{{"watermarkTs":{ts}}}}}'.encode()
        return Message(None, self._options.limit.packed(text))

    def _reduced(self, batch: RowBatch, locations: Sequence[str] | None) -> Messages:
        """Encode row events with only the columns of the handle key. `locations`: the file in which each whole message
        is stored; None: they are not stored."""
        if locations is None:
            return Messages(None, self._values(batch, batch.handle, ',"onlyHandleKey":true', None))
        return Messages(None, self._values(batch, batch.handle, ',"claimCheckLocation":', locations))

    def _values(
        self, batch: RowBatch, columns: Sequence[Column], mark: str, locations: Sequence[str] | None
    ) -> pa.Array:
        options = self._options
        kind = kinds(batch)
        lines = np.arange(len(batch))
        shape = _Shape(batch, options)
        trimmed = [column for column in columns if column in batch.handle]
        trims = options.delete_only_output_handle_key_columns and bool(trimmed)
        deleted = kind == DELETE
        old_only = np.where(deleted, batch.old_at, -1)
        groups = [LineGroup(shape.lead(), [LineColumn("", Form.RAW, _OPS)], kind)]
        if trims:
            groups += [
                *shape.types(columns, np.where(deleted, -1, lines)),
                *shape.types(trimmed, np.where(deleted, lines, -1)),
            ]
        else:
            groups += shape.types(columns, None)
        groups += [
            *shape.old(columns, kind == UPDATE),
            shape.row(',"data":[{', batch.new, columns, np.where(deleted, -1, batch.new_at)),
            shape.row(',"data":[{', batch.old, trimmed if trims else columns, old_only),
        ]
        if options.enable_tidb_extension:
            groups.append(LineGroup(',"_tidb":{', _extension(batch, mark, locations, options.output_row_key), end="}"))
        return LineWriter(len(batch), groups, "}").lines()


class _Shape:
    """Builds the JSON text of the rows of one batch, in pieces."""

    def __init__(self, batch: RowBatch, options: CanalOptions) -> None:
        self._batch, self._options = batch, options
        self._deleted = batch.new_at < 0

    def lead(self) -> str:
        """The JSON text of a row's message up to the value of its member `type`."""
        version = self._batch.version
        database, table = version.name
        keys = ",".join(html_quoted(one.name) for one in self._batch.columns if one.flag & FLAG_PRIMARY)
        names = f'"database":{html_quoted(database)},"table":{html_quoted(table)}'
        return f'{{"id":0,{names},"pkNames":[{keys}],"isDdl":false,"type":"'

    def types(self, columns: Sequence[Column], places: Int64s | None) -> list[LineGroup]:
        """The JSON text of the members with the commit's time (`es`, `ts`) and with the types of these columns
        (`sqlType`, `mysqlType`), as groups of a LineWriter. It is written into the lines whose place is not
        negative, or into all lines if `places` is None."""
        batch, options = self._batch, self._options
        ms = pa.array(batch.commit_ts >> _PHYSICAL_SHIFT)
        parts = [LineColumn('","es":', Form.INT, ms), LineColumn(',"ts":', Form.INT, ms)]
        text = ',"sql":"","sqlType":'
        for number, place in enumerate(places_of(batch, columns)):
            column = batch.columns[place]
            text += f"{',' if number else '{'}{html_quoted(column.name)}:"
            varying = self._varying(place, column)
            if varying is None:
                text += str(types.sql_type(column, faults=options.faults))
            else:
                parts.append(LineColumn(text, Form.INT, pa.array(varying)))
                text = ""
        names = ",".join(
            f"{html_quoted(batch.columns[place].name)}:"
            f"{html_quoted(types.mysql_type(batch.columns[place], full=options.content_compatible))}"
            for place in places_of(batch, columns)
        )
        text += "}" if columns else "null"
        return [LineGroup("", parts, places, optional=places is not None, end=f'{text},"mysqlType":{{{names}}}')]

    def old(self, columns: Sequence[Column], updates: Bools) -> list[LineGroup]:
        """The JSON member `old`, with the old values of the updates that the mask selects."""
        nothing = ',"old":null'
        if not updates.any():
            return [LineGroup(nothing, ())]
        places = np.where(updates, self._batch.old_at, -1)
        if self._options.only_output_updated_columns or self._options.content_compatible:
            parts = changed_parts(self._batch, columns, _head, self._form)
            shown = LineGroup(',"old":[{', parts, places, optional=True, sparse=True, end="}]")
        else:
            shown = self.row(',"old":[{', self._batch.old, columns, places)
        return [LineGroup(nothing, (), np.where(updates, -1, 0), optional=True), shown]

    def row(self, lead: str, arrays: Sequence[pa.Array], columns: Sequence[Column], places: Int64s) -> LineGroup:
        """The JSON text of these columns of the rows at `places`, in brackets, after the text `lead`. A line with a
        negative place gets nothing."""
        return LineGroup(
            lead, all_parts(self._batch, arrays, columns, _head, self._form), places, optional=True, end="}]"
        )

    def _form(self, column: Column) -> Form:
        return types.form_of(column, faults=self._options.faults)

    def _varying(self, place: int, column: Column) -> Int64s | None:
        """For each event, the number in java.sql.Types of its value in an unsigned column; None if all events have the
        same number."""
        wider = types.wider(column)
        if wider is None:
            return None
        batch, (bound, large) = self._batch, wider
        above = np.zeros(len(batch), np.bool_)
        for array, at, mine in (
            (batch.new[place], batch.new_at, ~self._deleted),
            (batch.old[place], batch.old_at, self._deleted),
        ):
            over = pc.fill_null(pc.greater(array, pa.scalar(bound, array.type)), False)
            if len(array) and pc.any(over).as_py():
                above[mine] = over.to_numpy(zero_copy_only=False)[at[mine]]
        if not above.any():
            return None
        return np.where(above, large, types.sql_type(column, faults=self._options.faults))


def _head(column: Column) -> str:
    return f"{html_quoted(column.name)}:"


def _extension(batch: RowBatch, mark: str, locations: Sequence[str] | None, row_key: bool) -> list[LineColumn]:
    """The members of the object `_tidb`, as columns of a LineWriter. `mark` is the text after the commit_ts; with
    `locations`, the event's location follows it."""
    parts = [LineColumn('"commitTs":', Form.INT, pa.array(batch.commit_ts))]
    if locations is not None:
        parts.append(LineColumn(mark, Form.HTML_CODED, pa.array(locations, pa.large_string())))
    elif mark:
        parts.append(LineColumn(mark, Form.RAW, pa.array([""] * len(batch), pa.large_string())))
    if row_key:
        parts.append(LineColumn(',"rowkey":', Form.BASE64, batch.raw))
    return parts


def _single(names: str, kind: str, ts: int, sql: str, *, is_ddl: bool) -> str:
    """The JSON text of a message that is not a row (a DDL or a watermark), without its closing bracket. `names`: the
    members `database` and `table`."""
    ms = ts >> _PHYSICAL_SHIFT
    flag = "true" if is_ddl else "false"
    return (
        f'{{"id":0,{names},"pkNames":null,"isDdl":{flag},"type":"{kind}","es":{ms},"ts":{ms},"sql":{html_quoted(sql)},'
        '"sqlType":null,"mysqlType":null,"data":null,"old":null'
    )
