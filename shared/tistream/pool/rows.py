"""Reads committed rows from segments: only the row groups that may match, and only the requested columns."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tistream.errors import CorruptObject
from tistream.format.segment import SCHEMA, RowGroupInfo, SegmentRef
from tistream.model.ts import Window
from tistream.pool.footers import FooterCache
from tistream.pool.parquet_objects import OpenedObject, open_object, read_groups
from tistream.storage.object_store import ObjectStore


def row_groups_touching(segment: SegmentRef, window: Window, table_ids: Sequence[int] | None) -> list[int]:
    """The indexes of the row groups that may hold rows of the window and of any of the tables (None means all
    tables)."""
    ids = None if table_ids is None else np.unique(np.asarray(table_ids, np.int64))
    return [
        index
        for index, group in enumerate(segment.row_groups)
        if window.overlaps(group.commit_ts_min, group.commit_ts_max) and (ids is None or _any_between(ids, group))
    ]


def read_rows(
    objects: ObjectStore,
    segment: SegmentRef,
    window: Window,
    table_ids: Sequence[int] | None = None,
    columns: Sequence[str] | None = None,
    footers: FooterCache | None = None,
) -> pa.Table:
    """Read the rows of one segment with commit_ts in `window` and table_id in `table_ids`, in the segment's order.

    Args:
        table_ids: physical table ids; None means all.
        columns: names of segment.SCHEMA, returned in SCHEMA's order; None means all.

    Raises:
        NotFoundYet: the segment was deleted after a compaction; the caller must refresh the task's log and plan again.
        CorruptObject: the segment is damaged.
        Unavailable: the object store does not answer.
    """
    wanted = [name for name in SCHEMA.names if columns is None or name in columns]
    indexes = row_groups_touching(segment, window, table_ids)
    exact = all(_holds_all(segment.row_groups[index], window, table_ids) for index in indexes)
    if exact:
        return read_row_groups(objects, segment, indexes, wanted, footers)
    found = read_row_groups(objects, segment, indexes, {*wanted, "table_id", "commit_ts"}, footers)
    commit_ts = found.column("commit_ts")
    keep = pc.and_(pc.greater(commit_ts, window.low), pc.less_equal(commit_ts, window.high))
    if table_ids is not None:
        keep = pc.and_(keep, pc.is_in(found.column("table_id"), value_set=pa.array(table_ids, pa.int64())))
    return found.select(wanted).filter(keep)


def read_row_group(
    objects: ObjectStore,
    segment: SegmentRef,
    index: int,
    columns: Sequence[str] | None = None,
    footers: FooterCache | None = None,
) -> pa.Table:
    """Read all rows of one row group. Raises the errors of read_rows."""
    return read_row_groups(objects, segment, [index], columns, footers)


def read_row_groups(
    objects: ObjectStore,
    segment: SegmentRef,
    indexes: Sequence[int],
    columns: Sequence[str] | set[str] | None = None,
    footers: FooterCache | None = None,
) -> pa.Table:
    """Read all rows of row groups, in the order of `indexes`, with `columns` in SCHEMA's order. Raises the errors of
    read_rows."""
    if not indexes:
        return SCHEMA.empty_table().select([name for name in SCHEMA.names if columns is None or name in columns])
    return read_opened_groups(objects, segment, open_segment(objects, segment, footers), indexes, columns)


def open_segment(objects: ObjectStore, segment: SegmentRef, footers: FooterCache | None = None) -> OpenedObject:
    """Read a segment's footer. Raises the errors of read_rows."""
    opened = open_object(objects, segment, footers)
    rows = [group.rows for group in opened.footer.groups]
    if rows != [group.rows for group in segment.row_groups]:
        raise CorruptObject(segment.key, f"has row groups of {rows} rows, not those that its manifest states")
    return opened


def read_opened_groups(
    objects: ObjectStore,
    segment: SegmentRef,
    opened: OpenedObject,
    indexes: Sequence[int],
    columns: Sequence[str] | set[str] | None = None,
) -> pa.Table:
    """Read row groups as read_row_groups does, from a segment whose footer has been read already."""
    return read_groups(objects, segment, opened, indexes, columns, SCHEMA)


def _any_between(ids: np.ndarray[tuple[int], np.dtype[np.int64]], group: RowGroupInfo) -> bool:
    at = int(np.searchsorted(ids, group.table_id_min))
    return at < len(ids) and int(ids[at]) <= group.table_id_max


def _holds_all(group: RowGroupInfo, window: Window, table_ids: Sequence[int] | None) -> bool:
    """Whether the bounds of a row group prove that all its rows are in the window and in the tables."""
    if not (group.commit_ts_min in window and group.commit_ts_max in window):
        return False
    return table_ids is None or (group.table_id_min == group.table_id_max and group.table_id_min in table_ids)
