"""Merges small segments into one, in a Spark worker. The driver has selected the segments. No row is changed or
dropped."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
import polars as pl
import pyarrow as pa

from tistream.concurrency import new_executor
from tistream.errors import CorruptObject, InvariantBroken, RetryableError, TiStreamError
from tistream.format.segment import SCHEMA, SegmentRef
from tistream.pool.rows import read_row_groups
from tistream.pool.writer import write_segment
from tistream.storage.measured import MeasuredObjectStore
from tistream.storage.object_store import ObjectStore
from tistream_sorter.jobs.rewrite import Rewrite, Rewritten
from tistream_sorter.match.contracts import wide

# A row group holds the rows of one table, or of several small tables up to this number of rows, so that a pull of one
# table reads few rows of others. (A tick's segments, written each second, use row groups of 65,536 rows.)
PACKED_ROWS = 8_192
# zstd level. The output is written once and kept, so it may cost more time than a tick's segment. It is a third smaller
# (docs/benchmarks.md).
LEVEL = 3
READERS = 8


def rewrite_guarded(objects: ObjectStore, unit: Rewrite) -> Rewritten:
    """Run one merge of segments. A TiStreamError is returned in the result, so that the other merges of the job
    continue."""
    counted = MeasuredObjectStore(objects)
    try:
        done = _rewritten(counted, unit)
    except RetryableError as error:
        done = Rewritten(unit.task_id, failed=str(error))
    except TiStreamError as error:
        done = Rewritten(unit.task_id, tuple(segment.key for segment in unit.inputs), failed=str(error))
    return replace(done, traffic={kind: spent for kind, spent in counted.traffic().items() if spent.requests})


def _rewritten(objects: ObjectStore, unit: Rewrite) -> Rewritten:
    tables: list[pa.Table] = []
    try:
        for table in _read(objects, unit.inputs):
            tables.append(table)
            if sum(one.nbytes for one in tables) >= unit.unpacked_max:
                break
    except CorruptObject as error:  # the other segments can be merged without the damaged one
        return Rewritten(unit.task_id, (unit.inputs[len(tables)].key,), failed=str(error))
    merged = unit.inputs[: len(tables)]
    if len(merged) < 2:
        return Rewritten(
            unit.task_id, (merged[0].key,), failed="its rows are too large to merge with those of another segment"
        )
    rows = _in_order(pa.concat_tables([table.cast(wide(SCHEMA)) for table in tables]))
    stated = sum(segment.rows for segment in merged)
    if rows.num_rows != stated:
        keys = ", ".join(segment.key for segment in merged)
        raise InvariantBroken(
            7, f"{rows.num_rows} rows were read from {keys}, which state {stated}; nothing is written"
        )
    body, output = write_segment(rows, unit.key, PACKED_ROWS, LEVEL)
    objects.put(unit.key, body)
    return Rewritten(unit.task_id, tuple(segment.key for segment in merged), output)


def _read(objects: ObjectStore, segments: Sequence[SegmentRef]) -> Iterator[pa.Table]:
    """Yield the table of each segment, in order, with READERS concurrent reads: sequential reads of hundreds of objects
    would occupy for seconds a slot that ticks need. The first segment is read alone. So an object store that does not
    answer gets one request and not READERS."""
    with new_executor("get", READERS) as readers:
        begin, end = 0, 1
        while begin < len(segments):
            yield from readers.map(
                lambda one: read_row_groups(objects, one, range(len(one.row_groups))), segments[begin:end]
            )
            begin, end = end, end + READERS


def _in_order(rows: pa.Table) -> pa.Table:
    """Sort rows by segment.ORDER. Each input is sorted already, and most inputs follow one another in commit_ts."""
    columns = {name: rows.column(name).to_numpy() for name in ("table_id", "commit_ts", "start_ts")}
    order = np.lexsort((columns["start_ts"], columns["commit_ts"], columns["table_id"]))
    same = np.ones(max(0, len(order) - 1), bool)
    for values in columns.values():
        same &= values[order][1:] == values[order][:-1]
    if same.any():  # rows of one transaction are ordered by key
        frame = pl.DataFrame({**columns, "key": pl.Series(rows.column("key")), "at": np.arange(rows.num_rows)})
        order = frame.sort("table_id", "commit_ts", "start_ts", "key")["at"].to_numpy()
    return rows.take(pa.array(order))
