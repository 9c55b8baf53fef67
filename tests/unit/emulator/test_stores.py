"""What a store of the emulated cluster refuses and ends, what it tells, and PD's rules of garbage collection."""

from __future__ import annotations

from typing import Any

import pytest

from tistream.wire.tikv import cdcpb_pb2 as cdcpb
from tistream.wire.tikv import kvrpcpb_pb2 as kvrpcpb
from tistream_upstream.emulator.model.feed import Feed
from tistream_upstream.emulator.model.gc import GcState
from tistream_upstream.emulator.model.quiet import quiet_upstream
from tistream_upstream.emulator.model.quirks import Quirks
from tistream_upstream.emulator.model.region import encoded_bound
from tistream_upstream.emulator.model.timeline import COMMIT, DELETE, PREWRITE, PUT, Command, Row
from tistream_upstream.emulator.model.upstream import Upstream

CLUSTER = 77
KEY = b"r\0\0\0a"


def cluster(**options: Any) -> Upstream:
    return quiet_upstream(CLUSTER, 1_760_000_000_000, 2, [b"m"], **options)


def register(upstream: Upstream, feed: Feed, store: int = 2, **fields: Any) -> list[cdcpb.Event]:
    """The events that a registration of region 3 (keys from `m` on, led by store 2) is answered with at once."""
    request = cdcpb.ChangeDataRequest(
        header=cdcpb.Header(cluster_id=fields.pop("cluster_id", CLUSTER), ticdc_version=fields.pop("version", "8.5.4")),
        region_id=fields.pop("region_id", 3),
        request_id=fields.pop("request_id", 1),
        checkpoint_ts=upstream.tso(),
        **fields,
    )
    request.region_epoch.version = fields.get("epoch", 1)
    upstream.stores[store].request(feed, request, upstream.tso(), upstream.gc.safe_point)
    return [event for message in feed.take() for event in message.events]


@pytest.mark.parametrize(
    ("kind", "fields"),
    [
        ("cluster_id_mismatch", {"cluster_id": 5}),
        ("compatibility", {"kv_api": cdcpb.ChangeDataRequest.TxnKV}),
        ("region_not_found", {"region_id": 99}),
        ("not_leader", {"store": 1}),
    ],
)
def test_a_registration_is_refused_with_the_kind_of_its_error(kind: str, fields: dict[str, Any]) -> None:
    upstream = cluster()
    (event,) = register(upstream, upstream.stores[fields.get("store", 2)].open(True), **fields)
    assert [field.name for field, _ in event.error.ListFields()] == [kind]
    assert upstream.counters.errors == {kind: 1}
    if kind == "not_leader":
        assert event.error.not_leader.leader.store_id == 2


def test_an_old_epoch_is_answered_with_the_regions_as_they_are() -> None:
    upstream = cluster()
    feed = upstream.stores[2].open(True)
    request = cdcpb.ChangeDataRequest(header=cdcpb.Header(cluster_id=CLUSTER, ticdc_version="8.5.4"), region_id=3)
    upstream.stores[2].request(feed, request, upstream.tso(), 0)
    (message,) = feed.take()
    assert message.events[0].error.epoch_not_match.current_regions[0].region_epoch.version == 1


def test_a_second_registration_of_a_request_id_is_a_duplicate_and_another_id_is_not() -> None:
    upstream = cluster()
    feed = upstream.stores[2].open(True)
    assert register(upstream, feed) == []
    assert register(upstream, feed)[0].error.HasField("duplicate_request")
    assert register(upstream, feed, request_id=2) == []


def test_a_busy_store_refuses() -> None:
    upstream = cluster(busy_rate=1.0)
    assert register(upstream, upstream.stores[2].open(True))[0].error.HasField("server_is_busy")


def test_a_deregistration_of_region_0_ends_all_of_its_request_id() -> None:
    upstream = cluster()
    feed = upstream.stores[2].open(True)
    register(upstream, feed)
    end = cdcpb.ChangeDataRequest(request_id=1, deregister=cdcpb.ChangeDataRequest.Deregister())
    upstream.stores[2].request(feed, end, upstream.tso(), 0)
    (message,) = feed.take()
    assert message.events[0].error.region_not_found.region_id == 3
    assert not feed.subscriptions


@pytest.mark.parametrize(
    ("version", "multiplexing", "batched", "single"),
    [("8.5.4", True, 1, 0), ("v8.5.4", True, 0, 0), ("8.5.4", False, 1, 0), ("4.0.0", False, 0, 1)],
)
def test_resolved_timestamps_come_as_the_first_request_asks(
    version: str, multiplexing: bool, batched: int, single: int
) -> None:
    upstream = cluster()
    feed = upstream.stores[2].open(multiplexing)
    register(upstream, feed, version=version)
    upstream.step()
    assert [m.events[0].entries.entries[-1].type for m in feed.take()] == [cdcpb.Event.INITIALIZED]
    upstream.advance(1_000_000)
    messages = list(feed.take())
    assert sum(message.HasField("resolved_ts") for message in messages) == batched
    assert sum(event.resolved_ts > 0 for message in messages for event in message.events) == single
    if batched:
        assert messages[0].resolved_ts.request_id == (1 if multiplexing else 0)


