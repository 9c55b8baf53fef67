"""The record of a stream, and streams that are cut and resumed."""

from __future__ import annotations

import random

import orjson
from hypothesis import given, settings
from hypothesis import strategies as st

from support.effort import examples
from support.lawful_events import SNAPSHOT_TS, Event, LawfulEvents
from tistream_verify.record import PullScope, StreamRecord, difference, line_hash
from tistream_verify.resumed import ResumedStream
from tistream_verify.validators import Validators
from tistream_verify.violation import Rule


def _stream(with_truth: bool = False) -> tuple[ResumedStream, Validators, StreamRecord]:
    validators, record = Validators(SNAPSHOT_TS, with_truth=with_truth), StreamRecord(SNAPSHOT_TS)
    return ResumedStream(validators, record), validators, record


def _from(events: list[Event], cursor: str | None) -> list[Event]:
    if cursor is None:
        return events
    return events[next(at for at, event in enumerate(events) if event.get("cursor") == cursor) + 1 :]


def _take(stream: ResumedStream, event: Event) -> None:
    stream.see(orjson.dumps(event))


@settings(max_examples=examples(40), deadline=None)
@given(seed=st.integers(0, 1_000))
def test_a_stream_that_is_cut_anywhere_is_one_stream(seed: int) -> None:
    rng, lawful = random.Random(seed), LawfulEvents(seed)
    stream, validators, record = _stream(with_truth=True)
    for line in lawful.lines:
        validators.truth(line)
    while validators.compared_ts < lawful.lines[-1].ts:
        stream.begin()
        answer = _from(lawful.events, stream.cursor)
        if rng.random() < 0.5:  # another answer may put its resolved elsewhere
            answer = [event for event in answer if event["type"] != "resolved"] + lawful.events[-1:]
        for event in answer[: rng.randint(1, 60)]:
            _take(stream, event)
        assert stream.answers < 5_000
    validators.require_clean()
    assert record.end == sum(event["type"] != "resolved" for event in lawful.events)


def test_what_a_resumed_answer_alters_or_leaves_out_is_found() -> None:
    lawful = LawfulEvents(1)
    first = next(at for at, event in enumerate(lawful.events) if event["type"] == "resolved")
    for spoil in ("alter", "leave out", "resolve too early"):
        stream, validators, _ = _stream()
        stream.begin()
        for event in lawful.events[: first + 4]:
            _take(stream, event)
        again = [dict(event) for event in lawful.events[first + 1 :]]
        if spoil == "alter":
            again[1]["start_ts"] = "1"
        elif spoil == "leave out":
            del again[0]
        else:
            again.insert(1, {"type": "resolved", "resolved_ts": str(int(again[2]["commit_ts"]) + 5), "cursor": "x"})
        stream.begin()
        for event in again:
            _take(stream, event)
        assert Rule.REREAD in validators.found.counts, spoil


def test_scopes_are_filters_by_the_names_of_the_time() -> None:
    lawful = LawfulEvents(4)
    record = StreamRecord(SNAPSHOT_TS)
    told = [event for event in lawful.events if event["type"] != "resolved"]
    for event in told:
        record.append(event, orjson.dumps(event))
    names = {event["table"] for event in told}
    low, high = int(told[10]["commit_ts"]), int(told[-10]["commit_ts"])
    for table in names:
        expected = [
            line_hash(orjson.dumps(event))
            for event in told
            if low < int(event["commit_ts"]) <= high
            and table in {event["table"], *(name["table"] for name in event.get("involved", []))}
        ]
        assert record.hashes(PullScope("SHOP", table.upper()), low, high) == expected
    assert record.hashes(PullScope("other"), low, high) == []
    assert len(record.hashes(PullScope(), 0, 2**62)) == len(told)


def test_the_oldest_events_are_let_go_and_positions_stay() -> None:
    lawful = LawfulEvents(4)
    record, whole = StreamRecord(SNAPSHOT_TS, events_max=100), StreamRecord(SNAPSHOT_TS)
    for event in lawful.events:
        if event["type"] != "resolved":
            record.append(event, orjson.dumps(event))
            whole.append(event, orjson.dumps(event))
    assert record.end == whole.end > 200
    assert record.end - record.first <= 100
    assert all(record.hash(at) == whole.hash(at) for at in range(record.first, record.end))
    assert not record.whole_since(SNAPSHOT_TS)
    ts = record.commit_ts(record.first)
    assert record.whole_since(ts)
    assert record.hashes(PullScope(), ts, 2**62) == whole.hashes(PullScope(), ts, 2**62)
    assert record.after(ts) == whole.after(ts)


def test_a_difference_is_told_by_its_place() -> None:
    assert difference([1, 2], [1, 2]) is None
    assert "event 1 of 2" in str(difference([1, 2], [1, 3]))
    assert "1 events were received, 2 expected" in str(difference([1, 2], [1]))
