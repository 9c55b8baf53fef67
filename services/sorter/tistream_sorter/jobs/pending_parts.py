"""Reads pending parts in a Spark worker: Parquet files of rows that are not flushed. A READY or SEALED part has matched
rows above the watermark; SEALED: all of one commit_ts, in the form of a segment. An UNMATCHED part has entries without
their counterpart. Also reads the values in change files to which rows of parts point.

A part that does not exist makes the tick fail, and it is tried again. It is not reported as invariant 10: a part is
deleted some minutes after the last manifest that names it, so a job of a sorter that has lost the task misses it, too.
"""

from __future__ import annotations

import io
import zlib
from collections.abc import Iterator

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from tistream.arrays import Bools, Int64s
from tistream.errors import CorruptObject, NotFoundYet, Unavailable
from tistream.format.manifest import PendingPart
from tistream.format.segment import SegmentRef
from tistream.model.span import shown_key
from tistream.pool.rows import read_row_groups
from tistream.storage.change_reader import read_source
from tistream.storage.object_store import ObjectStore
from tistream_sorter.jobs.pointers import NOWHERE, Fetch, PointedFiles, fetches, renumbered
from tistream_sorter.match.contracts import READY_SCHEMA, READY_WIDE, UNMATCHED_SCHEMA, wide
from tistream_sorter.match.key_range import inside

IDENTITY = ("start_ts", "key")


def read_ready(objects: ObjectStore, part: PendingPart) -> pa.Table:
    """Read the rows of a READY part (READY_SCHEMA) that lie in its span. Raises CorruptObject; there is no other copy
    of a part. Raises Unavailable if it does not exist."""
    table = pq.read_table(_whole(objects, part)).cast(READY_SCHEMA)
    return clipped(table, part)


def read_unmatched(objects: ObjectStore, part: PendingPart, book: PointedFiles) -> pa.Table:
    """Read the rows of an UNMATCHED part (UNMATCHED_SCHEMA) that lie in its span. The change files to which the part
    points are added to `book`, and the pointers of the returned rows use the numbers that the files have there. Raises
    CorruptObject; Unavailable if the part does not exist."""
    table = pq.read_table(_whole(objects, part))
    if "pointer" not in table.column_names:  # the part was written under manifest version 1
        table = table.append_column("pointer", pa.nulls(table.num_rows, pa.int64()))
    table = clipped(table.cast(UNMATCHED_SCHEMA), part)
    numbers = book.add(part.sources, part.pointed_bytes / max(part.rows, 1))
    held = pointer_column(table)
    if len(held) and int((held >> 47).max()) >= len(part.sources):
        raise CorruptObject(part.key, "has a pointer into a source that its manifest does not name (invariant 10)")
    return with_pointers(table, renumbered(held, numbers) if len(numbers) else held)


def sealed_identities(objects: ObjectStore, part: PendingPart) -> pl.DataFrame:
    """Read start_ts and key of the rows of a SEALED part. The values are not read. Raises CorruptObject; Unavailable if
    the part does not exist."""
    segment = segment_of(part)
    try:
        table = read_row_groups(objects, segment, range(len(segment.row_groups)), IDENTITY)
    except NotFoundYet as error:
        raise _gone(part) from error
    frame = pl.from_arrow(table.select(list(IDENTITY)))
    assert isinstance(frame, pl.DataFrame)
    return frame


def segment_of(part: PendingPart) -> SegmentRef:
    """A reference to the object of a SEALED part as the segment that it will become."""
    return SegmentRef(part.key, part.size, part.checksum, part.rows, part.row_groups)


def clipped(table: pa.Table, part: PendingPart) -> pa.Table:
    """Select the rows whose keys lie in the part's span, which is narrower than the object's if the task was split."""
    chosen = inside(pl.Series(table["key"]), part.span.start, part.span.end)
    return table if chosen.all() else table.filter(chosen.to_arrow())


def pointer_column(table: pa.Table) -> Int64s:
    """The pointers of a table's rows as an array; NOWHERE where the column is null."""
    column = pc.fill_null(table["pointer"], -1)
    return np.asarray(column.combine_chunks().to_numpy(zero_copy_only=False), np.int64)


