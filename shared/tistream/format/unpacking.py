"""Protects readers from row groups that unpack to far more bytes than the footer states. Pure.

The footer states a size, but the footer may be wrong. A page of a few bytes can unpack to gigabytes. A dictionary
stores a value once, although it may occur in every row. An incremental encoding (DELTA_BYTE_ARRAY) leaves out the
prefix that a value shares with the one before it. Readers budget memory by the sizes that footers state. So pages must
not exceed the stated size, and there is a limit on the bytes that dictionaries and incremental encodings add.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from tistream.format import thrift_compact as thrift
from tistream.format.parquet_footer import ColumnChunk, ParquetFooter, RowGroup
from tistream.format.sparse_file import SparseFile

ADDED_BYTES_MAX = 1 << 30  # bytes above the stated sizes, over all row groups that one reader of changes holds at once
WATERMARKS_ADDED_MAX = 64 << 20  # the same limit for watermarks, which dispatchers read
LOOK_BYTES = 64 << 20  # memory for the values that are being measured, if each value is as long as its page
PAGES_MORE = 64  # a column may have this many pages more than a row group has rows
ROW_BYTES = 128  # memory of a nearly empty row
_DICTIONARY_PAGE = 2
_DELTA_LENGTH_BYTE_ARRAY = 6
_DELTA_BYTE_ARRAY = 7
_ENCODING_PLACES = ((5, 2), (8, 4))  # field numbers of the encoding in the headers of data pages, versions 1 and 2


class StatedSize(Protocol):
    """A row group's numbers in the footer that limit its unpacked size: its rows, and `unpacked` in bytes."""

    @property
    def rows(self) -> int: ...
    @property
    def unpacked(self) -> int: ...


@dataclass(frozen=True, slots=True)
class ColumnPages:
    """How the columns of some row groups must be read. `with_dictionary`: columns that can be read as dictionaries.
    `unknown`: (row group, chunk, bytes of its largest page) of the chunks whose unpacked size must be measured first.
    Such a chunk has incremental pages, or a dictionary together with pages that cannot be read as a dictionary."""

    with_dictionary: frozenset[str]
    unknown: tuple[tuple[int, ColumnChunk, int], ...]


@dataclass(frozen=True, slots=True)
class _Look:
    dictionary: bool
    delta: bool  # has pages that Arrow cannot read as a dictionary
    incremental: bool
    page_max: int


def checked_pages(
    footer: ParquetFooter, source: SparseFile, indexes: Sequence[int], columns: Collection[str]
) -> ColumnPages:
    """Check the page headers of the named columns, and decide how each column must be read. Raises ValueError if pages
    unpack to more bytes than the footer states."""
    found: dict[str, list[tuple[int, ColumnChunk, _Look]]] = defaultdict(list)
    for index in indexes:
        group = footer.groups[index]
        for chunk in group.chunks:
            if chunk.column in columns and chunk.length:
                found[chunk.column].append((index, chunk, _looked_through(chunk, source, group.rows + PAGES_MORE)))
    with_dictionary, unknown = set(), []
    for column, looks in found.items():
        delta = any(look.delta for *_, look in looks)
        if not delta and any(look.dictionary for *_, look in looks):
            with_dictionary.add(column)
        unknown += [
            (index, chunk, look.page_max)
            for index, chunk, look in looks
            if look.incremental or (delta and look.dictionary)
        ]
    return ColumnPages(frozenset(with_dictionary), tuple(unknown))


def _looked_through(chunk: ColumnChunk, source: SparseFile, pages_max: int) -> _Look:
    data = source.view(chunk.start, chunk.length)
    at = unpacked = values = page_max = 0
    dictionary = delta = incremental = False
    for _ in range(pages_max):
        header, at = thrift.read_struct_at(data, at)
        (kind, size), (_, packed) = header.get(2, (0, -1)), header.get(3, (0, -1))
        if kind != thrift.I32 or size < 0 or not 0 <= packed <= chunk.length - at:
            raise ValueError(f"a page of column {chunk.column} has {packed} bytes, which unpack to {size}")
        encodings = _encodings(header)
        dictionary |= header.get(1, (0, -1))[1] == _DICTIONARY_PAGE
        incremental |= _DELTA_BYTE_ARRAY in encodings
        delta |= _DELTA_BYTE_ARRAY in encodings or _DELTA_LENGTH_BYTE_ARRAY in encodings
        unpacked, page_max = unpacked + size, max(page_max, size)
        values += _values(header)
        at += packed
        if at >= chunk.length:
            break
    else:
        raise ValueError(f"column {chunk.column} has more than {pages_max} pages")
    if unpacked > chunk.unpacked:
        raise ValueError(
            f"the pages of column {chunk.column} unpack to {unpacked} bytes; its footer states {chunk.unpacked}"
        )
    if values > chunk.values:  # a few bytes can encode any number of values of a list's leaf
        raise ValueError(f"the pages of column {chunk.column} have {values} values; its footer states {chunk.values}")
    return _Look(dictionary, delta, incremental, page_max)


