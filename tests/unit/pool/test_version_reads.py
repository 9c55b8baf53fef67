"""Reads of versions against a dictionary: any commits, deletes, shards, runs and segments give the same answers."""

from __future__ import annotations

import functools
import random
from itertools import pairwise
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.effort import FULL, examples
from support.versions_world import VersionsWorld, int_key, random_rows, written_run
from tistream.errors import CorruptObject, Gone, NotFoundYet
from tistream.format.run import SCHEMA
from tistream.format.segment import OP_PUT
from tistream.format.segment import SCHEMA as SEGMENT_SCHEMA
from tistream.model.span import WHOLE, KeySpan
from tistream.model.ts import Window
from tistream.pool import at_once, parquet_objects
from tistream.pool.versions import lookup, plan, reader, scan, tail
from tistream.pool.versions.lookup import newest_at, versions_of
from tistream.pool.versions.net import read_net
from tistream.pool.versions.plan import IndexShard, TableRange, records_of
from tistream.pool.versions.pool_reads import PoolReads
from tistream.pool.versions.reader import StoreReader
from tistream.pool.versions.scan import measure_range, read_range
from tistream.storage.measured import MeasuredObjectStore

TABLES, KEYS = 3, 20
IDS = [100 + table for table in range(TABLES)]
WORLDS = 50
SEEDS = st.integers(0, 1 << 32 if FULL else WORLDS - 1)


def world_of(seed: int) -> tuple[VersionsWorld, random.Random]:
    """A pool, which is only read, and the generator that made it."""
    world, state = _made(seed)
    rng = random.Random()
    rng.setstate(state)
    return world, rng


@functools.lru_cache(maxsize=WORLDS)
def _made(seed: int) -> tuple[VersionsWorld, tuple[Any, ...]]:
    """One to four shards, with or without runs; and the state of the generator."""
    rng = random.Random(seed)
    world = VersionsWorld()
    world.rows = random_rows(rng, TABLES, KEYS, rng.randint(1, 60), common=rng.random() < 0.5)
    keys = sorted({row["key"] for row in world.rows})
    cuts = sorted(rng.sample(keys[1:], min(len(keys) - 1, rng.randint(0, 3))))
    bounds = [b"", *cuts, b""]
    indexed = rng.random() < 0.8
    world.unread_ts = rng.choice([0, 0, int(rng.choice(world.rows)["commit_ts"])])
    world.shards = [world.shard(KeySpan(low, high), rng, indexed=indexed) for low, high in pairwise(bounds)]
    return world, rng.getstate()


def small(monkeypatch: pytest.MonkeyPatch, rng: random.Random) -> None:
    """Pieces so small that every cut occurs; objects that are read whole and others, alone and at the same time."""
    lot, whole = rng.choice([1, 2, 8]), rng.choice([0, 2_500, 1 << 20])
    monkeypatch.setattr(at_once, "LOT", lot)
    monkeypatch.setattr(lookup, "LOT", lot)
    monkeypatch.setattr(parquet_objects, "WHOLE_BYTES", whole)
    monkeypatch.setattr(reader, "WHOLE_BYTES", whole)
    monkeypatch.setattr(parquet_objects, "TAIL_BYTES", rng.choice([16, 32 << 10]))
    monkeypatch.setattr(scan, "FILL_ROWS", rng.choice([1, 5, 1 << 15]))
    monkeypatch.setattr(tail, "CHUNK_ROWS", rng.choice([1, 4, 1 << 16]))
    monkeypatch.setattr(tail, "ROWS_MAX", rng.choice([3, 10, 1 << 20]))
    monkeypatch.setattr(lookup, "GROUPS_AT_ONCE", rng.choice([1, 2, 16]))


def read(world: VersionsWorld, window: Window, ranges: list[TableRange], **how: bool) -> list[dict[str, Any]]:
    tables = list(read_range(world.shards, StoreReader(world.objects), window, ranges, **how))
    assert all(len(table) and table.schema == SCHEMA for table in tables)
    rows: list[dict[str, Any]] = pa.concat_tables([*tables, SCHEMA.empty_table()]).to_pylist()
    return rows


