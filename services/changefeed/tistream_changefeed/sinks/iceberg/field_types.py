"""The Iceberg types of TiDB's columns, and the conversion of decoded values to them. Pure.

BIT, ENUM, SET, JSON and TIME are strings, as in events. BIGINT UNSIGNED is decimal(20,0). A DECIMAL of more than 38
digits is a string. A date that no calendar has, such as 0000-00-00, is null; `_raw` shows it.
"""

from __future__ import annotations

import json

import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg import types as it

from tistream.decode.cells.kinds import Kind, date_only, fsp_of, kind_of
from tistream.schema.tidb import table as t
from tistream.schema.tidb.table import Column

_DECIMAL_DIGITS = 38
_UNSIGNED_DIGITS = 20
_LONG = frozenset({t.LONGLONG})
_PLAIN: dict[Kind, it.PrimitiveType] = {
    Kind.FLOAT: it.FloatType(),
    Kind.DOUBLE: it.DoubleType(),
    Kind.BINARY: it.BinaryType(),
}
_WIDER = {(it.IntegerType(), it.LongType()), (it.FloatType(), it.DoubleType())}


def iceberg_type(column: Column, element_id: int) -> it.IcebergType:
    """The Iceberg type of a column. `element_id`: the field id of the elements, if the type is a list."""
    kind = kind_of(column)
    found: it.IcebergType = _PLAIN.get(kind, it.StringType())
    if kind is Kind.INT:
        found = it.LongType() if column.tp in _LONG else it.IntegerType()
    elif kind is Kind.UINT and column.tp in _LONG:
        found = it.DecimalType(_UNSIGNED_DIGITS, 0)
    elif kind is Kind.UINT and column.tp != t.BIT:
        found = it.LongType() if column.tp == t.LONG else it.IntegerType()
    elif kind is Kind.DECIMAL and _digits(column)[0] <= _DECIMAL_DIGITS:
        found = it.DecimalType(*_digits(column))
    elif kind is Kind.TIME and date_only(column):
        found = it.DateType()
    elif kind is Kind.TIME:
        found = it.TimestamptzType() if column.tp == t.TIMESTAMP else it.TimestampType()
    elif kind is Kind.VECTOR:
        found = it.ListType(element_id, it.FloatType(), element_required=False)
    return found


def _digits(column: Column) -> tuple[int, int]:
    """Precision and scale of a DECIMAL column."""
    return (column.flen if column.flen > 0 else 10), max(column.decimal, 0)


def widens(before: it.IcebergType, after: it.IcebergType) -> bool:
    """Whether files with values of the type `before` can be read as `after`: both are the same type, or Iceberg
    promotes one to the other."""
    if before == after or (before, after) in _WIDER:
        return True
    if isinstance(before, it.ListType) and isinstance(after, it.ListType):
        return before.element_type == after.element_type
    decimals = isinstance(before, it.DecimalType) and isinstance(after, it.DecimalType)
    return decimals and before.scale == after.scale and before.precision <= after.precision  # type: ignore[attr-defined]


def keeps_values(before: Column, after: Column) -> bool:
    """Whether Iceberg has the same value for each value of the column `before` after a DDL has changed the column to
    `after`, so that files written before remain correct."""
    kind, now = kind_of(before), kind_of(after)
    if not widens(iceberg_type(before, 0), iceberg_type(after, 0)):
        return False
    if now is Kind.DURATION:
        return kind is now and fsp_of(before) == fsp_of(after)
    if now is Kind.DECIMAL:  # with more digits than Iceberg has, it is a text, which shows the scale
        return kind is now and _digits(before)[1] == _digits(after)[1]
    if now is Kind.TIME:
        return fsp_of(before) <= fsp_of(after)
    if now is Kind.BINARY and after.tp == t.STRING:
        return before.flen == after.flen
    return kind is now or (kind, now) == (Kind.FLOAT, Kind.DOUBLE)


def has_times(column: Column) -> bool:
    """Whether the column may have dates that Iceberg cannot represent, such as 0000-00-00."""
    return kind_of(column) is Kind.TIME


def converted(column: Column, values: pa.Array) -> pa.Array:
    """The decoded values of a column as an Arrow array of its Iceberg type."""
    kind = kind_of(column)
    if kind is Kind.INT and column.tp not in _LONG:
        return values.cast(pa.int32())
    if kind is Kind.UINT:
        return _unsigned(column, values)
    if kind is Kind.DECIMAL and _digits(column)[0] <= _DECIMAL_DIGITS:
        return values.cast(pa.decimal128(*_digits(column)))
    if kind is Kind.TIME:
        return _times(column, values)
    if kind is Kind.VECTOR:
        return _vectors(values)
    return values


def _unsigned(column: Column, values: pa.Array) -> pa.Array:
    if column.tp == t.BIT:
        return values.cast(pa.large_string())
    if column.tp in _LONG:
        return values.cast(pa.decimal128(_UNSIGNED_DIGITS, 0))
    return values.cast(pa.int64() if column.tp == t.LONG else pa.int32())


def _vectors(values: pa.Array) -> pa.Array:
    """Convert vectors such as `[1,2.5]` to lists of float32. A parser of JSON would refuse their longest numbers, which
    are written without exponents."""
    text, empty = pl.col("text"), pl.lit(pl.Series([[]], dtype=pl.List(pl.Float32)))
    numbers = pl.when(text != "[]").then(text).str.strip_chars("[]").str.split(",").cast(pl.List(pl.Float32))
    frame = pl.Series("text", pl.from_arrow(values)).to_frame()
    found: pa.Array = frame.select(pl.when(text == "[]").then(empty).otherwise(numbers)).to_series().to_arrow()
    return found


def _times(column: Column, values: pa.Array) -> pa.Array:
    texts = pl.Series(pl.from_arrow(values))
    if date_only(column):
        return texts.str.to_date("%Y-%m-%d", strict=False).to_arrow()
    found = texts.str.to_datetime("%Y-%m-%d %H:%M:%S%.f", time_unit="us", strict=False, exact=True).to_arrow()
    return found.cast(pa.timestamp("us", "UTC")) if column.tp == t.TIMESTAMP else found


def raw_times(columns: list[tuple[Column, pa.Array, pa.Array]], count: int) -> pa.Array:
    """The dates that the conversion has replaced by null. Returns for each of `count` rows a JSON object with their
    texts by column name, or null. `columns`: each column with its decoded and its converted values."""
    out = pl.repeat(None, count, dtype=pl.String, eager=True)
    for column, values, shown in columns:
        lost = pc.and_(values.is_valid(), shown.is_null())
        if not pc.any(lost).as_py():
            continue
        name = json.dumps(column.name, ensure_ascii=False)
        frame = pl.DataFrame({"out": out, "lost": pl.from_arrow(lost), "text": pl.from_arrow(values)})
        member = pl.concat_str(pl.lit(f'{name}:"'), "text", pl.lit('"'))
        joined = pl.when(pl.col("out").is_null()).then(member).otherwise(pl.concat_str("out", pl.lit(","), member))
        out = frame.select(pl.when("lost").then(joined).otherwise("out")).to_series()
    found = pl.DataFrame({"out": out}).select(pl.concat_str(pl.lit("{"), "out", pl.lit("}"))).to_series()
    return found.to_arrow().cast(pa.large_string())
