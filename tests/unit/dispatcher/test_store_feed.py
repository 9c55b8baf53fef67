"""What a store's feed hands on: files in chain order, whether they were announced or found; and nothing past damage."""

from __future__ import annotations

import random
from collections.abc import Iterator

from prometheus_client import CollectorRegistry

from support.feed_world import handed_on
from support.golden import Delivery
from support.tiny_tenant import TinyTenant, watermark, whole
from tistream.clock import ManualClock
from tistream.storage import layout
from tistream.storage.backends.memory import MemoryObjectStore
from tistream.storage.measured import MeasuredObjectStore
from tistream.storage.object_store import ObjectInfo
from tistream.wire.sorter import Chain
from tistream_dispatcher.delivery.receivers import Receivers
from tistream_dispatcher.metrics import DispatcherMetrics
from tistream_dispatcher.stores.chain import SeenFile, StoreChains
from tistream_dispatcher.stores.store_feed import StoreFeed

TINY = TinyTenant()
FIRST = TINY.file(1, 200, 0, [], watermark(6, 5, 150, base_ts=100))
SECOND = TINY.file(1, 210, 200, [whole(b"a", 160, 170, 6)], watermark(6, 7, 205))
THIRD = TINY.file(1, 220, 210, [whole(b"b", 206, 207, 8)], watermark(8, 9, 215))


def feed(objects: MemoryObjectStore) -> StoreFeed:
    return StoreFeed(TINY.tenant, 1, (), objects, ManualClock(1_000), DispatcherMetrics(CollectorRegistry()))


def put(objects: MemoryObjectStore, *files: Delivery) -> None:
    for file in files:
        objects.put(file.key, file.data)


def test_an_announced_file_waits_for_those_before_it() -> None:
    objects = MemoryObjectStore()
    store = feed(objects)
    put(objects, FIRST, THIRD)
    assert store.announced([200])
    assert handed_on(store) == [200]
    assert store.announced([220])
    assert handed_on(store) == []
    hold = store.hold()
    assert hold is not None
    assert (hold.stage, hold.object) == ("push", SECOND.key)
    assert not store.announced([210])  # said to be there, but it is not
    assert handed_on(store) == []
    put(objects, SECOND)
    assert store.poll()
    assert handed_on(store) == [210, 220]


class Counting(MemoryObjectStore):
    """How many entries were told by LIST."""

    told = 0

    def list_after(self, prefix: str, after: str = "", delimiter: str = "") -> Iterator[ObjectInfo]:
        for info in super().list_after(prefix, after, delimiter):
            self.told += 1
            yield info


def test_what_lies_beside_a_stores_files_is_not_listed_again_and_again() -> None:
    objects = Counting()
    store = feed(objects)
    put(objects, FIRST, SECOND)
    for number in range(5_000):
        objects.put(f"{layout.store_prefix(TINY.tenant, 1)}junk-{number}", b"")
    assert store.poll()
    assert handed_on(store) == [200, 210]
    assert not store.poll()
    assert objects.told < 10


def test_no_file_is_taken_past_a_damaged_one() -> None:
    """The damaged file lies between two that name each other: whether it belongs between them cannot be known."""
    chains = StoreChains()
    chains.see(SeenFile(10, 0))
    ready = chains.ready()
    assert ready is not None
    chains.advance(ready)
    chains.damage(15, "bad", 10_000)
    chains.see(SeenFile(20, 10))
    assert chains.ready() is None
    hold = chains.hold()
    assert hold is not None
    assert (hold.quarantined, hold.ts) == (True, 15)
    chains.forget(15)
    ready = chains.ready()
    assert ready is not None
    assert ready.file.ts == 20


def test_an_older_chain_stays_open_until_the_slowest_task_has_flushed_past_the_newer_ones_beginning() -> None:
    receivers = Receivers()
    chains = [Chain(first_ts=10, at_ts=30), Chain(first_ts=100, at_ts=120)]
    for task, flushed_ts in ((1, 500), (2, 99)):
        receivers.set_received(task, {1: chains})
        receivers.flushed[task] = flushed_ts
    assert [chain.first_ts for chain in receivers.lowest_positions(1)] == [10, 100]
    receivers.flushed[2] = 100
    assert [chain.first_ts for chain in receivers.lowest_positions(1)] == [100]