def ts_of(world: VersionsWorld, rng: random.Random) -> int:
    return int(rng.choice(world.rows)["commit_ts"]) + rng.choice([-1, 0, 0, 1])


@settings(max_examples=examples(300, few=WORLDS), deadline=None)
@given(SEEDS)
def test_a_range_read_is_the_newest_version_of_each_key(seed: int) -> None:
    world, rng = world_of(seed)
    with pytest.MonkeyPatch.context() as patch:
        small(patch, rng)
        ts = max(ts_of(world, rng), world.base_ts)
        live = {key: row for key, row in world.at(ts, IDS).items() if row["op"] == OP_PUT}
        assert read(world, Window(0, ts), [records_of(one) for one in IDS]) == [live[key] for key in sorted(live)]
        low, high = sorted(rng.choices(sorted({row["key"] for row in world.rows}), k=2))
        one = rng.choice(IDS)
        clipped = records_of(one).clip(KeySpan(low, high + b"\0"))
        want = [live[key] for key in sorted(live) if live[key]["table_id"] == one and low <= key <= high]
        assert read(world, Window(0, ts), [clipped] if clipped else []) == want
        chosen = read_range(
            world.shards, StoreReader(world.objects), Window(0, ts), [records_of(one)], columns=("key", "value")
        )
        want = [{"key": key, "value": live[key]["value"]} for key in sorted(live) if live[key]["table_id"] == one]
        assert [row for table in chosen for row in table.to_pylist()] == want
        measured = [
            (key, size)
            for keys, size in measure_range(world.shards, StoreReader(world.objects), Window(0, ts), records_of(one))
            for key in (one.as_py() for one in keys)
        ]
        assert [key for key, _ in measured] == [key for key in sorted(live) if live[key]["table_id"] == one]
        assert all(size > 0 for _, size in measured)


# Attack: keys that are too long for statistics; such a row group may have any key of its object
@pytest.mark.parametrize("long", [{3}, {0, 7}, set(range(12))])
def test_row_groups_without_the_bounds_of_their_keys_are_merged_in_order(
    monkeypatch: pytest.MonkeyPatch, long: set[int]
) -> None:
    world = VersionsWorld()
    monkeypatch.setattr(scan, "FILL_ROWS", 1)
    world.rows = [
        {"table_id": 100, "key": int_key(100, number) + b"\xf7" * (5_000 if number in long else 1), "commit_ts": ts,
         "start_ts": ts - 1, "op": OP_PUT, "value": b"%d@%d" % (number, ts), "txn_source": None}
        for ts in (5, 15)
        for number in range(12)
    ]  # fmt: skip
    older, newer = ([row for row in world.rows if row["commit_ts"] == ts] for ts in (5, 15))
    runs = (
        written_run(world.objects, world.name("run"), older, None, 9, group_rows=2),
        written_run(world.objects, world.name("run"), newer, 9, 19, group_rows=3),
    )
    world.shards = [IndexShard(WHOLE, (), runs, 19, 9)]
    assert read(world, Window(0, 19), [records_of(100)]) == newer
    assert read(world, Window(0, 9), [records_of(100)]) == older
    world.shards = [IndexShard(WHOLE, (world.segment(newer),), runs[:1], 9, 9)]
    assert read(world, Window(0, 19), [records_of(100)]) == newer


class Overtaken:
    """A pool whose retention rises to `earliest_ts`: then a base run has taken the place of the versions below it."""

    def __init__(self) -> None:
        self.earliest_ts = 0
        self.world = VersionsWorld()
        self.world.rows = [
            {"table_id": 100, "key": int_key(100, number), "commit_ts": ts, "start_ts": ts - 1, "op": OP_PUT,
             "value": b"%d@%d" % (number, ts), "txn_source": None}
            for ts in (5, 15)
            for number in range(12)
        ]  # fmt: skip

    def shards(self) -> list[IndexShard]:
        rows, ts = self.world.rows, self.earliest_ts
        name = self.world.name("run")
        if not ts:
            return [IndexShard(WHOLE, (), (written_run(self.world.objects, name, rows, 0, 19),), 19)]
        newest = sorted(self.world.at(ts, [100]).values(), key=lambda row: row["key"])
        return [IndexShard(WHOLE, (), (written_run(self.world.objects, name, newest, None, ts),), ts, ts)]

    def replan(self) -> None: ...

    def check_served(self, ts: int) -> None:
        if ts < self.earliest_ts:
            raise Gone(f"{ts} is below {self.earliest_ts}")


