"""How many requests a lookup of one key makes if nothing is cached: exact counts, so that none is added unseen."""

from __future__ import annotations

import functools

import numpy as np
import pyarrow as pa
import pytest

from support.versions_world import int_key
from tistream.format.run import SCHEMA, RunRef
from tistream.format.segment import OP_PUT
from tistream.model.span import WHOLE
from tistream.model.ts import Window
from tistream.pool.parquet_objects import WHOLE_BYTES
from tistream.pool.run_writer import write_run
from tistream.pool.versions.lookup import PLACES, newest_at, versions_of
from tistream.pool.versions.plan import IndexShard
from tistream.pool.versions.reader import StoreReader
from tistream.storage.backends.memory import MemoryObjectStore
from tistream.storage.measured import MeasuredObjectStore

TABLE, RUNS, EACH = 100, 4, 9_000
ROWS = (RUNS + 1) * EACH
NEVER = ROWS // 2 * 1_000 + 1  # a key inside the table's range that no row has


def value(handle: int, run: int) -> bytes:
    return b"%d@%d" % (handle, run)


def put(objects: MemoryObjectStore, run: int, handles: range) -> RunRef:
    """The base run (0), or a run above it, of rows that do not compress, so that no object is read whole."""
    noise = np.random.default_rng(run).bytes(48 * len(handles))
    low, high = (None, 10) if run == 0 else (10 * run, 10 * run + 10)
    columns = {
        "table_id": [TABLE] * len(handles),
        "key": [int_key(TABLE, handle * 1_000) for handle in handles],
        "commit_ts": [high] * len(handles),
        "start_ts": [high - 1] * len(handles),
        "op": [OP_PUT] * len(handles),
        "value": [value(handle, run) + noise[at * 48 : at * 48 + 48] for at, handle in enumerate(handles)],
        "txn_source": [None] * len(handles),
    }
    body, ref = write_run(pa.table(columns, schema=SCHEMA), f"run-{run}", low, high)
    assert ref.size > WHOLE_BYTES
    objects.put(ref.key, body)
    return ref


@functools.cache
def pool() -> tuple[MemoryObjectStore, IndexShard]:
    """A base run of all rows, and four runs above it. Run N has the rows whose handle leaves N when divided by five; so
    those that leave 0 are in the base run only."""
    objects = MemoryObjectStore()
    base = put(objects, 0, range(ROWS))
    above = [put(objects, run, range(run, ROWS, RUNS + 1)) for run in range(1, RUNS + 1)]
    return objects, IndexShard(WHOLE, (), (base, *above), 10 * RUNS + 10, 10)


def place(key: int) -> pa.Table:
    return pa.table([[TABLE], [int_key(TABLE, key)]], schema=PLACES)


@pytest.mark.parametrize(("run", "gets"), [(4, 2), (3, 4), (2, 6), (1, 8), (0, 10)])
def test_a_cold_lookup_reads_no_object_below_the_version_that_it_finds(run: int, gets: int) -> None:
    objects, shard = pool()
    handle = ROWS // 2 // 5 * 5 + run
    store = MeasuredObjectStore(objects)
    found = newest_at([shard], StoreReader(store), place(handle * 1_000), 1_000).column("value")[0].as_py()
    assert found.startswith(value(handle, run))
    assert store.traffic()["get"].requests == gets


def test_a_lookup_with_known_footers_reads_a_row_group_of_each_run() -> None:
    objects, shard = pool()
    store = MeasuredObjectStore(objects)
    reader = StoreReader(store)
    for key in (ROWS // 2 * 1_000, NEVER):
        before = store.traffic()["get"].requests
        newest_at([shard], reader, place(key), 1_000)
        gets = store.traffic()["get"].requests - before
    assert gets == RUNS + 1


def test_a_history_above_the_base_does_not_read_the_base() -> None:
    objects, shard = pool()
    store = MeasuredObjectStore(objects)
    found = versions_of([shard], StoreReader(store), place((ROWS // 2 // 5 * 5 + 2) * 1_000), Window(10, 1_000))
    assert len(found) == 1
    assert store.traffic()["get"].requests == 2 * RUNS
