"""Encoding of keys and cells as TiDB writes them (upstream-formats 2, 3, 4). Pure."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from datetime import datetime
from decimal import Decimal
from typing import Any

from tistream.schema.tidb.meta_key import encode_bytes

SIGN = 1 << 63
_MASK = (1 << 64) - 1
_DIGIT_BYTES = (0, 1, 1, 2, 2, 3, 3, 4, 4, 4)
_WORD = 9  # decimal digits in four bytes

FLAG_NULL, FLAG_BYTES, FLAG_COMPACT, FLAG_INT, FLAG_VARINT = 0, 1, 2, 3, 8


# -- keys ---------------------------------------------------------------------------------------------------------


def comparable_int(value: int) -> bytes:
    """A signed integer as eight bytes that sort like the integer."""
    return ((value + SIGN) & _MASK).to_bytes(8, "big")


def table_prefix(table_id: int) -> bytes:
    """`t{id}`, the prefix of every key of a physical table."""
    return b"t" + comparable_int(table_id)


def record_key(table_id: int, handle: int) -> bytes:
    """The key of a row with an integer handle."""
    return table_prefix(table_id) + b"_r" + comparable_int(handle)


def common_handle(datums: Sequence[str | int]) -> bytes:
    """The handle of a clustered key that is not a single integer: its datums in key encoding (utf8mb4_bin)."""
    return b"".join(key_datum(datum) for datum in datums).ljust(9, b"\0")


def key_datum(datum: str | int) -> bytes:
    """A datum in key encoding."""
    if isinstance(datum, int):
        return bytes((FLAG_INT,)) + comparable_int(datum)
    return bytes((FLAG_BYTES,)) + encode_bytes(datum.encode())


def index_prefix(table_id: int, index_id: int) -> bytes:
    """`t{id}_i{index}`, the prefix of the entries of an index."""
    return table_prefix(table_id) + b"_i" + comparable_int(index_id)


# -- cells of row format v2 ---------------------------------------------------------------------------------------


def int_cell(value: int) -> bytes:
    """A signed integer in the smallest of 1, 2, 4, 8 bytes."""
    if -0x80 <= value < 0x80:
        return struct.pack("<b", value)
    if -0x8000 <= value < 0x8000:
        return struct.pack("<h", value)
    if -0x80000000 <= value < 0x80000000:
        return struct.pack("<i", value)
    return struct.pack("<q", value)


def uint_cell(value: int) -> bytes:
    """An unsigned integer in the smallest of 1, 2, 4, 8 bytes."""
    for size in (1, 2, 4):
        if value < 1 << 8 * size:
            return value.to_bytes(size, "little")
    return value.to_bytes(8, "little")


def float_cell(value: float) -> bytes:
    """A double as eight bytes that sort like the double."""
    bits: int = struct.unpack("<Q", struct.pack("<d", value))[0]
    return (bits | SIGN if value >= 0 else bits ^ _MASK).to_bytes(8, "big")


def decimal_cell(value: Decimal, precision: int, frac: int) -> bytes:
    """DECIMAL(precision, frac): a byte each for both, then MySQL's binary decimal (upstream-formats 4.4)."""
    digits = f"{abs(value):.{frac}f}".replace(".", "").rjust(precision, "0")
    whole, part = digits[: precision - frac], digits[precision - frac :]
    head = len(whole) % _WORD
    words = [whole[:head]] + [whole[at : at + _WORD] for at in range(head, len(whole), _WORD)]
    words += [part[at : at + _WORD] for at in range(0, len(part), _WORD)]
    out = bytearray(b"".join(int(word).to_bytes(_DIGIT_BYTES[len(word)], "big") for word in words if word))
    if value < 0:
        out = bytearray(byte ^ 0xFF for byte in out)
    out[0] ^= 0x80
    return bytes((precision, frac)) + bytes(out)


def time_cell(value: datetime) -> bytes:
    """DATE, DATETIME and TIMESTAMP (in UTC): the packed time as an unsigned integer."""
    date = (value.year * 13 + value.month) << 5 | value.day
    clock = value.hour << 12 | value.minute << 6 | value.second
    return uint_cell((date << 17 | clock) << 24 | value.microsecond)


