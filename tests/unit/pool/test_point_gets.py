"""How many requests a lookup of one key makes if nothing is cached: exact counts, so that none is added unseen."""

from __future__ import annotations

import functools
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

from support.versions_world import int_key
from tistream.errors import CorruptObject
from tistream.format.run import SCHEMA, RunRef
from tistream.format.segment import OP_PUT
from tistream.model.span import WHOLE
from tistream.model.ts import Window
from tistream.pool.parquet_objects import WHOLE_BYTES
from tistream.pool.run_rows import open_run, read_key_filter
from tistream.pool.run_writer import write_run
from tistream.pool.versions import reader
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


@pytest.mark.parametrize(("run", "gets"), [(4, 2), (3, 3), (2, 4), (1, 5), (0, 6)])
def test_a_cold_lookup_reads_no_rows_of_a_run_without_the_key(run: int, gets: int) -> None:
    """A request for each run down to the one that has the key, and one for the row group there."""
    objects, shard = pool()
    handle = ROWS // 2 // 5 * 5 + run
    store = MeasuredObjectStore(objects)
    found = newest_at([shard], StoreReader(store), place(handle * 1_000), 1_000).column("value")[0].as_py()
    assert found.startswith(value(handle, run))
    assert store.traffic()["get"].requests == gets


def test_a_lookup_with_known_footers_reads_one_row_group() -> None:
    objects, shard = pool()
    store = MeasuredObjectStore(objects)
    known = StoreReader(store)
    for key in (ROWS // 2 * 1_000, NEVER):
        before = store.traffic()["get"].requests
        newest_at([shard], known, place(key), 1_000)
        gets = store.traffic()["get"].requests - before
    assert gets == 1


def test_a_history_above_the_base_does_not_read_the_base() -> None:
    objects, shard = pool()
    store = MeasuredObjectStore(objects)
    found = versions_of([shard], StoreReader(store), place((ROWS // 2 // 5 * 5 + 2) * 1_000), Window(10, 1_000))
    assert len(found) == 1
    assert store.traffic()["get"].requests == RUNS + 1


def test_many_keys_are_looked_up_without_filters() -> None:
    objects, shard = pool()
    keys = [int_key(TABLE, handle * 1_000) for handle in range(0, ROWS, 1_000)]
    places = pa.table([[TABLE] * len(keys), keys], schema=PLACES)
    store = MeasuredObjectStore(objects)
    found = newest_at([shard], StoreReader(store), places, 1_000).column("value").to_pylist()
    assert all(one.startswith(value(handle, 0)) for one, handle in zip(found, range(0, ROWS, 1_000), strict=True))
    assert store.traffic()["get"].requests == 2 * (RUNS + 1)


def test_an_object_that_was_written_without_a_filter_is_read() -> None:
    objects, shard = pool()
    old = replace(shard.runs[0], low_ts=5)  # without a filter, as runs of earlier versions are
    assert read_key_filter(objects, old) is None
    found = newest_at([replace(shard, runs=(old,))], StoreReader(objects), place(7_000), 1_000)
    assert found.column("value")[0].as_py().startswith(value(7, 0))


@pytest.mark.parametrize("at", [1, 5_000])  # bytes before the footer
def test_a_damaged_filter_is_named(at: int) -> None:
    objects, shard = pool()
    run = shard.runs[1]
    body = bytearray(objects.get(run.key))
    body[open_run(objects, run).footer.start - at] ^= 4
    damaged = MemoryObjectStore()
    damaged.put(run.key, bytes(body))
    with pytest.raises(CorruptObject, match=f"{run.key}.*filter of keys"):
        newest_at([replace(shard, runs=(run,))], StoreReader(damaged), place(7_000), 1_000)


def test_filters_that_are_read_again_after_they_were_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    objects, shard = pool()
    monkeypatch.setattr(reader, "FILTERS_KEPT", 1)  # the newest one only
    store = MeasuredObjectStore(objects)
    kept, gets = StoreReader(store), []
    for run in (1, 1, 2, 1):
        before = store.traffic()["get"].requests
        assert kept.key_filter(shard.runs[run]) is not None
        gets.append(store.traffic()["get"].requests - before)
    assert gets == [1, 0, 1, 1]