def test_a_read_that_retention_overtakes_leaves_no_row_out() -> None:
    pool = Overtaken()
    reads = PoolReads.of(StoreReader(pool.world.objects), pool, 9)
    places = pa.table({"table_id": pa.array([100]), "key": pa.array([int_key(100, 3)], pa.binary())})
    one = [clipped for clipped in [records_of(100).clip(KeySpan(b"", int_key(100, 6)))] if clipped]
    assert sum(map(len, reads.scan(Window(0, 9), one))) == 6
    assert len(reads.newest(places, 9)) == 1
    pool.earliest_ts = 19
    for read in (
        lambda: list(reads.scan(Window(0, 9), one)),
        lambda: list(reads.net(Window(9, 19), one)),
        lambda: reads.newest(places, 9),
        lambda: reads.versions(places, Window(0, 9)),
    ):
        with pytest.raises(Gone):
            read()


def test_rows_are_measured_as_they_are_in_memory_although_they_begin_alike() -> None:
    world = VersionsWorld()
    rows = [
        {"table_id": 100, "key": int_key(100, number), "commit_ts": 5, "start_ts": 4, "op": OP_PUT,
         "value": b"x" * 10_000 + bytes([number]), "txn_source": None}
        for number in range(200)
    ]  # fmt: skip
    run = written_run(world.objects, world.name("run"), rows, None, 9, group_rows=50)
    shards = [IndexShard(WHOLE, (), (run,), 9, 9)]
    found = list(measure_range(shards, StoreReader(world.objects), Window(0, 9), records_of(100)))
    assert sum(len(keys) for keys, _ in found) == 200
    assert sum(size for _, size in found) > 2_000_000


def test_a_table_without_changes_above_its_base_is_counted_by_footers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parquet_objects, "WHOLE_BYTES", 0)
    world = VersionsWorld()
    rows = [
        {"table_id": 100, "key": int_key(100, number), "commit_ts": 5, "start_ts": 4, "op": OP_PUT,
         "value": random.Random(number).randbytes(2_000), "txn_source": None}
        for number in range(400)
    ]  # fmt: skip
    run = written_run(world.objects, world.name("run"), rows, None, 9, group_rows=50)
    shards = [IndexShard(WHOLE, (), (run,), 9, 9)]
    objects = MeasuredObjectStore(world.objects)
    found = list(measure_range(shards, StoreReader(objects), Window(0, 9), records_of(100)))
    assert ([len(keys) for keys, _ in found], objects.traffic()["get"].requests) == ([50] * 8, 1)
    assert [found[3][0][at].as_py() for at in (49, 0)] == [int_key(100, 199), int_key(100, 150)]
    part = TableRange(100, KeySpan(int_key(100, 60), int_key(100, 110)))
    measured = measure_range(shards, StoreReader(objects), Window(0, 9), part)
    assert [key.as_py() for keys, _ in measured for key in keys] == [row["key"] for row in rows[60:110]]


def test_a_long_footer_is_read_by_one_request(monkeypatch: pytest.MonkeyPatch) -> None:
    world = VersionsWorld()
    rows = [
        {"table_id": 100, "key": int_key(100, number), "commit_ts": 5, "start_ts": 4, "op": OP_PUT,
         "value": random.Random(number).randbytes(400), "txn_source": None}
        for number in range(1_000)
    ]  # fmt: skip
    run = written_run(world.objects, world.name("run"), rows, None, 9, group_rows=10)
    monkeypatch.setattr(parquet_objects, "GROUP_ROWS", 10)
    monkeypatch.setattr(parquet_objects, "WHOLE_BYTES", 0)
    objects = MeasuredObjectStore(world.objects)
    (opened,) = StoreReader(objects).open_runs([run])
    assert (len(opened.groups.rows), objects.traffic()["get"].requests) == (100, 1)


