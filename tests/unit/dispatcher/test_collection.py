"""Consumed change files go, nothing else does, and a store at rest costs nothing."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import httpx
import pytest
from prometheus_client import CollectorRegistry
from test_tenant_feed import TINY, Sorter, new_feed

from support.tiny_tenant import watermark
from tistream.clock import ManualClock
from tistream.errors import Unavailable
from tistream.model.ids import TenantKey
from tistream.model.ts import from_physical_ms
from tistream.storage import layout
from tistream.storage.backends.directory import DirectoryObjectStore
from tistream.storage.backends.memory import MemoryObjectStore
from tistream.storage.object_store import ObjectInfo
from tistream.wire.sorter import Chain, TaskList
from tistream_dispatcher.metrics import DispatcherMetrics
from tistream_dispatcher.settings import CollectSettings
from tistream_dispatcher.stores.chain import ReadFiles
from tistream_dispatcher.tenant import collection
from tistream_dispatcher.tenant.collection import ConsumedFiles, FileCollector

TENANT = TenantKey("7", "acme")
HOUR_MS = 3_600_000


class Bucket(MemoryObjectStore):
    """Counts LISTs, and refuses to delete what it is told to. Files are as old as their names say."""

    def __init__(self) -> None:
        super().__init__()
        self.lists = 0
        self.refused = ""

    def list_after(self, prefix: str, after: str = "", delimiter: str = "") -> Iterator[ObjectInfo]:
        self.lists += 1
        for info in super().list_after(prefix, after, delimiter):
            name = layout.parse_change_file(info.key)
            yield info if name is None else replace(info, modified_ms=name[2] >> 18)

    def delete(self, key: str) -> None:
        if key == self.refused:
            raise Unavailable(f"{key}: slow down")
        super().delete(key)


class Shop:
    """A bucket and its collector. A file's ts is given in milliseconds."""

    def __init__(self, keep_ms: int = HOUR_MS) -> None:
        self.bucket, self.clock, self.registry = Bucket(), ManualClock(100 * HOUR_MS), CollectorRegistry()
        self.read: dict[int, ReadFiles] = {}
        settings = CollectSettings(keep_ms=keep_ms, every_ms=60_000)
        metrics = DispatcherMetrics(self.registry)
        self.collector = FileCollector(lambda: {TENANT: self.read}, self.bucket, self.clock, settings, metrics)

    def put(self, store: int, *at_ms: int) -> None:
        for ms in at_ms:
            self.bucket.put(layout.change_file(TENANT, store, from_physical_ms(ms)), b"12345")

    def consume(self, store: int, through_ms: int, wanted_ms: int = -1, begins_ms: tuple[int, ...] = ()) -> None:
        """All through there but one; chains begin at `begins_ms`."""
        through = from_physical_ms(through_ms)
        every = {found[2] for key in self.keys() if (found := layout.parse_change_file(key)) is not None}
        begins = tuple(map(from_physical_ms, begins_ms))
        self.read[store] = ReadFiles(through, -1, frozenset(every - {from_physical_ms(wanted_ms)}), begins)

    def turn(self) -> int:
        """The loop's next turn, after its pause."""
        self.clock.advance(60_000)
        return self.collector.step()

    def keys(self) -> list[str]:
        return [info.key for info in MemoryObjectStore.list_after(self.bucket, "")]

    def left(self, store: int) -> list[int]:
        names = [layout.parse_change_file(key) for key in self.keys()]
        return [name[2] >> 18 for name in names if name is not None and name[:2] == (TENANT, store)]

    def count(self, what: str) -> float | None:
        return self.registry.get_sample_value(f"tistream_dispatcher_{what}_total")


def test_consumed_files_of_that_age_are_deleted_and_nothing_else() -> None:
    shop = Shop()
    now = shop.clock.now_ms()
    shop.put(1, now - 5 * HOUR_MS, now - 4 * HOUR_MS, now - 3 * HOUR_MS, now - 1000)
    shop.put(2, now - 5 * HOUR_MS)
    others = [layout.schema_snap(TENANT), f"{layout.store_prefix(TENANT, 1)}file-1", "elsewhere"]
    others.append(layout.change_file(TenantKey("7", "acme2"), 1, 5))
    for key in others:
        shop.bucket.put(key, b"")
    shop.consume(1, now, wanted_ms=now - 4 * HOUR_MS)
    assert shop.turn() == 60_000
    assert shop.left(1) == [now - 4 * HOUR_MS, now - 1000]
    assert shop.left(2) == [now - 5 * HOUR_MS]
    assert set(others) <= set(shop.keys())
    assert (shop.count("collected_files"), shop.count("collected_bytes")) == (2, 10)


