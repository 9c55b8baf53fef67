"""What is kept of files that were read before their turn is counted in bytes, and whatever is dropped is read again."""
# Attack: files that are read before their turn: bounded memory

from __future__ import annotations

from functools import lru_cache
from typing import Any

import pyarrow as pa
import pytest
from prometheus_client import CollectorRegistry

from support import change_files
from support.feed_world import Sorter, handed_on, new_feed
from support.tiny_tenant import TinyTenant, watermark
from tistream.clock import ManualClock
from tistream.model.ids import TenantKey
from tistream.storage import layout
from tistream.storage.backends.memory import MemoryObjectStore
from tistream.storage.measured import MeasuredObjectStore
from tistream.storage.object_store import ObjectStore
from tistream_dispatcher.metrics import DispatcherMetrics
from tistream_dispatcher.stores import read_ahead
from tistream_dispatcher.stores.change_source import ReadFile
from tistream_dispatcher.stores.read_ahead import ByteBudget, ReadAhead
from tistream_dispatcher.stores.store_feed import StoreFeed
from tistream_dispatcher.tenant.tenant_feed import TenantFeed

ROWS = 50_000  # 3.8 MB in memory, a fifth of that in the store
FIRST_TS = 1_000


@lru_cache
def _rows() -> pa.Table:
    """Spans of eight bytes each, one beside the other."""
    row, keys = watermark(6, 5, 150, base_ts=100), [number.to_bytes(8, "big") for number in range(ROWS + 1)]
    columns = {name: [value] * ROWS for name, value in row.items()} | {"key": keys[:-1], "end_key": keys[1:]}
    arrays = [pa.array(columns.get(column.name, [None] * ROWS), column.type) for column in change_files.SCHEMA]
    return pa.table(arrays, schema=change_files.SCHEMA)


@lru_cache
def _encoded(tenant: TenantKey) -> bytes:
    said = {"version": "1", "cluster_id": tenant.cluster_id, "tenant_id": tenant.tenant_id, "prev_ts": "0"}
    said |= {"store_id": "1", "old_value": "1", "first_watermark_row_group": "0"}
    return change_files.encode([_rows()], {f"tistream.{name}": text for name, text in said.items()})


def large(tenant: TenantKey, store_id: int, prev_ts: int) -> bytes:
    """A file with more in memory than in the store."""
    return change_files.restated(_encoded(tenant), store_id=str(store_id), prev_ts=str(prev_ts))


def put_large(
    objects: MemoryObjectStore, store_id: int, count: int, tenant: TenantKey = TinyTenant.tenant
) -> list[int]:
    stamps = [FIRST_TS + number for number in range(count)]
    for ts in stamps:
        data = large(tenant, store_id, 0 if ts == FIRST_TS else ts - 1)
        assert len(data) < ROWS * 77 / 4
        objects.put(layout.change_file(tenant, store_id, ts), data)
    return stamps


def new_store(objects: ObjectStore, store_id: int = 1, *room: ByteBudget) -> StoreFeed:
    return StoreFeed(
        TinyTenant.tenant, store_id, (), objects, ManualClock(1_000), DispatcherMetrics(CollectorRegistry()), *room
    )


def held_bytes(store: StoreFeed) -> int:
    """Of watermarks, in all files that the store holds."""
    found = [file for value in vars(store).values() for file in _files(value)]
    return sum(file.watermarks.nbytes for file in found)


def _files(value: Any) -> list[ReadFile]:
    if isinstance(value, ReadAhead):
        return [file for kept in vars(value).values() for file in _files(kept)]
    if isinstance(value, dict):
        return [file for kept in value.values() for file in _files(kept)]
    if isinstance(value, tuple):
        return [file for file in value if isinstance(file, ReadFile)]
    return [value] if isinstance(value, ReadFile) else []


def test_small_files_that_are_large_in_memory_are_not_kept_by_number() -> None:
    objects = MemoryObjectStore()
    store = new_store(objects)
    stamps = put_large(objects, 1, 40)
    assert store.poll()
    assert 16 << 20 >= held_bytes(store) > 2 * ROWS * 77, "some are kept, and no more than 16 MiB"
    assert handed_on(store) == stamps, "what was dropped is read again, and in order"
    assert held_bytes(store) == 0


def test_a_file_larger_than_all_that_may_be_kept_goes_on_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(read_ahead, "STORE_BYTES", 1 << 20)
    objects = MemoryObjectStore()
    store = new_store(objects)
    stamps = put_large(objects, 1, 5)
    assert store.announced(stamps)
    assert held_bytes(store) == 0
    assert handed_on(store) == stamps


