"""Rows of a tenant with a key of its own are served from memory for a stated time only: the key may be revoked."""

from __future__ import annotations

import pyarrow as pa
import pytest

from tistream.clock import ManualClock
from tistream.errors import KeyUnusable
from tistream.format.segment import SCHEMA
from tistream.model.ids import TenantKey
from tistream.pool.writer import write_segment
from tistream.storage import layout
from tistream.storage.memory import MemoryObjectStore
from tistream.storage.tenant_keys import TenantKeys
from tistream_api.group_cache import GroupCache, Keeping
from tistream_api.plan import GroupRef

KEYED, PLAIN = TenantKey("7", "keyed"), TenantKey("7", "plain")
KEEP_MS = 30_000


class Locked(MemoryObjectStore):
    """Counts reads; refuses them once the key is gone."""

    locked = False
    reads = 0

    def get_range(self, key: str, start: int, length: int) -> bytes:
        self.reads += 1
        if self.locked:
            raise KeyUnusable("denied")
        return super().get_range(key, start, length)


def group_of(objects: Locked, tenant: TenantKey) -> GroupRef:
    """A row group of one row."""
    cells = {"table_id": 5, "commit_ts": 20, "start_ts": 10, "key": b"k"}
    row = {field.name: cells.get(field.name, b"v" if pa.types.is_binary(field.type) else 0) for field in SCHEMA}
    body, segment = write_segment(pa.Table.from_pylist([row], schema=SCHEMA), layout.segment(tenant, 1, 1, "ab", 1))
    objects.put(segment.key, body)
    return GroupRef(segment, 0)


def cache_of(objects: Locked, clock: ManualClock) -> GroupCache:
    keys = TenantKeys()
    keys.tell({KEYED: "k", PLAIN: None})
    return GroupCache(objects, 64 << 20, Keeping(keys, KEEP_MS, clock))


@pytest.mark.parametrize("index", [True, False])
def test_a_revoked_tenants_rows_are_not_served_after_that_time(index: bool) -> None:
    objects, clock = Locked(), ManualClock()
    cache, group = cache_of(objects, clock), group_of(objects, KEYED)
    ask = cache.index if index else cache.rows
    first = ask(group)
    objects.locked = True
    clock.advance(KEEP_MS - 1)
    assert str(ask(group)) == str(first)
    clock.advance(1)
    with pytest.raises(KeyUnusable):
        ask(group)
    objects.locked = False
    assert str(ask(group)) == str(first)


def test_rows_that_are_asked_for_again_and_again_do_not_stay_longer() -> None:
    objects, clock = Locked(), ManualClock()
    cache, group = cache_of(objects, clock), group_of(objects, KEYED)
    cache.rows(group)
    objects.locked = True
    for _ in range(29):
        clock.advance(1_000)
        cache.rows(group)
    clock.advance(1_000)
    with pytest.raises(KeyUnusable):
        cache.rows(group)


def test_rows_of_a_tenant_without_a_key_stay() -> None:
    objects, clock = Locked(), ManualClock()
    cache, group = cache_of(objects, clock), group_of(objects, PLAIN)
    cache.rows(group)
    reads = objects.reads
    clock.advance(10 * KEEP_MS)
    cache.rows(group)
    assert objects.reads == reads
