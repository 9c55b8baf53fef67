"""Converts a base chunk of a backfill to a base run, in a Spark worker.

A base chunk has all rows of a span of keys as of base_ts. Three inputs are read side by side in key order, in ranges of
keys that fit into memory: the chunk, the newest logged version of each key at or below base_ts, and the first logged
change of each key above it. The chunk is checked against the log, and the rows that the log lacks are written.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tistream.decode.kernels.arrow_buffers import one_array
from tistream.errors import CorruptObject, RetryableError, TiStreamError
from tistream.format.backfill.base_chunk import UNKNOWN_TS, check_span
from tistream.format.run import OBJECT_BYTES, SCHEMA, RunRef
from tistream.format.segment import OP_PUT
from tistream.model.base_cover import Base
from tistream.model.ts import Window
from tistream.pool.run_writer import write_run
from tistream.pool.versions.merge import below, key_array
from tistream.pool.versions.plan import IndexShard, TableRange, groups_in_window
from tistream.pool.versions.reader import StoreReader
from tistream.pool.versions.scan import read_range
from tistream.pool.versions.tail import sorted_stamps
from tistream.storage.chunk_reader import open_chunk, read_chunk
from tistream.storage.measured import MeasuredObjectStore
from tistream.storage.object_store import ObjectStore
from tistream_sorter.jobs.index.base_unit import BaseResult, BaseUnit
from tistream_sorter.match.base_rows import CHUNK, FIRST, LOGGED, Disagreement, rows_that_count


def base_guarded(objects: ObjectStore, unit: BaseUnit) -> BaseResult:
    """Convert one base chunk to a base run. A TiStreamError is returned in the result, so that the other chunks of the
    job continue."""
    counted = MeasuredObjectStore(objects)
    try:
        runs = _runs(counted, unit)
        made = BaseResult(unit.task_id, unit.chunk, Base(unit.span, unit.base_ts), runs)
    except RetryableError as error:
        made = BaseResult(unit.task_id, unit.chunk, failed=str(error))
    except TiStreamError as error:
        made = BaseResult(unit.task_id, unit.chunk, failed=str(error), lasting=isinstance(error, CorruptObject))
    return replace(made, traffic={kind: done for kind, done in counted.traffic().items() if done.requests})


def _runs(objects: ObjectStore, unit: BaseUnit) -> tuple[RunRef, ...]:
    chunk = open_chunk(objects, unit.chunk)
    check_span(chunk, unit.planned)
    if chunk.base_ts != unit.base_ts:
        raise CorruptObject(chunk.key, f"is as of {chunk.base_ts}, not {unit.base_ts} as before: it was replaced")
    writer = _RunWriter(objects, unit)
    given = (_inside(table, unit) for table in read_chunk(objects, chunk))
    logged, first = _Ahead(_logged(objects, unit)), _Ahead(_first_changes(objects, unit))
    try:
        for table in _with_end(given):
            bound = None if table is None else table.column("key")[-1].as_py()
            rows = CHUNK.empty_table() if table is None else table
            log = logged.up_to(bound, LOGGED), first.up_to(bound, FIRST)
            counts = rows_that_count(rows, *log, unit.base_ts, exact=unit.exact, old_values=unit.old_values)
            writer.add(counts)
    except Disagreement as error:
        raise CorruptObject(chunk.key, str(error)) from error
    writer.flush()
    return tuple(writer.runs)


def _inside(table: pa.Table, unit: BaseUnit) -> pa.Table:
    """The rows of the chunk whose keys are in the unit's span."""
    keys = key_array(table)
    start = below(keys, unit.span.start)
    end = below(keys, unit.span.end) if unit.span.end else len(keys)
    return table.slice(start, end - start)


def _with_end(tables: Iterator[pa.Table]) -> Iterator[pa.Table | None]:
    """Yield the tables that have rows, and then None, which stands for the keys after the last row."""
    yield from (table for table in tables if table.num_rows)
    yield None


