"""Converts one value of an event to SQL: to a literal, or to an exact comparison.

Values have the form of events (design.md 5): 64-bit integers and BIT as decimal strings, binary strings as base64, JSON
documents as JSON. Statements need a session in UTC (`time_zone = '+00:00'`), in utf8mb4, without NO_BACKSLASH_ESCAPES.

An event does not distinguish SQL NULL from the JSON document `null`, or dates inside JSON from strings: a restored JSON
column has SQL NULL and strings there.
"""

from __future__ import annotations

import base64
import math
import re
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import orjson

from tistream.schema.tidb import table as t
from tistream.schema.tidb.create_table import Dialect
from tistream.schema.tidb.quoting import quoted_name, quoted_text
from tistream.schema.tidb.table import Column

_NUMBER = re.compile(r"-?\d+(\.\d+)?")
_NAMED = frozenset({t.ENUM, t.SET})


def literal(column: Column, value: Any) -> str:
    """Convert a value of an event to a SQL literal for INSERT and SET.

    Raises ValueError if no event of the column can have this value. The message names the column, and does not show the
    value.
    """
    if value is None:
        return "NULL"
    try:
        return _literal(column, value)
    except (TypeError, ValueError) as error:
        raise ValueError(f"column {column.name} cannot have the given value of type {type(value).__name__}") from error


def equals(column: Column, value: Any, dialect: Dialect) -> str:
    """Build a SQL condition that holds for exactly this value. Text is compared character by character, whatever the
    collation. NULL equals NULL.

    Raises ValueError under the same conditions as `literal`.
    """
    name = quoted_name(column.name)
    if value is None:
        return f"{name} IS NULL"
    text = literal(column, value)
    if column.tp == t.JSON and dialect is Dialect.MARIADB:
        return f"JSON_EQUALS({name}, {text})"
    if column.tp in t.TEXTS or column.tp in _NAMED:
        data = base64.b64decode(value) if column.binary else value.encode()
        held = name if column.binary else f"CONVERT({name} USING utf8mb4)"
        return f"HEX({held}) <=> '{data.hex().upper()}'"
    held, wanted = _COMPARED.get(column.tp, ("{0}", "{0}"))
    return f"{held.format(name)} <=> {wanted.format(text)}"


# How a column of each type is compared with a literal. A FLOAT column has the float that is nearest to the literal,
# which is a double.
_COMPARED = {
    t.JSON: ("{0}", "CAST({0} AS JSON)"),
    t.FLOAT: ("{0}", "CAST({0} AS FLOAT)"),
    t.BIT: ("{0} + 0", "{0} + 0"),
    t.VECTOR: ("CAST({0} AS CHAR)", "{0}"),
}


def _literal(column: Column, value: Any) -> str:
    if column.binary:
        return f"X'{base64.b64decode(value, validate=True).hex()}'"
    if column.tp not in _LITERALS:
        raise ValueError(f"columns of type {column.tp} have no literal")
    return _LITERALS[column.tp](value)


def _whole(value: Any) -> str:
    if isinstance(value, bool) or not isinstance(value, (int, str)):
        raise TypeError("not a whole number")
    return str(int(value))


def _bits(value: Any) -> str:
    return f"b'{int(_whole(value)):b}'"


def _double(value: Any) -> str:
    number = float(value)
    if isinstance(value, bool) or not math.isfinite(number):
        raise ValueError("not a finite number")
    text = repr(number)
    return text if "e" in text else text + "e0"  # without an exponent it would be a DECIMAL


def _decimal(value: Any) -> str:
    if not isinstance(value, str) or not _NUMBER.fullmatch(value):
        raise ValueError("not a decimal number")
    return value


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError("not a string")
    return quoted_text(value)


def _json(value: Any) -> str:
    return quoted_text(orjson.dumps(value).decode())


def _vector(value: Any) -> str:
    """The text of a vector as TiDB shows it, with which it is compared: no number has an exponent."""
    cells = (f"{Decimal(repr(float(one))):f}".removesuffix(".0") for one in value)
    return quoted_text("[" + ",".join(cells) + "]")


_LITERALS: dict[int, Callable[[Any], str]] = {
    **dict.fromkeys((*t.INTEGERS, t.YEAR), _whole),
    **dict.fromkeys((t.FLOAT, t.DOUBLE), _double),
    **dict.fromkeys((*t.TEXTS, *_NAMED, *t.TIMES, t.DURATION), _text),
    t.BIT: _bits,
    t.DECIMAL: _decimal,
    t.JSON: _json,
    t.VECTOR: _vector,
}