def test_of_a_small_file_its_end_alone_is_read_once_one_is_known_and_a_longer_end_is_fetched_too() -> None:
    inner = MemoryObjectStore()
    objects = MeasuredObjectStore(inner)
    store = StoreFeed(TINY.tenant, 1, (), objects, ManualClock(1_000), DispatcherMetrics(CollectorRegistry()))
    rng = random.Random(1)
    noise = [whole(b"k%06d" % at + rng.randbytes(40), 150 + at, 151 + at, 6 + at) for at in range(1_500)]
    put(inner, FIRST, TINY.file(1, 2_000, 200, noise, watermark(6, 1_505, 1_900)))
    marks = [watermark(1_506 + at, 1_506 + at, 1_950 + at) for at in range(600)]
    put(inner, TINY.file(1, 2_100, 2_000, [], *marks))
    sizes = []
    for ts in (200, 2_000, 2_100):
        before = objects.traffic()["get"].read_bytes
        assert store.announced([ts])
        sizes.append(objects.traffic()["get"].read_bytes - before)
    assert handed_on(store) == [200, 2_000, 2_100]
    assert sizes[1] < 16 << 10 < len(inner.get(layout.change_file(TINY.tenant, 1, 2_000)))
    assert objects.traffic()["get"].requests >= 3


def test_after_a_file_with_a_huge_end_the_next_is_not_fetched_whole() -> None:
    inner = MemoryObjectStore()
    objects = MeasuredObjectStore(inner)
    store = StoreFeed(TINY.tenant, 1, (), objects, ManualClock(1_000), DispatcherMetrics(CollectorRegistry()))
    rng = random.Random(1)
    keys = [b"%04d" % at + rng.randbytes(396) for at in range(4_000)]
    ends = [*(key[:4] for key in keys[1:]), b""]
    marks = [watermark(6 + at, 6 + at, 250 + at, key=keys[at], end_key=ends[at]) for at in range(4_000)]
    noise = [whole(rng.randbytes(500), 5_000 + at, 5_001 + at, 4_006 + at) for at in range(5_000)]
    files = [
        FIRST,
        TINY.file(1, 5_000, 200, [], *marks),
        TINY.file(1, 20_000, 5_000, noise, watermark(6, 9_006, 9_900)),
    ]
    put(inner, *files)
    assert store.announced([200, 5_000])
    before = objects.traffic()["get"].read_bytes
    assert store.announced([20_000])
    assert objects.traffic()["get"].read_bytes - before <= 1 << 20 < len(files[1].data) < len(files[2].data)
    assert handed_on(store) == [200, 5_000, 20_000]


def test_of_files_that_are_abandoned_or_deleted_nothing_is_kept() -> None:
    """A new chain ends a broken one, whose files wait for ever; the arrival of each was remembered."""
    objects = MemoryObjectStore()
    store = feed(objects)
    put(objects, FIRST)
    assert store.poll()
    assert handed_on(store) == [200]
    prev_ts = 200
    for number in range(20):
        twins = [TINY.file(1, prev_ts + step, prev_ts, [], watermark(6, 5, 150)) for step in (5, 6)]
        fresh = TINY.file(1, prev_ts + 10, 0, [], watermark(6, 5, 150 + number, base_ts=100))
        put(objects, *twins, fresh)
        assert store.poll()
        assert handed_on(store) == [prev_ts + 10]
        prev_ts += 10
    damaged = layout.change_file(TINY.tenant, 1, prev_ts + 1)
    objects.put(damaged, b"no file")
    assert store.poll()
    objects.delete(damaged)
    store.announced([prev_ts + 1])
    handed_on(store)
    assert len(store._arrived) <= 1
