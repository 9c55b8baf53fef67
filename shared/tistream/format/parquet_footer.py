"""Parses a Parquet file's footer without trusting it: no checksum covers it, and some damaged footers crash pyarrow.

This module checks the footer, and builds a new one for pyarrow from the fields that it knows. The new footer has no
parts on which pyarrow may fail (size statistics, indexes, encryption), and no offsets outside of the file.

A process may set a faster parser (tistream.decode.footers), which knows only sound footers. All others, and all footers
of other processes, are parsed here.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from tistream.errors import CorruptObject
from tistream.format import thrift_compact as thrift
from tistream.format.byte_ranges import ByteRange

MAGIC = b"PAR1"
TRAILER = 8  # footer length (u32 LE) and magic
MAX_COLUMNS = 10_000
REPEATED = 2  # parquet.thrift: FieldRepetitionType
LAST_CODEC, LAST_ENCODING = 7, 9  # LZ4_RAW, BYTE_STREAM_SPLIT

Leaf = tuple[tuple[bytes, ...], int, bool]  # path, physical type, whether no element of the path is repeated

# Field ids of parquet.thrift that the new footer keeps
_FILE, _GROUP, _CHUNK = {1, 2, 3, 4}, {1, 2, 3}, {2, 3}
_COLUMN = {1, 2, 3, 4, 5, 6, 7, 9, 11}
ELEMENT_FIELDS = {1, 2, 3, 4, 5, 6, 7, 8, 10}


@dataclass(frozen=True, slots=True)
class NeedMore:
    """The result when the given bytes do not contain the whole footer: the caller must read the last `length` bytes of
    the object."""

    length: int


class ColumnChunk(NamedTuple):
    """One column of one row group: the byte range of its pages, and the bounds of its values (`low`, `high`) that the
    footer states, or None."""

    column: str  # the top-level column's name
    start: int
    length: int
    low: bytes | None
    high: bytes | None
    unpacked: int = 0  # uncompressed bytes of its pages, as stated in the footer
    values: int = 0  # number of values, with nulls; for a list's leaf, at least the number of rows
    plain: int = 0  # bytes of its byte strings when they are decoded, as stated in the footer; 0 if not stated

    @property
    def decoded(self) -> int:
        """Estimated size of the values after decoding, in bytes. It may exceed `unpacked`, because encodings may store
        once what strings have in common."""
        return max(self.unpacked, self.plain)


@dataclass(frozen=True, slots=True)
class RowGroup:
    """One row group of a Parquet file: its byte range, the uncompressed bytes of its pages (`unpacked`) as the footer
    states them, and the estimated size of its values after decoding (`decoded`), in bytes."""

    rows: int
    chunks: tuple[ColumnChunk, ...]
    range: ByteRange
    unpacked: int
    decoded: int

    def ranges(self, columns: Collection[str] | None) -> Iterator[ByteRange]:
        """The byte ranges (start, length) of the pages of some columns (None means all columns)."""
        for chunk in self.chunks:
            if columns is None or chunk.column in columns:
                yield chunk.start, chunk.length


@dataclass(frozen=True, slots=True)
class ParquetFooter:
    """A checked footer. `metadata` is the rebuilt footer for pyarrow, without key-value metadata; `key_values` has the
    key-value metadata of the file."""

    start: int  # its offset in the object
    size: int
    key_values: dict[bytes, bytes]
    groups: tuple[RowGroup, ...]
    metadata: pq.FileMetaData = field(repr=False, compare=False)


class Body(NamedTuple):
    """What a footer's Thrift struct states. `clean` is the struct for pyarrow."""

    key_values: dict[bytes, bytes]
    groups: tuple[RowGroup, ...]
    clean: bytes


# Parses a footer's Thrift struct; no page may lie behind the given offset. None: it is not sound, or is unusual.
BodyParser = Callable[[bytes, int], Body | None]


class _Faster:
    parser: BodyParser | None = None


def use_parser(parser: BodyParser | None) -> None:
    """Set the parser that this process tries first, for all threads; None for no such parser."""
    _Faster.parser = parser


def read_footer(key: str, tail: bytes, size: int, bytes_max: int | None = None) -> ParquetFooter | NeedMore:
    """Parse the footer at the end of `tail`, the last bytes of an object of `size` bytes. Returns NeedMore if `tail`
    does not contain the whole footer. Raises CorruptObject.

    `bytes_max` limits footers from untrusted writers: a hostile footer takes about 200 times its size when parsed.
    """
    length = _footer_length(key, tail, size)
    if bytes_max is not None and length > bytes_max:
        raise CorruptObject(key, f"states a footer of {length} bytes; no more than {bytes_max} are read")
    if length > len(tail):
        return NeedMore(length)
    start = size - length
    try:
        data = bytes(tail[-length:-TRAILER])
        body = _Faster.parser(data, start) if _Faster.parser else None
        key_values, groups, clean = body or parse_body(data, start)
        metadata = pq.read_metadata(pa.BufferReader(MAGIC + clean + struct.pack("<I", len(clean)) + MAGIC))
        return ParquetFooter(start, length, key_values, groups, metadata)
    except (pa.ArrowException, OSError, ValueError) as error:
        raise CorruptObject(key, f"its Parquet footer cannot be read: {error}") from error


