from __future__ import annotations

import io
import zlib
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tistream.errors import CorruptObject, InvariantBroken
from tistream.format.run import GROUP_BYTES, GROUP_ROWS, SCHEMA
from tistream.pool.run_rows import group_bounds, open_filtered_run, open_run, read_run, read_run_groups
from tistream.pool.run_writer import group_edges, write_run
from tistream.storage.backends.memory import MemoryObjectStore


def versions(keys: list[bytes], commit_ts: list[int], value: bytes | None = b"value") -> pa.Table:
    count = len(keys)
    columns = [[1] * count, keys, commit_ts, [ts - 1 for ts in commit_ts], [1] * count, [value] * count, [None] * count]
    return pa.table(
        [pa.array(column, field.type) for column, field in zip(columns, SCHEMA, strict=True)], schema=SCHEMA
    )


def test_writes_what_it_says() -> None:
    table = versions([b"a", b"b", b"b", b"c"], [12, 15, 11, 20])
    body, ref = write_run(table, "the/key", 10, 20)
    assert pq.read_table(io.BytesIO(body)).cast(SCHEMA).equals(table)
    assert (ref.key, ref.size, ref.rows, ref.window) == ("the/key", len(body), 4, (10, 20))
    assert (ref.first, ref.last, ref.checksum) == ((1, b"a"), (1, b"c"), f"{zlib.crc32(body):08x}")
    assert write_run(table, "the/key", 10, 20) == (body, ref)
    objects = MemoryObjectStore()
    objects.put(ref.key, body)
    assert read_run(objects, ref).equals(table)
    assert read_run(objects, ref, {"value", "key"}).equals(table.select(["key", "value"]))


def test_row_groups_are_small_and_have_exact_bounds() -> None:
    count = 2 * GROUP_ROWS + 5
    keys = [b"k" * 2_000 + b"%08d" % at if at < 4 else b"l%08d" % at for at in range(count)]
    commit_ts = [100 + at % 7 for at in range(count)]
    body, ref = write_run(versions(keys, commit_ts), "r", 0, 200)
    objects = MemoryObjectStore()
    objects.put("r", body)
    opened = open_run(objects, ref)
    bounds = group_bounds(ref, opened)
    assert [group.rows for group in bounds] == [GROUP_ROWS, GROUP_ROWS, 5]
    for number, group in enumerate(bounds):
        here = slice(number * GROUP_ROWS, (number + 1) * GROUP_ROWS)
        mine = keys[here]
        assert (group.first_key, group.last_key) == (mine[0], mine[-1])
        assert read_run_groups(objects, ref, opened, [number], ["key"]).column("key").to_pylist() == mine
        assert (group.commit_ts_min, group.commit_ts_max) == (min(commit_ts[here]), max(commit_ts[here]))


def test_a_group_whose_keys_are_too_long_for_statistics_has_the_bounds_of_the_object() -> None:
    keys = [b"a" + b"x" * 5_000, b"b" + b"x" * 5_000]
    body, ref = write_run(versions(keys, [11, 12]), "r", 10, 20)
    objects = MemoryObjectStore()
    objects.put("r", body)
    (group,) = group_bounds(ref, open_run(objects, ref))
    assert (group.first_key, group.last_key) == (keys[0], keys[1])


def test_groups_end_by_bytes() -> None:
    assert group_edges(np.array([GROUP_BYTES // 2] * 3)) == [0, 2, 3]
    assert group_edges(np.array([1, GROUP_BYTES * 5, 1])) == [0, 1, 2, 3]
    edges = group_edges(np.full(20_000, 1_000))
    assert edges[-1] == 20_000
    assert all(0 < right - left <= GROUP_ROWS for left, right in pairwise(edges))


@pytest.mark.parametrize(
    ("table", "low"),
    [
        (versions([], []), 10),
        (versions([b"b", b"a"], [11, 12]), 10),
        (versions([b"a", b"a"], [11, 12]), 10),
        (versions([b"a"], [10]), 10),
        (versions([b"a"], [21]), 10),
        (versions([b"a", b"a"], [12, 11]), None),
    ],
)
def test_what_is_no_run_is_refused(table: pa.Table, low: int | None) -> None:
    with pytest.raises(InvariantBroken):
        write_run(table, "r", low, 20)


def test_damage_is_found() -> None:
    body, ref = write_run(versions([b"a"], [11]), "r", 10, 20)
    objects = MemoryObjectStore()
    objects.put("r", bytes(body)[:40] + bytes([body[40] ^ 1]) + bytes(body)[41:])
    with pytest.raises(CorruptObject):
        read_run(objects, ref)
    objects.put("r", bytes(body) + b"x")
    with pytest.raises(CorruptObject):
        read_run(objects, ref)


def test_runs_above_the_base_have_a_filter_of_their_keys() -> None:
    table = versions([b"a", b"b", b"b", b"c"], [12, 15, 11, 20])
    objects = MemoryObjectStore()
    body, ref = write_run(table, "r", 10, 20)
    objects.put("r", body)
    _, found = open_filtered_run(objects, ref)
    assert found is not None
    assert found.may_hold(pa.array([b"a", b"b", b"c", b"never"])).tolist() == [True, True, True, False]
    assert pq.read_metadata(io.BytesIO(body)).metadata[b"tistream.key_filter"] == found.stated()
    body, ref = write_run(table.slice(0, 2), "base", None, 20)
    objects.put("base", body)
    assert open_filtered_run(objects, ref)[1] is None
    assert pq.read_metadata(io.BytesIO(body)).metadata is None
