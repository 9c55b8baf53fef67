"""Splits and merges as the owner sees them: what is wished, what is ordered, what follows from what sorters tell."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.effort import examples
from tistream.model.ids import TenantKey
from tistream.model.span import KeySpan
from tistream.model.ts import from_physical_ms
from tistream_meta.decide.model import Child, Seal, Task
from tistream_meta.decide.split_merge import (
    MARGIN_TS,
    Rules,
    SorterReport,
    Succession,
    TaskOrder,
    halves,
    proposals,
    successions,
    under_way,
    unique_stop_at,
)

ACME, OTHER = TenantKey("c1", "acme"), TenantKey("c1", "other")
RULES = Rules(hot=1_000, cold=100, settle_ms=1_000, patience_ms=5_000)
WORKS = SorterReport(held=True, load=10, progress_ts=500, settled_ms=60_000)


def task(task_id: int, start: bytes, end: bytes, tenant: TenantKey = ACME, **more: object) -> Task:
    return replace(Task(task_id, tenant, KeySpan(start, end), "s1", 3), **more)  # type: ignore[arg-type]


LEFT, RIGHT = task(1, b"", b"m"), task(2, b"m", b"")
MERGED = Seal((Child(9, KeySpan(b"", b"")),), stop_at=700, final=False)


def test_a_hot_task_is_split_where_its_load_halves() -> None:
    told = {1: replace(WORKS, load=9_000, split_key=b"f"), 2: WORKS}
    (proposal,) = proposals([LEFT, RIGHT], told, 3, RULES)
    assert (proposal.task_ids, proposal.spans, proposal.stop_at) == (
        (1,),
        (KeySpan(b"", b"f"), KeySpan(b"f", b"m")),
        None,
    )


@pytest.mark.parametrize(
    "why_not",
    [
        replace(WORKS, load=999, split_key=b"f"),
        replace(WORKS, load=9_000, split_key=b""),
        replace(WORKS, load=9_000, split_key=b"m"),
        replace(WORKS, load=9_000, split_key=b"f", settled_ms=999),
        replace(WORKS, load=9_000, split_key=b"f", held=False),
    ],
    ids=["not hot", "no key", "key outside", "new", "not held"],
)
def test_what_is_not_split(why_not: SorterReport) -> None:
    assert proposals([LEFT, RIGHT], {1: why_not, 2: WORKS}, 3, RULES) == []


def test_one_sorter_gains_nothing_by_a_split_and_a_task_that_moves_waits() -> None:
    told = {1: replace(WORKS, load=9_000, split_key=b"f"), 2: replace(WORKS, load=200)}
    assert proposals([LEFT, RIGHT], told, 1, RULES) == []
    assert proposals([replace(LEFT, next_node="s2"), RIGHT], told, 3, RULES) == []
    assert len(proposals([LEFT, RIGHT], told, 3, RULES)) == 1


def test_a_load_that_moves_can_even_out_splits_nothing() -> None:
    tasks = [task(number, b"%d" % number, b"%d" % (number + 1)) for number in range(1, 7)]
    told = {one.task_id: replace(WORKS, load=9_000, split_key=one.span.start + b"5") for one in tasks}
    assert proposals(tasks, told, 3, RULES) == []


def test_two_cold_neighbours_of_one_tenant_are_merged_and_each_only_once() -> None:
    three = [task(1, b"", b"g"), task(2, b"g", b"m"), task(3, b"m", b"")]
    (proposal,) = proposals(three, dict.fromkeys((1, 2, 3), WORKS), 2, RULES)
    assert (proposal.task_ids, proposal.spans) == ((1, 2), (KeySpan(b"", b"m"),))
    assert proposal.stop_at == 500 + MARGIN_TS
    assert proposals(three, dict.fromkeys((1, 2, 3), WORKS), 2, replace(RULES, tasks_min=3)) == []
    apart = [task(1, b"", b""), task(2, b"", b"", OTHER)]
    assert proposals(apart, dict.fromkeys((1, 2), WORKS), 2, RULES) == []


def test_orders_have_a_budget() -> None:
    tasks = [task(number, b"%02d" % number, b"%02d" % (number + 1)) for number in range(1, 31)]
    told = {one.task_id: WORKS for one in tasks}
    assert len(proposals(tasks, told, 2, RULES)) == 4
    ordered = [replace(one, seal=MERGED) if one.task_id < 3 else one for one in tasks]
    assert len(proposals(ordered, told, 2, RULES)) == 3


def test_a_merge_may_seal_once_both_have_come_to_the_stop() -> None:
    both = [replace(LEFT, seal=MERGED), replace(RIGHT, seal=MERGED)]
    stops, rests = replace(WORKS, stop_at=700), replace(WORKS, stop_at=700, progress_ts=700)
    assert under_way(both, {1: rests, 2: WORKS}, {}, RULES) == []
    assert under_way(both, {1: rests, 2: stops}, {}, RULES) == [], "the other may never come to it"
    (order,) = under_way(both, {1: rests, 2: rests}, {}, RULES)
    assert order.seal == replace(MERGED, final=True)
    assert order.task_ids == (1, 2)


def test_a_merge_that_came_too_late_for_one_gets_a_new_stop() -> None:
    both = [replace(LEFT, seal=MERGED), replace(RIGHT, seal=MERGED)]
    told = {1: replace(WORKS, stop_at=700, progress_ts=700), 2: replace(WORKS, progress_ts=701)}
    (order,) = under_way(both, told, {}, RULES)
    assert order.seal == replace(MERGED, stop_at=unique_stop_at(701 + MARGIN_TS, MERGED.children[0]))


def test_no_two_orders_stop_at_the_same_ts() -> None:
    """One that was taken back may still be on its way to a holder, who would seal where the other does not."""
    span = KeySpan(b"", b"")
    stops = {unique_stop_at(500 + MARGIN_TS, Child(task_id, span)) for task_id in range(1, 1_000)}
    assert len(stops) == 999
    assert min(stops) > 500 + MARGIN_TS - (1 << 18)


def test_tasks_that_stand_still_are_not_merged() -> None:
    """They would not come to rest, and for a tenant of which nothing comes nothing is to be written."""
    still = replace(WORKS, still_ms=RULES.still_ms)
    assert proposals([LEFT, RIGHT], {1: WORKS, 2: still}, 2, RULES) == []
    assert len(proposals([LEFT, RIGHT], dict.fromkeys((1, 2), WORKS), 2, RULES)) == 1


def test_neighbours_that_are_far_from_each_other_are_not_merged() -> None:
    """The one that is ahead would stand still until the other has come to where it is."""
    far = replace(WORKS, progress_ts=WORKS.progress_ts + from_physical_ms(RULES.still_ms))
    near = replace(far, progress_ts=far.progress_ts - 1)
    assert proposals([LEFT, RIGHT], {1: WORKS, 2: far}, 2, RULES) == []
    assert len(proposals([LEFT, RIGHT], {1: far, 2: near}, 2, RULES)) == 1
    assert len(proposals([LEFT, RIGHT], {1: WORKS, 2: near}, 2, RULES)) == 1


def test_tasks_of_which_a_merge_was_taken_back_lately_are_left_alone() -> None:
    told = dict.fromkeys((1, 2), WORKS)
    for lately in (1, 2):
        assert proposals([LEFT, RIGHT], told, 2, RULES, withdrawn={lately}) == []
    assert len(proposals([LEFT, RIGHT], told, 2, RULES, withdrawn={3})) == 1


def test_an_order_that_hangs_hinders_no_other_for_ever() -> None:
    tasks = [task(number, b"%02d" % number, b"%02d" % (number + 1)) for number in range(1, 31)]
    hangs = [
        replace(one, seal=Seal((Child(100 + one.task_id, one.span),), None, final=True)) if one.task_id < 5 else one
        for one in tasks
    ]
    told = {one.task_id: WORKS for one in tasks}
    young, old = (dict.fromkeys((1, 2, 3, 4), age_ms) for age_ms in (RULES.patience_ms, RULES.patience_ms + 1))
    assert proposals(hangs, told, 2, RULES, young) == []
    assert len(proposals(hangs, told, 2, RULES, old)) == 4


def test_a_merge_that_does_not_come_to_rest_is_given_up_but_never_one_that_may_have_sealed() -> None:
    both = [replace(LEFT, seal=MERGED), replace(RIGHT, seal=MERGED)]
    age = {1: 5_001, 2: 5_001}
    assert under_way(both, {1: WORKS, 2: WORKS}, age, RULES) == [TaskOrder((1, 2), None, "they did not come to rest")]
    sealed = SorterReport(sealed=MERGED.children)
    (order,) = under_way(both, {1: sealed, 2: WORKS}, age, RULES)
    assert order.seal == replace(MERGED, final=True), "the database has forgotten that it gave leave"
    final = [replace(one, seal=replace(MERGED, final=True)) for one in both]
    assert under_way(final, {1: WORKS, 2: WORKS}, age, RULES) == []
    assert under_way(both[:1], {1: WORKS}, {}, RULES) == [TaskOrder((1,), None, "its neighbour has gone")]


def test_children_take_their_places_once_all_that_they_cover_is_sealed() -> None:
    halved = (Child(7, KeySpan(b"", b"f")), Child(8, KeySpan(b"f", b"m")))
    assert successions([LEFT, RIGHT], {1: SorterReport(sealed=halved)}) == [Succession(ACME, (1,), halved)]
    merged = (Child(9, KeySpan(b"", b"")),)
    assert successions([LEFT, RIGHT], {1: SorterReport(sealed=merged)}) == [], "the other half is not sealed yet"
    both = successions([LEFT, RIGHT], {1: SorterReport(sealed=merged), 2: SorterReport(sealed=merged)})
    assert both == [Succession(ACME, (1, 2), merged)]
    assert successions([RIGHT], {2: SorterReport(sealed=halved)}) == [], "children that are not its own"


@settings(max_examples=examples(300), deadline=None)
@given(st.binary(max_size=3), st.binary(max_size=3), st.binary(max_size=4))
def test_halves_are_the_whole_or_nothing(start: bytes, end: bytes, key: bytes) -> None:
    if end and start >= end:
        return
    found = halves(KeySpan(start, end), key)
    if found is None:
        assert key <= start or (end and key >= end)
    else:
        low, high = found
        assert (low.start, low.end, high.start, high.end) == (start, key, key, end)
