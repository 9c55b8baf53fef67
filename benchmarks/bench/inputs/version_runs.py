"""Runs of the version index with rows of mixed_rows, made by the writer that the index itself uses."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from bench.inputs.changes import TENANT
from bench.inputs.mixed_rows import STEP, TABLE_ID, keys, values
from bench.inputs.pulled_pool import SNAPSHOT_TS
from tistream.arrays import Int64s
from tistream.format.run import SCHEMA, RunRef
from tistream.format.segment import OP_DELETE, OP_PUT, SegmentRef
from tistream.format.segment import ORDER as SEGMENT_ORDER
from tistream.format.segment import SCHEMA as SEGMENT_SCHEMA
from tistream.pool.run_rows import read_run
from tistream.pool.run_writer import write_run
from tistream.pool.writer import write_segment
from tistream.storage import layout
from tistream.storage.object_store import ObjectStore

TASK, EPOCH = 1, 1
OBJECT_ROWS = 400_000  # about run.OBJECT_BYTES, unpacked


def versions(handles: Int64s, commit_ts: Int64s, seed: int, deleted: float = 0.0) -> pa.Table:
    """One version (run.SCHEMA, in a run's order) for each handle and commit_ts; a share `deleted` are deletes."""
    rng = np.random.default_rng(seed)
    order = np.lexsort((-commit_ts, handles))
    handles, commit_ts = handles[order], commit_ts[order]
    gone = rng.random(len(handles)) < deleted
    value = values().take(pa.array(rng.integers(0, len(values()), len(handles))))
    columns = {
        "table_id": np.full(len(handles), TABLE_ID),
        "key": keys(np.full(len(handles), TABLE_ID), handles),
        "commit_ts": commit_ts,
        "start_ts": commit_ts - STEP // 2,
        "op": np.where(gone, OP_DELETE, OP_PUT).astype(np.int8),
        "value": pc.if_else(pa.array(gone), pa.scalar(None, pa.binary()), value),
        "txn_source": pa.nulls(len(handles), pa.int64()),
    }
    return pa.table(columns, schema=SCHEMA)


def base_run(objects: ObjectStore, rows: int, base_ts: int) -> Iterator[RunRef]:
    """Write the base run of a table with the handles 1 to `rows`, an object after the other."""
    for part, start in enumerate(range(0, rows, OBJECT_ROWS)):
        handles = np.arange(start + 1, min(rows, start + OBJECT_ROWS) + 1)
        yield put_run(objects, versions(handles, SNAPSHOT_TS + STEP * handles, part), "base", part, None, base_ts)


def put_run(objects: ObjectStore, rows: pa.Table, nonce: str, part: int, low_ts: int | None, high_ts: int) -> RunRef:
    """Write one object of a run."""
    body, run = write_run(rows, layout.run(TENANT, TASK, EPOCH, nonce, part), low_ts, high_ts)
    objects.put(run.key, body)
    return run


def runs_above(objects: ObjectStore, runs: int, rows: int, handles: int, base_ts: int, deleted: float) -> list[RunRef]:
    """`runs` runs above base_ts, each with `rows` versions, a millisecond apart, of random ones of the handles."""
    made = []
    for number in range(runs):
        low_ts = base_ts + STEP * rows * number
        rng = np.random.default_rng(number)
        commit_ts = low_ts + STEP * rng.permutation(np.arange(1, rows + 1))
        table = versions(rng.integers(1, handles + 1, rows), commit_ts, number, deleted)
        made.append(put_run(objects, table, f"above-{number}", 0, low_ts, low_ts + STEP * rows))
    return made


def segments_above(objects: ObjectStore, base: Sequence[RunRef], above: Sequence[RunRef]) -> list[SegmentRef]:
    """Write the segments that the versions of the runs `above` came from: one for each run, with old values."""
    frame = pl.concat([_frame(read_run(objects, run)) for run in (*base, *above)]).sort("key", "commit_ts")
    frame = frame.with_columns(old_value=pl.col("value").shift(1).over("key"))
    made = []
    for number, run in enumerate(above):
        some = frame.filter((pl.col("commit_ts") > run.low_ts) & (pl.col("commit_ts") <= run.high_ts))
        rows = some.sort(SEGMENT_ORDER).select(SEGMENT_SCHEMA.names).to_arrow().cast(SEGMENT_SCHEMA)
        body, ref = write_segment(rows, layout.segment(TENANT, TASK, EPOCH, f"{number:04x}", 0))
        objects.put(ref.key, body)
        made.append(ref)
    return made


def _frame(rows: pa.Table) -> pl.DataFrame:
    frame = pl.from_arrow(rows)
    assert isinstance(frame, pl.DataFrame)
    return frame
