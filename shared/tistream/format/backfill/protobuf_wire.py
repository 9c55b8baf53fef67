"""Reads protobuf's wire format without generated code and without trusting it (proto3; protobuf.dev, "Encoding").

A message is `(field number << 3 | wire type) value`, repeated. TiKV's and BR's metadata is read by field number from
buckets that other programs write to, so every length is checked against the bytes that are there, the number of
fields is bounded, and groups are refused. Every malformed input raises ValueError.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5
FIELDS_MAX = 16_000_000  # of one message, nested ones not counted
_FIXED = {FIXED64: 8, FIXED32: 4}

Value = int | memoryview


@dataclass(frozen=True, slots=True)
class Message:
    """The fields of one message: for each field number, its values in order. Absent fields have proto3's defaults."""

    values: dict[int, list[Value]]

    def uint(self, number: int) -> int:
        """The last value of an integer field; 0 if absent. Raises ValueError if the field holds bytes."""
        found = self.values.get(number)
        if not found:
            return 0
        value = found[-1]
        if isinstance(value, memoryview):
            raise ValueError(f"field {number} holds {len(value)} bytes where a number is expected")
        return value

    def bytes(self, number: int) -> bytes:
        """The last value of a bytes field; empty if absent. Raises ValueError if the field holds a number."""
        found = self.all(number)
        return bytes(found[-1]) if found else b""

    def text(self, number: int) -> str:
        """The last value of a string field; empty if absent. Raises ValueError if it is not UTF-8."""
        return self.bytes(number).decode()

    def all(self, number: int) -> list[memoryview]:
        """All values of a repeated bytes, string or message field. Raises ValueError if one is a number."""
        out = []
        for value in self.values.get(number, ()):
            if not isinstance(value, memoryview):
                raise ValueError(f"field {number} holds a number where bytes are expected")
            out.append(value)
        return out


def read_message(data: bytes | memoryview, wanted: Collection[int], fields_max: int = FIELDS_MAX) -> Message:
    """Parse one message, and keep the fields with the numbers `wanted`. Nested messages stay bytes: parse them again.

    Raises ValueError: a value ends beyond the data, a varint has more than 64 bits, a wire type is unknown or a group,
    or there are more than `fields_max` fields.
    """
    view = memoryview(data)
    values: dict[int, list[Value]] = {}
    at, end, count = 0, len(view), 0
    while at < end:
        tag, at = read_varint(view, at)
        number, kind = tag >> 3, tag & 7
        count += 1
        if count > fields_max:
            raise ValueError(f"a message has more than {fields_max} fields")
        value: Value
        if kind == VARINT:
            value, at = read_varint(view, at)
        elif kind == BYTES:
            length, at = read_varint(view, at)
            if length > end - at:
                raise ValueError(f"field {number} states {length} bytes, but only {end - at} follow")
            value, at = view[at : at + length], at + length
        elif kind in _FIXED:
            width = _FIXED[kind]
            if width > end - at:
                raise ValueError(f"field {number} is cut short")
            value, at = int.from_bytes(view[at : at + width], "little"), at + width
        else:
            raise ValueError(f"field {number} has wire type {kind}")
        if not number:
            raise ValueError("a field has the number 0")
        if number in wanted:
            values.setdefault(number, []).append(value)
    return Message(values)


def read_varint(data: memoryview, at: int) -> tuple[int, int]:
    """(the unsigned value, the offset after it). Raises ValueError if it is cut short or has more than 64 bits."""
    out = shift = 0
    end = min(len(data), at + 10)
    while at < end:
        byte = data[at]
        at += 1
        out |= (byte & 0x7F) << shift
        if byte < 0x80:
            if out >> 64:
                break
            return out, at
        shift += 7
    raise ValueError("a varint is cut short or has more than 64 bits")
