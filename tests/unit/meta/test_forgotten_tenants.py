"""A meta database that was restored has forgotten a tenant whose schema_snap the registry has taken into its log."""

from __future__ import annotations

from support import golden
from tistream.clock import ManualClock
from tistream.format import floor
from tistream.model.ids import TenantKey
from tistream.schema import log_format
from tistream.schema.log_format import BaseHead, LogObject
from tistream.schema.tidb.snapshot import parse_snapshot
from tistream.storage import layout
from tistream.storage.backends.memory import MemoryObjectStore
from tistream_meta.tenants.snapshot import SnapshotFacts, parse
from tistream_meta.tenants.tenant_start import TenantStarts

SET = golden.load("everything")


def looked(objects: MemoryObjectStore) -> tuple[dict[TenantKey, SnapshotFacts], dict[TenantKey, str]]:
    found: dict[TenantKey, SnapshotFacts] = {}
    missing: dict[TenantKey, str] = {}
    TenantStarts(objects, ManualClock(1_000), 2_000).look([SET.tenant], found.__setitem__, missing.__setitem__)
    return found, missing


def log_object(number: int, base: BaseHead | None = None) -> LogObject:
    snapshot = parse_snapshot(SET.schema_snap.key, iter([SET.schema_snap.data]))
    low_ts, high_ts = snapshot.snapshot_ts - 1, snapshot.snapshot_ts
    return LogObject(SET.tenant, number, low_ts, high_ts, "n", snapshot.records, base)


def test_it_begins_where_it_began() -> None:
    objects = MemoryObjectStore()
    objects.put(layout.schema_log(SET.tenant, 1), log_format.encode(log_object(1)))
    found, missing = looked(objects)
    facts = parse(SET.schema_snap.key, SET.schema_snap.data)
    assert missing == {}
    assert found[SET.tenant].snapshot_ts == facts.snapshot_ts
    assert set(found[SET.tenant].physical_ids) <= set(facts.physical_ids)
    assert len(found[SET.tenant].physical_ids) > 40


def test_so_it_does_where_the_log_was_restated() -> None:
    objects = MemoryObjectStore()
    base = BaseHead(SET.snapshot_ts + 5, 3, 9, "n", SET.snapshot_ts)
    objects.put(layout.schema_log(SET.tenant, 7), log_format.encode(log_object(7, base)))
    objects.put(layout.schema_floor(SET.tenant), floor.encode(7))
    found, _ = looked(objects)
    assert found[SET.tenant].snapshot_ts == SET.snapshot_ts


def test_without_either_it_waits_and_a_damaged_log_is_named() -> None:
    objects = MemoryObjectStore()
    assert looked(objects) == ({}, {SET.tenant: f"schema_snap has not come: {SET.schema_snap.key}"})
    objects.put(layout.schema_log(SET.tenant, 1), log_format.encode(log_object(1))[:-1])
    _, missing = looked(objects)
    assert "fails its CRC-32" in missing[SET.tenant]
