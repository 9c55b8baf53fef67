"""Small segments written as one, in a Spark worker. Decides nothing; the rows stay what they are."""

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

# A row group holds one table's rows, or several small tables' up to so many: who pulls one of many tables reads little
# of others. (A tick's own segments share row groups of 65,536 rows: they are written once a second.)
PACKED_ROWS = 8_192
# zstd's: written once and kept, so it may take longer than a tick's, and takes a third less room (docs/benchmarks.md).
LEVEL = 3
READERS = 8


def rewrite_guarded(objects: ObjectStore, unit: Rewrite) -> Rewritten:
    """One Rewrite; what goes wrong with it is told, and stays its own."""
    counted = MeasuredObjectStore(objects)
    try:
        done = _rewritten(counted, unit)
    except RetryableError as error:
        done = Rewritten(unit.task_id, failed=str(error))
    except TiStreamError as error:
        done = Rewritten(unit.task_id, tuple(segment.key for segment in unit.inputs), failed=str(error))
    return replace(done, traffic={kind: took for kind, took in counted.traffic().items() if took.requests})


def _rewritten(objects: ObjectStore, unit: Rewrite) -> Rewritten:
    tables: list[pa.Table] = []
    try:
        for table in _read(objects, unit.inputs):
            tables.append(table)
            if sum(one.nbytes for one in tables) >= unit.unpacked_max:
                break
    except CorruptObject as error:  # the others can be put together without it
        return Rewritten(unit.task_id, (unit.inputs[len(tables)].key,), failed=str(error))
    taken = unit.inputs[: len(tables)]
    if len(taken) < 2:
        return Rewritten(unit.task_id, (taken[0].key,), failed="its rows are too much to be put together with others")
    rows = _in_order(pa.concat_tables([table.cast(wide(SCHEMA)) for table in tables]))
    if rows.num_rows != sum(segment.rows for segment in taken):
        raise InvariantBroken(7, f"{unit.key}: {rows.num_rows} rows of segments that hold others")
    body, output = write_segment(rows, unit.key, PACKED_ROWS, LEVEL)
    objects.put(unit.key, body)
    return Rewritten(unit.task_id, tuple(segment.key for segment in taken), output)


def _read(objects: ObjectStore, segments: Sequence[SegmentRef]) -> Iterator[pa.Table]:
    """One after the other, READERS of them under way: hundreds of answers of an object store would take seconds of a
    slot that ticks need as well. The first one by itself: a store that does not answer is not asked eight times."""
    with new_executor("get", READERS) as readers:
        begin, end = 0, 1
        while begin < len(segments):
            yield from readers.map(
                lambda one: read_row_groups(objects, one, range(len(one.row_groups))), segments[begin:end]
            )
            begin, end = end, end + READERS


def _in_order(rows: pa.Table) -> pa.Table:
    """In segment.ORDER. The inputs are each in order, and mostly one after the other in commit_ts."""
    columns = {name: rows.column(name).to_numpy() for name in ("table_id", "commit_ts", "start_ts")}
    order = np.lexsort((columns["start_ts"], columns["commit_ts"], columns["table_id"]))
    same = np.ones(max(0, len(order) - 1), bool)
    for values in columns.values():
        same &= values[order][1:] == values[order][:-1]
    if same.any():  # rows of one transaction: their keys tell
        frame = pl.DataFrame({**columns, "key": pl.Series(rows.column("key")), "at": np.arange(rows.num_rows)})
        order = frame.sort("table_id", "commit_ts", "start_ts", "key")["at"].to_numpy()
    return rows.take(pa.array(order))