def json_cell(value: Any) -> bytes:
    """A JSON document: its type byte and TiDB's binary JSON (upstream-formats 4.4)."""
    code, body = _json(value)
    return bytes((code,)) + body


_OBJECT, _ARRAY, _LITERAL, _INT, _DOUBLE, _STRING = 0x01, 0x03, 0x04, 0x09, 0x0B, 0x0C


def _json(value: Any) -> tuple[int, bytes]:
    match value:
        case None:
            return _LITERAL, b"\0"
        case bool():
            return _LITERAL, b"\1" if value else b"\2"
        case int() | float():
            return (_INT, struct.pack("<q", value)) if isinstance(value, int) else (_DOUBLE, struct.pack("<d", value))
        case str():
            text = value.encode()
            return _STRING, uvarint(len(text)) + text
        case dict():
            return _OBJECT, _json_object(value)
        case list():
            return _ARRAY, _json_members(value, 8 + 5 * len(value), b"", b"")
    raise TypeError(f"not a JSON value: {value!r}")


def _json_object(members: Mapping[str, Any]) -> bytes:
    ordered = sorted((name.encode(), value) for name, value in members.items())
    names = b"".join(name for name, _ in ordered)
    entries = b""
    at = 8 + 11 * len(ordered)
    for name, _ in ordered:
        entries += struct.pack("<IH", at, len(name))
        at += len(name)
    return _json_members([value for _, value in ordered], at, entries, names)


def _json_members(values: Sequence[Any], at: int, key_entries: bytes, names: bytes) -> bytes:
    """Count and size, entries, then the names and values that the entries point to. `at`: offset of the values."""
    entries, bodies = b"", b""
    for value in values:
        code, body = _json(value)
        if code == _LITERAL:  # a literal is in its entry
            entries += bytes((code,)) + body.ljust(4, b"\0")
        else:
            entries += struct.pack("<BI", code, at + len(bodies))
            bodies += body
    return struct.pack("<II", len(values), at + len(bodies)) + key_entries + entries + names + bodies


# -- rows ---------------------------------------------------------------------------------------------------------


def row_v2(cells: Sequence[tuple[int, bytes | None]]) -> bytes:
    """A row value of (column id, cell) in ascending order of ids. A cell of None is NULL."""
    filled = [(id_, cell) for id_, cell in cells if cell is not None]
    nulls = [id_ for id_, cell in cells if cell is None]
    values = b"".join(cell for _, cell in filled)
    large = len(values) > 0xFFFF or any(id_ > 0xFF for id_, _ in cells)
    id_form, end_form = ("I", "I") if large else ("B", "H")
    ends, at = [], 0
    for _, cell in filled:
        at += len(cell)
        ends.append(at)
    head = struct.pack("<BBHH", 0x80, large, len(filled), len(nulls))
    ids = struct.pack(f"<{len(cells)}{id_form}", *[id_ for id_, _ in filled], *nulls)
    return head + ids + struct.pack(f"<{len(ends)}{end_form}", *ends) + values


def uvarint(value: int) -> bytes:
    """An unsigned varint."""
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def varint(value: int) -> bytes:
    """A signed (zig-zag) varint."""
    return uvarint(((value << 1) ^ (value >> 63)) & _MASK)


def row_v1(cells: Sequence[tuple[int, int | bytes | None]]) -> bytes:
    """A row value in the old format, which the `mysql` schema uses. Cells are integers, bytes, or None for NULL."""
    out = bytearray()
    for id_, cell in cells:
        out += bytes((FLAG_VARINT,)) + varint(id_)
        if cell is None:
            out.append(FLAG_NULL)
        elif isinstance(cell, int):
            out += bytes((FLAG_VARINT,)) + varint(cell)
        else:
            out += bytes((FLAG_COMPACT,)) + varint(len(cell)) + cell
    return bytes(out) or b"\0"
