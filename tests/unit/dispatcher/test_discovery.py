"""Stores are found by what is in the bucket, which its tenant writes: no more of them than there may be."""
# Attack: keys in a tenant's prefix that look like a store's: no change file, no store

from __future__ import annotations

from pathlib import Path

import pytest

from tistream.model.ids import TenantKey
from tistream.storage import layout
from tistream.storage.backends.directory import DirectoryObjectStore
from tistream.storage.backends.memory import MemoryObjectStore
from tistream.storage.measured import MeasuredObjectStore
from tistream.wire.meta import StoreRoute, TenantRoute
from tistream_dispatcher.tenant import discovery as discovery_module
from tistream_dispatcher.tenant.discovery import LOOKS_MAX, TOO_MANY, UNREAD, Discovery
from tistream_dispatcher.tenant.share import Share

TENANT = TenantKey("7", "acme")
FILE = "file-00000000000000000005"
STORES_MAX = 400  # in place of thousands
JUNK = ("junk", "file-7", f"{FILE}-junk", f"{FILE}/{FILE}", "x/y")


@pytest.fixture
def _fewer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(discovery_module, "STORES_MAX", STORES_MAX)


def share(*named: int) -> Share:
    stores = [StoreRoute(store_id=store_id, dispatcher_node="a") for store_id in named]
    route = TenantRoute(
        cluster_id="7", tenant_id="acme", snapshot_ts=1, tasks=[], stores=stores, dispatcher_node="a", problem=None
    )
    return Share.of(route, "a")


@pytest.mark.usefixtures("_fewer")
def test_thousands_of_prefixes_that_look_like_stores_are_not_all_read() -> None:
    objects, told = MemoryObjectStore(), list[int]()
    discovery = Discovery(TENANT, objects, lambda: told.append(1))
    discovery.apply(share(1, 2, 3))
    for number in range(1, STORES_MAX + 101):
        objects.put(layout.change_file(TENANT, number, 5), b"")
    for _ in range(2):
        discovery.note(discovery.listed() - {1, 2, 3})
        assert discovery.found() == frozenset(range(4, STORES_MAX + 1))
        assert [hold.reason for hold in discovery.holds()].count(TOO_MANY) == 1
    assert told == [1], "what is found again is no news"
    discovery.apply(share(*range(1, STORES_MAX + 1)))
    discovery.note({STORES_MAX + 7})
    assert discovery.found() == frozenset()
    for number in range(4, STORES_MAX + 101):
        objects.delete(layout.change_file(TENANT, number, 5))
    discovery.note(discovery.listed() - {1, 2, 3})
    assert discovery.holds() == []


@pytest.mark.usefixtures("_fewer")
def test_as_many_as_there_may_be_are_all_found() -> None:
    objects = MemoryObjectStore()
    discovery = Discovery(TENANT, objects, lambda: None)
    discovery.apply(share())
    for number in range(1, STORES_MAX + 1):
        objects.put(layout.change_file(TENANT, number, 5), b"")
    discovery.note(discovery.listed())
    assert {hold.reason for hold in discovery.holds()} == {UNREAD}
    assert len(discovery.found()) == STORES_MAX


def requests(objects: MeasuredObjectStore) -> int:
    return sum(done.requests for done in objects.traffic().values())


def test_what_has_only_the_name_of_a_store_is_none_and_is_looked_at_a_few_at_a_time() -> None:
    objects = MeasuredObjectStore(MemoryObjectStore())
    discovery = Discovery(TENANT, objects, lambda: None)
    discovery.apply(share(1))
    objects.put(layout.change_file(TENANT, 1, 5), b"")
    junk = range(100, 100 + 5 * LOOKS_MAX)
    for number in junk:
        objects.put(layout.store_prefix(TENANT, number) + JUNK[number % len(JUNK)], b"")
    for _ in range(12):
        before = requests(objects)
        assert discovery.listed() == {1}
        assert requests(objects) - before <= 1 + LOOKS_MAX
    objects.put(layout.change_file(TENANT, junk[-1], 5), b"")
    objects.put(layout.change_file(TENANT, junk[0], 5), b"")
    rounds = [discovery.listed() for _ in range(5)]
    assert rounds[-1] == {1, junk[0], junk[-1]}, "each is looked at in its turn"
    for number in (junk[0], junk[-1]):
        objects.delete(layout.change_file(TENANT, number, 5))
        objects.delete(layout.store_prefix(TENANT, number) + JUNK[number % len(JUNK)])
    assert discovery.listed() == {1}


def test_a_store_is_looked_at_once() -> None:
    objects = MeasuredObjectStore(MemoryObjectStore())
    discovery = Discovery(TENANT, objects, lambda: None)
    discovery.apply(share())
    for number in range(50):
        objects.put(layout.change_file(TENANT, number, 5), b"")
    assert discovery.listed() == set(range(50))
    before = requests(objects)
    assert discovery.listed() == set(range(50))
    assert requests(objects) - before == 1


def test_a_link_that_leads_out_of_the_store_is_no_announced_file(tmp_path: Path) -> None:
    (tmp_path / "objects").mkdir()
    objects = DirectoryObjectStore(tmp_path / "objects")
    link = tmp_path / "objects" / layout.store_prefix(TENANT, 3)
    link.parent.mkdir(parents=True)
    (tmp_path / "outside").mkdir()
    link.symlink_to(tmp_path / "outside")
    discovery = Discovery(TENANT, objects, lambda: None)
    discovery.apply(share())
    assert discovery.file_exists(3, 5) is False
    assert discovery.problem is None
