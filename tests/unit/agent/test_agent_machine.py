"""The agent's state machine, step by step: each test attacks a rule of its design (A1 to A12)."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace
from itertools import pairwise

import pytest

from support import cdcpb
from support.agent_bench import BASE, CONFIG, INITIALIZED, LEFT, RIGHT, Bench, change, keys
from support.agent_judge import counted
from tistream.errors import InvalidRequest
from tistream.model.ids import TenantKey
from tistream.model.span import KeySpan
from tistream.storage.backends.memory import MemoryObjectStore
from tistream_agent.core import chain, steps
from tistream_agent.core.keys import TIDB_GAP, TIDB_SCOPE, KeyMap, Region, encoded_bound, raw_scope
from tistream_agent.core.territory import WaitsForRegion
from tistream_agent.position import end_of_chain
from tistream_agent.upstream.keyspaces import check_span


def test_the_claim_and_the_hold_come_before_any_timestamp_and_registration() -> None:  # A10, R1
    bench = Bench()
    (put,) = bench.step(steps.Tick())
    assert isinstance(put, steps.PutFile)
    assert (put.draft.ts, put.draft.prev_ts, put.draft.changes) == (BASE + 1, 0, ())
    assert bench.step(steps.Tick(), 5_000) == []
    assert bench.step(steps.FileDurable(put.draft.ts)) == [steps.MoveHold(BASE - 1)]
    assert bench.step(steps.Tick(), 5_000) == []
    assert any(isinstance(one, steps.ScanRegions) for one in bench.step(steps.HoldSet(BASE - 1)))


def test_a_hold_that_is_refused_stops_the_territory() -> None:  # A4
    bench = Bench()
    bench.step(steps.Tick())
    bench.step(steps.FileDurable(BASE + 1))
    stop = bench.step(steps.HoldRefused(BASE - 1, BASE + 5))[-1]
    assert isinstance(stop, steps.Stop)
    assert stop.code == "gc"
    assert "backfill" in stop.reason


def test_a_foreign_nonce_ends_the_agent() -> None:  # A6
    bench = Bench()
    bench.receive(bench.register()[11], INITIALIZED)
    bench.auto_durable = False
    bench.run([], 4_000)
    ts = bench.drafts[-1].ts
    (stop,) = [one for one in bench.step(steps.ForeignFile(ts, "bb" * 8)) if isinstance(one, steps.Stop)]
    assert stop.code == "fenced"
    put = len(bench.drafts)
    assert bench.step(steps.Tick(), 60_000) == []
    assert len(bench.drafts) == put


def test_names_are_dense_and_one_file_is_under_way() -> None:  # A12
    bench = Bench()
    requests = bench.register()
    for request in requests.values():
        bench.receive(request, INITIALIZED)
    bench.run([], 8_000)
    assert [one.ts for one in bench.drafts] == list(range(BASE + 1, BASE + 1 + len(bench.drafts)))
    assert [one.prev_ts for one in bench.drafts] == [0, *(one.ts for one in bench.drafts[:-1])]
    bench.auto_durable = False
    before = len(bench.drafts)
    bench.run([], 20_000)
    assert len(bench.drafts) == before + 1


def test_a_log_id_is_above_its_predecessors() -> None:  # A2
    bench = Bench()
    first = bench.register()[11]
    bench.receive(first, INITIALIZED)
    bench.receive(first, error="region_not_found")
    before = bench.tso
    second = bench.register()[11]
    assert second.request_id > first.request_id
    bench.receive(second, INITIALIZED)
    bench.run([], 3_500)
    rows = [row for draft in bench.drafts for row in draft.watermarks if row.tikv_region_id == 11]
    assert rows[0].log_id < rows[-1].log_id
    assert rows[-1].log_id > before


def test_a_base_row_is_not_written_before_the_scan_ended() -> None:  # A3
    bench = Bench()
    requests = bench.register()
    bench.receive(requests[11], change(b"a", BASE + 10))
    bench.run([], 2_000)
    assert all(not draft.watermarks for draft in bench.drafts)
    assert keys(bench.drafts[-1]) == [b"a"]
    bench.receive(requests[11], change(b"b", BASE + 20), INITIALIZED, resolved=BASE + 50)
    bench.receive(requests[11], change(b"c", BASE + 90))
    bench.run([], 2_000)
    bench.run([], 4_000)
    rows = [row for draft in bench.drafts for row in draft.watermarks]
    indexes = [(row.base_ts, row.first_index, row.log_index) for row in rows[:3]]
    assert indexes == [(BASE, 1, 0), (None, 1, 1), (None, 2, 1)]
    assert {row.resolved_ts for row in rows} == {BASE + 50}


def test_late_events_of_an_ended_request_enter_no_file() -> None:  # A7
    bench = Bench()
    request = bench.register()[11]
    bench.receive(request, INITIALIZED)
    bench.receive(request, error="epoch_not_match")
    bench.receive(request, change(b"a", BASE + 10), resolved=BASE + 50)
    bench.run([], 2_000)
    assert [key for draft in bench.drafts for key in keys(draft)] == []
    assert bench.agent.subscriptions.counts.late_events == 2


def test_rows_outside_of_the_subscribed_span_are_dropped() -> None:  # A8
    bench = Bench()
    request = bench.register()[11]
    bench.receive(request, change(b"j", BASE + 10), change(b"k", BASE + 11), change(b"z", BASE + 12), INITIALIZED)
    bench.run([], 2_000)
    assert [key for draft in bench.drafts for key in keys(draft)] == [b"j"]
    assert bench.agent.subscriptions.counts.rows_outside == 2


@pytest.mark.parametrize("resolved", [1, BASE - 5, BASE + 20])
def test_a_resolved_ts_never_goes_back(resolved: int) -> None:  # A9
    bench = Bench()
    request = bench.register()[11]
    bench.receive(request, INITIALIZED)
    bench.receive(request, resolved=BASE + 40)
    bench.receive(request, resolved=resolved)
    bench.run([], 4_000)
    assert {row.resolved_ts for row in bench.drafts[-1].watermarks} == {BASE + 40}
    assert bench.agent.subscriptions.counts.clock_regressions == 1


def test_a_commit_at_or_below_resolved_ts_stops_the_territory() -> None:
    bench = Bench()
    request = bench.register()[11]
    bench.receive(request, INITIALIZED, resolved=0)
    bench.receive(request, resolved=BASE + 40)
    stop = bench.receive(request, change(b"a", BASE + 40))[-1]
    assert isinstance(stop, steps.Stop)
    assert stop.code == "upstream"


# Attack: the leader of before told a resolved_ts above the first RawKV write of the next leader (TiKV before 6.2)
@pytest.mark.parametrize("scans", [False, True])
def test_a_write_below_what_the_leader_before_told_stops_the_territory(scans: bool) -> None:
    bench = Bench()
    first = bench.register()[11]
    bench.receive(first, INITIALIZED)
    bench.receive(first, resolved=BASE + 40)
    bench.receive(first, error="region_not_found")
    second = bench.register()[11]
    assert second.request_id != first.request_id
    if not scans:
        bench.receive(second, INITIALIZED)
    stop = bench.receive(second, change(b"a", BASE + 40))[-1]
    assert isinstance(stop, steps.Stop)
    assert stop.code == "upstream"
    assert str(BASE + 40) in stop.reason


def test_raw_hold_ms_lowers_what_files_promise_so_that_the_next_leader_may_write_below() -> None:
    held_ms, ms = 3_000, 1 << 18
    config = replace(CONFIG, kv_api=steps.KV_RAW, raw_hold_ms=held_ms)
    bench = Bench(config=config)
    first = bench.register()[11]
    bench.receive(first, INITIALIZED, resolved=BASE + 1_000 * ms)
    bench.run([], 4_000)
    assert {row.resolved_ts for row in bench.drafts[-1].watermarks} == {BASE}, "a resolved ts below the snapshot"
    bench.receive(first, resolved=BASE + 5_000 * ms)
    bench.run([], 4_000)
    assert {row.resolved_ts for row in bench.drafts[-1].watermarks} == {BASE + 2_000 * ms}
    bench.receive(first, error="region_not_found")
    second = bench.register()[11]
    assert second.checkpoint_ts == BASE + 2_000 * ms
    bench.receive(second, change(b"a", BASE + 2_001 * ms), INITIALIZED)
    bench.run([], 2_000)
    assert [key for draft in bench.drafts for key in keys(draft)] == [b"a"]
    stop = bench.receive(second, change(b"b", BASE + 2_000 * ms))[-1]
    assert isinstance(stop, steps.Stop), "by more than it allows"


def test_raw_hold_ms_changes_nothing_for_tidb() -> None:
    bench = Bench(config=replace(CONFIG, raw_hold_ms=3_000))
    request = bench.register()[11]
    bench.receive(request, INITIALIZED)
    bench.receive(request, resolved=BASE + 40)
    bench.run([], 4_000)
    assert {row.resolved_ts for row in bench.drafts[-1].watermarks} == {BASE + 40}


def test_a_write_below_the_snapshot_is_none_that_a_leader_told() -> None:
    bench = Bench()
    request = bench.register()[11]
    bench.receive(request, INITIALIZED)
    bench.receive(request, change(b"a", BASE - 1))
    bench.receive(request, error="region_not_found")
    request = bench.register()[11]
    bench.receive(request, change(b"b", BASE), INITIALIZED)
    bench.run([], 2_000)
    assert [key for draft in bench.drafts for key in keys(draft)] == [b"a", b"b"]


def test_memory_is_bounded_whatever_arrives() -> None:  # A11
    bench = Bench()
    request = bench.register()[11]
    bench.auto_durable = False
    for number in range(60):
        if not bench.agent.reading:
            break
        bench.receive(request, change(b"a", BASE + 10 + number, b"x" * 2_000))
    assert not bench.agent.reading
    assert bench.agent.buffer_bytes < CONFIG.buffer_bytes + 20_000
    assert isinstance(bench.of(steps.StopReading)[0], steps.StopReading)
    bench.run([], 2_000)
    bench.step(steps.FileDurable(bench.drafts[-1].ts))
    bench.run([], 200)
    assert bench.agent.reading


def test_a_hole_in_pds_answer_waits() -> None:  # A1, R5
    bench = Bench()
    assert set(bench.register([LEFT])) == {11}
    waiting = [piece for piece in bench.agent.territory.pieces() if isinstance(piece.state, WaitsForRegion)]
    assert [piece.span.start for piece in waiting] == [b"k"]
    assert set(bench.register()) == {11, 12}


def test_a_damaged_message_ends_its_stream_and_the_third_stops_the_territory() -> None:
    bench = Bench()
    for number in range(3):
        request = bench.register()[11]
        commands = bench.step(steps.Received(request.stream, [b"\xff\xff"]))
        assert any(isinstance(one, steps.CloseStream) for one in commands)
        stops = [one.reason for one in commands if isinstance(one, steps.Stop)]
        assert ["restart the agent, which continues after its last file" in one for one in stops] == [True] * (
            number == 2
        )
        bench.run([LEFT, RIGHT], 4_000)
    again = Bench(_position(bench))
    assert {one.checkpoint_ts for one in again.register().values()} == {BASE}, "the way out that it names"


def _position(bench: Bench) -> chain.Position:
    """Where a process continues that starts when all files of this one are stored."""
    objects, draft = MemoryObjectStore(), bench.drafts[-1]
    objects.put(draft.key, draft.data())
    found = end_of_chain(objects, draft.tenant, draft.store_id, CONFIG.span).position
    assert found is not None
    assert found.next_ts == draft.ts + 1
    return found


def test_a_restart_during_a_scan_begins_from_the_base() -> None:  # A4, A5
    bench = Bench()
    requests = bench.register()
    bench.receive(requests[12], INITIALIZED)
    bench.receive(requests[12], resolved=BASE + 60)
    bench.run([], 4_000)
    position = _position(bench)
    assert [(one.span.start, one.ts) for one in position.promises] == [(b"", BASE), (b"k", BASE + 60)]
    again = Bench(position)
    assert {one.checkpoint_ts for one in again.register().values()} == {BASE, BASE + 60}
    assert counted([(draft.key, draft.data()) for draft in bench.drafts], BASE).watermark() == BASE


@pytest.mark.parametrize(
    ("error", "code"), [("compatibility", "compatibility"), ("cluster_id_mismatch", "cluster_id_mismatch")]
)
def test_what_no_retry_can_help_stops_the_territory(error: str, code: str) -> None:
    bench = Bench()
    stop = bench.receive(bench.register()[11], error=error)[-1]
    assert isinstance(stop, steps.Stop)
    assert stop.code == code


@pytest.mark.parametrize("error", ["server_is_busy", "congested"])
def test_a_busy_store_gets_fewer_registrations(error: str) -> None:
    bench = Bench()
    bench.receive(bench.register()[11], error=error)
    assert bench.agent.planner.pace(1).limit == 8
    assert bench.register()[11].region_id == 11
    assert len(bench.of(steps.Register)) == 3


@pytest.mark.parametrize(("stated_ms", "paused_ms"), [(20_000, 20_000), (1 << 60, 60_000)])
def test_a_busy_store_is_left_alone_for_as_long_as_it_asks_and_at_most_a_minute(stated_ms: int, paused_ms: int) -> None:
    bench = Bench()
    request = bench.register()[11]
    message = cdcpb.ChangeDataEvent()
    event = message.events.add(region_id=11, request_id=request.request_id)
    event.error.server_is_busy.backoff_ms = stated_ms
    bench.step(steps.Received(request.stream, [message.SerializeToString()]))
    bench.run([LEFT, RIGHT], paused_ms - 1_000)
    assert len(bench.of(steps.Register)) == 2
    bench.run([LEFT, RIGHT], 2_000)
    assert [one.region_id for one in bench.of(steps.Register)][2:] == [11]


def test_outstanding_registrations_of_a_store_are_limited() -> None:
    bounds = [b"", *(b"%03d" % number for number in range(1, 60)), b""]
    regions = [
        Region(n, encoded_bound(start), encoded_bound(end), 1, 1, 1)
        for n, (start, end) in enumerate(pairwise(bounds), 1)
    ]
    bench = Bench()
    assert len(bench.register(regions)) == 16
    bench.receive(bench.of(steps.Register)[0], INITIALIZED)
    assert len(bench.register(regions)) == 18


def test_a_keyspace_is_removed_from_keys_and_bounds() -> None:
    prefix = b"x\x00\x00\x07"
    config = steps.AgentConfig(TenantKey("7", "acme"), 5, "aa" * 8, keys=KeyMap(prefix))
    bench = Bench(chain.new_chain(config.span, BASE), config)
    requests = bench.register([Region(9, b"", b"", 1, 1, 1)])
    bench.receive(requests[9], change(prefix + b"tk", BASE + 5), INITIALIZED)
    bench.run([], 2_000)
    assert requests[9].encoded_start == encoded_bound(prefix)
    assert requests[9].encoded_end == encoded_bound(b"x\x00\x00\x08")
    assert keys(bench.drafts[-1]) == [b"tk"]
    assert [(row.span.start, row.span.end) for row in bench.drafts[-1].watermarks] == [(b"", b"")]


def places(bounds: list[bytes], prefix: bytes) -> list[Region]:
    """Regions that begin and end at these keys, numbered from 1, at store 1."""
    ends = [b"", *(encoded_bound(prefix + one) for one in bounds), b""]
    return [Region(number, start, end, 1, 1, 1) for number, (start, end) in enumerate(pairwise(ends), 1)]


@pytest.mark.parametrize("prefix", [b"", b"x\x00\x00\x07"])
def test_of_a_tidb_nothing_but_its_keys_is_registered_and_its_logs_stand_for_all_keys(prefix: bytes) -> None:
    tidb = KeyMap(prefix, TIDB_SCOPE, TIDB_GAP)
    config = steps.AgentConfig(TenantKey("7", "acme"), 5, "aa" * 8, keys=tidb)
    bench = Bench(chain.new_chain(config.span, BASE), config)
    regions = places([b"k", b"mD", b"n5", b"r", b"s", b"t5", b"u", b"v"], prefix)
    requests = bench.register(regions)
    wanted = {2: (b"m", b"mD"), 3: (b"mD", b"n"), 6: (b"t", b"t5"), 7: (b"t5", b"u")}
    assert {region: (one.encoded_start, one.encoded_end) for region, one in requests.items()} == {
        region: (encoded_bound(prefix + start), encoded_bound(prefix + end)) for region, (start, end) in wanted.items()
    }
    for number, request in enumerate(requests.values()):
        bench.receive(request, INITIALIZED, resolved=BASE + 50 + number)
    bench.run([], 4_000)
    shown = sorted((row.tikv_region_id, row.span.start, row.span.end) for row in bench.drafts[-1].watermarks)
    assert shown == [(2, b"", b"mD"), (3, b"mD", b"s"), (6, b"s", b"t5"), (7, b"t5", b"")]
    assert bench.drafts[-1].carried == ()
    bench.receive(requests[3], error="epoch_not_match")  # the region has been merged with those of the gap
    merged = replace(regions[2], encoded_end=regions[5].encoded_start, version=2)
    bench.run([*regions[:2], merged, *regions[5:]], 1_000)
    last = bench.of(steps.Register)[-1]
    assert (last.region_id, last.encoded_end) == (3, encoded_bound(prefix + b"n"))


def test_a_region_with_all_keys_of_a_tidb_has_one_subscription() -> None:
    config = steps.AgentConfig(TenantKey("7", "acme"), 5, "aa" * 8, keys=KeyMap(b"", TIDB_SCOPE, TIDB_GAP))
    bench = Bench(chain.new_chain(config.span, BASE), config)
    requests = bench.register(places([b"c", b"w"], b""))
    assert {region: (one.encoded_start, one.encoded_end) for region, one in requests.items()} == {
        2: (encoded_bound(b"m"), encoded_bound(b"u"))
    }
    assert len(bench.of(steps.Register)) == 1


@pytest.mark.parametrize(
    ("start", "end", "allowed"),
    [
        (b"", b"", True),
        (b"", b"n", True),
        (b"n", b"t5", True),
        (b"t5", b"", True),
        (b"p", b"", True),
        (b"", b"m", False),
        (b"c", b"t", False),
        (b"t", b"v", False),
        (b"u", b"", False),
    ],
)
def test_a_territory_begins_and_ends_at_keys_of_its_tenant(start: bytes, end: bytes, allowed: bool) -> None:
    with nullcontext() if allowed else pytest.raises(InvalidRequest, match="without a start"):
        check_span(KeyMap(b"x\0\0\7", TIDB_SCOPE, TIDB_GAP), KeySpan(start, end))


@pytest.mark.parametrize(
    ("keyspace", "start", "end"),
    [(5, b"r\0\0\x05", b"r\0\0\x06"), (None, b"r", b"s"), (0xFFFFFF, b"r\xff\xff\xff", b"s")],
)
def test_the_keys_of_rawkv_stay_whole_and_stand_for_all_keys(keyspace: int | None, start: bytes, end: bytes) -> None:
    config = steps.AgentConfig(
        TenantKey("7", "raw"), 5, "aa" * 8, kv_api=steps.KV_RAW, keys=KeyMap(scope=raw_scope(keyspace))
    )
    bench = Bench(chain.new_chain(config.span, BASE), config)
    inside = start.ljust(4, b"\0") + b"user"
    middle = encoded_bound(inside)
    requests = bench.register([Region(8, b"", middle, 1, 1, 1), Region(9, middle, b"", 1, 1, 1)])
    bench.receive(requests[8], INITIALIZED)
    bench.receive(requests[9], change(inside, BASE + 5), change(b"s\0\0\0x", BASE + 6), INITIALIZED)
    bench.run([], 2_000)
    assert (requests[8].encoded_start, requests[8].encoded_end) == (encoded_bound(start), middle)
    assert (requests[9].encoded_start, requests[9].encoded_end) == (middle, encoded_bound(end))
    assert {one.kv_api for one in requests.values()} == {steps.KV_RAW}
    assert keys(bench.drafts[-1]) == [inside]
    spans = sorted((row.span.start, row.span.end) for row in bench.drafts[-1].watermarks)
    assert spans == [(b"", inside), (inside, b"")]
    assert bench.drafts[-1].carried == ()
    assert bench.drafts[0].carried == (chain.Promise(KeySpan(b"", b""), BASE),)


def test_streams_are_closed_while_object_storage_takes_no_file() -> None:
    bench = Bench()
    requests = bench.register()
    for request in requests.values():
        bench.receive(request, INITIALIZED)
    bench.receive(requests[11], change(b"a", BASE + 10))
    bench.auto_durable = False
    bench.run([LEFT, RIGHT], 4_000)
    assert bench.of(steps.CloseStream) == []
    before = len(bench.of(steps.Register))
    bench.run([LEFT, RIGHT], 70_000)
    assert {one.stream for one in bench.of(steps.CloseStream)} == {one.stream for one in requests.values()}
    assert len(bench.of(steps.Register)) == before
    bench.auto_durable = True
    bench.step(steps.FileDurable(bench.drafts[-1].ts))
    bench.run([LEFT, RIGHT], 4_000)
    assert len(bench.of(steps.Register)) == before + 2


def test_a_batch_that_is_refused_changes_nothing() -> None:
    bench = Bench()
    request = bench.register()[11]
    bench.receive(request, INITIALIZED)
    message = cdcpb.ChangeDataEvent()
    for key in (b"a", b"b"):
        event = message.events.add(region_id=11, request_id=request.request_id)
        event.entries.entries.add(**change(key, BASE + 10))
    event.entries.entries[0].op_type = 0
    resolved = cdcpb.ChangeDataEvent()
    resolved.resolved_ts.regions.append(11)
    resolved.resolved_ts.ts, resolved.resolved_ts.request_id = BASE + 5, request.request_id
    bench.step(steps.Received(request.stream, [resolved.SerializeToString(), message.SerializeToString()]))
    bench.run([LEFT, RIGHT], 2_000)
    assert [key for draft in bench.drafts for key in keys(draft)] == []
    assert bench.register()[11].checkpoint_ts == BASE
