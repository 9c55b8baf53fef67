"""A cache of row groups over a store that refuses reads once a tenant's key is gone."""

from __future__ import annotations

import pyarrow as pa

from tistream.clock import ManualClock
from tistream.errors import KeyUnusable
from tistream.format.segment import SCHEMA
from tistream.model.ids import TenantKey
from tistream.pool.writer import write_segment
from tistream.read.group_cache import CacheExpiry, GroupCache
from tistream.read.plan import GroupRef
from tistream.storage import layout
from tistream.storage.backends.memory import MemoryObjectStore
from tistream.storage.backends.tenant_keys import TenantKeys

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
    keys.update({KEYED: "k", PLAIN: None})
    return GroupCache(objects, 64 << 20, CacheExpiry(keys, KEEP_MS, clock))
