from __future__ import annotations

import pytest

from tistream.errors import CommitConflict, NotFoundYet
from tistream.model.ids import TenantKey
from tistream.storage import layout
from tistream.storage.backends.memory import MemoryObjectStore
from tistream.storage.measured import MeasuredObjectStore, Traffic
from tistream.storage.multipart import MULTIPART_BYTES


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


def test_counts_a_large_put_as_the_requests_that_s3_takes_for_it() -> None:
    store = MeasuredObjectStore(MemoryObjectStore())
    store.put("small", bytes(MULTIPART_BYTES - 1))
    assert store.traffic()["put"].requests == 1
    store.put("large", bytes(MULTIPART_BYTES + 1))  # begin, 4 parts and one of a byte, complete
    assert store.traffic()["put"] == Traffic(requests=1 + 7, written_bytes=2 * MULTIPART_BYTES)


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


def test_requests_are_counted_for_the_tenant_of_the_key() -> None:
    store = MeasuredObjectStore(MemoryObjectStore())
    acme, other = TenantKey("7", "acme"), TenantKey("7", "other")
    store.put(layout.change_file(acme, 1, 5), b"x")
    store.put_new(layout.manifest(acme, 1, 1), b"x")
    store.get(layout.manifest(acme, 1, 1))
    assert len(list(store.list_after(layout.push_prefix(acme)))) == 1
    store.put(layout.schema_log(other, 1), b"x")
    with pytest.raises(NotFoundYet):
        store.head(layout.schema_log(other, 2))
    store.put("tistream-conditional-put", b"x")
    list(store.list_after("data_change_buffer/"))
    store.delete("data_change_buffer/cluster-7/Tenant-/x")
    store.add_all({"get": Traffic(requests=4, failures=1)}, other)
    assert store.requests_of_tenants() == {
        acme: {"put": 1, "put_new": 1, "get": 1, "list": 1},
        other: {"put": 1, "head": 1, "get": 4},
    }
    assert store.traffic()["list"].requests == 2
