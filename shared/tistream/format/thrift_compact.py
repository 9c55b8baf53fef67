"""Encodes and decodes the part of Thrift's compact protocol that Parquet footers use. Structs are dictionaries in
Python.

A struct is `{field id: (type, value)}`. A value is an int, a bool, bytes, the eight bytes of a double, a list `(element
type, [values])` or a struct. Every malformed input raises ValueError, whereas pyarrow's own reader crashes on some.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn

TRUE, FALSE, BYTE, I16, I32, I64, DOUBLE, BINARY, LIST, SET, MAP, STRUCT = range(1, 13)
MAX_DEPTH = 16
_INTS = (I16, I32, I64)

Struct = dict[int, tuple[int, Any]]
List = tuple[int, list[Any]]


def read_struct(data: bytes) -> Struct:
    """Parse the struct at the beginning of `data`; bytes after it are ignored. Raises ValueError."""
    try:
        return _read_struct(data, 0, 0)[0]
    except IndexError:
        raise ValueError("the data ends within a value") from None


def read_struct_at(data: bytes | memoryview, at: int) -> tuple[Struct, int]:
    """Parse the struct that begins at offset `at`. Returns the struct and the offset after it. Raises ValueError."""
    try:
        return _read_struct(data, at, 0)
    except IndexError:
        raise ValueError("the data ends within a value") from None


def write_struct(struct: Struct) -> bytes:
    """Encode a struct, with its fields in order of their ids."""
    out = bytearray()
    _write_struct(out, struct)
    return bytes(out)


def _read_struct(data: bytes | memoryview, at: int, depth: int) -> tuple[Struct, int]:
    if depth > MAX_DEPTH:
        raise ValueError("a struct is nested too deeply")
    out: Struct = {}
    number = 0
    while head := data[at]:
        at += 1
        kind = head & 15
        if head >> 4:
            number += head >> 4
        else:
            raw, at = _read_varint(data, at)
            number = (raw >> 1) ^ -(raw & 1)
        if number in out:
            raise ValueError(f"field {number} occurs twice")
        if kind in (TRUE, FALSE):  # the type code of a boolean field is its value
            out[number] = kind, kind == TRUE
            continue
        value, at = _READERS[kind](data, at, depth)
        out[number] = kind, value
    return out, at + 1


def _read_int(data: bytes | memoryview, at: int, _: int) -> tuple[int, int]:
    raw = data[at]
    if raw < 128:
        return (raw >> 1) ^ -(raw & 1), at + 1
    raw, at = _read_varint(data, at)
    return (raw >> 1) ^ -(raw & 1), at


def _read_binary(data: bytes | memoryview, at: int, _: int) -> tuple[bytes, int]:
    length, at = _read_varint(data, at)
    end = at + length
    if end > len(data):
        raise IndexError
    return bytes(data[at:end]), end


def _read_byte(data: bytes | memoryview, at: int, _: int) -> tuple[int, int]:
    return data[at], at + 1


def _read_double(data: bytes | memoryview, at: int, _: int) -> tuple[bytes, int]:
    if at + 8 > len(data):
        raise IndexError
    return bytes(data[at : at + 8]), at + 8


def _read_nested(data: bytes | memoryview, at: int, depth: int) -> tuple[Struct, int]:
    return _read_struct(data, at, depth + 1)


def _read_list(data: bytes | memoryview, at: int, depth: int) -> tuple[List, int]:
    if depth > MAX_DEPTH:
        raise ValueError("a list is nested too deeply")
    head = data[at]
    count, kind, at = head >> 4, head & 15, at + 1
    if count == 15:
        count, at = _read_varint(data, at)
    if count > len(data) - at:  # every element takes at least a byte
        raise ValueError(f"a list of {count} elements has only {len(data) - at} bytes")
    out = []
    read = _READERS[kind]
    for _ in range(count):
        value, at = read(data, at, depth + 1)
        out.append(value)
    return (kind, out), at


def _refuse(data: bytes | memoryview, at: int, _: int) -> NoReturn:
    raise ValueError(f"a value has a type that Parquet's footers do not use, at byte {at} of {len(data)}")


_READERS: tuple[Callable[[bytes | memoryview, int, int], tuple[Any, int]], ...] = (
    _refuse,
    _read_byte,  # a boolean element of a list takes a byte
    _read_byte,
    _read_byte,
    _read_int,
    _read_int,
    _read_int,
    _read_double,
    _read_binary,
    _read_list,
    _refuse,
    _refuse,
    _read_nested,
    _refuse,
    _refuse,
    _refuse,
)


def _read_varint(data: bytes | memoryview, at: int) -> tuple[int, int]:
    byte = data[at]
    if byte < 128:
        return byte, at + 1
    out, shift = byte & 127, 7
    while True:
        at += 1
        byte = data[at]
        out |= (byte & 127) << shift
        if byte < 128:
            break
        shift += 7
        if shift > 63:  # checked at each byte, because reading a varint of megabytes first would take minutes
            break
    if shift > 63 or out >> 64:
        raise ValueError("an integer has more than 64 bits")
    return out, at + 1


def _write_struct(out: bytearray, struct: Struct) -> None:
    last = 0
    for number in sorted(struct):
        kind, value = struct[number]
        if kind in (TRUE, FALSE):
            kind = TRUE if value else FALSE
        step = number - last
        last = number
        if 0 < step < 16:
            out.append(step << 4 | kind)
        else:
            out.append(kind)
            _write_varint(out, _zigzag(number))
        if kind not in (TRUE, FALSE):
            _write_value(out, kind, value)
    out.append(0)


def _write_value(out: bytearray, kind: int, value: Any) -> None:
    if kind in _INTS:
        _write_varint(out, _zigzag(value))
    elif kind == BINARY:
        _write_varint(out, len(value))
        out += value
    elif kind == STRUCT:
        _write_struct(out, value)
    elif kind == LIST:
        element, values = value
        if len(values) < 15:
            out.append(len(values) << 4 | element)
        else:
            out.append(0xF0 | element)
            _write_varint(out, len(values))
        for item in values:
            _write_value(out, element, item)
    elif kind == DOUBLE:
        out += value
    else:
        out.append(value)


def _zigzag(value: int) -> int:
    return (value << 1 ^ value >> 63) & (1 << 64) - 1


def _write_varint(out: bytearray, value: int) -> None:
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
