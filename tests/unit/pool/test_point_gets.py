"""How many requests a read makes if nothing is cached, and how many of them one after another: exact counts, so that
none is added unseen."""

from __future__ import annotations

import functools
import random
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest

from support.round_trips import waits
from support.versions_world import VersionsWorld, int_key, random_rows
from tistream.errors import CorruptObject, NotFoundYet
from tistream.format.run import SCHEMA, RunRef
from tistream.format.segment import OP_PUT
from tistream.model.span import WHOLE, KeySpan
from tistream.model.ts import Window
from tistream.pool import at_once
from tistream.pool.parquet_objects import WHOLE_BYTES
from tistream.pool.run_rows import open_filtered_run, open_run
from tistream.pool.run_writer import write_run
from tistream.pool.versions import lookup, reader
from tistream.pool.versions.lookup import PLACES, newest_at, versions_of
from tistream.pool.versions.plan import IndexShard, TableRange, records_of
from tistream.pool.versions.reader import StoreReader
from tistream.pool.versions.scan import read_range
from tistream.storage.backends.memory import MemoryObjectStore
from tistream.storage.measured import MeasuredObjectStore
from tistream.storage.object_store import ObjectStore

TABLE, RUNS, EACH, NOISE = 100, 4, 9_000, 160
ROWS = (RUNS + 1) * EACH
NEVER = ROWS // 2 * 1_000 + 1  # a key inside the table's range that no row has


def value(handle: int, run: int) -> bytes:
    return b"%d@%d" % (handle, run)


def put(objects: MemoryObjectStore, run: int, handles: range, *, small: bool = False) -> RunRef:
    """The base run (0), or a run above it, of rows that do not compress, so that no object is read whole unless it is
    small."""
    noise = np.random.default_rng(run).bytes(NOISE * len(handles))
    low, high = (None, 10) if run == 0 else (10 * run, 10 * run + 10)
    columns = {
        "table_id": [TABLE] * len(handles),
        "key": [int_key(TABLE, handle * 1_000) for handle in handles],
        "commit_ts": [high] * len(handles),
        "start_ts": [high - 1] * len(handles),
        "op": [OP_PUT] * len(handles),
        "value": [value(handle, run) + noise[at * NOISE : at * NOISE + NOISE] for at, handle in enumerate(handles)],
        "txn_source": [None] * len(handles),
    }
    body, ref = write_run(pa.table(columns, schema=SCHEMA), f"run-{run}", low, high)
    assert (ref.size <= WHOLE_BYTES) == small
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


def newest(shard: IndexShard, handle: int) -> Callable[[ObjectStore], bytes]:
    """A lookup of one key by a reader that knows no footer."""

    def read(store: ObjectStore) -> bytes:
        found = newest_at([shard], StoreReader(store), place(handle * 1_000), 1_000)
        value: bytes = found.column("value")[0].as_py()
        return value

    return read


@pytest.mark.parametrize("run", range(RUNS + 1))
def test_a_cold_lookup_waits_twice(run: int) -> None:
    """For the footers and filters of all runs at the same time, and for the rows of the one that has the key."""
    objects, shard = pool()
    handle = ROWS // 2 // 5 * 5 + run
    (one,) = waits(objects, newest(shard, handle))
    assert one.found.startswith(value(handle, run))
    assert (one.gets, one.depth) == (RUNS + 2, 2)


def test_runs_beyond_a_lot_are_read_if_the_key_is_not_in_those_before(monkeypatch: pytest.MonkeyPatch) -> None:
    objects, shard = pool()
    for module in (at_once, lookup):
        monkeypatch.setattr(module, "LOT", 2)
    handle = ROWS // 2 // 5 * 5
    found = [waits(objects, newest(shard, handle + run))[0] for run in (4, 3, 2, 1, 0)]
    assert [(one.gets, one.depth) for one in found] == [(3, 2), (3, 2), (5, 3), (5, 3), (6, 4)]


