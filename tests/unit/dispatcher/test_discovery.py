"""Stores are found by what is in the bucket, which its tenant writes: no more of them than there may be."""

from __future__ import annotations

from tistream.model.ids import TenantKey
from tistream.storage import layout
from tistream.storage.memory import MemoryObjectStore
from tistream.wire.meta import StoreRoute, TenantRoute
from tistream_dispatcher.discovery import STORES_MAX, TOO_MANY, UNREAD, Discovery
from tistream_dispatcher.share import Share

TENANT = TenantKey("7", "acme")


def share(*named: int) -> Share:
    stores = [StoreRoute(store_id=store_id, dispatcher_node="a") for store_id in named]
    route = TenantRoute(
        cluster_id="7", tenant_id="acme", snapshot_ts=1, tasks=[], stores=stores, dispatcher_node="a", problem=None
    )
    return Share.of(route, "a")


def test_thousands_of_prefixes_that_look_like_stores_are_not_all_read() -> None:
    objects, told = MemoryObjectStore(), list[int]()
    discovery = Discovery(TENANT, objects, lambda: told.append(1))
    discovery.take(share(1, 2, 3))
    for number in range(1, STORES_MAX + 501):
        objects.put(f"{layout.store_prefix(TENANT, number)}junk", b"")
    for _ in range(2):
        discovery.note(discovery.listed() - {1, 2, 3})
        assert discovery.found() == frozenset(range(4, STORES_MAX + 1))
        assert [hold.reason for hold in discovery.holds()].count(TOO_MANY) == 1
    assert told == [1], "what is found again is no news"
    discovery.take(share(*range(1, STORES_MAX + 1)))
    discovery.note({STORES_MAX + 7})
    assert discovery.found() == frozenset()
    for number in range(4, STORES_MAX + 501):
        objects.delete(f"{layout.store_prefix(TENANT, number)}junk")
    discovery.note(discovery.listed() - {1, 2, 3})
    assert discovery.holds() == []


def test_as_many_as_there_may_be_are_all_found() -> None:
    objects = MemoryObjectStore()
    discovery = Discovery(TENANT, objects, lambda: None)
    discovery.take(share())
    for number in range(1, STORES_MAX + 1):
        objects.put(f"{layout.store_prefix(TENANT, number)}junk", b"")
    discovery.note(discovery.listed())
    assert {hold.reason for hold in discovery.holds()} == {UNREAD}
    assert len(discovery.found()) == STORES_MAX
