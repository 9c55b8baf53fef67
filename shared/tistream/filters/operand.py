"""Operands of filter expressions: columns and constants, in the types in which MySQL compares them. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from tistream.decode.cells.kinds import Kind, kind_of
from tistream.errors import InvalidRequest
from tistream.filters.elements import names, numbers
from tistream.schema.tidb import table as t
from tistream.schema.tidb.table import Column

DIGITS_MAX = 65
_MIDNIGHT = "00:00:00.000000"
_NUMBER = re.compile(r"[+-]?(?:(\d+)(?:\.(\d*))?|\.(\d+))")
_MOMENT = re.compile(r"(\d{4}-\d\d-\d\d)(?:[ T](\d\d:\d\d:\d\d)(?:\.(\d{1,6}))?)?")
_SPAN = re.compile(r"(-?)(\d{1,3}):(\d\d):(\d\d)(?:\.(\d{1,6}))?")
_SPAN_PARTS = r"^(?P<sign>-?)(?P<hours>\d+):(?P<minutes>\d+):(?P<seconds>\d+)(?:\.(?P<fraction>\d+))?$"


class OperandType(Enum):
    """The type by which an operand is compared."""

    NULL = auto()
    BOOL = auto()
    EXACT = auto()  # int64, uint64 or decimal256
    DOUBLE = auto()
    TEXT = auto()
    BINARY = auto()
    MOMENT = auto()  # DATE, DATETIME, TIMESTAMP: text `2006-01-02 15:04:05.000000`
    SPAN = auto()  # TIME: microseconds
    ENUM = auto()  # names; `numbers` has the same values as numbers
    OPAQUE = auto()  # JSON, VECTOR: only NULL or not


@dataclass(frozen=True, slots=True)
class Operand:
    """Values of one type of comparison (`OperandType`): an array with one element for each row, or a scalar, which is a
    constant."""

    sort: OperandType
    values: Any
    name: str  # as errors show it
    collation: str | None = None  # of texts of a column
    numbers: Any = None
    # By (collation, whether order counts): the values, once they were converted (comparison.py).
    folded: dict[tuple[str, bool], Any] = field(default_factory=dict, compare=False, repr=False)

    @property
    def constant(self) -> bool:
        return isinstance(self.values, pa.Scalar)


NULL = Operand(OperandType.NULL, pa.scalar(None, pa.bool_()), "NULL")


def of_column(column: Column, array: Any) -> Operand:
    """Make the operand of a column from its decoded values."""
    kind, name = kind_of(column), f"column {column.name!r}"
    sort = _SORTS.get(kind, OperandType.OPAQUE)
    if sort not in (OperandType.TEXT, OperandType.ENUM):
        return Operand(sort, _CONVERTED.get(kind, _same)(column, array), name)
    collation = column.collate or "utf8mb4_bin"
    if sort is OperandType.TEXT:
        return Operand(sort, array, name, collation)
    return Operand(sort, names(column, array), name, collation, numbers(column, array))


def of_text(text: str) -> Operand:
    """Make the operand of a constant in quotes."""
    return Operand(OperandType.TEXT, pa.scalar(text, pa.large_string()), repr(text))


def of_number(text: str) -> Operand:
    """Make the operand of a number, which is exact if it has no exponent. Raises InvalidRequest if the text is not a
    number, or has more than DIGITS_MAX digits."""
    exact = exact_number(text)
    if exact is not None:
        return Operand(OperandType.EXACT, exact, text)
    try:
        return Operand(OperandType.DOUBLE, pa.scalar(float(text), pa.float64()), text)
    except ValueError:
        raise InvalidRequest(
            f"{text!r} is not a number, which the other side is: write one, such as 7 or 1.5"
        ) from None


def exact_number(text: str) -> Any:
    """Convert a text to a decimal256 scalar; None if it is not a number, or has an exponent. Raises InvalidRequest
    above DIGITS_MAX digits."""
    found = _NUMBER.fullmatch(text.strip())
    if found is None:
        return None
    scale = len(found[2] or found[3] or "")
    digits = len((found[1] or "").lstrip("0")) + scale
    if digits > DIGITS_MAX:
        raise InvalidRequest(f"the number {text[:20]}… has {digits} digits: at most {DIGITS_MAX} are accepted")
    return pa.scalar(text.strip().rstrip("."), pa.large_string()).cast(pa.decimal256(max(digits, 1), scale))


def moment(text: str) -> Any:
    """Parse a constant that is compared with a DATE, DATETIME or TIMESTAMP. Returns a text that orders like the time.
    Raises InvalidRequest."""
    found = _MOMENT.fullmatch(text.strip())
    if found is None:
        raise InvalidRequest(f"{text!r} is not a date: write '2006-01-02' or '2006-01-02 15:04:05'")
    day, time, fraction = found.groups()
    return pa.scalar(f"{day} {time or '00:00:00'}.{(fraction or '').ljust(6, '0')}", pa.large_string())


def span(text: str) -> Any:
    """Parse a constant that is compared with a TIME. Returns int64 microseconds. Raises InvalidRequest."""
    found = _SPAN.fullmatch(text.strip())
    if found is None:
        raise InvalidRequest(f"{text!r} is not a time: write '15:04:05' or '-15:04:05.25'")
    sign, hours, minutes, seconds, fraction = found.groups()
    total = (int(hours) * 3_600 + int(minutes) * 60 + int(seconds)) * 1_000_000 + int((fraction or "").ljust(6, "0"))
    return pa.scalar(-total if sign else total, pa.int64())


def _same(_: Column, array: Any) -> Any:
    return array


def _doubles(_: Column, array: Any) -> Any:
    return array.cast(pa.float64())


def _decimals(column: Column, array: Any) -> Any:
    scale = max(column.decimal, 0)
    precision = max(column.flen, scale + 1) if column.flen > 0 else DIGITS_MAX
    return array.cast(pa.decimal256(min(precision, DIGITS_MAX), scale))


def _moments(column: Column, texts: Any) -> Any:
    """Extend DATE or DATETIME texts to a date and a time of day with six fraction digits."""
    blank, point, nothing, midnight = (pa.scalar(text, pa.large_string()) for text in (" ", ".", "", _MIDNIGHT))
    if column.tp in (t.DATE, t.NEWDATE):
        return pc.binary_join_element_wise(texts, midnight, blank)
    dotted = pc.if_else(pc.match_substring(texts, "."), texts, pc.binary_join_element_wise(texts, point, nothing))
    return pc.utf8_rpad(dotted, 26, "0")


def _spans(_: Column, texts: Any) -> Any:
    """Convert TIME texts to microseconds."""
    parts = pc.extract_regex(texts, _SPAN_PARTS)
    hours, minutes, seconds = (
        pc.struct_field(parts, name).cast(pa.int64()) for name in ("hours", "minutes", "seconds")
    )
    fraction = pc.utf8_rpad(pc.fill_null(pc.struct_field(parts, "fraction"), ""), 6, "0").cast(pa.int64())
    total = pc.add(pc.multiply(pc.add(pc.multiply(hours, 60), minutes), 60), seconds)
    total = pc.add(pc.multiply(total, 1_000_000), fraction)
    return pc.if_else(pc.equal(pc.struct_field(parts, "sign"), "-"), pc.negate(total), total)


_SORTS = {
    Kind.INT: OperandType.EXACT,
    Kind.UINT: OperandType.EXACT,
    Kind.DECIMAL: OperandType.EXACT,
    Kind.FLOAT: OperandType.DOUBLE,
    Kind.DOUBLE: OperandType.DOUBLE,
    Kind.TEXT: OperandType.TEXT,
    Kind.BINARY: OperandType.BINARY,
    Kind.TIME: OperandType.MOMENT,
    Kind.DURATION: OperandType.SPAN,
    Kind.ENUM: OperandType.ENUM,
    Kind.SET: OperandType.ENUM,
}
_CONVERTED: dict[Kind, Callable[[Column, Any], Any]] = {
    Kind.DECIMAL: _decimals,
    Kind.FLOAT: _doubles,
    Kind.DOUBLE: _doubles,
    Kind.TIME: _moments,
    Kind.DURATION: _spans,
}
