from __future__ import annotations

import pytest

from support.contracts.object_store import ObjectStoreContract
from tistream.errors import CommitConflict, NotFoundYet
from tistream.storage.measured import MeasuredObjectStore, Traffic
from tistream.storage.memory import MemoryObjectStore
from tistream.storage.object_store import ObjectStore


class TestMeasuredObjectStore(ObjectStoreContract):
    @pytest.fixture
    def objects(self) -> ObjectStore:
        return MeasuredObjectStore(MemoryObjectStore())


def test_counts_requests_failures_and_bytes() -> None:
    store = MeasuredObjectStore(MemoryObjectStore())
    store.put_new("k", b"12345")
    with pytest.raises(CommitConflict):
        store.put_new("k", b"12345")
    store.get("k")
    store.get_range("k", 1, 2)
    store.get_tail("k", 3)
    with pytest.raises(NotFoundYet):
        store.get("missing")
    traffic = store.traffic()
    assert traffic["put_new"] == Traffic(requests=2, failures=1, written_bytes=5)
    assert traffic["get"] == Traffic(requests=4, failures=1, read_bytes=10)
    assert traffic["delete"] == Traffic()


def test_counts_a_listing_by_pages_even_if_it_is_left_early() -> None:
    store = MeasuredObjectStore(MemoryObjectStore())
    for number in range(1500):
        store.put(f"k/{number:04d}", b"")
    assert len(list(store.list_after("k/"))) == 1500
    assert store.traffic()["list"] == Traffic(requests=2)
    left = store.list_after("k/")
    next(left)
    left.close()  # type: ignore[attr-defined]
    assert store.traffic()["list"] == Traffic(requests=3)