def with_pointers(table: pa.Table, pointer: Int64s) -> pa.Table:
    """The table with these pointers in place of its own, one for each row; NOWHERE becomes null."""
    at = table.schema.get_field_index("pointer")
    return table.set_column(at, table.schema.field(at), pa.array(pointer, mask=pointer < 0))


def read_pointed(objects: ObjectStore, rows: pa.Table, book: PointedFiles, bytes_max: int) -> Iterator[pa.Table]:
    """Read the values to which `rows` (contracts.POINTED_WIDE) point, in the change files of `book`. Yields READY_WIDE
    tables in the order of the change files. Each read returns at most about `bytes_max` bytes.

    Raises:
        CorruptObject: a change file is missing or damaged, or a pointer leads to a row with another key or start_ts.
    """
    for fetch in fetches(pointer_column(rows), book, bytes_max):
        yield _filled(rows.take(pa.array(fetch.requested)), _source_rows(objects, fetch), fetch.source.key)


def with_values(objects: ObjectStore, rows: pa.Table, which: Bools, book: PointedFiles, bytes_max: int) -> pa.Table:
    """Read the values of some rows from change files, and store them in the rows in place of the pointers. `rows` has
    the columns of UNMATCHED_WIDE, and the mask `which` selects the rows. Returns the new table. Raises the errors of
    `read_pointed`."""
    if not which.any():
        return rows
    chosen = rows.filter(pa.array(which))
    requested, found = [], []
    for fetch in fetches(pointer_column(chosen), book, bytes_max):
        table = _source_rows(objects, fetch)
        _check_same(chosen.take(pa.array(fetch.requested)), table, fetch.source.key)
        requested.append(fetch.requested)
        found.append(table)
    values = pa.concat_tables(found).take(pa.array(np.argsort(np.concatenate(requested)))).combine_chunks()
    for name in ("value", "old_value"):
        at = rows.schema.get_field_index(name)
        replaced = pc.replace_with_mask(rows[name].combine_chunks(), pa.array(which), values[name].combine_chunks())
        rows = rows.set_column(at, rows.schema.field(at), replaced)
    return with_pointers(rows, np.where(which, NOWHERE, pointer_column(rows)))


def _source_rows(objects: ObjectStore, fetch: Fetch) -> pa.Table:
    try:
        table = read_source(objects, fetch.source, fetch.groups)
    except NotFoundYet as error:
        raise CorruptObject(fetch.source.key, f"does not exist, although a manifest points into it: {error}") from error
    return table.cast(wide(table.schema)).take(pa.array(fetch.found))


def _filled(requested: pa.Table, found: pa.Table, key: str) -> pa.Table:
    _check_same(requested, found, key)
    filled = requested.append_column("value", found["value"]).append_column("old_value", found["old_value"])
    return filled.select(READY_WIDE.names).cast(READY_WIDE)


def _check_same(requested: pa.Table, found: pa.Table, key: str) -> None:
    """Check that each row of `found` has the key and start_ts of the same row of `requested`. Raises CorruptObject."""
    same = pc.and_(pc.equal(requested["key"], found["key"]), pc.equal(requested["start_ts"], found["start_ts"]))
    if not pc.all(pc.fill_null(same, False)).as_py():
        at = pc.index(pc.fill_null(same, False), False).as_py()
        raise CorruptObject(key, f"a pointer to key {shown_key(requested['key'][at].as_py())} leads to another row")


def _whole(objects: ObjectStore, part: PendingPart) -> io.BytesIO:
    try:
        body = objects.get(part.key)
    except NotFoundYet as error:
        raise _gone(part) from error
    if len(body) != part.size or f"{zlib.crc32(body):08x}" != part.checksum:
        raise CorruptObject(part.key, "does not have the size and checksum that its manifest states (invariant 10)")
    return io.BytesIO(body)


def _gone(part: PendingPart) -> Unavailable:
    return Unavailable(f"pending part {part.key} does not exist: unless another sorter has the task now, restore it")