def footer_of_groups(footer: ParquetFooter, indexes: Sequence[int]) -> bytes:
    """Build the end of a Parquet file, from the footer to the last magic bytes, that describes only these row groups of
    `footer`, in this order, without their statistics. Their offsets stay, so `read_footer` accepts the result in place
    of the file's own end."""
    sink = pa.BufferOutputStream()
    footer.metadata.write_metadata_file(sink)
    written = sink.getvalue().to_pybytes()
    (length,) = struct.unpack("<I", written[-TRAILER:-4])
    file = thrift.read_struct(written[-TRAILER - length : -TRAILER])
    groups = list_at(file, 4, thrift.STRUCT)
    file[3] = (file[3][0], sum(footer.groups[index].rows for index in indexes))
    file[4] = (thrift.LIST, (thrift.STRUCT, [groups[index] for index in indexes]))
    body = thrift.write_struct(_clean(file))
    return body + struct.pack("<I", len(body)) + MAGIC


def parse_body(data: bytes, end: int) -> Body:
    """Parse a footer, which is a Thrift struct. `end`: the offset in the file at which its pages must end. Raises
    ValueError if the footer is malformed or contradicts itself, or if the file is encrypted."""
    file = thrift.read_struct(data)
    leaves = schema_leaves(list_at(file, 2, thrift.STRUCT))
    groups = tuple(_group(raw, leaves, end) for raw in list_at(file, 4, thrift.STRUCT))
    if sum(group.rows for group in groups) != int_at(file, 3):
        raise ValueError("the rows of its row groups do not add up to its number of rows")
    if file.keys() & {8, 9}:
        raise ValueError("encrypted")
    return Body(key_values(file), groups, thrift.write_struct(_clean(file)))


def _footer_length(key: str, tail: bytes, size: int) -> int:
    """The length in bytes of the footer and the eight bytes that follow it, as the end of `tail` states it. Raises
    CorruptObject."""
    if size < len(MAGIC) + TRAILER:
        raise CorruptObject(key, f"{size} bytes are too few for a Parquet file")
    if tail[-4:] != MAGIC:
        raise CorruptObject(key, f"does not end as a Parquet file does: {bytes(tail[-4:])!r} in place of {MAGIC!r}")
    (length,) = struct.unpack("<I", tail[-TRAILER:-4])
    if length + TRAILER + len(MAGIC) > size:
        raise CorruptObject(key, f"states a footer of {length} bytes, but has {size} bytes in all")
    return int(length) + TRAILER


def schema_leaves(elements: list[thrift.Struct]) -> list[Leaf]:
    """The leaf columns of the schema. Raises ValueError if its elements are not a tree."""
    if len(elements) > MAX_COLUMNS:
        raise ValueError(f"{len(elements)} schema elements are too many")
    out: list[Leaf] = []
    rest = iter(elements)

    def children(count: int, path: tuple[bytes, ...], flat: bool) -> None:
        for _ in range(count):
            element = next(rest, None)
            if element is None or len(path) > thrift.MAX_DEPTH:
                raise ValueError("its schema is not a tree")
            repetition, below = int_at(element, 3), element.get(5, (thrift.I32, 0))[1]
            if repetition not in (0, 1, REPEATED):
                raise ValueError(f"unknown repetition type {repetition}")
            here = (*path, _bytes(element, 4))
            still_flat = flat and repetition != REPEATED
            if 1 in element and not below:
                out.append((here, int_at(element, 1), still_flat))
            else:
                children(int_at(element, 5), here, still_flat)

    root = next(rest, None)
    if root is None:
        raise ValueError("it has no schema")
    children(int_at(root, 5) if 5 in root else 0, (), True)
    if next(rest, None) is not None:
        raise ValueError("its schema has elements outside of the tree")
    return out


def _group(raw: thrift.Struct, leaves: list[Leaf], end: int) -> RowGroup:
    rows, columns = int_at(raw, 3), list_at(raw, 1, thrift.STRUCT)
    if rows < 0 or len(columns) != len(leaves):
        raise ValueError(f"a row group has {rows} rows and {len(columns)} columns, but the schema has {len(leaves)}")
    chunks = tuple(_chunk(raw, leaf, rows, end) for raw, leaf in zip(columns, leaves, strict=True))
    held = [chunk for chunk in chunks if chunk.length]
    start = min((chunk.start for chunk in held), default=len(MAGIC))
    length = max((chunk.start + chunk.length for chunk in held), default=start) - start
    unpacked = sum(chunk.unpacked for chunk in chunks)
    return RowGroup(rows, chunks, (start, length), unpacked, sum(chunk.decoded for chunk in chunks))


