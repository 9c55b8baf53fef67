"""Reads the rows of the schema's keys from the committed pool."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from tistream.format.segment import OP_PUT
from tistream.model.ts import Window
from tistream.pool.footers import FooterCache
from tistream.pool.rows import read_rows
from tistream.pool.task_log import TaskLog
from tistream.schema.tidb.meta_change import DDL_JOB_TABLE_ID, META_TABLE_ID, MetaRow
from tistream.storage.object_store import ObjectStore

SCHEMA_TABLES = (META_TABLE_ID, DDL_JOB_TABLE_ID)
_COLUMNS = ("table_id", "commit_ts", "start_ts", "key", "op", "value", "old_value")


def schema_rows(
    objects: ObjectStore, logs: Iterable[TaskLog], window: Window, footers: FooterCache
) -> tuple[list[MetaRow], int]:
    """Read the rows of the schema's keys with low < commit_ts <= high of the `window`, from the segments that the
    tasks' `logs` name. Returns them in (commit_ts, start_ts, key) order, and the number of segments that were read.

    Raises:
        NotFoundYet: a segment was deleted after a compaction; refresh the logs and read again.
        CorruptObject: a segment is damaged.
        Unavailable: the object store does not answer.
    """
    rows: list[MetaRow] = []
    # Each segment is read once, although tasks that continue a sealed one list the same segments.
    segments = {segment.key: segment for log in logs for segment in log.segments_overlapping(window)}
    for segment in segments.values():
        table = read_rows(objects, segment, window, SCHEMA_TABLES, _COLUMNS, footers)
        rows += _rows(table.to_pydict())
    rows.sort(key=lambda row: (row.commit_ts, row.start_ts, row.key))
    return rows, len(segments)


def _rows(columns: dict[str, list[Any]]) -> Iterator[MetaRow]:
    for table_id, commit_ts, start_ts, key, op, value, old_value in zip(
        *(columns[name] for name in _COLUMNS), strict=True
    ):
        yield MetaRow(table_id, commit_ts, start_ts, key, value if op == OP_PUT else None, old_value)
