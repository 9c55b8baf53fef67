"""The types that TiDB's columns have in Spark. Pure.

| TiDB | Spark |
|---|---|
| integers, YEAR, BIT up to 63 bits | bigint |
| BIGINT UNSIGNED, BIT(64) | decimal(20,0) |
| FLOAT, DOUBLE | float, double |
| DECIMAL up to 38 digits | decimal of the same digits |
| DATE, DATETIME, TIMESTAMP | date, timestamp_ntz, timestamp; string with zeroDates=text |
| BINARY, VARBINARY, BLOB | binary |
| all others, DECIMAL above 38 digits | string |
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

import pyarrow as pa
from pyspark.sql.types import (
    BinaryType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from tistream_client.core.errors import WrongArgument
from tistream_client.core.lists import ColumnInfo, TableShape

ROWID = ColumnInfo(id=-1, name="_tidb_rowid", sql_type="bigint", key=True)
_TYPE = re.compile(r"([a-z]+)(?:\((\d+)(?:,(\d+))?\))?")
_WHOLE = ("tinyint", "smallint", "mediumint", "int", "bigint", "year")
_BYTES = ("binary", "varbinary", "tinyblob", "blob", "mediumblob", "longblob")
_DIGITS_MAX, _UNSIGNED_DIGITS, _LONG_BITS = 38, 20, 63
_TEXT = (StringType(), pa.string())


@dataclass(frozen=True, slots=True)
class Shape:
    """The columns of a DataFrame: those of the table as of `table.ts`, or the chosen ones. `plain`: they are the
    DataFrame's own columns, and not members of `key`, `row` and `old_row`. `open_ended`: rows may be newer than
    `table`, and a column that they have beside its columns is an error."""

    table: TableShape
    columns: tuple[ColumnInfo, ...]
    zero_dates: str
    plain: bool
    open_ended: bool

    @property
    def keys(self) -> tuple[ColumnInfo, ...]:
        """The columns of `key`."""
        return tuple(column for column in self.table.columns if column.key) or (ROWID,)

    def spark(self) -> StructType:
        """The schema of the DataFrame."""
        row = self._struct(self.columns)
        if self.plain:
            return row
        return StructType(
            [
                StructField("op", StringType()),
                StructField("commit_ts", LongType()),
                StructField("commit_time", TimestampType()),
                StructField("start_ts", LongType()),
                StructField("schema_version", LongType()),
                StructField("key", self._struct(self.keys)),
                StructField("row", row),
                StructField("old_row", row),
            ]
        )

    def _struct(self, columns: Sequence[ColumnInfo]) -> StructType:
        return StructType([StructField(one.name, types_of(one.sql_type, self.zero_dates)[0]) for one in columns])


def types_of(sql_type: str, zero_dates: str) -> tuple[Any, pa.DataType]:
    """(the type in Spark, the same in Arrow) of a column with the type `sql_type`, as SHOW COLUMNS has it.
    `zero_dates`: the option `zeroDates`; with "text", dates and times are strings."""
    found = _TYPE.match(sql_type)
    name = found[1] if found else ""
    size, scale = (int(found[at] or 0) if found else 0 for at in (2, 3))
    if name in _WHOLE or (name == "bit" and size <= _LONG_BITS):
        wide = name == "bigint" and "unsigned" in sql_type
        return _decimal(_UNSIGNED_DIGITS, 0) if wide else (LongType(), pa.int64())
    if name == "bit":
        return _decimal(_UNSIGNED_DIGITS, 0)
    if name == "decimal" and size <= _DIGITS_MAX:
        return _decimal(size, scale)
    if name in ("date", "datetime", "timestamp") and zero_dates != "text":
        return {
            "date": (DateType(), pa.date32()),
            "datetime": (TimestampNTZType(), pa.timestamp("us")),
            "timestamp": (TimestampType(), pa.timestamp("us", "UTC")),
        }[name]
    if name in ("float", "double"):
        return (FloatType(), pa.float32()) if name == "float" else (DoubleType(), pa.float64())
    return (BinaryType(), pa.binary()) if name in _BYTES else _TEXT


def _decimal(digits: int, scale: int) -> tuple[Any, pa.DataType]:
    return DecimalType(digits, scale), pa.decimal128(digits, scale)


def chosen(table: TableShape, names: Sequence[str] | None, where: str) -> tuple[ColumnInfo, ...]:
    """The columns with these names, in this order; None: all. `where` names the table in errors. Raises WrongArgument
    if the table has no such column."""
    if names is None:
        return table.columns
    there = {column.name: column for column in table.columns}
    for name in names:
        if name not in there:
            lower = {one.lower(): one for one in there}
            near = get_close_matches(name.lower(), lower, 1)
            shown = lower[near[0]] if near else next(iter(there))
            problem = f"names {name!r}, and {where} has {', '.join(there)}"
            raise WrongArgument("columns", problem, f'.option("columns", "{shown}")')
    return tuple(there[name] for name in names)