def test_a_small_run_is_read_once() -> None:
    """Its footer, its filter and its rows are in one answer."""
    objects = MemoryObjectStore()
    base = put(objects, 0, range(2_000), small=True)
    runs = [put(objects, run, range(run, 2_000, RUNS + 1), small=True) for run in range(1, RUNS + 1)]
    shard = IndexShard(WHOLE, (), (base, *runs), 10 * RUNS + 10, 10)
    for run in range(RUNS + 1):
        (one,) = waits(objects, newest(shard, 1_000 + run))
        assert one.found.startswith(value(1_000 + run, run))
        assert (one.gets, one.depth) == (RUNS + 1, 1)


def test_a_lookup_with_known_footers_reads_one_row_group() -> None:
    objects, shard = pool()
    store = MeasuredObjectStore(objects)
    known = StoreReader(store)
    for key in (ROWS // 2 * 1_000, NEVER):
        before = store.traffic()["get"].requests
        newest_at([shard], known, place(key), 1_000)
        gets = store.traffic()["get"].requests - before
    assert gets == 1


def test_a_history_waits_twice() -> None:
    """For the footers and filters of all runs, and for the rows of those that have the key, each at the same time. The
    base is not read for a history above it."""
    objects, shard = pool()
    again = put(objects, 9, range(0, ROWS, 2))  # a run with keys of other runs
    shard = replace(shard, runs=(*shard.runs, again), indexed_ts=100)
    handle = ROWS // 2 // 10 * 10 + 2
    histories = [
        lambda store, low=low: versions_of([shard], StoreReader(store), place(handle * 1_000), Window(low, 1_000))
        for low in (10, 0)
    ]
    above, whole = waits(objects, *histories)
    assert (len(above.found), above.gets, above.depth) == (2, RUNS + 1 + 2, 2)
    assert (len(whole.found), whole.gets, whole.depth) == (3, RUNS + 2 + 3, 2)


def test_a_cold_page_of_rows_waits_twice() -> None:
    """For the footers of all runs at the same time, and for their first row groups."""
    objects, shard = pool()
    middle = TableRange(TABLE, KeySpan(int_key(TABLE, ROWS // 2 * 1_000), int_key(TABLE, (ROWS // 2 + 500) * 1_000)))
    (one,) = waits(objects, lambda store: list(read_range([shard], StoreReader(store), Window(0, 1_000), [middle])))
    assert sum(map(len, one.found)) == 500
    assert (one.gets, one.depth) == (2 * (RUNS + 1), 2)


def test_segments_above_the_index_are_read_at_the_same_time() -> None:
    world = VersionsWorld()
    world.rows = random_rows(random.Random(3), 1, 40, 60, common=False)
    stamps = sorted({row["commit_ts"] for row in world.rows})
    cuts = [0, *stamps[10::10], 1 << 60]
    segments = [world.segment([row for row in world.rows if low < row["commit_ts"] <= high])
                for low, high in pairwise(cuts)]  # fmt: skip
    shard = IndexShard(WHOLE, tuple(segments))
    looked, scanned = waits(
        world.objects,
        lambda store: newest_at([shard], StoreReader(store), place(NEVER), 1 << 60),
        lambda store: pa.concat_tables(
            read_range([shard], StoreReader(store), Window(0, 1 << 60), [records_of(TABLE)], deletes=True)
        ),
    )
    assert looked.found.column("commit_ts").null_count == 1
    assert (looked.gets, looked.depth) == (len(segments), 1)
    assert len(scanned.found) == len(world.at(1 << 60, [TABLE]))
    assert scanned.depth == 2, "for the keys of all segments, and for their values"


def test_an_older_run_that_is_gone_does_not_matter_to_a_newer_row() -> None:
    objects, shard = pool()
    kept = MemoryObjectStore()
    kept.put("run-4", objects.get("run-4"))
    handle = ROWS // 2 // 5 * 5
    assert newest(shard, handle + 4)(kept).startswith(value(handle + 4, 4))
    with pytest.raises(NotFoundYet):
        newest(shard, handle + 3)(kept)


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
    assert open_filtered_run(objects, old)[1] is None
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
        (opened,) = kept.open_runs([shard.runs[run]], {shard.runs[run].key})
        assert opened.key_filter is not None
        gets.append(store.traffic()["get"].requests - before)
    assert gets == [1, 0, 1, 1]