def _values(header: thrift.Struct) -> int:
    """The number of values in a data page, as its header states it; 0 for other pages."""
    found = [header[place][1] for place, _ in _ENCODING_PLACES if place in header]
    counts = [fields.get(1, (0, 0)) for fields in found if isinstance(fields, dict)]
    return sum(max(0, count) for kind, count in counts if kind == thrift.I32)


def _encodings(header: thrift.Struct) -> list[int]:
    """The encoding of a data page's values, as a list of one element; an empty list for other pages."""
    found = [(header[place][1], number) for place, number in _ENCODING_PLACES if place in header]
    return [fields[number][1] for fields, number in found if isinstance(fields, dict) and number in fields]


def look_through(
    file: pq.ParquetFile, pages: ColumnPages, footer: ParquetFooter, added_max: int, bytes_max: int | None = None
) -> None:
    """Measure the unpacked size of the column chunks in `pages.unknown`: decode them in pieces, and drop the pieces.
    Raises ValueError if they add more than `added_max` bytes to the expected size, or have more than `bytes_max` bytes.
    A piece has as many values as fit into LOOK_BYTES, because a value is at most as long as the largest page."""
    most = _expected(footer.groups[index] for index in {index for index, *_ in pages.unknown}) + added_max
    most = most if bytes_max is None else min(most, bytes_max)
    size = 0
    for index, chunk, page_max in pages.unknown:
        at_once = max(1, LOOK_BYTES // max(1, page_max))
        for batch in file.iter_batches(at_once, row_groups=[index], columns=[chunk.column], use_threads=False):
            size += batch.nbytes
            if size > most:
                raise ValueError(
                    f"column {chunk.column} takes more than {size} bytes, written out; the limit is {most} bytes"
                )


def written_out(table: pa.Table, groups: Sequence[RowGroup], added_max: int, bytes_max: int | None = None) -> pa.Table:
    """Convert the dictionary columns of a table to plain columns. Raises ValueError if these columns would then take
    more than the expected size of `groups` and `added_max` bytes, or more than `bytes_max` bytes."""
    encoded = [name for name in table.column_names if pa.types.is_dictionary(table.schema.field(name).type)]
    size = sum(_bytes(table.column(name)) for name in encoded)
    expected = _expected(groups)
    if size > expected + added_max:
        raise ValueError(f"columns {encoded} take {size} bytes, written out; by the footer {expected} were expected")
    if bytes_max is not None and size > bytes_max:
        raise ValueError(f"columns {encoded} take {size} bytes, written out; no more than {bytes_max} are read")
    for name in encoded:
        column = table.column(name)
        plain = pa.chunked_array([chunk.dictionary_decode() for chunk in column.chunks], column.type.value_type)
        table = table.set_column(table.schema.get_field_index(name), name, plain)
    return table


def _bytes(column: pa.ChunkedArray) -> int:
    lengths = (pc.binary_length(chunk.dictionary).take(chunk.indices) for chunk in column.chunks)
    size: int = sum(pc.sum(some.cast(pa.int64()), min_count=0).as_py() for some in lengths)
    return size


def added_bytes(table: pa.Table, groups: Iterable[StatedSize]) -> int:
    """The bytes by which a decoded table exceeds the size that its row groups state; 0 if it does not."""
    size: int = table.nbytes
    return max(0, size - _expected(groups))


def _expected(groups: Iterable[StatedSize]) -> int:
    return sum(group.unpacked + ROW_BYTES * group.rows for group in groups)
