"""Encodes row events as lines of CSV: op, table, schema, then the columns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from tistream.arrays import Int64s
from tistream.decode.cells.kinds import Kind, kind_of
from tistream.decode.json_lines import Dialect, Group, LineWriter, Part
from tistream.decode.kernels.render_kernel import Form
from tistream.schema.ddl_event import DdlEvent
from tistream.schema.tidb.table import Column
from tistream_changefeed.protocols.columns.float_texts import Notation, float_texts
from tistream_changefeed.protocols.columns.json_spacing import spaced
from tistream_changefeed.protocols.csv.options import CsvOptions
from tistream_changefeed.protocols.messages import Message, Messages, TableChange
from tistream_changefeed.protocols.op_texts import ABSENT, DELETE, INSERT, UPDATE, chosen, ops_of
from tistream_changefeed.rows.row_batch import RowBatch

_FORMS = {Kind.INT: Form.INT, Kind.UINT: Form.UINT, Kind.FLOAT: Form.RAW, Kind.DOUBLE: Form.RAW}


class CsvEncoder:
    """CSV without keys. With `output_old_value` an update is two lines in one value: a delete and an insert."""

    numbered = False  # ENUM and SET are names

    def __init__(self, options: CsvOptions) -> None:
        self._options = options
        self._dialect = Dialect(options.null, options.quote, options.delimiter)
        self._bytes = Form.BASE64 if options.binary_encoding_method == "base64" else Form.HEX

    def rows(self, batch: RowBatch) -> Messages:
        """Encode each event as its line or lines, with the terminator."""
        kinds = ops_of(batch)
        two_lines = kinds == UPDATE if self._options.output_old_value else np.zeros(len(batch), np.bool_)
        first = np.where(two_lines, DELETE, kinds)
        groups = self._heads(batch, first, kinds)
        old, new = self._parts(batch.columns, batch.old), self._parts(batch.columns, batch.new)
        groups.append(Group("", old, np.where((kinds == DELETE) | two_lines, batch.old_at, ABSENT), silent=True))
        if two_lines.any():
            second = np.where(two_lines, INSERT, ABSENT)
            groups.append(chosen([self._options.terminator], np.where(two_lines, 0, ABSENT)))
            groups += self._heads(batch, second, kinds)
        groups.append(Group("", new, batch.new_at, silent=True))
        return Messages(None, LineWriter(len(batch), groups, self._options.terminator, self._dialect).lines(text=False))

    def ddl(self, event: DdlEvent, change: TableChange | None = None) -> Message | None:  # noqa: ARG002  # schema files say what changed
        """None: the protocol has no such message."""
        return None

    def resolved(self, ts: int) -> Message | None:  # noqa: ARG002
        """None: the protocol has no such message."""
        return None

    def _heads(self, batch: RowBatch, ops: Int64s, kinds: Int64s) -> list[Group]:
        """The columns before those of the table. `ops` is the op that the line states, negative where there is no
        line."""
        cut = self._options.delimiter
        database, table = batch.version.name
        texts = [cut.join(map(self._delimited, (op, table, database))) for op in ("I", "D", "U")]
        groups = [chosen(texts, ops)]
        events = np.where(ops >= 0, np.arange(len(batch)), ABSENT)
        if self._options.include_commit_ts:
            groups.append(Group("", [Part(cut, Form.INT, pa.array(batch.commit_ts))], events, silent=True))
        if self._options.output_old_value:
            updated = np.where(ops >= 0, kinds == UPDATE, ABSENT)
            groups.append(chosen([f"{cut}false", f"{cut}true"], updated.astype(np.int64)))
        return groups

    def _parts(self, columns: Sequence[Column], arrays: Sequence[Any]) -> list[Part]:
        return [
            Part(self._options.delimiter, *self._formed(column, array))
            for column, array in zip(columns, arrays, strict=bool(arrays))
        ]

    def _formed(self, column: Column, array: Any) -> tuple[Form, Any]:
        kind = kind_of(column)
        if kind in (Kind.FLOAT, Kind.DOUBLE):
            return Form.RAW, float_texts(array, Notation.VALUE)
        if kind is Kind.BINARY:
            return self._bytes, array
        if kind is Kind.JSON:
            return Form.DELIMITED, spaced(array)
        return _FORMS.get(kind, Form.DELIMITED), array

    def _delimited(self, text: str) -> str:
        quote = self._options.quote
        if quote:
            return quote + text.replace(quote, quote + quote) + quote
        escaped = text.replace("\\", "\\\\").replace("\n", "\\n").replace("\r", "\\r")
        return escaped.replace(self._options.delimiter, "".join("\\" + char for char in self._options.delimiter))
