"""TiKVs and PDs that lie, loop or forget: the agent stops loudly, waits longer, or goes on; it never loops hot."""

from __future__ import annotations

from dataclasses import replace

import pytest

from support import cdcpb
from support.agent_bench import BASE, INITIALIZED, LEFT, RIGHT, Bench, change, keys
from tistream.model.ts import from_physical_ms
from tistream_agent.core import scanner, steps
from tistream_agent.core.keys import Region
from tistream_agent.core.scanner import BrokenMessage, scan
from tistream_agent.core.territory import ToRegister, WaitsForRegion

HOUR_MS = 3_600_000


def resolved(region: int, request: int, ts: int) -> bytes:
    message = cdcpb.ChangeDataEvent()
    message.resolved_ts.regions.append(region)
    message.resolved_ts.ts, message.resolved_ts.request_id = ts, request
    return message.SerializeToString()


def stop_of(commands: list[steps.Command]) -> steps.Stop | None:
    return next((one for one in commands if isinstance(one, steps.Stop)), None)


# Attack: a store that sends good messages between those that cannot be read
def test_good_messages_between_do_not_hide_broken_ones() -> None:
    bench = Bench()
    for number in range(3):
        request = bench.register()[11]
        bench.receive(request, INITIALIZED, resolved=BASE + 10)
        commands = bench.step(steps.Received(request.stream, [b"\xff\xff"]))
        assert (stop_of(commands) is not None) is (number == 2)
        bench.run([LEFT, RIGHT], 4_000)


def test_broken_messages_long_apart_do_not_stop_the_territory() -> None:
    bench = Bench()
    for _ in range(5):
        request = bench.register()[11]
        assert stop_of(bench.step(steps.Received(request.stream, [b"\xff\xff"]))) is None
        bench.step(steps.Tick(), 600_000)
        bench.run([LEFT, RIGHT], 4_000)


# Attack: a message above the limit of gRPC, again after each registration
def test_a_message_that_is_too_large_stops_the_territory_at_the_third_time() -> None:
    bench = Bench()
    for number in range(3):
        request = bench.register()[11]
        commands = bench.step(steps.StreamEnded(request.stream, "RESOURCE_EXHAUSTED: 300 MiB", unreadable=True))
        stop = stop_of(commands)
        assert (stop is not None) is (number == 2)
        bench.run([LEFT, RIGHT], 4_000)
    assert stop is not None
    assert stop.code == "upstream"
    assert "300 MiB" in stop.reason


# Attack: a PD whose clock is slower than the agent's, so that each lock looks as if it were late
@pytest.mark.parametrize("between_ms", [0, 3_000])
def test_a_slow_clock_of_pd_holds_no_file_back_for_ever(between_ms: int) -> None:
    bench = Bench()
    request = bench.register()[11]
    bench.receive(request, INITIALIZED, resolved=bench.tso)
    for number in range(20):  # PD gives a handful of timestamps while a second passes here
        bench.receive(request, resolved=bench.tso + 1)
        start_ts, commit_ts, bench.tso = bench.tso + 2, bench.tso + 3, bench.tso + 4
        lock = {"type": 1, "op_type": 1, "key": b"a%d" % number, "value": b"v", "start_ts": start_ts}
        bench.receive(request, lock)
        bench.run([LEFT, RIGHT], between_ms)
        bench.receive(request, {**lock, "type": 2, "commit_ts": commit_ts})
        bench.run([LEFT, RIGHT], 1_000)
    bench.run([LEFT, RIGHT], 3_000)
    bench.receive(request, resolved=(told := bench.tso + 1))
    bench.run([LEFT, RIGHT], 3_000)
    assert max(bench.drafts[-1].watermarks.resolved_ts.tolist()) == told
    assert len(bench.of(steps.TakeTimestamps)) < 60, "PD is not asked all the time"