@pytest.mark.parametrize("keep_ms", [0, 1, HOUR_MS])
def test_a_file_goes_when_it_has_its_age_to_the_millisecond(keep_ms: int) -> None:
    shop = Shop(keep_ms)
    at_ms = shop.clock.now_ms() + 60_000 - keep_ms + 1
    shop.put(1, at_ms, at_ms + 50 * HOUR_MS)
    shop.consume(1, shop.clock.now_ms() + HOUR_MS)
    shop.turn()
    assert len(shop.left(1)) == 2
    shop.turn()
    assert shop.left(1) == [at_ms + 50 * HOUR_MS]


def test_the_newest_file_of_a_chain_stays_however_old_it_is() -> None:
    """It is its writer's durable position, and the name beside which another writer stops it."""
    shop = Shop(0)
    shop.put(1, 10, 20, 30)
    shop.consume(1, 30)
    for _ in range(3):
        shop.turn()
        assert shop.left(1) == [30]
    shop.put(1, 40)
    shop.consume(1, 40)
    shop.turn()
    assert shop.left(1) == [40]


def test_so_does_that_of_a_chain_that_is_closed() -> None:
    shop = Shop(0)
    shop.put(1, 10, 20, 100, 110, 200, 210, 220)
    shop.consume(1, 220, begins_ms=(10, 100, 200))
    shop.turn()
    assert shop.left(1) == [20, 110, 220]
    shop.put(1, 25)  # a late one, which nobody reads any more
    shop.consume(1, 221, begins_ms=(100, 200))
    shop.turn()
    assert shop.left(1) == [25, 110, 220]


def test_age_is_told_by_when_a_file_was_put_and_not_by_its_name(tmp_path: Path) -> None:
    """Names that are dense count on from a chain's beginning: after a year they say that a file of today is a year old.
    And an upstream whose clock is ahead keeps what it pushed no longer than others do."""
    now_ms = 10_000 * HOUR_MS
    objects, clock = DirectoryObjectStore(tmp_path / "objects"), ManualClock(now_ms)
    first_ts = from_physical_ms(now_ms - 9_000 * HOUR_MS)
    put_ms = {first_ts: now_ms - 2 * HOUR_MS, first_ts + 1: now_ms - 1_000, first_ts + 2: now_ms}
    ahead_ts = from_physical_ms(now_ms + 50 * HOUR_MS)
    put_ms |= {ahead_ts: now_ms - 2 * HOUR_MS, ahead_ts + 1: now_ms}
    for ts, ms in put_ms.items():
        key = layout.change_file(TENANT, 1, ts)
        objects.put(key, b"12345")
        os.utime(tmp_path / "objects" / key, ns=(ms * 1_000_000, ms * 1_000_000))
    read = {1: ReadFiles(ahead_ts, -1, frozenset(put_ms))}
    metrics = DispatcherMetrics(CollectorRegistry())
    settings = CollectSettings(keep_ms=HOUR_MS, every_ms=60_000)
    FileCollector(lambda: {TENANT: read}, objects, clock, settings, metrics).step()
    left = [layout.parse_change_file(info.key) for info in objects.list_after("")]
    assert [name[2] for name in left if name is not None] == [first_ts + 1, first_ts + 2, ahead_ts + 1]


def test_a_store_at_rest_is_not_listed_again_before_its_oldest_file_is_old_enough() -> None:
    shop = Shop()
    begin = shop.clock.now_ms()
    shop.put(1, begin, begin + 1, begin + 2)
    shop.consume(1, begin + 1)
    while len(shop.left(1)) > 1:
        shop.turn()
        assert shop.clock.now_ms() - begin < 2 * HOUR_MS
    assert shop.bucket.lists <= 3, "one that found nothing old, and one for each that came of age"
    assert shop.clock.now_ms() - begin >= HOUR_MS
    lists = shop.bucket.lists
    for _ in range(1_000):
        shop.turn()
    assert shop.bucket.lists == lists
    shop.put(1, begin + 50)
    shop.consume(1, begin + 49)
    shop.turn()
    assert shop.left(1) == [begin + 50]


def test_a_turn_deletes_so_many_and_goes_on_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(collection, "DELETES_MAX", 10)
    shop = Shop(0)
    for store in (1, 2):
        shop.put(store, *range(1, 17))
        shop.consume(store, 15)
    pauses, counts = [], []
    for _ in range(4):
        pauses.append(shop.collector.step())
        counts.append(len(shop.left(1)) + len(shop.left(2)))
    assert counts == [22, 12, 2, 2], "the newest of each stays"
    assert pauses == [0, 0, 0, 60_000]


