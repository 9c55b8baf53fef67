"""Kinds of columns: one Kind for each way of decoding and rendering cells."""

from __future__ import annotations

from enum import IntEnum
from typing import Any

import pyarrow as pa

from tistream.decode.cells.handle import FLAG_BYTES, FLAG_DECIMAL, FLAG_DURATION, FLAG_FLOAT, FLAG_INT, FLAG_UINT
from tistream.schema.tidb import table as t
from tistream.schema.tidb.table import Column


class Kind(IntEnum):
    """The way in which a column's cells are decoded."""

    INT = 0
    UINT = 1
    FLOAT = 2
    DOUBLE = 3
    DECIMAL = 4
    TIME = 5
    DURATION = 6
    ENUM = 7
    SET = 8
    TEXT = 9
    BINARY = 10
    JSON = 11
    VECTOR = 12
    NOTHING = 13  # type NULL: no value is ever stored
    ENUM_NUMBER = 14  # the number of the element, from 1; 0 for a number that no element has
    SET_NUMBER = 15  # the bits of the elements


_BY_TYPE = {
    t.FLOAT: Kind.FLOAT,
    t.DOUBLE: Kind.DOUBLE,
    t.DECIMAL: Kind.DECIMAL,
    t.DURATION: Kind.DURATION,
    t.YEAR: Kind.INT,
    t.BIT: Kind.UINT,
    t.ENUM: Kind.ENUM,
    t.SET: Kind.SET,
    t.JSON: Kind.JSON,
    t.VECTOR: Kind.VECTOR,
    t.GEOMETRY: Kind.BINARY,
    t.NULL: Kind.NOTHING,
}

_HANDLE_FLAGS = {
    Kind.INT: FLAG_INT,
    Kind.UINT: FLAG_UINT,
    Kind.FLOAT: FLAG_FLOAT,
    Kind.DOUBLE: FLAG_FLOAT,
    Kind.DECIMAL: FLAG_DECIMAL,
    Kind.TIME: FLAG_UINT,
    Kind.DURATION: FLAG_DURATION,
    Kind.ENUM: FLAG_UINT,
    Kind.SET: FLAG_UINT,
    Kind.TEXT: FLAG_BYTES,
    Kind.BINARY: FLAG_BYTES,
}

_ARROW = {
    Kind.INT: pa.int64(),
    Kind.UINT: pa.uint64(),
    Kind.FLOAT: pa.float32(),
    Kind.DOUBLE: pa.float64(),
    Kind.ENUM_NUMBER: pa.uint64(),
    Kind.SET_NUMBER: pa.uint64(),
    Kind.BINARY: pa.large_binary(),
}


_NUMBERED = {Kind.ENUM: Kind.ENUM_NUMBER, Kind.SET: Kind.SET_NUMBER}


def kind_of(column: Column, *, numbered: bool = False) -> Kind:
    """The column's kind. Columns of unknown types are decoded to bytes. ENUM and SET are decoded to names, or with
    `numbered` to numbers."""
    kind = _kind_of(column)
    return _NUMBERED.get(kind, kind) if numbered else kind


def _kind_of(column: Column) -> Kind:
    if column.array:
        return Kind.JSON  # the hidden column of a multi-valued index
    if column.tp in t.INTEGERS:
        return Kind.UINT if column.unsigned else Kind.INT
    if column.tp in t.TIMES:
        return Kind.TIME
    if column.tp in t.TEXTS:
        return Kind.BINARY if column.binary else Kind.TEXT
    return _BY_TYPE.get(column.tp, Kind.BINARY)


def arrow_type(kind: Kind) -> Any:
    """The Arrow type of a kind: int64, uint64, float32, float64, large_binary, or large_string for all others."""
    return _ARROW.get(kind, pa.large_string())


def handle_flag(kind: Kind) -> int:
    """The flag byte with which a datum of this kind begins in a clustered key; -1 if the kind cannot be part of a
    key."""
    return _HANDLE_FLAGS.get(kind, -1)


def date_only(column: Column) -> bool:
    """Whether a column of Kind.TIME has a date only, without the time of day."""
    return column.tp in (t.DATE, t.NEWDATE)


def fsp_of(column: Column) -> int:
    """The number of fraction digits of a time or duration column, 0 to 6."""
    return min(max(column.decimal, 0), 6)
