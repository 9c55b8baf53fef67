"""What a row group takes once it is unpacked, found out before it is. Pure.

A footer states it, and nothing vouches for the footer: a few bytes of a page can say that they unpack to gigabytes, a
dictionary holds once what a column has in every row, and an incremental encoding (DELTA_BYTE_ARRAY) leaves out what a
value has in common with the one before it. Readers count their work by what footers state; so pages must keep to it,
and what the other two add is bounded. What a row group takes whose writer counted rows as design.md 2 has it (8 MiB) is
always within the bound, however it is encoded and however many there are.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from tistream.format import thrift_compact as thrift
from tistream.format.parquet_footer import Chunk, Group, ParquetFooter
from tistream.format.sparse_file import SparseFile

ADDED_BYTES_MAX = 512 << 20  # to what is expected, in what one reader holds at once
GROUP_BYTES = 32 << 20  # expected of every row group, whatever its footer states
LOOK_BYTES = 64 << 20  # that a look at values takes which may all be as long as their pages
ROW_BYTES = 128  # of a row that has next to nothing in it
_DICTIONARY_PAGE = 2
_DELTA_BYTE_ARRAY = 7
_ENCODING_PLACES = ((5, 2), (8, 4))  # in the headers of data pages of both versions


class Stated(Protocol):
    """A row group as its footer states it."""

    @property
    def rows(self) -> int: ...
    @property
    def unpacked(self) -> int: ...


@dataclass(frozen=True, slots=True)
class Pages:
    """Columns that have a dictionary in one of the row groups, and of which row groups which chunks are incremental."""

    with_dictionary: frozenset[str]
    incremental: tuple[tuple[int, Chunk], ...]


def checked_pages(footer: ParquetFooter, source: SparseFile, indexes: Sequence[int], columns: Collection[str]) -> Pages:
    """How the columns named are encoded. Raises ValueError if pages unpack to more than the footer states."""
    with_dictionary, incremental = set(), []
    for index in indexes:
        for chunk in footer.groups[index].chunks:
            if chunk.column not in columns or not chunk.length:
                continue
            dictionary, delta = _looked_through(chunk, source)
            if dictionary:
                with_dictionary.add(chunk.column)
            if delta:
                incremental.append((index, chunk))
    return Pages(frozenset(with_dictionary), tuple(incremental))


def _looked_through(chunk: Chunk, source: SparseFile) -> tuple[bool, bool]:
    """Whether it has a dictionary, and whether pages are incremental."""
    data = source.view(chunk.start, chunk.length)
    at = unpacked = 0
    dictionary = delta = False
    while at < chunk.length:
        header, at = thrift.read_struct_at(data, at)
        (kind, size), (_, packed) = header.get(2, (0, -1)), header.get(3, (0, -1))
        if kind != thrift.I32 or size < 0 or not 0 <= packed <= chunk.length - at:
            raise ValueError(f"a page of column {chunk.column} has {packed} bytes, which unpack to {size}")
        dictionary |= header.get(1, (0, -1))[1] == _DICTIONARY_PAGE
        delta |= _DELTA_BYTE_ARRAY in _encodings(header)
        unpacked += size
        at += packed
    if unpacked > chunk.unpacked:
        raise ValueError(
            f"the pages of column {chunk.column} unpack to {unpacked} bytes; its footer states {chunk.unpacked}"
        )
    return dictionary, delta


def _encodings(header: thrift.Struct) -> list[int]:
    """Of a data page's values: one, or none for other pages."""
    found = [(header[place][1], number) for place, number in _ENCODING_PLACES if place in header]
    return [fields[number][1] for fields, number in found if isinstance(fields, dict) and number in fields]


def look_through(file: pq.ParquetFile, pages: Pages, footer: ParquetFooter, added_max: int) -> None:
    """Read the incremental chunks piece by piece and keep nothing. Raises ValueError if one adds more than `added_max`
    bytes. A value is no longer than its page is unpacked: so few enough at once take no more than LOOK_BYTES."""
    for index, chunk in pages.incremental:
        most = _expected([footer.groups[index]]) + added_max
        size = 0
        at_once = max(1, LOOK_BYTES // max(1, chunk.unpacked))
        for batch in file.iter_batches(at_once, row_groups=[index], columns=[chunk.column], use_threads=False):
            size += batch.nbytes
            if size > most:
                raise ValueError(
                    f"column {chunk.column} takes more than {size} bytes, written out; {most} at most may be"
                )


def written_out(table: pa.Table, groups: Sequence[Group], added_max: int) -> pa.Table:
    """The row groups' table with plain columns in place of those with dictionaries. Raises ValueError if that adds more
    than `added_max` bytes."""
    encoded = [name for name in table.column_names if pa.types.is_dictionary(table.schema.field(name).type)]
    size = sum(_bytes(table.column(name)) for name in encoded)
    expected = _expected(groups)
    if size > expected + added_max:
        raise ValueError(f"columns {encoded} take {size} bytes, written out; by the footer {expected} were expected")
    for name in encoded:
        column = table.column(name)
        plain = pa.chunked_array([chunk.dictionary_decode() for chunk in column.chunks], column.type.value_type)
        table = table.set_column(table.schema.get_field_index(name), name, plain)
    return table


def _bytes(column: pa.ChunkedArray) -> int:
    lengths = (pc.binary_length(chunk.dictionary).take(chunk.indices) for chunk in column.chunks)
    size: int = sum(pc.sum(some.cast(pa.int64()), min_count=0).as_py() for some in lengths)
    return size


def added_bytes(table: pa.Table, groups: Iterable[Stated]) -> int:
    """How much more decoded row groups take than is expected of them."""
    size: int = table.nbytes
    return max(0, size - _expected(groups))


def _expected(groups: Iterable[Stated]) -> int:
    return sum(max(group.unpacked, GROUP_BYTES) + ROW_BYTES * group.rows for group in groups)
