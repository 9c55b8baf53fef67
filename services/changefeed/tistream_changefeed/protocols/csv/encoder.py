"""Encodes row events as lines of CSV: the operation, the table, the schema, then the columns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tistream.arrays import Int64s
from tistream.decode.cells.kinds import Kind, kind_of
from tistream.decode.kernels.arrow_buffers import I64, U8, binary_array
from tistream.decode.kernels.column_views import ColumnViews
from tistream.schema.ddl_event import DdlEvent
from tistream.schema.tidb.table import Column
from tistream.schema.visible import Name
from tistream_changefeed.protocols.columns.json_spacing import spaced
from tistream_changefeed.protocols.csv.line_kernel import (
    GROWTH,
    VALUE_CHARS,
    CellForm,
    interleave,
    put_lines,
    text_bytes,
)
from tistream_changefeed.protocols.csv.options import CsvOptions
from tistream_changefeed.protocols.messages import Message, Messages
from tistream_changefeed.protocols.op_texts import ABSENT, DELETE, INSERT, UPDATE, ops_of
from tistream_changefeed.protocols.table_change import TableChange
from tistream_changefeed.rows.row_batch import RowBatch

_CELLS = {Kind.INT: CellForm.INT, Kind.UINT: CellForm.UINT, Kind.FLOAT: CellForm.SINGLE, Kind.DOUBLE: CellForm.DOUBLE}
_OP_NAMES = {INSERT: "I", DELETE: "D", UPDATE: "U"}


@dataclass(frozen=True, slots=True)
class _Lines:
    """The lines of a batch in one buffer, at most one for each event. The line of event i is `data[offsets[i]:offsets[i
    + 1]]`."""

    data: U8
    offsets: I64


class CsvEncoder:
    """Encodes row events as CSV messages, whose Kafka key is null. With `output_old_value` the value of an update has
    two lines: a delete and an insert."""

    numbered = False  # ENUM and SET are names
    describes_tables = False

    def __init__(self, options: CsvOptions) -> None:
        self._options = options
        self._bytes = CellForm.BASE64 if options.binary_encoding_method == "base64" else CellForm.HEX

    def rows(self, batch: RowBatch) -> Messages:
        """Encode each event as its line or lines, with the terminator."""
        kinds = ops_of(batch)
        deleted = kinds == DELETE
        before = deleted | (kinds == UPDATE) if self._options.output_old_value else deleted
        after = np.where(kinds == UPDATE, INSERT, kinds) if self._options.output_old_value else kinds
        old = self._lines(
            batch, batch.old, np.where(before, batch.old_at, ABSENT), np.full(len(batch), DELETE, np.int64), kinds
        )
        new = self._lines(batch, batch.new, batch.new_at, after, kinds)
        return Messages(None, _joined(old, new))

    def ddl(self, event: DdlEvent, changes: Sequence[TableChange] = ()) -> Message | None:  # noqa: ARG002
        """Return None, because the protocol has no DDL messages. Schema files describe the change."""
        return None

    def resolved(self, ts: int) -> Message | None:  # noqa: ARG002
        """Return None, because the protocol has no resolved messages."""
        return None

    def heads(self, name: Name) -> list[str]:
        """The text with which a line of a table begins (operation, table, database), for each operation, in the order
        of their numbers."""
        database, table = name
        heads = ((_OP_NAMES[op], table, database) for op in sorted(_OP_NAMES))
        return [self._options.delimiter.join(map(self._delimited, one)) for one in heads]

    def _lines(self, batch: RowBatch, arrays: Sequence[Any], places: Int64s, ops: Int64s, kinds: Int64s) -> _Lines:
        """The lines of the rows at `places`. `ops` is the operation that each line states, and `kinds` the operation of
        the event to which the line belongs."""
        if not (places >= 0).any():
            return _Lines(np.empty(0, np.uint8), np.zeros(len(places) + 1, np.int64))
        options = self._options
        formed = [self._formed(column, array) for column, array in zip(batch.columns, arrays, strict=True)]
        cells = np.array([cell for cell, _ in formed], np.int64)
        views = ColumnViews([array for _, array in formed])
        cut = options.delimiter
        head_texts, head_ends = _end_to_end(self.heads(batch.version.name))
        flag_texts, flag_ends = _end_to_end(["false", "true"] if options.output_old_value else [])
        null, terminator = _bytes_of(options.null), _bytes_of(options.terminator)
        fixed = len(head_texts) + len(terminator) + 2 * VALUE_CHARS
        cell_room = max(VALUE_CHARS, len(null) + len(cut))
        room = int((places >= 0).sum()) * (fixed + len(cells) * cell_room)
        room += GROWTH * text_bytes(places, cells, views.offsets, views.rows)
        out, offsets = np.empty(room + VALUE_CHARS, np.uint8), np.empty(len(places) + 1, np.int64)
        put_lines(
            ops, places, batch.commit_ts if options.include_commit_ts else batch.commit_ts[:0], head_texts, head_ends,
            (kinds == UPDATE).astype(np.int64), flag_texts, flag_ends, cells, views.values, views.value_bytes,
            views.offsets, views.rows, views.nulls, views.null_starts, _bytes_of(cut),
            ord(options.quote) if options.quote else 0, null, terminator, out, offsets,
        )  # fmt: skip
        return _Lines(out[: offsets[-1]], offsets)

    def _formed(self, column: Column, array: Any) -> tuple[CellForm, Any]:
        kind = kind_of(column)
        if kind is Kind.BINARY:
            return self._bytes, array
        if kind is Kind.JSON:
            return CellForm.TEXT, spaced(array)
        return _CELLS.get(kind, CellForm.TEXT), array

    def _delimited(self, text: str) -> str:
        quote = self._options.quote
        if quote:
            return quote + text.replace(quote, quote + quote) + quote
        escaped = text.replace("\\", "\\\\").replace("\n", "\\n").replace("\r", "\\r")
        return escaped.replace(self._options.delimiter, "".join("\\" + char for char in self._options.delimiter))


def _joined(old: _Lines, new: _Lines) -> Any:
    """The old line of each event and then its new one, as a large_binary array."""
    if not len(old.data) or not len(new.data):
        only = new if len(new.data) else old
        return binary_array(only.data, only.offsets, None, text=False)
    out = np.empty(len(old.data) + len(new.data), np.uint8)
    offsets = np.empty(len(old.offsets), np.int64)
    interleave(old.data, old.offsets, new.data, new.offsets, out, offsets)
    return binary_array(out, offsets, None, text=False)


def _bytes_of(text: str) -> U8:
    return np.frombuffer(text.encode(), np.uint8) if text else np.frombuffer(b"\0", np.uint8)[:0]


def _end_to_end(texts: Sequence[str]) -> tuple[U8, I64]:
    encoded = [text.encode() for text in texts]
    return _bytes_of("".join(texts)), np.cumsum([len(one) for one in encoded], dtype=np.int64)
