"""Parses sound Parquet footers by compiled code. Pure.

A footer that `parse` does not accept is left to tistream.format.parquet_footer, which finds the error. That module
accepts every footer that `parse` accepts, and returns the same for it.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate

import numpy as np

from tistream.decode.footers.row_groups import FOUND, SUMS, check_groups
from tistream.decode.footers.scan import scan
from tistream.decode.kernels.arrow_buffers import I64, U8
from tistream.decode.kernels.footer_places import (
    CHUNK_BYTES_MIN,
    CHUNK_WIDTH,
    FILE_PLACES,
    GROUP_BYTES_MIN,
    GROUP_WIDTH,
    PLACE,
)
from tistream.format import thrift_compact as thrift
from tistream.format.parquet_footer import (
    ELEMENT_FIELDS,
    Body,
    ColumnChunk,
    RowGroup,
    int_at,
    key_values,
    list_at,
    schema_leaves,
)

_SCHEMA_BYTES_KEPT = 16 << 10  # of the largest schema that is cached


def parse(data: bytes, end: int) -> Body | None:
    """Parse a footer, which is a Thrift struct. `end`: the offset in the file at which its pages must end. Returns None
    if the footer is malformed, or has a form that only tistream.format.parquet_footer parses."""
    try:
        found = _scanned(data)
        return None if found is None else _body(found, end)
    except ValueError:  # raised again, with all that came before it, by the parser that is asked next
        return None


@dataclass(frozen=True, slots=True, eq=False)
class _Scanned:
    """A footer that is a sound Thrift struct, and the places of its values: for each value its Thrift type, the offset
    of its first byte in `data`, and the offset after its last one (kernels/footer_places.py)."""

    data: bytes
    values: U8
    file: I64
    groups: I64
    chunks: I64

    def has(self, number: int) -> bool:
        return bool(self.file[number * PLACE])

    def part(self, number: int) -> bytes:
        """The bytes of the value of a field, with its type before them, as if it were field 1 of a struct. Raises
        ValueError if the field is missing."""
        kind, start, end = self.file[number * PLACE : (number + 1) * PLACE].tolist()
        if not kind or kind == thrift.BINARY:  # no field that is asked for is a byte string
            raise ValueError(f"field {number} is missing or of type {kind}")
        return bytes((1 << 4 | kind,)) + self.data[start:end]

    def struct(self, number: int) -> thrift.Struct:
        """Parse the value of a field. Returns a struct in which it is the only field, with number 1. Raises ValueError
        if the field is missing."""
        return thrift.read_struct(self.part(number) + b"\0")


def _scanned(data: bytes) -> _Scanned | None:
    values: U8 = np.frombuffer(data, np.uint8)
    file: I64 = np.zeros(FILE_PLACES * PLACE, np.int64)
    groups: I64 = np.empty((len(data) // GROUP_BYTES_MIN + 1, GROUP_WIDTH), np.int64)
    chunks: I64 = np.empty((len(data) // CHUNK_BYTES_MIN + 1, CHUNK_WIDTH), np.int64)
    counts: I64 = np.zeros(2, np.int64)
    if not scan(values, file, groups, chunks, counts):
        return None
    return _Scanned(data, values, file, groups[: counts[0]], chunks[: counts[1]])


def _body(found: _Scanned, end: int) -> Body | None:
    if found.has(8) or found.has(9):  # encrypted
        return None
    schema = _schema(found.part(2))
    checked = _groups(found, schema, end)
    if checked is None:
        return None
    groups, clean = checked
    if sum(group.rows for group in groups) != int_at(found.struct(3), 1):
        return None
    pairs = key_values({5: found.struct(5)[1]} if found.has(5) else {})
    parts = (_field(1, found.part(1)), _field(1, schema.clean), _field(1, found.part(3)), clean)
    return Body(pairs, groups, b"".join(parts) + b"\0")


@dataclass(frozen=True, slots=True, eq=False)
class _Schema:
    """A checked schema. `columns`: the top-level column of each leaf. `leaves`, `names`, `name_ends`: the leaves, as
    check_groups takes them. `clean`: the list of schema elements, encoded anew with the fields ELEMENT_FIELDS only, as
    a Thrift value behind its list header."""

    columns: tuple[str, ...]
    leaves: I64
    names: U8
    name_ends: I64
    clean: bytes


def _schema(part: bytes) -> _Schema:
    """Parse and check the list of schema elements `part`, a Thrift value behind its list header. Short lists are
    cached, because the files of a platform share few schemas. Raises ValueError."""
    return _parsed_schema(part) if len(part) <= _SCHEMA_BYTES_KEPT else _parsed_schema.__wrapped__(part)


@lru_cache(maxsize=64)
def _parsed_schema(part: bytes) -> _Schema:
    elements = list_at(thrift.read_struct(part + b"\0"), 1, thrift.STRUCT)
    found = schema_leaves(elements)
    names = [name for path, *_ in found for name in path]
    ends = accumulate(len(path) for path, *_ in found)
    leaves = [(end, physical, flat) for end, (_, physical, flat) in zip(ends, found, strict=True)]
    kept = [{number: value for number, value in element.items() if number in ELEMENT_FIELDS} for element in elements]
    return _Schema(
        tuple(path[0].decode() for path, *_ in found),
        np.array(leaves, np.int64).reshape(-1, 3),
        np.frombuffer(b"".join(names), np.uint8),
        np.array(list(accumulate(map(len, names))), np.int64),
        thrift.write_struct({1: (thrift.LIST, (thrift.STRUCT, kept))})[:-1],
    )


def _groups(scanned: _Scanned, schema: _Schema, end: int) -> tuple[tuple[RowGroup, ...], bytes] | None:
    """Check the row groups of a file, whose data ends before the offset `end`. Returns (the row groups, their list
    encoded anew as a field of the footer); None if a row group is not sound."""
    head = scanned.part(4)[:2]
    if head[0] & 15 != thrift.LIST or (head[1] >> 4 and head[1] & 15 != thrift.STRUCT):
        return None
    found: I64 = np.zeros((len(scanned.chunks), FOUND), np.int64)
    sums: I64 = np.zeros((len(scanned.groups), SUMS), np.int64)
    out = np.empty(len(scanned.data) + 16, np.uint8)
    arrays = scanned.values, scanned.groups, scanned.chunks, schema.leaves, schema.names, schema.name_ends
    size = check_groups(*arrays, end, found, sums, out)
    if size < 0:
        return None
    chunks = _chunks(scanned.data, found, schema.columns * len(sums))
    width = len(schema.columns)
    groups = (
        RowGroup(rows, tuple(chunks[at * width : (at + 1) * width]), (start, length), unpacked, decoded)
        for at, (start, length, unpacked, decoded, rows) in enumerate(sums.tolist())
    )
    return tuple(groups), _field(1, bytes((thrift.LIST,)) + out[:size].tobytes())


def _chunks(data: bytes, found: I64, columns: tuple[str, ...]) -> list[ColumnChunk]:
    return [
        ColumnChunk(
            column,
            start,
            length,
            None if low < 0 else data[low:low_end],
            None if high < 0 else data[high:high_end],
            unpacked,
            values,
            plain,
        )
        for column, (start, length, unpacked, values, plain, low, low_end, high, high_end) in zip(
            columns, found.tolist(), strict=True
        )
    ]


def _field(step: int, part: bytes) -> bytes:
    """A part as the field whose number is `step` higher than that of the field before it."""
    return bytes((step << 4 | part[0] & 15,)) + part[1:]