def test_what_could_not_be_deleted_is_tried_again_and_other_stores_go_on() -> None:
    shop = Shop(0)
    shop.put(1, 10, 20, 30, 40)
    shop.put(2, 10, 40)
    for store in (1, 2):
        shop.consume(store, 30)
    shop.bucket.refused = layout.change_file(TENANT, 1, from_physical_ms(20))
    assert shop.turn() == 60_000
    assert (shop.left(1), shop.left(2)) == ([20, 40], [40])
    assert shop.count("collect_failures") == 1
    assert shop.count("collected_files") == 3
    shop.collector.step()
    assert shop.count("collect_failures") == 1, "not before the next turn"
    shop.bucket.refused = ""
    shop.turn()
    assert shop.left(1) == [40]
    assert shop.count("collected_bytes") == 20


# -- a tenant's feed, with a sorter at the far end of the wire --------------------------------------------------------


class Told(Sorter):
    """Says what is durable, as it is told to."""

    def __init__(self) -> None:
        super().__init__()
        self.durable: dict[int, list[Chain]] = {}
        self.pointed: dict[int, int] | None = {}
        self.epoch = 1

    def __call__(self, request: httpx.Request) -> httpx.Response:
        answer = super().__call__(request)
        if request.url.path == "/v1/files":
            return answer
        (status,) = TaskList.model_validate_json(answer.content).tasks
        told = {"durable": self.durable, "pointed": self.pointed, "flushed_ts": 500, "task_epoch": self.epoch}
        body = TaskList(node_id="s", tasks=[status.model_copy(update=told)])
        return httpx.Response(200, content=body.model_dump_json().encode())


class Tenant:
    """One store with files 200, 210, 220, 230, which the task has received."""

    def __init__(self) -> None:
        self.objects, self.sorter, self.clock = MemoryObjectStore(), Told(), ManualClock(1_000)
        self.feed = new_feed(self.objects, self.sorter, self.clock)
        self.feed.consumed = ConsumedFiles(self.clock, 500)
        for ts in (200, 210, 220, 230):
            self.put(ts)
        self.run()
        assert self.sorter.received == {1: [Chain(first_ts=200, at_ts=230)]}

    def put(self, ts: int) -> None:
        file = TINY.file(1, ts, 0 if ts == 200 else ts - 10, [], watermark(6, 5, 150, base_ts=100))
        self.objects.put(file.key, file.data)

    def run(self) -> None:
        for _ in range(6):
            self.feed.step()
            self.clock.advance(1_000)

    def done(self, durable: int) -> list[int]:
        """What may go once the task's newest manifest has that position."""
        self.sorter.durable = {1: [Chain(first_ts=200, at_ts=durable)]}
        self.run()
        read = self.feed.consumed.files().get(1)
        return [] if read is None else [ts for ts in (200, 210, 220, 230) if ts in read]


def test_files_may_go_as_far_as_a_manifest_carries_them() -> None:
    tenant = Tenant()
    assert tenant.feed.consumed.files() == {}, "received is not durable"
    assert tenant.done(210) == [200, 210]
    tenant.sorter.pointed = {1: 210}
    assert tenant.done(230) == [200]
    tenant.sorter.pointed = {2: 1}
    assert tenant.done(230) == [200, 210, 220]


def test_nothing_may_go_by_the_word_of_a_sorter_that_does_not_say_all_or_is_not_the_tasks() -> None:
    tenant = Tenant()
    assert tenant.done(210) == [200, 210]
    tenant.sorter.pointed = None
    assert tenant.done(230) == []
    tenant.sorter.pointed = {}
    assert tenant.done(230) == [200, 210, 220]
    tenant.sorter.epoch = 2
    assert tenant.done(230) == []
    tenant.sorter.epoch = 0
    assert tenant.done(230) == []


def test_a_dispatcher_whose_files_another_has_handed_on_and_deleted_goes_on_behind_them() -> None:
    """A store moves while its old reader knows nothing of it: what the new one has not read may be gone."""
    tenant = Tenant()
    for ts in (200, 210, 220, 230):
        tenant.objects.delete(layout.change_file(TINY.tenant, 1, ts))
    tenant.sorter.received = {1: [Chain(first_ts=200, at_ts=260)]}  # by another dispatcher; those are gone, too
    tenant.put(270)
    tenant.run()
    assert tenant.sorter.received == {1: [Chain(first_ts=200, at_ts=270)]}
    assert [store.hold for store in tenant.feed.status()[0]] == [None]
