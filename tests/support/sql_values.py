"""One comparable form for a SQL value, from MySQL's text and from an event's JSON.

Written from design.md 5 alone, without a look at how the platform prints values. The shape is checked as well: a
BIGINT must be a decimal string, an INT a number, and so on.
"""

from __future__ import annotations

import base64
import functools
import json
import re
from collections.abc import Callable
from typing import Any


class Malformed(ValueError):
    """A JSON value that has not the shape design.md 5 gives its SQL type."""


def _want(value: Any, kind: type) -> Any:
    if type(value) is not kind:
        raise Malformed(f"{value!r} is no {kind.__name__}")
    return value


def _json_document(value: Any) -> Any:
    """A JSON value with 1 and 1.0, and true and 1, kept apart; objects without order."""
    if isinstance(value, dict):
        return "object", tuple(sorted((name, _json_document(member)) for name, member in value.items()))
    if isinstance(value, list):
        return "array", tuple(map(_json_document, value))
    return type(value).__name__, value


def _decimal_text(value: Any) -> int:
    if not re.fullmatch(r"0|-?[1-9][0-9]*", _want(value, str)):
        raise Malformed(f"{value!r} is no decimal integer")
    return int(value)


def _vector(value: Any) -> tuple[float, ...]:
    return tuple(float(item) for item in _want(value, list))


def _number(value: Any) -> float:
    if type(value) not in (int, float):
        raise Malformed(f"{value!r} is no number")
    return float(value)


def _bytes_of(text: Any) -> bytes:
    return base64.b64decode(text["b64"], validate=True) if isinstance(text, dict) else text.encode()


def _text_of(text: Any) -> str:
    return base64.b64decode(text["b64"]).decode() if isinstance(text, dict) else text


_INTS = {"tinyint", "smallint", "mediumint", "int", "year"}
_BINARY = {"binary", "varbinary", "tinyblob", "blob", "mediumblob", "longblob"}
# SQL type -> (from MySQL's text, from the event's JSON) to one comparable form
_FORMS: dict[str, tuple[Callable[[Any], Any], Callable[[Any], Any]]] = {
    **dict.fromkeys(_INTS, (int, lambda value: _want(value, int))),
    **dict.fromkeys(_BINARY, (_bytes_of, lambda value: base64.b64decode(_want(value, str), validate=True))),
    "bigint": (int, _decimal_text),
    "bit": (lambda text: int.from_bytes(_bytes_of(text), "big"), _decimal_text),
    "float": (float, _number),
    "double": (float, _number),
    "json": (lambda text: _json_document(json.loads(_text_of(text))), _json_document),
    "vector": (lambda text: tuple(map(float, json.loads(_text_of(text)))), _vector),
}
_TEXT = (_text_of, lambda value: _want(value, str))


@functools.cache
def _forms(sql_type: str) -> tuple[Callable[[Any], Any], Callable[[Any], Any]]:
    return _FORMS.get(re.split(r"[ (]", sql_type, maxsplit=1)[0], _TEXT)


def from_text(sql_type: str, text: Any) -> Any:
    """MySQL's text of a value, canonical. SQL NULL and the JSON document null are one."""
    value = None if text is None else _forms(sql_type)[0](text)
    return None if value == ("NoneType", None) else value


def from_json(sql_type: str, value: Any) -> Any:
    """An event's value, canonical. Raises Malformed."""
    return None if value is None else _forms(sql_type)[1](value)
