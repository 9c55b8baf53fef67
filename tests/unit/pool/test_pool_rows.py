from __future__ import annotations

import dataclasses

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.effort import examples
from tistream.errors import CorruptObject, NotFoundYet
from tistream.format.segment import SCHEMA, SegmentRef
from tistream.model.ts import MAX_TS, Window
from tistream.pool.footers import FooterCache
from tistream.pool.rows import read_row_group, read_rows, row_groups_touching
from tistream.pool.writer import write_segment
from tistream.storage.backends.memory import MemoryObjectStore
from tistream.storage.measured import MeasuredObjectStore

EVER = Window(0, MAX_TS)
KEY = "pool/segment"
TABLE_IDS = np.sort(np.concatenate([np.repeat([100, 200], 70_000), np.repeat(np.arange(300, 320), 50)]))


def make_rows() -> pa.Table:
    """Two tables with row groups of their own, and twenty that share one."""
    count = len(TABLE_IDS)
    ts = 1000 + np.arange(count) % 70_000
    order = np.lexsort((ts, TABLE_IDS))
    random = np.random.default_rng(7)
    values = random.integers(0, 256, count * 40, np.uint8).tobytes()
    return pa.table(
        [
            pa.array(TABLE_IDS[order]),
            pa.array(ts[order]),
            pa.array(ts[order] - 3),
            pa.array([b"k%07d" % number for number in range(count)], pa.binary()),
            pa.array(np.where(np.arange(count) % 5, 1, 2).astype(np.int8)),
            pa.array([values[at * 40 : at * 40 + 40] for at in range(count)], pa.binary()),
            pa.array([None if at % 3 else b"old" for at in range(count)], pa.binary()),
            pa.array([None if at % 2 else at for at in range(count)], pa.int64()),
        ],
        schema=SCHEMA,
    )


ROWS = make_rows()
VIEW, REF = write_segment(ROWS, KEY)
BODY = bytes(VIEW)


@pytest.fixture
def objects() -> MeasuredObjectStore:
    store = MeasuredObjectStore(MemoryObjectStore())
    store.put(KEY, BODY)
    return store


def expected(window: Window, table_ids: list[int] | None) -> pa.Table:
    ts = ROWS.column("commit_ts").to_numpy()
    keep = (ts > window.low) & (ts <= window.high)
    if table_ids is not None:
        keep &= np.isin(ROWS.column("table_id").to_numpy(), table_ids)
    return ROWS.filter(pa.array(keep))


def test_reads_all_of_it(objects: MeasuredObjectStore) -> None:
    assert [(g.table_id_min, g.table_id_max) for g in REF.row_groups] == [(100, 100), (200, 200), (300, 319)]
    assert read_rows(objects, REF, EVER).equals(ROWS)


@settings(max_examples=examples(40), deadline=None)
@given(
    st.integers(0, 72_000),
    st.integers(0, 72_000),
    st.none() | st.lists(st.sampled_from([0, 100, 150, 200, 300, 305, 319, 400]), unique=True),
    st.sampled_from([None, ["key", "value"], ["commit_ts"], ["op", "table_id", "txn_source"]]),
)
def test_filters_exactly(low: int, span: int, table_ids: list[int] | None, columns: list[str] | None) -> None:
    store = MemoryObjectStore()
    store.put(KEY, BODY)
    window = Window(low, low + span)
    wanted = expected(window, table_ids)
    if columns is not None:
        wanted = wanted.select([name for name in SCHEMA.names if name in columns])
    found = read_rows(store, REF, window, table_ids, columns, FooterCache())
    assert found.schema == wanted.schema
    assert found.equals(wanted)


def test_fetches_only_what_can_hold_it(objects: MeasuredObjectStore) -> None:
    footers = FooterCache()
    read_row_group(objects, REF, 2, ["table_id"], footers)
    assert objects.traffic()["get"].requests == 2
    before = objects.traffic()["get"]
    assert read_rows(objects, REF, EVER, [150], footers=footers).num_rows == 0
    assert read_rows(objects, REF, Window(0, 999), footers=footers).num_rows == 0
    assert read_rows(objects, REF, EVER, [], footers=footers).num_rows == 0
    assert objects.traffic()["get"] == before
    assert read_rows(objects, REF, EVER, [305], footers=footers).num_rows == 50
    after = objects.traffic()["get"]
    assert after.requests == before.requests + 1
    assert after.read_bytes - before.read_bytes < 100_000
    read_rows(objects, REF, EVER, [200], ["commit_ts", "op"], footers)
    assert objects.traffic()["get"].read_bytes - after.read_bytes < 1_500_000  # of 2.8 MB with the values


def test_a_small_segment_is_one_request_and_checked_whole() -> None:
    store = MeasuredObjectStore(MemoryObjectStore())
    view, ref = write_segment(ROWS.slice(0, 100), KEY)
    body = bytes(view)
    store.put(KEY, body)
    assert read_rows(store, ref, EVER).equals(ROWS.slice(0, 100))
    assert store.traffic()["get"].requests == 1
    store.put(KEY, body[:50] + bytes([body[50] ^ 1]) + body[51:])
    with pytest.raises(CorruptObject, match="checksum"):
        read_rows(store, ref, EVER)


def test_a_damaged_page_is_noticed_where_it_is_read(objects: MeasuredObjectStore) -> None:
    at = len(BODY) // 4  # in the first row group's values
    objects.put(KEY, BODY[:at] + bytes([BODY[at] ^ 1]) + BODY[at + 1 :])
    with pytest.raises(CorruptObject, match="cannot be decoded"):
        read_rows(objects, REF, EVER, [100])
    assert read_rows(objects, REF, EVER, [200]).num_rows == 70_000


@pytest.mark.parametrize(
    ("ref", "reason"),
    [
        (dataclasses.replace(REF, size=REF.size + 1), "bytes; its manifest states"),
        (dataclasses.replace(REF, row_groups=REF.row_groups[:1]), "not those that its manifest states"),
    ],
)
def test_a_segment_that_is_not_the_one_named(objects: MeasuredObjectStore, ref: SegmentRef, reason: str) -> None:
    with pytest.raises(CorruptObject, match=reason):
        read_rows(objects, ref, EVER)


def test_a_collected_segment_is_not_found() -> None:
    with pytest.raises(NotFoundYet):
        read_rows(MemoryObjectStore(), REF, EVER)


def test_many_table_ids_prune_by_bounds() -> None:
    assert row_groups_touching(REF, EVER, list(range(101, 200))) == []
    assert row_groups_touching(REF, EVER, list(range(101, 301))) == [1, 2]
    assert row_groups_touching(REF, Window(71_000, MAX_TS), None) == []


def test_footers_are_kept_up_to_a_size(objects: MeasuredObjectStore) -> None:
    cache = FooterCache(capacity_bytes=1)
    read_rows(objects, REF, EVER, [305], footers=cache)
    kept = cache.get(KEY)
    assert kept is not None, "the newest stays, however large"
    cache.put("other", kept)
    assert cache.get(KEY) is None
    assert cache.get("other") is kept
    # What counts is what they take in memory, by far more than their bytes in the object.
    small = FooterCache(capacity_bytes=10 * (4 * kept.size + (16 << 10)))
    for number in range(100):
        small.put(str(number), kept)
    assert [number for number in range(100) if small.get(str(number))] == list(range(90, 100))
