"""How Go's JSON writers print values, value by value: the slow reference of changefeeds' encoders.

A value is what an array of a RowBatch holds, as Python has it.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from typing import Any

import numpy as np

from tistream.schema.tidb import table as t
from tistream.schema.tidb.table import Column

_NAMED = {"\n": "n", "\r": "r", "\t": "t", '"': '"', "\\": "\\"}
_QUOTED = {**_NAMED, "\a": "a", "\b": "b", "\f": "f", "\v": "v"}
_BLOBS = (t.TINYBLOB, t.MEDIUMBLOB, t.LONGBLOB, t.BLOB)
_HTML = "<>&\u2028\u2029"


def string(text: str, *, html: bool = False) -> str:
    """`text` as a JSON string."""
    return '"' + "".join(_character(char, html) for char in text) + '"'


def _character(char: str, html: bool) -> str:
    if char in _NAMED:
        return "\\" + _NAMED[char]
    return f"\\u{ord(char):04x}" if char < " " or (html and char in _HTML) else char


def go_quote(data: bytes) -> str:
    """What `strconv.Quote` prints, without its quotes."""
    out, at = "", 0
    while at < len(data):
        char, size = _utf8(data[at : at + 4])
        if char is None:
            out += f"\\x{data[at]:02x}"
        elif char in _QUOTED:
            out += "\\" + _QUOTED[char]
        elif char.isprintable():
            out += char
        elif ord(char) < 0x20 or ord(char) == 0x7F:
            out += f"\\x{ord(char):02x}"
        else:
            out += f"\\u{ord(char):04x}" if ord(char) < 0x10000 else f"\\U{ord(char):08x}"
        at += size
    return out


def _utf8(data: bytes) -> tuple[str | None, int]:
    for size in range(1, len(data) + 1):
        try:
            return data[:size].decode(), size
        except UnicodeDecodeError:
            pass  # it may be longer
    return None, 1


def plain_float(value: Any) -> str:
    """A float without an exponent, with the shortest digits of its type."""
    text = np.format_float_positional(value, trim="-")
    return "-0" if text in ("-0", "-0.") else text


def json_float(value: Any) -> str:
    """A float as a JSON number."""
    size = abs(value)
    if size == 0 or 1e-6 <= size < 1e21:
        return plain_float(value)
    mantissa, _, power = np.format_float_scientific(value, trim="-").partition("e")
    return f"{mantissa.rstrip('.')}e{power[0]}{power[1:].lstrip('0')}"


def document(text: str) -> str:
    """A JSON document as TiDB shows it."""
    found = json.loads(text, parse_float=_Raw, parse_int=_Raw)
    return _shown(found)


class _Raw(str):
    """A number as it was written."""


def _shown(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{_inner(name)}: {_shown(one)}" for name, one in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_shown, value)) + "]"
    if isinstance(value, _Raw):
        return str(value)
    return _inner(value) if isinstance(value, str) else json.dumps(value)


def _inner(text: str) -> str:
    """A string of a document: with U+2028 and U+2029 escaped, but nothing else for HTML."""
    return "".join(f"\\u{ord(char):04x}" if char in "\u2028\u2029" else char for char in string(text))


def open_value(column: Column, value: Any) -> str:
    """A value in open-protocol."""
    if value is None:
        return "null"
    if column.tp in _BLOBS:
        data = value if isinstance(value, bytes) else value.encode()
        return string(base64.b64encode(data).decode())
    if column.binary:
        return string(go_quote(value))
    if column.tp in (t.FLOAT, t.DOUBLE):
        return json_float(np.float32(value) if column.tp == t.FLOAT else np.float64(value))
    return str(value) if isinstance(value, int) else string(_text(column, value))


def canal_value(column: Column, value: Any) -> str:
    """A value in canal-json."""
    if value is None:
        return "null"
    if column.binary:
        return string(value.decode("latin-1"), html=True)
    if column.tp in (t.FLOAT, t.DOUBLE):
        return string(plain_float(np.float32(value) if column.tp == t.FLOAT else np.float64(value)))
    return string(str(value) if isinstance(value, int) else _text(column, value), html=True)


_TEXTS: dict[int, Callable[[str], str]] = {t.JSON: document}


def _text(column: Column, value: str) -> str:
    return _TEXTS.get(column.tp, str)(value)
