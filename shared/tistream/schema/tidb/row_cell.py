"""Reads one column of a row value in plain Python. For rows of `mysql.tidb_ddl_job` only, which are few
(upstream-formats 4)."""

from __future__ import annotations

import struct

V2 = 0x80
_LARGE = 0x01
_NIL, _COMPACT_BYTES, _FLOAT, _VARINT, _UVARINT = 0, 2, 5, 8, 9


def read_bytes_cell(value: bytes, column_id: int) -> bytes | None:
    """Read the value of a string or blob column from a row value. Returns None if it is NULL or absent. Format v2 does
    not store types: for a column of another type, its stored bytes are returned.

    Raises:
        ValueError: `value` is not a row of format v1 or v2; or, in format v1, the column is no string or blob, or the
            row has a datum of a type that `_datum` does not support before it.
    """
    if not value:
        raise ValueError("the row value is empty")
    if value[0] == V2:
        return _from_v2(value, column_id)
    return _from_v1(value, column_id)


def _from_v2(value: bytes, column_id: int) -> bytes | None:
    try:
        flags, filled, nulls = struct.unpack_from("<BHH", value, 1)
        wide = bool(flags & _LARGE)
        ids = struct.unpack_from(f"<{filled + nulls}{'I' if wide else 'B'}", value, 6)
        at = 6 + (filled + nulls) * (4 if wide else 1)
        ends = struct.unpack_from(f"<{filled}{'I' if wide else 'H'}", value, at)
    except struct.error as error:
        raise ValueError("row value is cut short") from error
    at += filled * (4 if wide else 2)
    if column_id not in ids[:filled]:
        return None
    index = ids.index(column_id)
    start = at + (ends[index - 1] if index else 0)
    end = at + ends[index]
    if not at <= start <= end <= len(value):
        raise ValueError("row value is cut short")
    return value[start:end]


def _from_v1(value: bytes, column_id: int) -> bytes | None:
    if value == b"\x00":
        return None
    at = 0
    while at < len(value):
        if value[at] != _VARINT:
            raise ValueError(f"row format v1: a column id has the datum flag {value[at]}")
        found, at = _varint(value, at + 1)
        cell, at = _datum(value, at)
        if found == column_id:
            if cell is not None and not isinstance(cell, bytes):
                raise ValueError(f"column {column_id} holds no bytes")
            return cell
    return None


def _datum(value: bytes, at: int) -> tuple[bytes | int | None, int]:
    """Decode the datum that begins at offset `at` of a row value in format v1. Only the types of columns that
    `mysql.tidb_ddl_job` has are supported. Returns (the value, the offset after it)."""
    if at >= len(value):
        raise ValueError("row value is cut short")
    flag, at = value[at], at + 1
    if flag == _NIL:
        return None, at
    if flag == _COMPACT_BYTES:
        length, at = _varint(value, at)
        if length < 0 or at + length > len(value):
            raise ValueError("row value is cut short")
        return value[at : at + length], at + length
    if flag == _VARINT:
        return _varint(value, at)
    if flag == _UVARINT:
        return _uvarint(value, at)
    if flag == _FLOAT and at + 8 <= len(value):
        return int.from_bytes(value[at : at + 8], "big"), at + 8
    raise ValueError(f"row format v1: unknown datum flag {flag}")


def _uvarint(value: bytes, at: int) -> tuple[int, int]:
    out = shift = 0
    while at < len(value) and shift < 70:
        byte = value[at]
        at += 1
        out |= (byte & 0x7F) << shift
        if byte < 0x80:
            return out, at
        shift += 7
    raise ValueError("a varint is invalid")


def _varint(value: bytes, at: int) -> tuple[int, int]:
    raw, at = _uvarint(value, at)
    return (raw >> 1) ^ -(raw & 1), at
