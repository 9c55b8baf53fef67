"""What a row group takes once it is unpacked, found out before it is. Pure.

A footer states it, and nothing vouches for the footer: a few bytes of a page can say that they unpack to gigabytes, a
dictionary holds once what a column has in every row, and an incremental encoding leaves out what a value has in common
with the one before it. Readers count their work by what footers state; so pages must keep to it, what dictionaries add
is bounded, and the last is not read.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from tistream.format import thrift_compact as thrift
from tistream.format.parquet_footer import Chunk, Group, ParquetFooter
from tistream.format.sparse_file import SparseFile

ADDED_BYTES_MAX = 512 << 20  # by dictionaries, to what footers state, in what one reader holds at once
ROW_BYTES = 128  # of a row that has next to nothing in it
_DICTIONARY_PAGE = 2
_DELTA_BYTE_ARRAY = 7
_ENCODING_PLACES = ((5, 2), (8, 4))  # in the headers of data pages of both versions


def checked_pages(
    footer: ParquetFooter, source: SparseFile, indexes: Sequence[int], columns: Collection[str]
) -> frozenset[str]:
    """The columns, of those named, that have a dictionary in one of the row groups. Raises ValueError if the pages of
    one unpack to more than the footer states, or are encoded so that nothing tells how much they unpack to."""
    with_dictionary = set()
    for index in indexes:
        for chunk in footer.groups[index].chunks:
            if chunk.column in columns and chunk.length and _has_dictionary(chunk, source):
                with_dictionary.add(chunk.column)
    return frozenset(with_dictionary)


def _has_dictionary(chunk: Chunk, source: SparseFile) -> bool:
    data = source.view(chunk.start, chunk.length)
    at = unpacked = 0
    found = False
    while at < chunk.length:
        header, at = thrift.read_struct_at(data, at)
        (kind, size), (_, packed) = header.get(2, (0, -1)), header.get(3, (0, -1))
        if kind != thrift.I32 or size < 0 or not 0 <= packed <= chunk.length - at:
            raise ValueError(f"a page of column {chunk.column} has {packed} bytes, which unpack to {size}")
        found |= header.get(1, (0, -1))[1] == _DICTIONARY_PAGE
        if _DELTA_BYTE_ARRAY in _encodings(header):
            raise ValueError(f"column {chunk.column} is encoded as DELTA_BYTE_ARRAY")
        unpacked += size
        at += packed
    if unpacked > chunk.unpacked:
        raise ValueError(
            f"the pages of column {chunk.column} unpack to {unpacked} bytes; its footer states {chunk.unpacked}"
        )
    return found


def _encodings(header: thrift.Struct) -> list[int]:
    """Of a data page's values: one, or none for other pages."""
    found = [(header[place][1], number) for place, number in _ENCODING_PLACES if place in header]
    return [fields[number][1] for fields, number in found if isinstance(fields, dict) and number in fields]


def written_out(table: pa.Table, groups: Sequence[Group], added_max: int) -> pa.Table:
    """The row groups' table with plain columns in place of those with dictionaries. Raises ValueError if that adds more
    than `added_max` bytes."""
    encoded = [name for name in table.column_names if pa.types.is_dictionary(table.schema.field(name).type)]
    size = sum(_bytes(table.column(name)) for name in encoded)
    expected = sum(_expected(group.unpacked, group.rows) for group in groups)
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


def added_bytes(table: pa.Table, stated: int) -> int:
    """How much more a decoded row group takes than its footer states, as far as it matters."""
    size: int = table.nbytes
    return max(0, size - _expected(stated, table.num_rows))


def _expected(stated: int, rows: int) -> int:
    return stated + ROW_BYTES * rows
