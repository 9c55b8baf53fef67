"""Writes the values of columns in Debezium's messages."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from tistream.decode.cells.defaults import origin_default
from tistream.decode.json_lines import LineColumn
from tistream.decode.kernels.render_kernel import Form
from tistream.schema.tidb import table as t
from tistream_changefeed.protocols.columns.bits import bit_bytes, bits_width
from tistream_changefeed.protocols.columns.epochs import DAY, MICROSECOND, MILLISECOND, microseconds, since_epoch, zoned
from tistream_changefeed.protocols.debezium.field_schema import NOW, START, in_milliseconds
from tistream_changefeed.protocols.go_strings import go_quoted
from tistream_changefeed.protocols.table_facts import FLAG_BINARY, ColumnFacts

_FORMS = {
    t.FLOAT: Form.GO_SINGLE,
    t.DOUBLE: Form.GO_DOUBLE,
    t.YEAR: Form.INT,
    t.JSON: Form.GO_DOCUMENT,
    t.VECTOR: Form.QUOTED,
    **dict.fromkeys(t.INTEGERS, Form.INT),  # BIGINT UNSIGNED from 2^63 on wraps to a negative number, as in TiCDC
}


def value_parts(columns: Sequence[ColumnFacts], arrays: Sequence[Any], *, defaults: bool) -> list[LineColumn]:
    """The JSON members of a row, for a LineWriter. With `defaults` a NULL is replaced by the column's default, if it
    has one."""
    return [
        LineColumn(
            f"{',' if place else ''}{go_quoted(column.column.name)}:", *_formed(column, array, defaults=defaults)
        )
        for place, (column, array) in enumerate(zip(columns, arrays, strict=True))
    ]


def _formed(column: ColumnFacts, array: Any, *, defaults: bool) -> tuple[Form, Any]:
    if not (defaults and array.null_count and column.default is not None):
        return _shown(column, array)
    if _is_now(column):
        return _filled_now(column, array)
    return _shown(column, _filled(column, array))


def _shown(column: ColumnFacts, array: Any) -> tuple[Form, Any]:  # noqa: PLR0911  # one for each kind of type
    one = column.column
    match one.tp:
        case t.BIT if bits_width(one) == 1:
            return Form.RAW, pc.cast(pc.cast(array, pa.bool_()), pa.large_string())
        case t.BIT:
            return Form.BASE64, bit_bytes(one, array, little_endian=True)
        case t.DECIMAL:
            return Form.GO_DOUBLE, pc.cast(array, pa.float64())
        case t.DATE | t.NEWDATE:
            return Form.INT, since_epoch(array, DAY, not_null=one.not_null)
        case t.DATETIME:
            unit = MILLISECOND if in_milliseconds(column) else MICROSECOND
            return Form.INT, since_epoch(array, unit, not_null=one.not_null)
        case t.TIMESTAMP:
            return Form.QUOTED, zoned(array)
        case t.DURATION:
            return Form.INT, microseconds(array)
    if one.tp in t.TEXTS and (one.flag & FLAG_BINARY or one.binary):
        return Form.BASE64, array
    return _FORMS.get(one.tp, Form.GO_ESCAPED), array


def _filled(column: ColumnFacts, array: Any) -> Any:
    """The column's values with NULL replaced by the default. If the default is not a value, such as an expression, NULL
    stays."""
    bits = column.default if isinstance(column.default, bytes) else None
    known = replace(column.column, origin_default=None if bits else column.default, origin_default_bit=bits)
    try:
        return pc.fill_null(array, pa.scalar(origin_default(known), array.type))
    except (ValueError, OverflowError, pa.ArrowInvalid):
        return array


def _is_now(column: ColumnFacts) -> bool:
    return column.column.tp in (t.DATETIME, t.TIMESTAMP) and str(column.default).upper() == NOW


def _filled_now(column: ColumnFacts, array: Any) -> tuple[Form, Any]:
    """The column's values with NULL replaced as TiCDC does for the default CURRENT_TIMESTAMP: by the start of 1970, or
    not at all in a nullable TIMESTAMP."""
    form, shown = _shown(column, array)
    if column.column.tp == t.DATETIME:
        return form, pc.fill_null(shown, pa.scalar(0, shown.type))
    return form, pc.fill_null(shown, pa.scalar(START, shown.type)) if column.column.not_null else shown
