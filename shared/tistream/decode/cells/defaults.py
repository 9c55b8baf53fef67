"""Parses origin defaults: the values of columns that were added after a row was written (upstream-formats 4.5)."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from decimal import ROUND_HALF_UP, Decimal, InvalidOperation, localcontext
from typing import Any, NoReturn

import numpy as np

from tistream.decode.cells.decimal_cells import FRACTION_MAX, PRECISION_MAX
from tistream.decode.cells.kinds import Kind, date_only, fsp_of, kind_of
from tistream.schema.tidb import table as t
from tistream.schema.tidb.table import Column

Default = int | float | str | bytes | None

_TIME = re.compile(r"(\d{4})-(\d{1,2})-(\d{1,2})(?:[ T](\d{1,2}):(\d{1,2}):(\d{1,2})(?:\.(\d{1,6})\d*)?)?")
_DURATION = re.compile(r"(-?)(\d+):(\d{1,2}):(\d{1,2})(?:\.(\d{1,6})\d*)?")
_DECIMAL_DIGITS = 120
# A few characters can denote a number whose digits take minutes and gigabytes to write (`1e9999999`), which would block
# all pulls of the process. The longest number of any type is a DECIMAL of 65 digits. TiDB stores the text of the
# statement, so there may be more zeros.
_NUMBER_CHARS = 1_024
_BIT_BYTES = 8
_MAGNITUDES = {Kind.INT: 19, Kind.UINT: 20, Kind.DECIMAL: PRECISION_MAX}  # digits before the point


def origin_default(column: Column, *, numbered: bool = False) -> Default:
    """Parse a column's origin default to a value of the column's Arrow type; None for NULL. With `numbered`, an ENUM or
    SET is a number. Raises ValueError if the default does not fit the type."""
    kind = kind_of(column, numbered=numbered)
    if column.tp == t.BIT and column.origin_default_bit is not None:
        return _bits(column.origin_default_bit)
    if column.origin_default is None:
        return _zero(column, kind) if column.not_null else None
    try:
        return _parse(column, kind, _as_text(column.origin_default))
    except (ValueError, TypeError, InvalidOperation, OverflowError, RecursionError) as error:
        shown = column.origin_default[:80] if isinstance(column.origin_default, str) else "not a text"
        raise ValueError(f"column {column.name}: origin default {shown!r} does not fit") from error


def _as_text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def _zero(column: Column, kind: Kind) -> Default:
    """The value that TiDB uses for a NOT NULL column without a default: zero, empty, or the first element of an
    ENUM."""
    if kind in (Kind.INT, Kind.UINT):
        return 0  # also for YEAR and BIT
    if kind is Kind.ENUM:
        return column.elems[0] if column.elems else ""
    if kind is Kind.ENUM_NUMBER:
        return 1 if column.elems else 0
    text = _ZEROS.get(kind, "")
    return None if text is None else _parse(column, kind, text)


def _parse(column: Column, kind: Kind, text: str) -> Default:
    if kind not in _TEXTS and len(text) > _NUMBER_CHARS:
        raise ValueError(f"{len(text)} characters")
    if column.tp == t.YEAR:
        return _year(text)
    if column.tp == t.BIT:
        return _bits(text.encode("latin-1"))
    return _PARSERS[kind](text, column)


def _number(text: str, kind: Kind) -> Decimal:
    """Parse the number of a default. Raises ValueError if it has more digits before its decimal point than its type
    allows."""
    value = Decimal(text)
    if not value.is_finite() or (value and value.adjusted() >= _MAGNITUDES[kind]):
        raise ValueError("out of range")
    return value if value else Decimal(0)  # without the exponent, which even a zero may have


def _integer(text: str, column: Column) -> int:
    """Parse an integer. TiDB stores the text of the statement, so it may be `1.5` or `1e2`; TiDB rounds half away from
    zero."""
    value = int(_number(text, Kind.UINT if column.unsigned else Kind.INT).to_integral_value(ROUND_HALF_UP))
    low, high = (0, (1 << 64) - 1) if column.unsigned else (-(1 << 63), (1 << 63) - 1)
    if not low <= value <= high:
        raise ValueError("out of range")
    return value


def _bits(data: bytes) -> int:
    if len(data.lstrip(b"\0")) > _BIT_BYTES:
        raise ValueError("out of range")
    return int.from_bytes(data, "big")


def _year(text: str) -> int:
    """Parse a year. Two digits mean 1970 to 2069. `0000` is the zero year, and other zeros are 2000."""
    value = int(text)
    if value == 0:
        return 0 if len(text) == 4 else 2000
    if value < 100:
        return value + (2000 if value < 70 else 1900)
    return value


def _decimal(text: str, column: Column) -> str:
    """Parse a decimal, and round it to the column's number of fraction digits. If the column states no number, the
    digits stay, up to FRACTION_MAX."""
    value = _number(text, Kind.DECIMAL)
    exponent = value.as_tuple().exponent
    assert isinstance(exponent, int), "the number is finite"
    scale = min(column.decimal if column.decimal >= 0 else max(-exponent, 0), FRACTION_MAX)
    with localcontext(prec=_DECIMAL_DIGITS):
        value = value.quantize(Decimal(1).scaleb(-scale), ROUND_HALF_UP)
        if value.is_zero():
            value = abs(value)
        return format(value, "f")


def _time(text: str, column: Column) -> str:
    found = _TIME.fullmatch(text.strip())
    if found is None:
        raise ValueError("the text is not a time")
    year, month, day, hour, minute, second = (int(part or 0) for part in found.groups()[:6])
    date = f"{year:04}-{month:02}-{day:02}"
    if date_only(column):
        return date
    return f"{date} {hour:02}:{minute:02}:{second:02}{_fraction(found[7], fsp_of(column))}"


def _duration(text: str, column: Column) -> str:
    found = _DURATION.fullmatch(text.strip())
    if found is None:
        raise ValueError("the text is not a duration")
    hours, minutes, seconds = (int(part) for part in found.groups()[1:4])
    return f"{found[1]}{hours:02}:{minutes:02}:{seconds:02}{_fraction(found[5], fsp_of(column))}"


def _fraction(micros: str | None, fsp: int) -> str:
    return "." + (micros or "").ljust(fsp, "0")[:fsp] if fsp else ""


def _element(text: str, column: Column) -> str:
    """Find the element of an ENUM that equals `text`, as the column's definition spells it; `text` itself if no element
    does. Case is ignored, because most collations ignore it."""
    return text if text in column.elems else _spellings(column).get(text.casefold(), text)


def _elements(text: str, column: Column) -> str:
    """Parse a SET value to its elements, comma-separated, in the order of the column's definition."""
    known = frozenset(column.elems)
    own = _spellings(column)
    names = {name if name in known else own.get(name.casefold(), name) for name in text.split(",") if name}
    return ",".join(name for name in column.elems if name in names)


