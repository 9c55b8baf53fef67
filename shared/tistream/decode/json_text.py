"""Decoded columns as JSON text: what an event's `key`, `row` and `old_row` say (docs/formats.md, API values)."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tistream.decode.arrow_buffers import I64, U8, binary_array, flat_bytes, one_array
from tistream.decode.keys import int_handles
from tistream.decode.kinds import Kind, kind_of
from tistream.decode.render_kernel import Form, render
from tistream.decode.text_io import ESCAPED_BYTES_MAX, FLOAT_CHARS, INT_CHARS
from tistream.schema import table as t
from tistream.schema.table import Column

_FORMS = {
    Kind.INT: Form.INT,
    Kind.UINT: Form.UINT,
    Kind.FLOAT: Form.SINGLE,
    Kind.DOUBLE: Form.DOUBLE,
    Kind.DECIMAL: Form.QUOTED,
    Kind.TIME: Form.QUOTED,
    Kind.DURATION: Form.QUOTED,
    Kind.ENUM: Form.ESCAPED,
    Kind.SET: Form.ESCAPED,
    Kind.TEXT: Form.ESCAPED,
    Kind.BINARY: Form.BASE64,
    Kind.JSON: Form.RAW,
    Kind.VECTOR: Form.RAW,
    Kind.NOTHING: Form.QUOTED,
}
_NUMBERS = (Form.INT, Form.UINT, Form.INT_TEXT, Form.UINT_TEXT, Form.SINGLE, Form.DOUBLE)


def render_objects(columns: Sequence[Column], batch: Any) -> Any:
    """One JSON object per row, `{"id":"1","name":"x"}`: a large_string array.

    `batch` has one field per column, in order, as `rows.decode_rows` makes them.
    """
    heads = [f"{',' if place else ''}{json.dumps(column.name, ensure_ascii=False)}:" for place, column in
             enumerate(columns)]  # fmt: skip
    return _rendered(batch.num_rows, batch.columns, [_form_of(column) for column in columns], heads, brackets=True)


def json_strings(texts: Any) -> Any:
    """Quoted and escaped JSON strings of a string array; null becomes `null`."""
    array = one_array(texts).cast(pa.large_string())
    return _rendered(len(array), [array], [Form.ESCAPED], [""], brackets=False)


def handle_texts(keys: Any) -> Any:
    """The integer handles of record keys as decimal text: what `_tidb_rowid` says. Null where a key has none."""
    handles, present = int_handles(keys)
    return pc.if_else(pa.array(present), pa.array(handles).cast(pa.large_string()), None)


def _form_of(column: Column) -> Form:
    kind = kind_of(column)
    if column.tp == t.BIT:
        return Form.UINT_TEXT
    if column.tp == t.LONGLONG and kind in (Kind.INT, Kind.UINT):
        return Form.INT_TEXT if kind is Kind.INT else Form.UINT_TEXT
    return _FORMS[kind]


def _rendered(rows: int, arrays: Sequence[Any], forms: Sequence[Form], heads: Sequence[str], *, brackets: bool) -> Any:
    inputs = _Inputs(len(arrays))
    room = rows * (sum(len(head.encode()) for head in heads) + 2)
    for place, (array, form) in enumerate(zip(arrays, forms, strict=True)):
        room += inputs.take(place, one_array(array), form)
    encoded = [head.encode() for head in heads]
    out = np.empty(room, np.uint8)
    out_offsets = np.empty(rows + 1, np.int64)
    ends = np.cumsum([len(head) for head in encoded], dtype=np.int64)
    text = np.frombuffer(b"".join(encoded) or b"\0", np.uint8)
    render(
        rows,
        np.array([int(form) for form in forms], np.int64),
        inputs.values,
        inputs.value_bytes,
        inputs.offsets,
        inputs.nulls,
        inputs.null_starts,
        text,
        ends,
        brackets,
        out,
        out_offsets,
    )
    return binary_array(out[: out_offsets[-1]], out_offsets, None, text=True)


class _Inputs:
    """The addresses that the kernel reads, and what must stay alive while it does."""

    def __init__(self, columns: int) -> None:
        self.values, self.value_bytes, self.offsets, self.nulls, self.null_starts = np.zeros((5, columns), np.int64)
        self._alive: list[Any] = []

    def take(self, place: int, array: Any, form: Form) -> int:
        """Register one column. Returns the most bytes that its values can take as text."""
        self._alive.append(array)
        if array.null_count and len(array):
            self.nulls[place] = array.buffers()[0].address
            self.null_starts[place] = array.offset
        if form in _NUMBERS:
            width = array.type.bit_width // 8
            buffer = array.buffers()[1]
            self.values[place] = (buffer.address if buffer is not None else 0) + array.offset * width
            return len(array) * (max(INT_CHARS, FLOAT_CHARS) + 2)
        flat = flat_bytes(array)
        self._bytes(place, flat.data, flat.offsets)
        growth = ESCAPED_BYTES_MAX if form is Form.ESCAPED else 2
        return growth * len(flat.data) + 6 * len(array)

    def _bytes(self, place: int, data: U8, offsets: I64) -> None:
        self._alive += [data, offsets]
        self.values[place] = data.ctypes.data
        self.value_bytes[place] = len(data)
        self.offsets[place] = offsets.ctypes.data