def test_files_that_come_out_of_order_make_room_for_those_before_them() -> None:
    inner = MemoryObjectStore()
    objects = MeasuredObjectStore(inner)
    store = new_store(objects)
    stamps = put_large(inner, 1, 8)
    assert store.announced(stamps[1:])
    assert handed_on(store) == []
    assert store.announced(stamps[:1])
    before = objects.traffic()["get"].requests
    assert handed_on(store) == stamps
    assert objects.traffic()["get"].requests - before == len(stamps) - 4, "the first four were kept"


def test_one_store_and_one_tenant_leave_room_to_the_others() -> None:
    objects = MemoryObjectStore()
    process = ByteBudget(40 << 20)
    hostile, good = ByteBudget(24 << 20, within=process), ByteBudget(24 << 20, within=process)
    stores = [new_store(objects, number, hostile) for number in range(1, 6)]
    for store in stores:
        put_large(objects, store.store_id, 8)
        store.poll()
    assert sum(map(held_bytes, stores)) <= hostile.used <= 24 << 20
    other = new_store(objects, 9, good)
    put_large(objects, 9, 8)
    other.poll()
    assert held_bytes(other) > 2 * ROWS * 77
    assert process.used == hostile.used + good.used <= 40 << 20
    for store in [*stores, other]:
        assert len(handed_on(store)) == 8
    assert process.used == 0


def test_what_nobody_waits_for_any_more_is_not_kept() -> None:
    """Files of a store that is another's now, or is read again, or whose older chain was given up."""
    objects = MemoryObjectStore()
    process = ByteBudget(64 << 20)
    store = new_store(objects, 1, ByteBudget(64 << 20, within=process))
    put_large(objects, 1, 4)
    objects.delete(layout.change_file(TinyTenant.tenant, 1, FIRST_TS))
    store.poll()
    assert handed_on(store) == []
    assert process.used > 2 * ROWS * 77
    objects.put(layout.change_file(TinyTenant.tenant, 1, 2_000), large(TinyTenant.tenant, 1, 0))  # a new chain
    store.poll()
    assert handed_on(store) == [2_000]
    store.chains.close(5_000)
    assert handed_on(store) == []
    assert process.used == 0
    put_large(objects, 2, 2)
    left = new_store(objects, 2, ByteBudget(64 << 20, within=process))
    left.poll()
    assert process.used > 0
    left.close()
    left.poll()
    assert process.used == 0 == held_bytes(left)


def test_room_is_given_back_once_whatever_ends_first() -> None:
    process = ByteBudget(10)
    tenant = ByteBudget(8, within=process)
    store = ByteBudget(6, within=tenant)
    assert store.reserve(6)
    assert not store.reserve(1)
    assert tenant.reserve(2)
    assert not tenant.reserve(1)
    assert process.used == 8
    tenant.close()
    assert process.used == 0
    store.release(6)
    store.close()
    assert not store.reserve(1)
    assert process.used == 0


def run(feed: TenantFeed, clock: ManualClock, steps: int) -> None:
    for _ in range(steps):
        clock.advance(max(feed.step(), 100))


def test_while_a_tenants_window_is_full_no_more_is_kept_than_may_be_and_another_tenant_goes_on() -> None:
    """The files are read all the same, so that damage is seen."""
    objects, clock, process = MemoryObjectStore(), ManualClock(1_000), ByteBudget(20 << 20)
    full, other = Sorter(busy=True), Sorter()
    feed = new_feed(objects, full, clock, process)
    for store_id in (1, 2):
        put_large(objects, store_id, 20)
    run(feed, clock, 20)
    assert full.received == {}
    assert 2 * ROWS * 77 < process.used == feed.room.used <= 20 << 20
    others = MemoryObjectStore()
    put_large(others, 1, 5)
    run(new_feed(others, other, clock, process), clock, 20)
    assert other.taken == [(1, FIRST_TS + number) for number in range(5)]
    full.busy = False
    run(feed, clock, 200)
    for store_id in (1, 2):
        assert [ts for store, ts in full.taken if store == store_id] == [FIRST_TS + number for number in range(20)]
    assert process.used == 0


def test_a_tenant_that_ends_gives_back_what_it_kept() -> None:
    objects, clock, process = MemoryObjectStore(), ManualClock(1_000), ByteBudget(64 << 20)
    feed = new_feed(objects, Sorter(busy=True), clock, process)
    put_large(objects, 1, 5)
    run(feed, clock, 5)
    assert process.used > 0
    feed.room.close()
    run(feed, clock, 5)  # a step may be under way
    assert process.used == 0