def _chunk(raw: thrift.Struct, leaf: Leaf, rows: int, end: int) -> ColumnChunk:
    path, physical, flat = leaf
    if raw.keys() & {1, 8, 9}:
        raise ValueError("a column is encrypted or in another file")
    column = _struct(raw, 3)
    if int_at(column, 1) != physical or tuple(list_at(column, 3, thrift.BINARY)) != path:
        raise ValueError(f"the type or path of column {path} differs from the schema")
    if not 0 <= int_at(column, 4) <= LAST_CODEC:
        raise ValueError(f"unknown compression codec {int_at(column, 4)}")
    if any(not 0 <= encoding <= LAST_ENCODING for encoding in list_at(column, 2, thrift.I32)):
        raise ValueError("a column has an unknown encoding")
    values, length, unpacked = int_at(column, 5), int_at(column, 7), int_at(column, 6)
    if values < 0 or (flat and values != rows) or length < 0 or unpacked < 0:
        raise ValueError(f"column {path} of {rows} rows has {values} values in {length} bytes")
    start = int_at(column, 9)
    if dictionary := int_at(column, 11) if 11 in column else 0:  # some writers store 0 if there is no dictionary
        start = min(start, dictionary)
    if length and not len(MAGIC) <= start <= start + length <= end:
        raise ValueError(f"column {path} lies at [{start}, {start + length}), outside of the data")
    low, high = _bounds(column)
    return ColumnChunk(path[0].decode(), start, length, low, high, unpacked, values, _plain_bytes(column))


def _plain_bytes(column: thrift.Struct) -> int:
    """The bytes of a column's byte strings, from its size statistics; 0 without them."""
    kind, sizes = column.get(16, (0, None))
    kind, found = sizes.get(1, (0, 0)) if kind == thrift.STRUCT else (0, 0)
    return max(0, found) if kind == thrift.I64 else 0


def _bounds(column: thrift.Struct) -> tuple[bytes | None, bytes | None]:
    """The column's statistics, as (min_value, max_value); both are None if either is missing. The deprecated fields min
    and max are ignored, because their byte order is undefined."""
    if 12 not in column:
        return None, None
    found = _struct(column, 12)
    if 5 not in found or 6 not in found:
        return None, None
    return _bytes(found, 6), _bytes(found, 5)


def key_values(file: thrift.Struct) -> dict[bytes, bytes]:
    """The key-value metadata of a file, from its struct's field 5. Raises ValueError."""
    if 5 not in file:
        return {}
    out = {}
    for pair in list_at(file, 5, thrift.STRUCT):
        name = _bytes(pair, 1)
        if name in out:
            raise ValueError(f"metadata {name!r} occurs twice")
        out[name] = _bytes(pair, 2) if 2 in pair else b""
    return out


def _clean(file: thrift.Struct) -> thrift.Struct:
    """Copy a footer, with only those fields that a reader of row groups needs."""

    def kept(of: thrift.Struct, ids: set[int]) -> thrift.Struct:
        return {number: value for number, value in of.items() if number in ids}

    def chunk(raw: thrift.Struct) -> thrift.Struct:
        column = kept(raw[3][1], _COLUMN)
        if not column.get(11, (0, 1))[1]:
            del column[11]
        return kept(raw, _CHUNK) | {3: (thrift.STRUCT, column)}

    def group(raw: thrift.Struct) -> thrift.Struct:
        columns = [chunk(column) for column in raw[1][1][1]]
        return kept(raw, _GROUP) | {1: (thrift.LIST, (thrift.STRUCT, columns))}

    elements = [kept(element, ELEMENT_FIELDS) for element in file[2][1][1]]
    groups = [group(raw) for raw in file[4][1][1]]
    return kept(file, _FILE) | {
        2: (thrift.LIST, (thrift.STRUCT, elements)),
        4: (thrift.LIST, (thrift.STRUCT, groups)),
    }


def _value(of: thrift.Struct, number: int, kinds: tuple[int, ...]) -> Any:
    kind, value = of.get(number, (0, None))
    if kind not in kinds:
        raise ValueError(f"field {number} is missing or of type {kind}")
    return value


def int_at(of: thrift.Struct, number: int) -> int:
    """The integer in the field `number` of a struct. Raises ValueError if the field is missing, or of another type."""
    value: int = _value(of, number, (thrift.I16, thrift.I32, thrift.I64))
    return value


def _bytes(of: thrift.Struct, number: int) -> bytes:
    value: bytes = _value(of, number, (thrift.BINARY,))
    return value


def _struct(of: thrift.Struct, number: int) -> thrift.Struct:
    value: thrift.Struct = _value(of, number, (thrift.STRUCT,))
    return value


def list_at(of: thrift.Struct, number: int, element: int) -> list[Any]:
    """The elements of the list in the field `number` of a struct. They must be of the Thrift type `element`; an empty
    list may be of any type. Raises ValueError if there is no such list."""
    kind, values = _value(of, number, (thrift.LIST,))
    if kind != element and values:
        raise ValueError(f"field {number} is a list of the wrong type {kind}")
    out: list[Any] = values
    return out
