"""Writes Avro records from Arrow buffers. Compiled with numba."""

from __future__ import annotations

from enum import IntEnum
from typing import Any

import numpy as np

from tistream.decode.kernels.arrow_buffers import I64, U8
from tistream.decode.kernels.jit import i64, inline, kernel, u64
from tistream.decode.kernels.memory import carray, copy_bytes, pointer, poke64
from tistream.decode.kernels.render_kernel import is_valid

VARINT_BYTES = 10
_MORE = u64(0x80)
_SEVEN = u64(7)
_LOW = u64(0x7F)


class AvroEncoding(IntEnum):
    """The ways in which Avro encodes the values of a column."""

    LONG = 0  # int and long: zigzag varint of 64-bit values
    FLOAT = 1
    DOUBLE = 2
    BYTES = 3  # bytes and string: length, then the bytes


class NullEncoding(IntEnum):
    """The ways in which a field of a record encodes a null."""

    NEVER = 0  # the field is not a union
    FIRST = 1  # a union of null and the type
    SECOND = 2


_LONG, _FLOAT, _DOUBLE = int(AvroEncoding.LONG), int(AvroEncoding.FLOAT), int(AvroEncoding.DOUBLE)
_NEVER, _FIRST = int(NullEncoding.NEVER), int(NullEncoding.FIRST)
_VALUE_OF_FIRST, _VALUE_OF_SECOND = 2, 0  # varints of the union's branch 1 and 0


@kernel
def put_records(
    places: I64,
    itself: I64,
    wires: I64,
    unions: I64,
    values: I64,
    value_bytes: I64,
    offsets: I64,
    rows: I64,
    nulls: I64,
    null_starts: I64,
    head: U8,
    out: U8,
    out_offsets: I64,
) -> int:
    """Write one record for each event to `out`, each after the bytes `head`, and the bounds of the records to
    `out_offsets`. Returns -1, or the first event with a null in a field that is not a union. `wires` has the
    AvroEncoding and `unions` the NullEncoding of each column; the six arrays from `values` to `null_starts` are
    those of ColumnViews.

    Event e uses row `places[e]` of each column, or row e of columns for which `itself` is set. For a negative place
    no record is written. `out` must have room for all records: of each, the head, VARINT_BYTES + 8 for each field,
    and the byte strings.
    """
    at = i64(0)
    out_offsets[0] = 0
    for event in range(len(places)):
        if places[event] >= 0:
            copy_bytes(out, at, head, 0, len(head))
            at += len(head)
            for column in range(len(wires)):
                row = i64(event) if itself[column] else places[event]
                null = nulls[column] != 0 and not is_valid(nulls[column], null_starts[column] + row)
                union = unions[column]
                if union != _NEVER:
                    value_branch = _VALUE_OF_FIRST if union == _FIRST else _VALUE_OF_SECOND
                    out[at] = np.uint8(2 - value_branch if null else value_branch)
                    at += 1
                elif null:
                    return i64(event)
                if not null:
                    at = _put_value(
                        out, at, wires[column], values[column], value_bytes[column], offsets[column], rows[column], row
                    )
        out_offsets[event + 1] = at
    return i64(-1)


@kernel
def string_bytes(places: I64, itself: I64, wires: I64, offsets: I64, rows: I64) -> int:
    """The total size in bytes of all byte strings that `put_records` writes for these events."""
    total = i64(0)
    for column in range(len(wires)):
        if wires[column] > _DOUBLE:
            bounds = carray(pointer(offsets[column]), (rows[column] + 1,), np.int64)
            for event in range(len(places)):
                if places[event] >= 0:
                    row = i64(event) if itself[column] else places[event]
                    total += bounds[row + 1] - bounds[row]
    return total


@inline
def _put_value(out: U8, at: int, wire: int, address: int, value_bytes: int, offsets: int, rows: int, row: int) -> int:
    if wire == _LONG:
        return _put_long(out, at, carray(pointer(address), (rows,), np.int64)[row])
    if wire == _DOUBLE:
        poke64(out, at, carray(pointer(address), (rows,), np.int64)[row])
        return at + 8
    if wire == _FLOAT:
        # Eight bytes are stored and four of them are overwritten: the buffer has room for that.
        poke64(out, at, i64(carray(pointer(address), (rows,), np.uint32)[row]))
        return at + 4
    bounds = carray(pointer(offsets), (rows + 1,), np.int64)
    size: int = bounds[row + 1] - bounds[row]
    at = _put_long(out, at, size)
    copy_bytes(out, at, carray(pointer(address), (value_bytes,), np.uint8), bounds[row], size)
    return at + size


@inline
def _put_long(out: U8, at: int, value: int) -> int:
    rest: Any = u64((value << 1) ^ (value >> 63))
    while rest >= _MORE:
        out[at] = np.uint8((rest & _LOW) | _MORE)
        rest >>= _SEVEN
        at += 1
    out[at] = np.uint8(rest)
    return at + 1