@settings(max_examples=examples(300, few=WORLDS), deadline=None)
@given(SEEDS)
def test_a_window_gives_the_changed_keys_with_their_deletes(seed: int) -> None:
    world, rng = world_of(seed)
    with pytest.MonkeyPatch.context() as patch:
        small(patch, rng)
        low, high = sorted((ts_of(world, rng), ts_of(world, rng)))
        low, high = max(low, world.base_ts), max(high, world.base_ts)
        changed = world.at(high, IDS, low)
        ranges = [records_of(one) for one in IDS]
        assert read(world, Window(low, high), ranges, deletes=True) == [changed[key] for key in sorted(changed)]
        inside = [row for row in world.rows if low < row["commit_ts"] <= high]
        inside.sort(key=lambda row: (row["key"], -row["commit_ts"]))
        assert read(world, Window(low, high), ranges, every=True) == inside


@settings(max_examples=examples(300, few=WORLDS), deadline=None)
@given(SEEDS)
def test_net_changes_have_the_value_before_the_window(seed: int) -> None:
    world, rng = world_of(seed)
    with pytest.MonkeyPatch.context() as patch:
        small(patch, rng)
        patch.setattr(plan, "LOGGED_ROWS", rng.choice([0, 5, 1 << 18]))
        low, high = sorted((ts_of(world, rng), ts_of(world, rng)))
        low, high = max(1, low, world.base_ts), max(1, high, world.base_ts)
        before, changed = world.at(low, IDS), world.at(high, IDS, low)
        want = [{**changed[key], "old_value": before.get(key, {"value": None})["value"]} for key in sorted(changed)]
        found = list(
            read_net(world.shards, StoreReader(world.objects), Window(low, high), [records_of(one) for one in IDS])
        )
        assert all(len(table) and table.schema == SEGMENT_SCHEMA for table in found)
        assert [row for table in found for row in table.to_pylist()] == want


def test_a_small_window_is_read_from_its_segments_alone() -> None:
    world = VersionsWorld()
    world.rows = random_rows(random.Random(7), 1, 20, 60, common=False)
    stamps = sorted({row["commit_ts"] for row in world.rows})
    low, high = stamps[30], stamps[-1]
    log = world.segment([row for row in world.rows if row["commit_ts"] > low])
    gone = written_run(world.objects, world.name("run"), world.rows, 0, high)
    world.objects.delete(gone.key)
    shard = IndexShard(WHOLE, (log,), (gone,), high, logged_ts=low)
    found = list(read_net([shard], StoreReader(world.objects), Window(low, high), [records_of(100)]))
    assert sum(map(len, found)) == len(world.at(high, IDS, low))
    with pytest.raises(NotFoundYet):
        list(read_net([shard], StoreReader(world.objects), Window(low - 1, high), [records_of(100)]))


