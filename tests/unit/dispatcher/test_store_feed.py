"""What a store's feed hands on: files in chain order, whether they were announced or found; and nothing past damage."""

from __future__ import annotations

from prometheus_client import CollectorRegistry

from support.golden import Delivery
from support.tiny_tenant import TinyTenant, watermark, whole
from tistream.clock import ManualClock
from tistream.storage.memory import MemoryObjectStore
from tistream.wire.sorter import Chain
from tistream_dispatcher.chain import SeenFile, StoreChains
from tistream_dispatcher.metrics import DispatcherMetrics
from tistream_dispatcher.receivers import Receivers
from tistream_dispatcher.store_feed import StoreFeed

TINY = TinyTenant()
FIRST = TINY.file(1, 200, 0, [], watermark(6, 5, 150, base_ts=100))
SECOND = TINY.file(1, 210, 200, [whole(b"a", 160, 170, 6)], watermark(6, 7, 205))
THIRD = TINY.file(1, 220, 210, [whole(b"b", 206, 207, 8)], watermark(8, 9, 215))


def feed(objects: MemoryObjectStore) -> StoreFeed:
    return StoreFeed(TINY.tenant, 1, (), objects, ManualClock(1_000), DispatcherMetrics(CollectorRegistry()))


def handed_on(store: StoreFeed) -> list[int]:
    out = []
    while (found := store.next_file()) is not None:
        store.take(found[0])
        out.append(found[0].file.ts)
    return out


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


def test_no_file_is_taken_past_a_damaged_one() -> None:
    """The damaged file lies between two that name each other: whether it belongs between them cannot be known."""
    chains = StoreChains()
    chains.see(SeenFile(10, 0))
    ready = chains.ready()
    assert ready is not None
    chains.take(ready)
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
        receivers.tell(task, {1: chains})
        receivers.flushed[task] = flushed_ts
    assert [chain.first_ts for chain in receivers.common(1)] == [10, 100]
    receivers.flushed[2] = 100
    assert [chain.first_ts for chain in receivers.common(1)] == [100]
