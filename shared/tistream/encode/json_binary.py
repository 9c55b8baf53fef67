"""Encodes JSON documents as TiDB's binary JSON (upstream-formats 4.4). Pure.

JSON text does not state whether a number was unsigned, or whether a string was a date. The encoded document has the
same text as the one that TiDB stores, but its bytes may differ.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from typing import Any

_OBJECT, _ARRAY, _LITERAL, _INT, _UINT, _DOUBLE, _STRING = 0x01, 0x03, 0x04, 0x09, 0x0A, 0x0B, 0x0C
_INT_END = 1 << 63


def json_cell(value: Any) -> bytes:
    """Encode a document: its type byte and binary JSON. `value` has the types that a JSON parser returns; raises
    TypeError for any other."""
    code, body = _encoded(value)
    return bytes((code,)) + body


def uvarint(value: int) -> bytes:
    """Encode an unsigned varint."""
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _encoded(value: Any) -> tuple[int, bytes]:  # noqa: PLR0911  # one for each type
    match value:
        case None:
            return _LITERAL, b"\0"
        case bool():
            return _LITERAL, b"\1" if value else b"\2"
        case int():
            return (_INT, struct.pack("<q", value)) if value < _INT_END else (_UINT, struct.pack("<Q", value))
        case float():
            return _DOUBLE, struct.pack("<d", value)
        case str():
            text = value.encode()
            return _STRING, uvarint(len(text)) + text
        case dict():
            return _OBJECT, _object(value)
        case list():
            return _ARRAY, _members(value, 8 + 5 * len(value), b"", b"")
    raise TypeError(f"not a JSON value: {value!r}")


def _object(members: Mapping[str, Any]) -> bytes:
    ordered = sorted((name.encode(), value) for name, value in members.items())
    names = b"".join(name for name, _ in ordered)
    entries = b""
    at = 8 + 11 * len(ordered)
    for name, _ in ordered:
        entries += struct.pack("<IH", at, len(name))
        at += len(name)
    return _members([value for _, value in ordered], at, entries, names)


def _members(values: Sequence[Any], at: int, key_entries: bytes, names: bytes) -> bytes:
    """Encode an object or array: its count and size, the entries, then the names and values that the entries point to.
    `at`: the offset at which the values begin."""
    entries, bodies, place = [], [], at
    for value in values:
        code, body = _encoded(value)
        if code == _LITERAL:  # the entry of a literal holds the literal itself
            entries.append(bytes((code,)) + body.ljust(4, b"\0"))
        else:
            entries.append(struct.pack("<BI", code, place))
            bodies.append(body)
            place += len(body)
    return struct.pack("<II", len(values), place) + key_entries + b"".join(entries) + names + b"".join(bodies)
