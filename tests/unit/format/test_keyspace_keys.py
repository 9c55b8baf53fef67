"""Keys of a keyspace (`x`, three bytes of its id, and TiDB's own) are refused by name, and never dropped in silence."""

from __future__ import annotations

import pytest
from prometheus_client import CollectorRegistry

from support import change_files
from support.small_files import IDENTITY, KEY, change, sound, watermark
from support.split_world import SplitWorld
from support.tiny_tenant import TinyTenant, whole
from support.tiny_tenant import watermark as covering
from tistream.clock import ManualClock
from tistream.errors import CorruptObject
from tistream.format.change_file import ChangeFile, parse_footer
from tistream.format.change_rows import check_changes
from tistream.storage.backends.memory import MemoryObjectStore
from tistream_dispatcher.metrics import DispatcherMetrics
from tistream_dispatcher.stores.chain import GRACE_MS
from tistream_dispatcher.stores.store_feed import StoreFeed

TINY = TinyTenant()
# The row of mysql.tidb_ddl_job in keyspace 1 (upstream-formats.md 3.1).
OF_KEYSPACE = bytes.fromhex("780000017480 00ff ff ff ff ff fe5f72 8000000000000002")
REASON = r"key 78000001748000.* is of keyspace 1: .* strips these four bytes"


def opened(*keys: bytes) -> object:
    data = sound(changes=[change(key) for key in sorted(keys)], rows_per_group=100)
    return parse_footer(KEY, IDENTITY, data, len(data))


@pytest.mark.parametrize("others", [(), (b"m1", b"t1"), (b"z1",)], ids=["alone", "behind others", "before others"])
def test_a_file_whose_bounds_name_such_a_key_is_refused(others: tuple[bytes, ...]) -> None:
    with pytest.raises(CorruptObject, match=REASON):
        opened(OF_KEYSPACE, *others)


def test_other_keys_are_none_of_a_keyspace() -> None:
    for key in (b"x", b"x1", b"w" + bytes(8), b"y" + bytes(8), b"m" + bytes(8), b"r" + bytes(8)):
        assert isinstance(opened(key), ChangeFile)
    region = watermark(key=OF_KEYSPACE[:4], end_key=b"")  # of another keyspace, in a cluster where this tenant has none
    data = sound(watermarks=[region])
    assert isinstance(parse_footer(KEY, IDENTITY, data, len(data)), ChangeFile)


def test_its_store_is_quarantined_and_says_why() -> None:
    objects, clock = MemoryObjectStore(), ManualClock(1_000)
    store = StoreFeed(TINY.tenant, 1, (), objects, clock, DispatcherMetrics(CollectorRegistry()))
    row = {**whole(b"a", 160, 170, 6), "key": OF_KEYSPACE}
    file = TINY.file(1, 200, 0, [row], covering(6, 6, 205, base_ts=100))
    objects.put(file.key, file.data)
    store.poll()
    clock.advance(GRACE_MS)
    store.retry()
    hold = store.hold()
    assert hold is not None
    assert (hold.stage, hold.object) == ("damaged", file.key)
    assert "keyspace 1" in hold.reason


def test_one_between_other_keys_is_found_by_the_sorter() -> None:
    world = SplitWorld(TINY)
    rows = [whole(b"a", 160, 170, 6), {**whole(b"b", 160, 170, 6), "key": b"z"}]
    rows.insert(1, {**whole(b"c", 160, 170, 6), "key": OF_KEYSPACE})
    file = TINY.file(1, 200, 0, rows, covering(6, 6, 205, base_ts=100))
    world.push(file)
    for _ in range(3):
        world.tick()
        world.clock.advance(GRACE_MS)
    task = world.task(1)
    (hold,) = [hold for hold in task.status(0, world.clock.monotonic_ms()).holds if hold.stage == "damaged"]
    assert hold.object == file.key
    assert "keyspace 1" in hold.reason
    assert task.durable.counters.get("committed_rows", 0) == 0


def test_rows_without_bounds_are_looked_at_one_by_one() -> None:
    rows = change_files.table([change(b"t1"), change(OF_KEYSPACE), change(b"z1")])
    with pytest.raises(CorruptObject, match=REASON):
        check_changes(KEY, rows)
    check_changes(KEY, change_files.table([change(b"t1"), change(b"x1"), change(b"z1")]))
