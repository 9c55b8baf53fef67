"""Reads change files from the object store: footers with one request, row groups by range."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Protocol

import pyarrow as pa

from tistream.errors import CorruptObject
from tistream.format import change_file, change_rows, watermark_size
from tistream.format.change_file import ChangeFile, RowGroupLike
from tistream.format.parquet_footer import NeedMore, ParquetFooter, read_footer
from tistream.format.source_file import SourceFile, SourceGroup
from tistream.format.sparse_file import SparseFile
from tistream.format.unpacking import ADDED_BYTES_MAX, WATERMARKS_ADDED_MAX, added_bytes
from tistream.storage import layout
from tistream.storage.object_store import ObjectStore
from tistream.storage.range_reader import fetch_ranges

SOURCE_COLUMNS = ("key", "value", "old_value", "start_ts")
TAIL_BYTES = 64 << 10  # size of the first read; it holds the footer of some 25 row groups, or a complete small file

# Footers that are cached, by number and size; a parsed footer is some ten times as large as its bytes.
KEPT_FOOTERS, KEPT_FOOTER_BYTES = 64, 64 << 10


class FileReference(Protocol):
    """What a reader needs to know of a change file whose footer another process has checked. Batches of dispatchers
    have such references (tistream.wire.file_batch.FileRef)."""

    @property
    def key(self) -> str: ...
    @property
    def size(self) -> int: ...
    @property
    def footer_start(self) -> int: ...
    @property
    def groups(self) -> Sequence[RowGroupLike]: ...


class KeptFooters(Protocol):
    """Footers that a process keeps, by object key (tistream.pool.footers.FooterCache)."""

    def get(self, key: str, /) -> ParquetFooter | None: ...
    def put(self, key: str, footer: ParquetFooter, /) -> None: ...


def open_change_file(objects: ObjectStore, key: str, tail_bytes: int = TAIL_BYTES) -> ChangeFile:
    """Read and check a change file's footer: one request, or two if the footer is larger than `tail_bytes`.

    Raises:
        NotFoundYet: no such object.
        CorruptObject: the object breaks the push contract, or is still being written.
        Unavailable: no answer came.
    """
    identity = layout.parse_change_file(key)
    if identity is None:
        raise CorruptObject(key, "is not named as a change file")
    tail, size = objects.get_tail(key, tail_bytes)
    found = change_file.parse_footer(key, identity, tail, size)
    if isinstance(found, NeedMore):
        tail, size = objects.get_tail(key, found.length)
        found = change_file.parse_footer(key, identity, tail, size)
        if isinstance(found, NeedMore):
            raise CorruptObject(key, "changed while its footer was read")
    return found


def read_watermarks(objects: ObjectStore, file: ChangeFile) -> pa.Table:
    """Read and check all watermark rows of a file. Returns them as change_rows.WATERMARKS, in file order. Raises the
    errors of fetch_groups; CorruptObject also if the rows are not valid."""
    indexes = [group.index for group in file.watermark_groups]
    source, footer = fetch_groups(objects, file, indexes)
    table = change_file.decode_groups(
        file.key,
        footer,
        source,
        indexes,
        change_file.WATERMARK_COLUMNS,
        WATERMARKS_ADDED_MAX,
        watermark_size.BYTES_MAX,
    )
    return change_rows.watermarks(file.key, table)


def read_changes(
    objects: ObjectStore,
    file: ChangeFile | FileReference,
    indexes: Sequence[int],
    columns: Sequence[str] = change_file.CHANGE_COLUMNS,
    added_max: int = ADDED_BYTES_MAX,
    footers: KeptFooters | None = None,
) -> pa.Table:
    """Read the row groups `indexes` of changes, in this order. Their CRCs are checked, and the rows too, as far as
    `columns` allow. `columns` are names of change_file.RAW_SCHEMA.

    `footers` is used for a FileReference: if it has the file's footer, the footer is not read again. Once all row
    groups were found sound, the file's footer is added to it.

    Raises:
        CorruptObject: the row groups are damaged, were replaced, or contain no changes; or encodings add more than
            `added_max` bytes to the expected size.
        NotFoundYet: the object is gone.
        Unavailable: the object store does not answer.
    """
    source, footer = fetch_groups(objects, file, indexes, footers)
    tables = []
    for index in indexes:
        table = change_file.decode_groups(
            file.key, footer, source, [index], columns, added_max, schema=change_file.RAW_SCHEMA
        )
        added_max -= added_bytes(table, [footer.groups[index]])
        bounds = change_file.key_bounds(footer.groups[index])
        change_rows.check_changes(file.key, table, *bounds)
        tables.append(table)
    if footers is not None:
        footers.put(file.key, footer)
    return pa.concat_tables(tables) if tables else _empty(columns)


def fetch_groups(
    objects: ObjectStore,
    file: ChangeFile | FileReference,
    indexes: Sequence[int],
    footers: KeptFooters | None = None,
) -> tuple[SparseFile, ParquetFooter]:
    """Fetch the bytes of the row groups `indexes` and check their CRCs, without decoding them. Returns the bytes and
    the footer that describes them. The footer is taken from `file` or `footers` if one of them has it, and is otherwise
    fetched too. Raises CorruptObject if the bytes are damaged or were replaced, NotFoundYet if the object is gone,
    Unavailable."""
    groups = [file.groups[index] for index in indexes]
    if isinstance(file, ChangeFile):
        held = [(file.size - len(file.tail), file.tail)]
        ranges = [(group.offset, group.length) for group in groups]
        source = fetch_ranges(objects, file.key, file.size, ranges, held)
        return _checked(file.key, groups, file.footer, source)
    kept = None if footers is None else footers.get(file.key)
    return _fetch(objects, file, groups, kept)


def read_source(objects: ObjectStore, source: SourceFile, groups: Sequence[SourceGroup]) -> pa.Table:
    """Read row groups of a change file again, because pending rows point to values in them. Returns their rows with the
    columns key, value, old_value and start_ts, concatenated in the order of `groups`. The row groups are CRC-checked as
    at the first read. Raises the errors of read_changes."""
    fetched, footer = _fetch(objects, source, groups)
    indexes = [group.index for group in groups]
    return change_file.decode_groups(source.key, footer, fetched, indexes, SOURCE_COLUMNS)


def _fetch(
    objects: ObjectStore,
    file: FileReference | SourceFile,
    groups: Sequence[RowGroupLike],
    kept: ParquetFooter | None = None,
) -> tuple[SparseFile, ParquetFooter]:
    place = (file.footer_start, file.size - file.footer_start)
    ranges = [(group.offset, group.length) for group in groups]
    if kept is not None and (kept.start, kept.size) == place:
        return _checked(file.key, groups, kept, fetch_ranges(objects, file.key, file.size, ranges))
    source = fetch_ranges(objects, file.key, file.size, [place, *ranges])
    tail = bytes(source.view(*place))
    parsed = _parsed if len(tail) <= KEPT_FOOTER_BYTES else _parsed.__wrapped__
    return _checked(file.key, groups, parsed(file.key, tail, file.size), source)


@lru_cache(maxsize=KEPT_FOOTERS)
def _parsed(key: str, tail: bytes, size: int) -> ParquetFooter:
    """Parse a footer from its bytes. The result is cached, because a process that works on a tick's shards reads each
    footer several times."""
    footer = read_footer(key, tail, size)
    if isinstance(footer, NeedMore):
        raise CorruptObject(key, "its footer is not where it was said to be: it was replaced")
    change_file.check_columns(key, footer)
    return footer


def _checked(
    key: str, groups: Sequence[RowGroupLike], footer: ParquetFooter, source: SparseFile
) -> tuple[SparseFile, ParquetFooter]:
    for group in groups:
        change_file.check_group(key, group, footer, source)
    return source, footer


def _empty(columns: Sequence[str]) -> pa.Table:
    return pa.schema([f.with_nullable(True) for f in change_file.RAW_SCHEMA if f.name in columns]).empty_table()
