"""Renders decoded columns as JSON text, for an event's `key`, `row` and `old_row` (docs/api.md, "Values in NDJSON")."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from tistream.decode.cells.kinds import Kind, kind_of
from tistream.decode.json_lines import LineColumn, LineGroup, LineWriter
from tistream.decode.kernels.render_kernel import Form
from tistream.schema.tidb import table as t
from tistream.schema.tidb.table import Column

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


def object_parts(columns: Sequence[Column], arrays: Sequence[Any]) -> list[LineColumn]:
    """The columns of a json_lines.LineGroup that renders a row as the members of a JSON object. `arrays` has the
    decoded values, one array of `rows.decode_rows` for each column."""
    return [
        LineColumn(f"{',' if place else ''}{quoted(column.name)}:", _form_of(column), array)
        for place, (column, array) in enumerate(zip(columns, arrays, strict=True))
    ]


def render_objects(columns: Sequence[Column], batch: Any) -> Any:
    """Render each row as a JSON object, such as `{"id":"1","name":"x"}`. Returns a large_string array. `batch` is a
    batch of `rows.decode_rows`, with one field for each column, in order."""
    group = LineGroup("", object_parts(columns, batch.columns), brackets=True)
    return LineWriter(batch.num_rows, [group], "").lines(text=True)


def quoted(text: str) -> str:
    """Encode a text as a JSON string, with its quotes."""
    return json.dumps(text, ensure_ascii=False)


def _form_of(column: Column) -> Form:
    kind = kind_of(column)
    if column.tp == t.BIT:
        return Form.UINT_TEXT
    if column.tp == t.LONGLONG and kind in (Kind.INT, Kind.UINT):
        return Form.INT_TEXT if kind is Kind.INT else Form.UINT_TEXT
    return _FORMS[kind]