def _logged(objects: ObjectStore, unit: BaseUnit) -> Iterator[pa.Table]:
    """Yield, in key order, the newest version of each key at or below base_ts in the task's log (schema LOGGED)."""
    shard = IndexShard(unit.span, unit.segments, unit.runs, unit.indexed_ts, basis=unit.basis)
    reader, wanted = StoreReader(objects), TableRange(unit.table_id, unit.span)
    for table in read_range([shard], reader, Window(0, unit.base_ts), [wanted], deletes=True):
        put = pc.equal(table.column("op"), OP_PUT)
        yield pa.table([table.column("key"), put, table.column("value"), table.column("commit_ts")], schema=LOGGED)


def _first_changes(objects: ObjectStore, unit: BaseUnit) -> Iterator[pa.Table]:
    """Yield, in key order, the first change of each key in (base_ts, flushed_ts], with its old value (schema FIRST)."""
    if unit.flushed_ts <= unit.base_ts:
        return
    window, reader = Window(unit.base_ts, unit.flushed_ts), StoreReader(objects)
    parts = groups_in_window(IndexShard(unit.span, unit.segments), window, [unit.table_id])
    for found in sorted_stamps(reader, parts, unit.span, every=True):
        keys = key_array(found.table)
        last = np.ones(len(found), np.bool_)
        if len(keys) > 1:
            last[:-1] = pc.not_equal(keys.slice(1), keys.slice(0, len(keys) - 1)).to_numpy(zero_copy_only=False)
        oldest = found.take(np.flatnonzero(last))  # the versions of a key are newest first
        values = one_array(oldest.columns(reader, ["old_value"]).column("old_value"))
        yield pa.table([oldest.table.column("key"), values, oldest.table.column("commit_ts")], schema=FIRST)


@dataclass(slots=True)
class _Ahead:
    """Reads a stream of tables, whose rows are in key order. Each call reads up to a higher key, and keeps the rows
    beyond it for the next call."""

    coming: Iterator[pa.Table]
    held: list[pa.Table] = field(default_factory=list)

    def up_to(self, bound: bytes | None, schema: pa.Schema) -> pa.Table:
        """Remove and return the next rows with keys at or below `bound`; None: all remaining rows. `schema`: that of
        the stream's tables, for a result without rows."""
        tables: list[pa.Table] = []
        while True:
            if not self.held:
                found = next(self.coming, None)
                if found is None:
                    break
                self.held.append(found)
            table = self.held.pop(0)
            keys = key_array(table)
            count = len(keys) if bound is None else below(keys, bound + b"\0")
            tables.append(table.slice(0, count))
            if count < len(keys):
                self.held.insert(0, table.slice(count))
                break
        return pa.concat_tables(tables) if tables else schema.empty_table()


@dataclass(slots=True)
class _RunWriter:
    """Collects rows in key order, and writes them as objects of a base run, each of about OBJECT_BYTES."""

    objects: ObjectStore
    unit: BaseUnit
    held: list[pa.Table] = field(default_factory=list)
    runs: list[RunRef] = field(default_factory=list)

    def add(self, rows: pa.Table) -> None:
        """Add rows with the columns of base_rows.CHUNK. They must follow the earlier ones in key order."""
        if not rows.num_rows:
            return
        count = rows.num_rows
        columns = {
            "table_id": pa.repeat(pa.scalar(self.unit.table_id, pa.int64()), count),
            "key": rows.column("key"),
            "commit_ts": pc.fill_null(rows.column("commit_ts"), UNKNOWN_TS),
            "start_ts": pa.repeat(pa.scalar(0, pa.int64()), count),
            "op": pa.repeat(pa.scalar(OP_PUT, pa.int8()), count),
            "value": rows.column("value"),
            "txn_source": pa.nulls(count, pa.int64()),
        }
        self.held.append(pa.table([columns[name] for name in SCHEMA.names], schema=SCHEMA))
        if sum(table.nbytes for table in self.held) >= OBJECT_BYTES:
            self.flush()

    def flush(self) -> None:
        """Write the buffered rows as one object."""
        if self.held:
            table = pa.concat_tables(self.held).combine_chunks()
            body, run = write_run(table, self.unit.key(len(self.runs)), None, self.unit.base_ts)
            self.objects.put(run.key, body)
            self.held.clear()
            self.runs.append(run)