# Attack: a lock that is late indeed, and lives while PD is asked again and again
def test_a_late_lock_holds_the_files_back_however_often_pd_is_asked() -> None:
    bench = Bench()
    request = bench.register()[11]
    bench.receive(request, INITIALIZED, resolved=bench.tso)
    bench.tso += 100
    issued, start_ts = bench.tso, bench.tso - 10
    bench.receive(request, resolved=issued - 50)  # TiKV may have held up to `issued`
    bench.receive(request, {"type": 1, "op_type": 1, "key": b"a", "value": b"v", "start_ts": start_ts})
    for reported in (issued - 40, issued - 5, issued):
        bench.run([LEFT, RIGHT], 5_000)
        bench.receive(request, resolved=reported)
        bench.run([LEFT, RIGHT], 4_000)
        assert max(bench.drafts[-1].watermarks.resolved_ts.tolist()) == min(reported, start_ts)
    assert bench.tso > issued, "PD was asked"
    bench.receive(request, resolved=bench.tso)
    bench.run([LEFT, RIGHT], 4_000)
    assert max(bench.drafts[-1].watermarks.resolved_ts.tolist()) == bench.tso


# Attack: a stream that ends after each first message
def test_a_stream_that_delivers_but_never_ends_a_scan_is_opened_ever_later() -> None:
    bench = Bench()
    waits = []
    for _ in range(6):
        request = bench.register()[11]
        bench.receive(request, change(b"a", BASE + 10))
        bench.step(steps.StreamEnded(request.stream, "UNAVAILABLE"))
        waits.append(bench.agent.planner.pace(1).not_before_ms - bench.now_ms)
        bench.run([LEFT, RIGHT], 4_000)
    assert waits == [100, 200, 400, 800, 1_600, 3_000]


# Attack: a resolved_ts, or a commit, that PD cannot have given
@pytest.mark.parametrize("what", ["resolved", "commit"])
def test_a_timestamp_of_the_far_future_ends_its_stream(what: str) -> None:
    bench = Bench()
    request = bench.register()[11]
    bench.receive(request, INITIALIZED)
    far = bench.tso + from_physical_ms(2 * HOUR_MS)
    if what == "resolved":
        commands = bench.receive(request, resolved=far)
    else:
        commands = bench.receive(request, change(b"a", far))
    assert any(isinstance(one, steps.CloseStream) for one in commands)
    bench.run([LEFT, RIGHT], 4_000)
    assert bench.agent.lowest().ts < far
    assert [key for draft in bench.drafts for key in keys(draft)] == []
    assert bench.register()[11].checkpoint_ts == BASE


def test_a_timestamp_is_taken_when_the_time_has_come() -> None:
    bench = Bench()
    request = bench.register()[11]
    bench.receive(request, INITIALIZED)
    far = bench.tso + from_physical_ms(2 * HOUR_MS)
    bench.step(steps.Tick(), 2 * HOUR_MS)
    assert not any(isinstance(one, steps.CloseStream) for one in bench.receive(request, resolved=far))


# Attack: PD's timestamps go back, as after a restore of the cluster
def test_timestamps_that_go_back_stop_the_territory() -> None:
    bench = Bench()
    request = bench.register()[11]
    bench.receive(request, error="region_not_found")
    bench.tso -= 500
    bench.run([LEFT, RIGHT], 500)
    stop = bench.of(steps.Stop)[0]
    assert stop.code == "upstream"
    assert "restored" in stop.reason


# Attack: PD becomes another cluster's while the agent runs
def test_another_cluster_behind_pd_stops_the_territory() -> None:
    bench = Bench()
    bench.register()
    stop = stop_of(bench.step(steps.ClusterChanged("PD answers as cluster 5, and this agent is of 7")))
    assert stop is not None
    assert stop.code == "cluster_id_mismatch"


