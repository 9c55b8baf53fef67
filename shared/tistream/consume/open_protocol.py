"""Decodes messages of TiCDC's open protocol, in which one Kafka message holds several events. Pure."""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Callable
from typing import Any

from tistream.consume.feed_events import (
    AdminEvent,
    DdlEvent,
    Event,
    Malformed,
    ResolvedEvent,
    RowEvent,
    Value,
    ValueKind,
)

VERSION = 1
_WORD = 8  # bytes of each length, big endian
_ROW, _DDL, _RESOLVED, _ADMIN = 1, 2, 3, 4
_LONGLONG, _BIT, _JSON, _ENUM, _SET = 8, 16, 245, 247, 248
_BLOBS = range(249, 253)  # TEXT has the same numbers
_STRINGS = (15, 253, 254)  # VARCHAR, CHAR, and their binary forms
_CHARSET_BINARY = 1  # this bit of a column's flags marks a binary string
_KINDS = {
    _LONGLONG: ValueKind.WIDE,
    _BIT: ValueKind.BITS,
    _JSON: ValueKind.JSON,
    _ENUM: ValueKind.NUMBER_OF_NAME,
    _SET: ValueKind.NUMBER_OF_NAME,
}
# Escapes of Go's strconv.Quote.
_ESCAPE = re.compile(r"\\(x[0-9a-f]{2}|u[0-9a-f]{4}|U[0-9a-f]{8}|.)", re.DOTALL)
_SHORT = {"a": 7, "b": 8, "f": 12, "n": 10, "r": 13, "t": 9, "v": 11, "\\": 92, "'": 39, '"': 34}


def decode(key: bytes | None, value: bytes | None) -> list[Event]:
    """Decode the events of one message, in order. Raises Malformed."""
    key = key or b""
    if len(key) < _WORD or int.from_bytes(key[:_WORD]) != VERSION:
        raise Malformed(f"the key does not begin with version {VERSION} of the open protocol")
    keys = _framed(key[_WORD:], "key")
    values = _framed(value or b"", "value")
    if len(keys) != len(values):
        raise Malformed(f"{len(keys)} keys and {len(values)} values in one message")
    return [_event(one, other) for one, other in zip(keys, values, strict=True)]


def _framed(data: bytes, part: str) -> list[bytes]:
    """Split a message's key or value into those of its events. The length precedes each. `part` names the key or value
    in errors."""
    pieces = []
    at = 0
    while at < len(data):
        end = at + _WORD + int.from_bytes(data[at : at + _WORD])
        if end > len(data) or at + _WORD > len(data):
            raise Malformed(f"the {part} ends inside an event")
        pieces.append(data[at + _WORD : end])
        at = end
    return pieces


def _event(key: bytes, value: bytes) -> Event:
    head = _json(key, "key")
    kind, ts = head.get("t"), head.get("ts")
    if not isinstance(ts, int):
        raise Malformed("a key without its ts")
    if kind == _RESOLVED:
        return ResolvedEvent(ts)
    if kind == _ADMIN:
        return AdminEvent(ts, _number(head, "n"))
    database, table = str(head.get("scm", "")), str(head.get("tbl", ""))
    body = _json(value, "value")
    if kind == _DDL:
        return DdlEvent(ts, database, table, str(body.get("q", "")))
    if kind != _ROW:
        raise Malformed(f"an event of type {kind}; types are 1 (row), 2 (DDL), 3 (resolved), 4 (partitions)")
    if head.get("ohk") or head.get("ccl"):
        raise Malformed(
            f"the row of {database}.{table} was too large for the topic, and the message has its key alone; "
            "raise max-message-bytes of the changefeed"
        )
    return _row(ts, database, table, body)


def _row(ts: int, database: str, table: str, body: dict[str, Any]) -> RowEvent:
    after, before = body.get("u"), body.get("p") if "u" in body else body.get("d")
    columns = before if after is None else after
    images = [one for one in (before, after) if one is not None]
    if columns is None or not all(isinstance(one, dict) for one in images):
        raise Malformed(f"a row of {database}.{table} without columns")
    if odd := [name for one in images for name, column in one.items() if not isinstance(column, dict)]:
        raise Malformed(f"column {odd[0]} of {database}.{table} has no type")
    if before is not None and after is not None:
        before = {**after, **before}  # with only-output-updated-columns, `before` lacks the unchanged columns
    return RowEvent(
        ts,
        database,
        table,
        _values(before),
        _values(after),
        tuple(name for name, column in columns.items() if column.get("h")),
        {name: kind for name, column in columns.items() if (kind := _KINDS.get(_number(column, "t"))) is not None},
    )


def _values(columns: dict[str, Any] | None) -> dict[str, Value] | None:
    return None if columns is None else {name: _value(name, column) for name, column in columns.items()}


def _value(name: str, column: dict[str, Any]) -> Value:
    value, tp, flags = column.get("v"), _number(column, "t"), _number(column, "f")
    if value is None or isinstance(value, int | float):
        return value
    if not isinstance(value, str):
        raise Malformed(f"column {name} has a value that is no number and no text")
    convert: Callable[[str], Value] = str
    if tp in _BLOBS:
        convert = _bytes_of_base64 if flags & _CHARSET_BINARY else _text_of_base64
    elif tp in _STRINGS and flags & _CHARSET_BINARY:
        convert = unquoted
    try:
        return convert(value)
    except (binascii.Error, ValueError, KeyError) as error:
        raise Malformed(f"column {name} has a value that is not of its type {tp}") from error


def _text_of_base64(value: str) -> str:
    return _bytes_of_base64(value).decode()


def _bytes_of_base64(value: str) -> bytes:
    return base64.b64decode(value, validate=True)


def unquoted(text: str) -> bytes:
    """Decode text that Go's strconv.Quote wrote, without its outer quotes, to the original bytes. Raises KeyError for
    an escape that Go does not write."""
    out = bytearray()
    at = 0
    for found in _ESCAPE.finditer(text):
        out += text[at : found.start()].encode()
        at = found.end()
        escape = found[1]
        if escape[0] == "x" and len(escape) > 1:
            out.append(int(escape[1:], 16))
        elif escape[0] in "uU" and len(escape) > 1:
            out += chr(int(escape[1:], 16)).encode()
        else:
            out.append(_SHORT[escape])
    return bytes(out + text[at:].encode())


def _number(found: dict[str, Any], member: str) -> int:
    value = found.get(member, 0)
    if not isinstance(value, int):
        raise Malformed(f"`{member}` is not a number")
    return value


def _json(data: bytes, part: str) -> dict[str, Any]:
    try:
        found = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise Malformed(f"a {part} that is no JSON") from error
    if not isinstance(found, dict):
        raise Malformed(f"a {part} that is no JSON object")
    return found
