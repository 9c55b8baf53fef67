"""The chunks of a restore: they have every row once, whatever the sizes, and the stored plan is the same plan."""

from __future__ import annotations

import random
from itertools import pairwise

import pyarrow as pa
import pytest

from tistream.errors import CorruptObject
from tistream.format.run import SCHEMA, RunRef
from tistream.model.span import WHOLE, KeySpan
from tistream.pool import run_writer
from tistream.pool.versions.plan import IndexShard, TableRange, record_prefix, records_of
from tistream_ingest.restore import restore_plan
from tistream_ingest.restore.restore_plan import Chunk, PlannedTable


def keys(count: int, start: int = 0) -> list[bytes]:
    return [record_prefix(7) + (2**63 + start + one).to_bytes(8, "big") for one in range(count)]


@pytest.mark.parametrize("seed", range(30))
def test_cuts_have_every_row_once_and_stay_below_both_limits(seed: int) -> None:
    rng = random.Random(seed)
    every = keys(rng.randrange(1, 300))
    bounds = sorted({0, len(every), *(rng.randrange(len(every)) for _ in range(5))})
    tables = [(pa.array(every[low:high], pa.binary()), (high - low) * 100) for low, high in pairwise(bounds)]
    rows_max, bytes_max = rng.randrange(1, 60), rng.choice([1, 250, 1_000, 10**9])
    found = list(restore_plan.cuts(tables, rows_max, bytes_max))
    assert sum(rows for _, rows in found) == len(every)
    ends = [every.index(last) + 1 for last, _ in found]
    assert [high - low for low, high in pairwise([0, *ends])] == [rows for _, rows in found]
    assert all(rows <= rows_max and (rows == 1 or rows * 100 <= bytes_max) for _, rows in found)


def test_a_table_without_rows_has_no_chunk() -> None:
    assert list(restore_plan.cuts([], 10)) == []
    assert restore_plan.chunks_of([(records_of(7), [])]) == ()


def test_parts_tile_the_records_of_every_id_over_shards_and_runs() -> None:
    middle = keys(1, 50)[0]
    runs = tuple(_run(at, key) for at, key in enumerate(keys(200)[::10]))
    shards = [IndexShard(KeySpan(b"", middle), (), runs), IndexShard(KeySpan(middle, b""), (), runs)]
    parts = restore_plan.parts_of(shards, [9, 7])
    for one in (7, 9):
        mine = [part.span for part in parts if part.table_id == one]
        assert (mine[0].start, mine[-1].end) == (records_of(one).span.start, records_of(one).span.end)
        assert all(low.end == high.start for low, high in pairwise(mine))
    assert len([part for part in parts if part.table_id == 7]) == len(runs) + 1


def _run(at: int, key: bytes) -> RunRef:
    row = {"table_id": 7, "key": key, "commit_ts": 5, "start_ts": 4, "op": 1, "value": b"v", "txn_source": 0}
    table = pa.Table.from_pylist([{name: row.get(name) for name in SCHEMA.names}], SCHEMA)
    return run_writer.write_run(table, f"run{at}", None, 9)[1]


def test_chunks_begin_where_the_one_before_ends_and_are_numbered_over_parts() -> None:
    one, two = KeySpan(b"a", b"m"), KeySpan(b"m", b"z")
    found = restore_plan.chunks_of([(TableRange(7, one), [(b"b", 2), (b"d", 1)]), (TableRange(8, two), [(b"n", 3)])])
    assert [(one.number, one.rows) for one in found] == [(1, 2), (2, 1), (3, 3)]
    assert [(one.wanted.span.start, one.wanted.span.end) for one in found] == [
        (b"a", b"b\0"),
        (b"b\0", b"d\0"),
        (b"m", b"n\0"),
    ]


def test_a_stored_plan_is_read_back_and_another_restores_is_refused() -> None:
    plan = (PlannedTable("shop", "orders", (Chunk(1, TableRange(7, KeySpan(b"\xff", b"")), 3),)),)
    body = restore_plan.encode("a" * 32, plan)
    assert restore_plan.decode("k", "a" * 32, body) == plan
    assert restore_plan.missing_chunks(plan[0], {1}) == []
    for restore_id, damaged in (("b" * 32, body), ("a" * 32, body[:-2]), ("a" * 32, b"[]"), ("a" * 32, b"{}")):
        with pytest.raises(CorruptObject):
            restore_plan.decode("k", restore_id, damaged)


def test_failures_in_a_row_are_waited_for_longer_and_longer_until_they_are_too_many() -> None:
    pauses = [restore_plan.pause_s(one) for one in range(1, restore_plan.FAILURES_MAX + 1)]
    assert pauses[:3] == [1.0, 2.0, 4.0]
    assert pauses[-1] is None
    assert restore_plan.shards_for([IndexShard(WHOLE, ())], records_of(7)) == (IndexShard(WHOLE, ()),)