# Attack: a PD that answers with an epoch of long ago, for a minute
def test_an_epoch_that_pd_does_not_know_yet_is_asked_for_ever_later() -> None:
    bench = Bench()
    answered: set[int] = set()
    scans = 0
    for _ in range(60_000 // 50):
        bench.step(steps.Tick(), 50)
        for command in bench.sent:
            scans += isinstance(command, steps.ScanRegions)
            if isinstance(command, steps.Register) and command.request_id not in answered:
                answered.add(command.request_id)
                bench.receive(command, error="epoch_not_match")
        todo, bench.sent = bench.sent, [one for one in bench.sent if isinstance(one, steps.Register)]
        for command in todo:
            bench.answer(command, [LEFT, RIGHT])
    assert 20 <= len(answered) <= 100
    assert scans <= 100


# Attack: two stores that name each other as the leader, while PD knows the third
def test_stores_that_name_each_other_as_leader_do_not_hide_pds_answer() -> None:
    bench = Bench()
    leader = LEFT
    for _ in range(6):
        request = bench.register([leader, RIGHT])[11]
        store = bench.agent.planner.streams[request.stream]
        if store == 3:
            break
        message = cdcpb.ChangeDataEvent()
        event = message.events.add(region_id=11, request_id=request.request_id)
        event.error.not_leader.leader.store_id = 2 if store == 1 else 1
        bench.step(steps.Received(request.stream, [message.SerializeToString()]))
        leader = replace(LEFT, leader_store=3)
        bench.step(steps.Tick(), 2_000)
    assert store == 3


# Attack: an error that only a bug of the agent's own can cause
def test_a_duplicate_request_is_ended_at_the_store_too() -> None:
    bench = Bench()
    request = bench.register()[11]
    commands = bench.receive(request, error="duplicate_request")
    assert steps.Deregister(request.stream, request.request_id, 11) in commands
    assert bench.register()[11].request_id > request.request_id


# Attack: an event of a request that was never made, of one on another stream, and of numbers beyond 63 bits
@pytest.mark.parametrize("request_id", [0, 999_999, (1 << 63) - 1, 1 << 63, (1 << 64) - 1])
def test_events_of_a_request_that_was_never_made_are_ignored(request_id: int) -> None:
    bench = Bench()
    request = bench.register()[11]
    message = cdcpb.ChangeDataEvent()
    event = message.events.add(region_id=11, request_id=request_id)
    event.entries.entries.add(**change(b"a", BASE + 10))
    said = [message.SerializeToString(), resolved(11, request_id, BASE + 90)]
    assert bench.step(steps.Received(request.stream, said)) == []
    other = bench.register()[12]
    bench.step(steps.Received(other.stream, [resolved(11, request.request_id, BASE + 90)]))
    bench.receive(request, INITIALIZED)
    bench.run([], 4_000)
    assert [key for draft in bench.drafts for key in keys(draft)] == []
    assert bench.agent.subscriptions.counts.late_events == 3
    assert bench.agent.subscriptions.resolved_ts(request.request_id) == BASE


# Attack: an error of a kind that no TiKV has yet, an empty one, and a leader whose id has 64 bits
@pytest.mark.parametrize("error", [b"", b"\x4a\x00", b"\x0a\x0d\x12\x0b\x10\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"])
def test_an_unknown_error_asks_pd_again(error: bytes) -> None:
    bench = Bench()
    request = bench.register()[11]
    body = bytes([8, 11, 0x38, request.request_id, 0x2A, len(error)]) + error
    message = b"\x0a" + bytes([len(body)]) + body
    bench.step(steps.Received(request.stream, [message]))
    assert isinstance(bench.agent.territory.at(b"").state, WaitsForRegion | ToRegister)
    assert bench.register()[11].request_id > request.request_id


# Attack: numbers of PD's that the files cannot hold
@pytest.mark.parametrize(
    "broken", [{"region_id": 1 << 63}, {"leader_store": 1 << 63}, {"version": 1 << 64}, {"region_id": 0}]
)
def test_a_region_with_impossible_numbers_is_a_hole(broken: dict[str, int]) -> None:
    bench = Bench()
    assert set(bench.register([replace(LEFT, **broken), RIGHT])) == {12}
    assert set(bench.register()) == {11, 12}


# Attack: a message of a few MiB that names millions of empty rows or regions
@pytest.mark.parametrize("kind", ["rows", "regions"])
def test_a_message_of_millions_of_empty_things_is_refused(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scanner, "TABLES_BYTES_MAX", 8 << 20)
    if kind == "rows":
        rows = b"\x0a\x00" * 100_000
        entries = cdcpb.ChangeDataEvent()
        entries.events.add(region_id=1, request_id=1).entries.MergeFromString(rows)
        message = entries.SerializeToString()
    else:
        many = cdcpb.ChangeDataEvent()
        many.resolved_ts.regions.extend([1] * 200_000)
        message = many.SerializeToString()
    with pytest.raises(BrokenMessage, match="too many at once"):
        scan([b"", message])


def test_many_small_messages_are_counted_with_the_memory_that_they_take() -> None:  # A11
    bench = Bench()
    request = bench.register()[11]
    bench.receive(request, INITIALIZED)
    before = bench.agent.buffer_bytes
    for number in range(10):
        bench.receive(request, change(b"a", BASE + 10 + number))
    assert bench.agent.buffer_bytes - before > 10 * (10 << 10)
    for number in range(10, 64 * 5):
        bench.receive(request, change(b"a", BASE + 10 + number))
    assert bench.agent.buffer_bytes - before < 64 * (14 << 10)
    bench.run([], 2_000)
    assert bench.agent.buffer_bytes == 0
    assert [row for draft in bench.drafts for row in keys(draft)] == [b"a"] * 320


# Attack: PD is away for an hour while files go on
def test_one_call_moves_the_hold_at_a_time() -> None:  # A10
    bench = Bench()
    requests = bench.register()
    for request in requests.values():
        bench.receive(request, INITIALIZED)
    moves = len(bench.of(steps.MoveHold))
    for number in range(30):
        bench.step(steps.Tick(), 5_000)
        if len(bench.drafts) > number:
            bench.step(steps.FileDurable(bench.drafts[-1].ts))
        for request in requests.values():
            bench.receive(request, resolved=BASE + 100 + number)
    held = bench.of(steps.MoveHold)[moves:]
    assert len(held) == 1
    commands = bench.step(steps.HoldSet(held[0].ts))
    assert [one.ts for one in commands if isinstance(one, steps.MoveHold)] == [bench.agent.hold_ts]
    assert bench.agent.hold_ts > held[0].ts


def test_a_region_of_another_request_ends_the_stream() -> None:
    bench = Bench()
    request = bench.register()[11]
    commands = bench.step(steps.Received(request.stream, [resolved(99, request.request_id, BASE + 5)]))
    assert any(isinstance(one, steps.CloseStream) for one in commands)


def test_a_bound_that_is_no_encoded_key_splits_at_the_next_key() -> None:
    bench = Bench()
    odd = b"k\x00\x00"
    left, right = Region(11, b"", odd, 1, 4, 1), Region(12, odd, b"", 1, 4, 2)
    requests = bench.register([left, right])
    assert requests[11].encoded_end == requests[12].encoded_start


# Attack: two agents begin a tenant's chain at once, and neither finds a file
def test_agents_that_find_no_file_put_the_same_name() -> None:  # R1
    first, second = Bench(), Bench()
    second.tso += 5_000
    (one,) = first.step(steps.Tick())
    (other,) = second.step(steps.Tick())
    assert one.draft.key == other.draft.key
    stop = stop_of(second.step(steps.ForeignFile(other.draft.ts, one.draft.nonce)))
    assert stop is not None
    assert stop.code == "fenced"