def _element_number(text: str, column: Column) -> int:
    """The number of an ENUM's element, from 1; 0 for a text that is not an element."""
    name = _element(text, column)
    return column.elems.index(name) + 1 if name in column.elems else 0


def _element_bits(text: str, column: Column) -> int:
    """Parse a SET value to a number that has one bit for each element."""
    names = frozenset(_elements(text, column).split(",")) if text else frozenset()
    return sum(1 << bit for bit, name in enumerate(column.elems) if name in names)


def _spellings(column: Column) -> dict[str, str]:
    return {elem.casefold(): elem for elem in column.elems}


def _float(text: str, column: Column) -> float:
    """Parse a float. For FLOAT(M,D) and DOUBLE(M,D) it is rounded to D digits, half to even, as TiDB's cast does."""
    value = float(text)
    return value if column.decimal < 0 else round(value * 10.0**column.decimal) / 10.0**column.decimal


def _document(text: str, _: Column) -> str:
    """Parse a JSON document. The members of its objects are sorted by the bytes of their names, as TiDB stores them."""
    found = json.loads(text, parse_constant=_no_json)
    return json.dumps(found, ensure_ascii=False, allow_nan=False, sort_keys=True, separators=(",", ":"))


def _vector(text: str, _: Column) -> str:
    """Parse a vector. Its numbers get the digits of a float32, without an exponent."""
    found = json.loads(text, parse_constant=_no_json)
    if not isinstance(found, list):
        raise ValueError("the text is not a vector")
    with np.errstate(over="ignore"):
        numbers = [np.float32(one) for one in found]
    if not np.isfinite(numbers).all():
        raise ValueError("out of range")
    return "[" + ",".join(np.format_float_positional(one, trim="-") for one in numbers) + "]"


def _no_json(text: str) -> NoReturn:
    raise ValueError(f"{text} is not valid JSON")


def _same(text: str, _: Column) -> str:
    return text


def _text(text: str, column: Column) -> str:
    """The default of a string column. For CHAR, trailing spaces are removed, which the stored default may have."""
    return text.rstrip(" ") if column.tp == t.STRING else text


def _padded(text: str, column: Column) -> bytes:
    """The default of a binary column. For BINARY(n), zero bytes are appended up to n bytes, because the stored default
    may lack them."""
    value = text.encode()
    return value.ljust(column.flen, b"\0") if column.tp == t.STRING and 0 < column.flen <= 255 else value


_PARSERS: dict[Kind, Callable[[str, Column], Default]] = {
    Kind.INT: _integer,
    Kind.UINT: _integer,
    Kind.FLOAT: _float,
    Kind.DOUBLE: _float,
    Kind.DECIMAL: _decimal,
    Kind.TIME: _time,
    Kind.DURATION: _duration,
    Kind.ENUM: _element,
    Kind.SET: _elements,
    Kind.TEXT: _text,
    Kind.BINARY: _padded,
    Kind.JSON: _document,
    Kind.VECTOR: _vector,
    Kind.NOTHING: _same,
    Kind.ENUM_NUMBER: _element_number,
    Kind.SET_NUMBER: _element_bits,
}
_NAMES = frozenset({Kind.ENUM, Kind.SET, Kind.ENUM_NUMBER, Kind.SET_NUMBER})
_TEXTS = _NAMES | {Kind.TEXT, Kind.BINARY, Kind.JSON, Kind.VECTOR, Kind.NOTHING}
_ZEROS = {
    Kind.FLOAT: "0",
    Kind.DOUBLE: "0",
    Kind.DECIMAL: "0",
    Kind.TIME: "0000-00-00 00:00:00",
    Kind.DURATION: "00:00:00",
    Kind.JSON: "null",
    Kind.VECTOR: "[]",
    Kind.NOTHING: None,
}
