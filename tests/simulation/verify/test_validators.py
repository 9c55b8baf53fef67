"""The validators: silent on every lawful stream, and each breach that a consumer could meet is named by its rule."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.effort import examples
from support.lawful_events import SNAPSHOT_TS, Event, LawfulEvents, rows_of
from tistream_verify.fingerprint import TruthLine
from tistream_verify.validators import Validators
from tistream_verify.violation import Rule


def watched(
    events: Iterable[Event], lines: Iterable[TruthLine] = (), *, start_ts: int = SNAPSHOT_TS, **options: object
) -> Validators:
    """Everything fed, truth first."""
    validators = Validators(start_ts, **options)  # type: ignore[arg-type]
    for line in lines:
        validators.truth(line)
    for event in events:
        validators.see(event)
    return validators


@settings(max_examples=examples(30), deadline=None)
@given(seed=st.integers(0, 10_000), keys_max=st.sampled_from([10, 1_000_000]))
def test_a_lawful_stream_breaks_no_rule(seed: int, keys_max: int) -> None:
    lawful = LawfulEvents(seed)
    validators = watched(lawful.events, lawful.lines, keys_max=keys_max)
    validators.require_clean()
    assert validators.compared_ts == lawful.lines[-1].ts
    assert validators.compared_events == validators.rows


@settings(max_examples=examples(30), deadline=None)
@given(seed=st.integers(0, 10_000))
def test_truth_may_come_late_early_or_in_between(seed: int) -> None:
    lawful, rng = LawfulEvents(seed), random.Random(seed)
    validators, lines, events = Validators(SNAPSHOT_TS), list(lawful.lines), list(lawful.events)
    while lines or events:
        if lines and (not events or rng.random() < 0.1):
            validators.truth(lines.pop(0))
        elif events:
            validators.see(events.pop(0))
    validators.require_clean()
    assert validators.compared_ts == lawful.lines[-1].ts


@settings(max_examples=examples(30), deadline=None)
@given(seed=st.integers(0, 10_000), at=st.integers(0, 40))
def test_a_stream_may_be_joined_in_the_middle(seed: int, at: int) -> None:
    lawful = LawfulEvents(seed)
    start_ts = int([event for event in lawful.events if event["type"] == "resolved"][at % 20]["resolved_ts"])
    events = [event for event in lawful.events if int(event.get("commit_ts", event.get("resolved_ts"))) > start_ts]
    watched(events, lawful.lines, start_ts=start_ts, from_beginning=False).require_clean()


# --- breaches ------------------------------------------------------------------------------------------------------


def _a_row(events: list[Event], rng: random.Random, wanted: Callable[[Event], bool] = lambda _: True) -> int:
    return rng.choice([at for at in rows_of(events) if wanted(events[at])])


def lost(events: list[Event], rng: random.Random) -> None:
    del events[_a_row(events, rng)]


def lost_insert_then_nothing(events: list[Event], rng: random.Random) -> None:
    """The last event of its key: no later old_row can tell."""
    del events[max(rows_of(events))]


def twice_at_once(events: list[Event], rng: random.Random) -> None:
    at = _a_row(events, rng)
    events.insert(at + 1, dict(events[at]))


def twice_later(events: list[Event], rng: random.Random) -> None:
    at = _a_row(events, rng)
    later = next(n for n in range(at, len(events)) if events[n]["type"] == "resolved")
    events.insert(later + 1, dict(events[at]))


def swapped_commits(events: list[Event], rng: random.Random) -> None:
    pairs = [
        (a, b) for a, b in pairwise(rows_of(events)) if b == a + 1 and events[a]["commit_ts"] != events[b]["commit_ts"]
    ]
    a, b = rng.choice(pairs)
    events[a], events[b] = events[b], events[a]


def resolved_too_early(events: list[Event], rng: random.Random) -> None:
    """A resolved in the middle of a commit_ts."""
    pairs = [a for a, b in pairwise(rows_of(events)) if b == a + 1 and events[a]["commit_ts"] == events[b]["commit_ts"]]
    at = rng.choice(pairs)
    events.insert(at + 1, {"type": "resolved", "resolved_ts": events[at]["commit_ts"], "cursor": "x"})


def resolved_back(events: list[Event], rng: random.Random) -> None:
    at = rng.choice([n for n, event in enumerate(events) if event["type"] == "resolved"])
    low = str(int(events[at]["resolved_ts"]) - 1)
    events.insert(at + 1, {"type": "resolved", "resolved_ts": low, "cursor": "x"})


def resolved_with_two_cursors(events: list[Event], rng: random.Random) -> None:
    at = rng.choice([n for n, event in enumerate(events) if event["type"] == "resolved"])
    events.insert(at + 1, {**events[at], "cursor": "another"})


def altered_value(events: list[Event], rng: random.Random) -> None:
    at = _a_row(events, rng, lambda event: event["op"] == "put")
    events[at]["row"]["a"] = -1


def altered_old_row(events: list[Event], rng: random.Random) -> None:
    at = _a_row(events, rng, lambda event: event["old_row"] is not None)
    events[at]["old_row"] = {**events[at]["old_row"], "a": -1}


def old_row_left_out(events: list[Event], rng: random.Random) -> None:
    at = _a_row(events, rng, lambda event: event["op"] == "put" and event["old_row"] is not None)
    events[at]["old_row"] = None


def old_row_invented(events: list[Event], rng: random.Random) -> None:
    first: dict[tuple[str, str], int] = {}
    deleted = set()
    for at in rows_of(events):
        key = (events[at]["table_id"], events[at]["key"]["id"])
        if key in deleted and events[at]["old_row"] is None:
            first.setdefault(key, at)
        if events[at]["op"] == "delete":
            deleted.add(key)
    at = rng.choice(list(first.values()))
    events[at]["old_row"] = {**events[at]["row"], "a": -2}


def put_before_delete(events: list[Event], rng: random.Random) -> None:
    same = ("commit_ts", "start_ts", "table_id")
    pairs = [
        (a, b)
        for a, b in pairwise(rows_of(events))
        if b == a + 1
        and all(events[a][name] == events[b][name] for name in same)
        and (events[a]["op"], events[b]["op"]) == ("delete", "put")
    ]
    a, b = rng.choice(pairs)
    events[a], events[b] = events[b], events[a]


def start_ts_back(events: list[Event], rng: random.Random) -> None:
    same = ("commit_ts", "table_id")
    pairs = [
        b
        for a, b in pairwise(rows_of(events))
        if b == a + 1 and all(events[a][name] == events[b][name] for name in same)
    ]
    at = rng.choice(pairs)
    events[at]["start_ts"] = str(int(events[at]["start_ts"]) - 1)


def _ddl(events: list[Event], rng: random.Random) -> int:
    return rng.choice([at for at, event in enumerate(events) if event["type"] == "ddl"])


def lost_ddl(events: list[Event], rng: random.Random) -> None:
    del events[_ddl(events, rng)]


def row_after_the_ddl_of_its_ts(events: list[Event], rng: random.Random) -> None:
    at = _a_row(events, rng)
    ts = events[at]["commit_ts"]
    place = next(n for n, event in enumerate(events) if event.get("commit_ts") == ts)
    ddl = {"type": "ddl", "commit_ts": ts, "database": "shop", "table": "", "query": "q", "action": "create table"}
    events.insert(place, {**ddl, "schema_version": events[at]["schema_version"], "involved": []})


def version_back(events: list[Event], rng: random.Random) -> None:
    at = sorted(rows_of(events))[len(events) // 2]
    events[at]["schema_version"] = "1"


def wrong_name(events: list[Event], rng: random.Random) -> None:
    ddl = [n for n, event in enumerate(events) if event["type"] == "ddl"]
    last = max(ddl)
    at = next(n for n in rows_of(events) if n > last + 12)
    events[at]["table"] = "another"


def key_that_is_not_the_rows(events: list[Event], rng: random.Random) -> None:
    events[_a_row(events, rng)]["key"] = {"id": "77"}


def member_missing(events: list[Event], rng: random.Random) -> None:
    del events[_a_row(events, rng)]["old_row"]


def event_of_a_dropped_table(events: list[Event], rng: random.Random) -> None:
    drops = [at for at, event in enumerate(events) if event["type"] == "ddl" and event["action"] == "drop table"]
    at = drops[0]
    name = events[at]["table"]
    row = next(event for event in reversed(events[:at]) if event["type"] == "row" and event["table"] == name)
    last = int(events[-1]["resolved_ts"])
    late = {"commit_ts": str(last - 0), "start_ts": str(last - 1), "schema_version": "9999"}
    events.insert(len(events) - 1, {**row, **late, "op": "put", "row": {"id": row["key"]["id"]}, "old_row": None})


BREACHES: list[tuple[Callable[[list[Event], random.Random], None], Rule]] = [
    (lost, Rule.EVENTS_SUM),
    (lost_insert_then_nothing, Rule.EVENTS_SUM),
    (lost_insert_then_nothing, Rule.ROWS_SUM),
    (twice_at_once, Rule.TWICE),
    (twice_later, Rule.BELOW_RESOLVED),
    (twice_later, Rule.EVENTS_SUM),
    (swapped_commits, Rule.COMMIT_ORDER),
    (resolved_too_early, Rule.BELOW_RESOLVED),
    (resolved_back, Rule.RESOLVED_ORDER),
    (resolved_with_two_cursors, Rule.RESOLVED_ORDER),
    (altered_value, Rule.EVENTS_SUM),
    (altered_old_row, Rule.EVENTS_SUM),
    (old_row_left_out, Rule.BEFORE_AFTER),
    (old_row_invented, Rule.BEFORE_AFTER),
    (put_before_delete, Rule.DELETES_FIRST),
    (start_ts_back, Rule.TABLE_ORDER),
    (lost_ddl, Rule.DDL_COUNT),
    (row_after_the_ddl_of_its_ts, Rule.DDL_PLACE),
    (version_back, Rule.SCHEMA_VERSION),
    (wrong_name, Rule.NAME),
    (key_that_is_not_the_rows, Rule.FORM),
    (member_missing, Rule.FORM),
    (event_of_a_dropped_table, Rule.DEAD_TABLE),
]


@pytest.mark.parametrize(
    ("breach", "rule"), [pytest.param(*both, id=f"{both[0].__name__}-{both[1]}") for both in BREACHES]
)
@pytest.mark.parametrize("seed", [3, 11, 29])
def test_a_breach_is_named_by_its_rule(breach: Callable[..., None], rule: Rule, seed: int) -> None:
    lawful = LawfulEvents(seed, transactions=250)
    events = lawful.copy()
    breach(events, random.Random(seed))
    found = watched(events, lawful.lines).found
    assert rule in found.counts, found.counts


@pytest.mark.parametrize("breach", [altered_value, altered_old_row, old_row_left_out, twice_at_once, twice_later])
def test_most_breaches_show_without_any_truth(breach: Callable[..., None]) -> None:
    noticed = 0
    for seed in range(20):
        events = LawfulEvents(seed, transactions=250).copy()
        breach(events, random.Random(seed))
        noticed += bool(watched(events).found)
    assert noticed >= 13


def test_a_lost_event_is_told_once_and_with_its_table() -> None:
    lawful = LawfulEvents(5)
    events = lawful.copy()
    at = max(rows_of(events))
    table = events[at]["table_id"]
    del events[at]
    found = watched(events, lawful.lines).found
    assert found.counts[Rule.EVENTS_SUM] == 1
    assert f"table {table} " in str(found.kept[0])
    assert "1 lost" in str(found.kept[0])


def test_an_idle_stream_may_repeat_its_resolved() -> None:
    lawful = LawfulEvents(2)
    events = lawful.copy()
    events += [dict(events[-1])] * 3
    watched(events, lawful.lines).require_clean()


def test_keys_are_held_against_their_order_where_it_is_known() -> None:
    lawful = LawfulEvents(2)
    found = watched(lawful.events, key_order=lambda event: int(event["key"]["id"])).found
    assert found.counts.keys() == {Rule.KEY_ORDER}  # the generator draws its keys in no order


def test_truth_out_of_order_is_refused() -> None:
    lawful = LawfulEvents(2)
    validators = Validators(SNAPSHOT_TS)
    validators.truth(lawful.lines[2])
    with pytest.raises(ValueError, match="out of order"):
        validators.truth(lawful.lines[1])
