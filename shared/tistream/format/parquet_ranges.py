"""Where the bytes of a Parquet file's row groups lie, and how to fetch them in few requests."""

from __future__ import annotations

import struct
from collections.abc import Collection, Iterable
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.parquet as pq

from tistream.errors import CorruptObject

MAGIC = b"PAR1"
TRAILER = 8  # footer length (u32 LE) and magic
GAP_BYTES = 64 << 10  # a hole that costs less to read than another request does

ByteRange = tuple[int, int]  # (start, length)


@dataclass(frozen=True, slots=True)
class NeedMore:
    """The tail was too short: the last `length` bytes of the object hold the whole footer."""

    length: int


def footer_length(key: str, tail: bytes, size: int) -> int:
    """Bytes of the footer with its trailer, from the object's end. Raises CorruptObject."""
    if size < len(MAGIC) + TRAILER:
        raise CorruptObject(key, f"{size} bytes are too few for a Parquet file")
    if tail[-4:] != MAGIC:
        raise CorruptObject(key, f"does not end as a Parquet file does: {bytes(tail[-4:])!r} in place of {MAGIC!r}")
    (length,) = struct.unpack("<I", tail[-TRAILER:-4])
    if length + TRAILER + len(MAGIC) > size:
        raise CorruptObject(key, f"states a footer of {length} bytes, but has {size} bytes in all")
    return int(length) + TRAILER


def read_footer(key: str, tail: bytes, size: int) -> pq.FileMetaData | NeedMore:
    """Parse the footer at the end of `tail`, the last bytes of an object of `size`. Raises CorruptObject."""
    length = footer_length(key, tail, size)
    if length > len(tail):
        return NeedMore(length)
    try:
        return pq.read_metadata(pa.BufferReader(MAGIC + tail[-length:]))
    except (pa.ArrowException, OSError, ValueError) as error:
        raise CorruptObject(key, f"its Parquet footer cannot be read: {error}") from error


def column_range(chunk: pq.ColumnChunkMetaData) -> ByteRange:
    """The pages of one column chunk, the dictionary page included."""
    pages = [chunk.data_page_offset]
    if chunk.has_dictionary_page and chunk.dictionary_page_offset:  # some writers leave 0 where there is none
        pages.append(chunk.dictionary_page_offset)
    return min(pages), chunk.total_compressed_size


def row_group_range(metadata: pq.FileMetaData, index: int) -> ByteRange:
    """A row group's bytes, from its first page to its last."""
    group = metadata.row_group(index)
    ranges = [column_range(group.column(column)) for column in range(group.num_columns)]
    if not ranges or not any(length for _, length in ranges):
        return len(MAGIC), 0
    start = min(start for start, length in ranges if length)
    return start, max(start + length for start, length in ranges) - start


def projected_ranges(
    metadata: pq.FileMetaData, indexes: Iterable[int], columns: Collection[str] | None
) -> list[ByteRange]:
    """The bytes of some columns (None = all) of some row groups."""
    out = []
    for index in indexes:
        group = metadata.row_group(index)
        for number in range(group.num_columns):
            chunk = group.column(number)
            if columns is None or chunk.path_in_schema.split(".", 1)[0] in columns:
                out.append(column_range(chunk))
    return out


def coalesce(ranges: Iterable[ByteRange], gap: int = GAP_BYTES) -> list[ByteRange]:
    """Merge ranges that touch, overlap, or lie at most `gap` bytes apart; empty ones go."""
    out: list[ByteRange] = []
    for start, length in sorted(ranges):
        if not length:
            continue
        if out and start <= out[-1][0] + out[-1][1] + gap:
            first, held = out[-1]
            out[-1] = (first, max(held, start + length - first))
        else:
            out.append((start, length))
    return out