def test_a_lock_holds_the_resolved_ts_and_a_repeated_long_value_is_told_by_old_stores_only() -> None:
    for version, rows in (("8.5.4", 0), ("6.5.0", 1)):
        upstream = cluster(version=version)
        feed = upstream.stores[2].open(True)
        register(upstream, feed)
        upstream.step()
        list(feed.take())
        start_ts = upstream.tso()
        lock = Row(PREWRITE, PUT, b"t1", b"x" * 300, start_ts=start_ts)
        upstream.apply(Command(0, 3, 9, [lock]))
        assert next(feed.take()).events[0].entries.entries[0].value == b"x" * 300
        upstream.apply(Command(0, 3, 10, [lock]))
        again = [row for message in feed.take() for event in message.events for row in event.entries.entries]
        assert [row.value for row in again] == [b""] * rows
        upstream.advance(1_000_000)
        assert next(feed.take()).resolved_ts.ts == start_ts
        upstream.apply(Command(0, 3, 11, [Row(COMMIT, PUT, b"t1", start_ts=start_ts, commit_ts=upstream.tso())]))
        upstream.advance(2_000_000)
        assert list(feed.take())[-1].resolved_ts.ts > start_ts


def test_a_client_that_does_not_read_is_congested() -> None:
    upstream = cluster(quota=1_000)
    feed = upstream.stores[2].open(True)
    register(upstream, feed)
    upstream.step()
    upstream.apply(Command(0, 3, 9, [Row(PREWRITE, PUT, b"t1", b"x" * 2_000, start_ts=upstream.tso())]))
    upstream.step()
    assert [event for message in feed.take() for event in message.events][-1].error.HasField("congested")


def test_a_scan_below_the_safe_point_has_holes_and_is_counted() -> None:
    upstream = cluster()
    checkpoint = upstream.tso()
    for op in (PUT, DELETE):
        upstream.apply(upstream.reads.command(3, 0, [Row(4, op, KEY, b"v")], upstream.tso))
    upstream.collect(upstream.tso())
    assert list(upstream.mvcc.changes(b"r", b"s", checkpoint)) == []
    request = cdcpb.ChangeDataRequest(
        header=cdcpb.Header(cluster_id=CLUSTER, ticdc_version="8.5.4"), region_id=3, checkpoint_ts=checkpoint
    )
    request.region_epoch.version = 1
    upstream.stores[2].request(upstream.stores[2].open(True), request, upstream.tso(), upstream.gc.safe_point)
    assert upstream.counters.scans_below_safe_point == 1


def test_gc_holds() -> None:
    gc = GcState()
    assert gc.update_service("agent", 60, 500, now_ms=0) == 500
    assert gc.run(900, now_ms=59_999) == 500
    assert gc.update_service("agent", 60, 499, now_ms=59_999) > 499  # refused: below the safe point
    assert not gc.set_barrier("other", 499, 60, now_ms=0)
    assert gc.set_barrier("other", 700, 60, now_ms=60_000)
    assert gc.run(900, now_ms=60_000) == 700  # the agent's hold has ended
    gc.update_service("other", 0, 0, now_ms=60_000)
    assert gc.run(900, now_ms=60_000) == 900


def test_raw_pairs_expire_and_are_deleted() -> None:
    upstream = cluster()
    context = kvrpcpb.Context(region_id=3)
    context.region_epoch.version = 1
    put = kvrpcpb.RawBatchPutRequest(
        pairs=[kvrpcpb.KvPair(key=KEY, value=b"1"), kvrpcpb.KvPair(key=KEY + b"b", value=b"2")], ttls=[5, 0]
    )
    now_s = upstream.now_ms // 1_000
    rows = upstream.reads.puts(put, now_s)
    assert upstream.reads.raw_problem(3, 2, rows) == ""
    assert "not a raw key" in upstream.reads.raw_problem(3, 2, [Row(4, PUT, b"t1")])
    assert "api-version" in upstream.reads.raw_problem(3, 1, rows)
    upstream.apply(upstream.reads.command(3, 0, rows, upstream.tso))
    scan = kvrpcpb.RawScanRequest(context=context, start_key=b"r", end_key=b"s", limit=10)

    def values(at_s: int) -> list[bytes]:
        return [pair.value for pair in upstream.reads.raw_scan(2, scan, upstream.tso(), at_s).kvs]

    assert values(now_s + 4) == [b"1", b"2"]
    assert values(now_s + 5) == [b"2"]
    assert upstream.reads.raw_ttl(KEY, upstream.tso(), now_s + 2) == 3
    deleted = upstream.reads.deletes(kvrpcpb.RawBatchDeleteRequest(keys=[KEY + b"b"]))
    upstream.apply(upstream.reads.command(3, 0, deleted, upstream.tso))
    assert values(now_s + 5) == []
    assert upstream.reads.raw_scan(1, scan, upstream.tso(), now_s).region_error.HasField("not_leader")


def test_versions_differ() -> None:
    assert not Quirks.of("6.5.0").multiplexing
    assert Quirks.of("v7.5.4").index
    assert not Quirks.of("7.5.5").index
    assert Quirks.of("8.1.0").index
    assert not Quirks.of("8.5.0").index
    assert not Quirks.of("8.1.0").clips


@pytest.mark.parametrize(("version", "rows", "index"), [("8.5.4", 0, 0), ("8.1.0", 1, 9)])
def test_an_old_store_sends_rows_outside_of_the_range_and_the_index(version: str, rows: int, index: int) -> None:
    upstream = cluster(version=version)
    feed = upstream.stores[2].open(True)
    register(upstream, feed, start_key=encoded_bound(b"t1"), end_key=encoded_bound(b"t2"))
    upstream.step()
    list(feed.take())
    upstream.apply(Command(0, 3, 9, [Row(PREWRITE, PUT, b"t3", b"v", start_ts=upstream.tso())]))
    found = [event for message in feed.take() for event in message.events]
    assert [event.index for event in found] == [index] * rows