@settings(max_examples=examples(300, few=WORLDS), deadline=None)
@given(SEEDS)
def test_a_lookup_is_the_newest_version_of_each_place(seed: int) -> None:
    world, rng = world_of(seed)
    with pytest.MonkeyPatch.context() as patch:
        small(patch, rng)
        ts = max(ts_of(world, rng), world.base_ts)
        known = world.at(1 << 62, IDS)
        places = [(row["table_id"], key) for key, row in known.items() if rng.random() < 0.5]
        places += [(one, key + b"\0") for one, key in rng.sample(places, len(places) // 3)]  # never written
        places += rng.sample(places, len(places) // 4)  # twice
        places.sort(key=lambda place: place[1])
        table = pa.Table.from_pylist([{"table_id": one, "key": key} for one, key in places], lookup.PLACES)
        got = newest_at(world.shards, StoreReader(world.objects), table, ts).to_pylist()
        now = world.at(ts, IDS)
        nothing = dict.fromkeys(SCHEMA.names)
        for (one, key), row in zip(places, got, strict=True):
            want = now.get(key, {**nothing, "table_id": one, "key": key})
            if row["commit_ts"] is None and want["commit_ts"] is not None:  # the base run has dropped a delete
                assert want["op"] != OP_PUT
                assert want["commit_ts"] <= world.base_ts
            else:
                assert row == want


@settings(max_examples=examples(200, few=40), deadline=None)
@given(SEEDS)
def test_every_version_of_some_keys(seed: int) -> None:
    world, rng = world_of(seed)
    with pytest.MonkeyPatch.context() as patch:
        small(patch, rng)
        compare_versions(world, rng)


def compare_versions(world: VersionsWorld, rng: random.Random) -> None:
    """A history of some keys against the dictionary."""
    low, high = sorted((ts_of(world, rng), ts_of(world, rng)))
    low, high = max(low, world.base_ts), max(high, world.base_ts)
    keys = sorted(rng.sample(sorted({row["key"] for row in world.rows}), 1 + rng.randrange(3)) if len(
        {row["key"] for row in world.rows}) > 3 else {world.rows[0]["key"]})  # fmt: skip
    ids = {row["key"]: row["table_id"] for row in world.rows}
    places = pa.Table.from_pylist([{"table_id": ids[key], "key": key} for key in keys], lookup.PLACES)
    want = [row for row in world.rows if row["key"] in keys and low < row["commit_ts"] <= high]
    want.sort(key=lambda row: (row["key"], -row["commit_ts"]))
    assert versions_of(world.shards, StoreReader(world.objects), places, Window(low, high)).to_pylist() == want


def test_a_point_read_fetches_one_row_group_of_a_run() -> None:
    world = VersionsWorld()
    rows = random_rows(random.Random(1), 1, 500, 400, common=False)
    newest = {row["key"]: row for row in rows if row["op"] == OP_PUT}
    world.rows = list(newest.values())
    run = written_run(world.objects, world.name("run"), world.rows, None, 1 << 60, group_rows=8)
    asked: list[list[int]] = []

    class Counting(StoreReader):
        def fetch(self, wanted: Any) -> Any:
            asked.extend(list(indexes) for _, indexes in wanted)
            return super().fetch(wanted)

    shards = [IndexShard(WHOLE, (), (run,), 1 << 60)]
    key = sorted(newest)[len(newest) // 2]
    places = pa.Table.from_pylist([{"table_id": 100, "key": key}], lookup.PLACES)
    (got,) = newest_at(shards, Counting(world.objects), places, 1 << 61).to_pylist()
    assert got == newest[key]
    assert len(asked) == 1
    assert len(asked[0]) == 1
    found = list(read_range(shards, Counting(world.objects), Window(0, 1 << 61),
                            [TableRange(100, KeySpan(key, key + b"\0"))]))  # fmt: skip
    assert pa.concat_tables(found).to_pylist() == [newest[key]]
    assert len(asked[1]) == 1


def test_a_damaged_run_is_named() -> None:
    world = VersionsWorld()
    world.rows = random_rows(random.Random(2), 1, 20, 20, common=False)
    run = written_run(world.objects, world.name("run"), world.rows, 0, 1 << 60)
    body = bytearray(world.objects.get(run.key))
    body[20] ^= 0xFF
    world.objects.put(run.key, bytes(body))
    world.shards = [IndexShard(WHOLE, (), (run,), 1 << 60)]
    with pytest.raises(CorruptObject, match=run.key):
        read(world, Window(0, 1 << 61), [records_of(100)])


def test_a_record_range_holds_every_record_key_of_its_table() -> None:
    span = records_of(104).span
    prefix = plan.record_prefix(104)
    assert prefix in span
    assert prefix + b"\xff" * 40 in span
    assert prefix[:-1] + b"i" not in span
    assert plan.record_prefix(105) not in span
