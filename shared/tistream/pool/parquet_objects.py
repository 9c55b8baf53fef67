"""Reads row groups of immutable Parquet objects that a manifest names: segments and runs."""

from __future__ import annotations

import zlib
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa
import pyarrow.parquet as pq

from tistream.errors import CorruptObject
from tistream.format.byte_ranges import ByteRange
from tistream.format.parquet_footer import NeedMore, ParquetFooter, read_footer
from tistream.format.run import GROUP_ROWS
from tistream.pool.footers import FooterCache
from tistream.storage.object_store import ObjectStore
from tistream.storage.range_reader import fetch_ranges

TAIL_BYTES = 32 << 10  # least size of the first read at an object's end
GROUP_FOOTER_BYTES = 640  # of a footer for each row group, unless keys are long
WHOLE_BYTES = 1 << 20  # an object up to this size is read whole: that takes less time than a second request


class NamedObject(Protocol):
    """What a manifest states about an object: its key, its size in bytes, the CRC-32 of its bytes, and its number of
    rows."""

    @property
    def key(self) -> str: ...
    @property
    def size(self) -> int: ...
    @property
    def checksum(self) -> str: ...
    @property
    def rows(self) -> int: ...


@dataclass(frozen=True, slots=True)
class OpenedObject:
    """An object whose footer was read. `held` has the bytes that were read for it, as (offset, bytes)."""

    footer: ParquetFooter
    held: tuple[tuple[int, bytes], ...] = ()

    def without_tail(self) -> OpenedObject:
        """Drop the bytes, unless they are the whole object: then its row groups can be read from them."""
        return self if any(start == 0 for start, _ in self.held) else OpenedObject(self.footer)


def open_object(
    objects: ObjectStore, named: NamedObject, footers: FooterCache | None = None, before: int = 0
) -> OpenedObject:
    """Read the object's footer, and about `before` bytes before it; an object of up to WHOLE_BYTES is read whole. The
    checksum is verified if the whole object was read. If `footers` has the footer, nothing is read, and the result
    holds no bytes.

    Raises:
        NotFoundYet: garbage collection has deleted the object.
        CorruptObject: the object is damaged, or is not what its manifest states.
        Unavailable: the object store does not answer.
    """
    cached = footers.get(named.key) if footers else None
    if cached is not None:
        return OpenedObject(cached)
    footer_bytes = named.rows // GROUP_ROWS * GROUP_FOOTER_BYTES
    length = named.size if named.size <= WHOLE_BYTES else max(TAIL_BYTES, footer_bytes) + before
    while True:
        tail, size = objects.get_tail(named.key, length)
        if size != named.size:
            raise CorruptObject(named.key, f"has {size} bytes; its manifest states {named.size}")
        if len(tail) == size and f"{zlib.crc32(tail):08x}" != named.checksum:
            raise CorruptObject(named.key, f"fails its checksum {named.checksum}")
        footer = read_footer(named.key, tail, size)
        if not isinstance(footer, NeedMore):
            break
        length = footer.length
    if footers:
        footers.put(named.key, footer)
    return OpenedObject(footer, ((size - len(tail), tail),))


def read_groups(
    objects: ObjectStore,
    named: NamedObject,
    opened: OpenedObject,
    indexes: Sequence[int],
    columns: Collection[str] | None,
    schema: pa.Schema,
) -> pa.Table:
    """Read row groups in the order of `indexes`, with all their rows. The result has `columns` (None means all), in the
    order and with the types of `schema`. Raises the errors of open_object."""
    names = [name for name in schema.names if columns is None or name in columns]
    wanted = pa.schema([schema.field(name) for name in names])
    if not indexes:
        return wanted.empty_table()
    footer = opened.footer
    ranges: list[ByteRange] = [place for index in indexes for place in footer.groups[index].ranges(names)]
    source = fetch_ranges(objects, named.key, named.size, ranges, opened.held)
    try:
        file = pq.ParquetFile(
            pa.PythonFile(source, mode="r"),
            metadata=footer.metadata,
            pre_buffer=False,
            page_checksum_verification=True,
        )
        return file.read_row_groups(list(indexes), columns=names, use_threads=False).select(names).cast(wanted)
    except (pa.ArrowException, OSError, ValueError, KeyError) as error:
        raise CorruptObject(named.key, f"row groups {list(indexes)} cannot be decoded: {error}") from error
