"""How territories are split and merged: what their last files say, where the new chains begin, what is refused."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tistream.errors import CorruptObject, InvalidRequest
from tistream.model.ids import TenantKey
from tistream.model.span import WHOLE, KeySpan
from tistream.storage import layout
from tistream.storage.backends.memory import MemoryObjectStore
from tistream.wire.bulk.territories import TERRITORIES_MAX
from tistream_agent.connecting.division import (
    BeginChild,
    SealParent,
    check_claimed,
    check_free,
    check_number,
    check_whole,
    given_up,
    new_children,
    next_steps,
    recorded_children,
    unclaimed,
)
from tistream_agent.core.chain import SEALED, ChainEnd, Child, Position, Promise, read_children
from tistream_agent.core.cutter import draft_without_rows
from tistream_agent.position import ChainSealed, end_of_chain, last_position
from tistream_agent.reservation import Reservation

ACME = TenantKey("7", "acme")
LOW, HIGH = KeySpan(b"", b"t5"), KeySpan(b"t5", b"")
HALVES = (Child(2, LOW), Child(3, HIGH))
AT_40 = Position(40, 41, (Promise(KeySpan(b"", b"t3"), 7), Promise(KeySpan(b"t3", b""), 9)))
SEALED_AT_40 = ChainEnd(AT_40, sealed=True, children=HALVES)
NONE = {2: ChainEnd(), 3: ChainEnd()}


def test_a_split_ends_the_chain_and_then_begins_one_for_each_part() -> None:
    assert next_steps(HALVES, {1: ChainEnd(AT_40)}, NONE, {1}) == [SealParent(1, AT_40)]
    first, second = next_steps(HALVES, {1: SEALED_AT_40}, NONE, {1})
    promised = Promise(KeySpan(b"", b"t3"), 7), Promise(KeySpan(b"t3", b"t5"), 9)
    assert first == BeginChild(2, Position(0, 41, promised))
    assert second == BeginChild(3, Position(0, 41, (Promise(HIGH, 9),)))
    begun = NONE | {2: ChainEnd(Position(41, 42, promised))}
    assert next_steps(HALVES, {1: SEALED_AT_40}, begun, {1}) == [second]
    begun[3] = ChainEnd(Position(45, 46, (Promise(HIGH, 30),)))
    assert next_steps(HALVES, {1: SEALED_AT_40}, begun, {1}) == []


def test_a_merge_waits_for_the_last_file_of_every_chain() -> None:
    both = (Child(4, WHOLE),)
    low, high = Position(50, 51, (Promise(LOW, 8),)), Position(60, 61, (Promise(HIGH, 6),))
    ends = {2: ChainEnd(low, True, both), 3: ChainEnd(high)}
    assert recorded_children(ends) == both
    assert next_steps(both, ends, {4: ChainEnd()}, {2, 3}) == [SealParent(3, high)]
    ends[3] = ChainEnd(high, True, both)
    assert next_steps(both, ends, {4: ChainEnd()}, {2, 3}) == [
        BeginChild(4, Position(0, 61, low.promises + high.promises))
    ]


# Attack: two merges that share a territory, each with a last file of its own
def test_of_two_divisions_that_share_a_territory_the_one_left_behind_is_divided_anew() -> None:
    low, mid, high = KeySpan(b"", b"t3"), KeySpan(b"t3", b"t5"), KeySpan(b"t5", b"")
    first, second = (Child(8, KeySpan(b"", b"t5")),), (Child(9, KeySpan(b"t3", b"")),)
    ends = {
        number: ChainEnd(Position(50, 51, (Promise(span, 8),)), True, its)
        for number, span, its in ((1, low, first), (2, mid, second), (3, high, second))
    }
    assert given_up(ends, ends) == [1]
    del ends[1]
    assert given_up(ends, ends) == []
    alone = ChainEnd(Position(51, 52, (Promise(low, 8),)), True, (Child(10, low),))
    assert given_up({1: alone, 2: ends[2]}, {1, 2}) == []
    left, partner = replace(alone, children=first), replace(ends[2], children=())
    assert given_up({1: left, 2: partner}, {1}) == [1], "it was disconnected before it was divided"
    assert given_up({1: left, 2: partner}, {1, 2}) == []
    assert given_up({1: left, 2: replace(partner, sealed=False)}, {1}) == []
    assert given_up({1: left, 2: ChainEnd()}, {1}) == []


# Attack: two divisions at once, each of which the tenant may have room for, and others that died
def test_a_division_is_refused_that_leaves_no_room_for_those_under_way() -> None:
    there = set(range(1, TERRITORIES_MAX))
    check_number(TERRITORIES_MAX, there, ())
    with pytest.raises(InvalidRequest, match=f"more than {TERRITORIES_MAX} territories: give a lower --into"):
        check_number(TERRITORIES_MAX + 1, there, ())
    split = [Reservation(number, "a", (7,)) for number in (300, 301)]
    again = [Reservation(number, "b", (7,)) for number in (302, 303)]
    check_number(TERRITORIES_MAX - 1, there, [*split, *again])
    with pytest.raises(InvalidRequest, match=f"more than {TERRITORIES_MAX} territories with the divisions of 7, which"):
        check_number(TERRITORIES_MAX, there, [*split, *again])
    merge = [Reservation(304, "c", (8, 9))]
    check_number(TERRITORIES_MAX, there, merge)
    with pytest.raises(InvalidRequest, match="with the divisions of 7, which"):
        check_number(TERRITORIES_MAX, there, [*split, *merge])


# Attack: two commands merge the same territories at once, into different ones
def test_of_a_merge_the_lowest_parent_gets_its_last_file_alone() -> None:
    low, mid, high = (
        Position(50, 51, (Promise(span, 8),)) for span in (LOW, KeySpan(b"t5", b"t7"), KeySpan(b"t7", b""))
    )
    ends = {4: ChainEnd(mid), 3: ChainEnd(low), 9: ChainEnd(high)}
    both = (Child(10, WHOLE),)
    assert next_steps(both, ends, {10: ChainEnd()}, {3, 4, 9}) == [SealParent(3, low)]
    ends[3] = ChainEnd(low, True, both)
    assert next_steps(both, ends, {10: ChainEnd()}, {3, 4, 9}) == [SealParent(4, mid), SealParent(9, high)]


# Attack: territories are divided before any agent has claimed them, or after they got other keys
def test_a_territory_that_no_agent_has_claimed_is_not_divided_yet() -> None:
    check_claimed({1: WHOLE}, {1: ChainEnd(AT_40)})
    wait = "run the command again once `tistream agent list` shows it as running"
    with pytest.raises(InvalidRequest, match=f"no agent has claimed territory 1 with the keys that it has now: {wait}"):
        check_claimed({1: LOW}, {1: ChainEnd(AT_40)})
    with pytest.raises(InvalidRequest, match="no agent has claimed territory 1 with"):
        check_claimed({1: WHOLE}, {1: ChainEnd(Position(40, 41, (Promise(LOW, 7), Promise(KeySpan(b"t6", b""), 7))))})
    with pytest.raises(InvalidRequest, match=f"territory 2 has no files yet: {wait}"):
        check_claimed({1: WHOLE, 2: LOW}, {1: ChainEnd(AT_40), 2: ChainEnd()})


# Attack: a merge is begun, and one of the two is divided with another one meanwhile; a third territory is left out
def test_territories_that_were_not_divided_together_are_named() -> None:
    other = replace(SEALED_AT_40, children=(Child(9, WHOLE),))
    with pytest.raises(InvalidRequest, match="1 into 2, 3; 4 into 9"):
        recorded_children({1: SEALED_AT_40, 4: other})
    half = ChainEnd(Position(50, 51, (Promise(LOW, 8),)), True, (Child(4, WHOLE),))
    with pytest.raises(InvalidRequest, match="4 have other keys than 2: name every territory"):
        next_steps((Child(4, WHOLE),), {2: half}, {4: ChainEnd()}, {2, 3})


# Attack: a command is run again after one of its new territories was divided again, and the store of the other retired
def test_a_division_that_is_complete_begins_nothing_anew() -> None:
    again = NONE | {2: ChainEnd(Position(41, 42, (Promise(LOW, 9),)), True, (Child(5, LOW),))}
    assert next_steps(HALVES, {1: SEALED_AT_40}, again, {5, 6}) == []
    assert next_steps(HALVES, {1: SEALED_AT_40}, NONE, {5, 6}) == []


# Attack: a division dies when one of its two chains is begun, and this one is disconnected
def test_a_division_of_which_one_begun_territory_was_disconnected_begins_the_others() -> None:
    again = NONE | {2: ChainEnd(Position(42, 43, (Promise(LOW, 9),)), True)}
    [step] = next_steps(HALVES, {1: SEALED_AT_40}, again, {1})
    assert step == BeginChild(3, Position(0, 41, (Promise(HIGH, 9),)))


# Attack: of two territories that are merged, one is disconnected before it has its last file
def test_a_territory_that_was_disconnected_meanwhile_is_divided_no_more() -> None:
    both = (Child(4, WHOLE),)
    low, high = Position(50, 51, (Promise(LOW, 8),)), Position(60, 61, (Promise(HIGH, 6),))
    ends = {2: ChainEnd(low, True, both), 3: ChainEnd(high, True)}
    with pytest.raises(InvalidRequest, match=r"territory 3 was disconnected, .* then this command again"):
        next_steps(both, ends, {4: ChainEnd()}, {2})
    with pytest.raises(InvalidRequest, match=r"territory 2 was disconnected, .* divide the others without it"):
        next_steps(both, ends | {3: ChainEnd(high)}, {4: ChainEnd()}, {3})


# Attack: of two territories that are merged, one is disconnected after both have named the new one
def test_the_territory_whose_partner_was_disconnected_is_divided_anew() -> None:
    both = (Child(4, WHOLE),)
    ends = {
        number: ChainEnd(Position(50, 51, (Promise(span, 8),)), True, both) for number, span in ((2, LOW), (3, HIGH))
    }
    assert given_up(ends, {2, 3}) == []
    assert given_up(ends, {2}) == [2]
    assert given_up(ends, {4}) == given_up(ends, {4, 9}) == [], "it is complete"


# Attack: the platform has only some of what it would replace, because the rest was disconnected meanwhile
def test_what_was_disconnected_is_not_handed_over() -> None:
    check_whole([1], HALVES, {1, 7})
    check_whole([1], HALVES, {2, 3, 7})
    check_whole([1], HALVES[:1], {2})
    check_whole([1], (), {7})
    with pytest.raises(InvalidRequest, match="territory 5 was disconnected while it was divided: run this command aga"):
        check_whole([5, 1], (), {1})
    with pytest.raises(InvalidRequest, match="neither 1 nor 3, so some were disconnected: run `tistream disconnect"):
        check_whole([1], HALVES, {2})
    with pytest.raises(InvalidRequest, match="neither 1, 5 nor 2, 3"):
        check_whole([5, 1], HALVES, {7})


def test_the_new_territories_that_no_agent_has_claimed_are_those_with_one_file() -> None:
    first = ChainEnd(Position(41, 42, (Promise(KeySpan(b"", b"t3"), 7), Promise(KeySpan(b"t3", b"t5"), 9))))
    later = ChainEnd(Position(42, 43, (Promise(HIGH, 9),)))
    assert unclaimed({1: SEALED_AT_40}, {2: first, 3: later}) == {2: 7}
    assert unclaimed({1: SEALED_AT_40}, {2: replace(first, sealed=True), 3: ChainEnd()}) == {}


# Attack: a person gives keys of a division that is under way to another territory
def test_keys_that_another_territory_has_are_not_handed_over() -> None:
    check_free(HALVES, {1: WHOLE, 2: LOW}, [1])
    with pytest.raises(InvalidRequest, match="territory 7 has keys of the new territory 3: run `tistream disconnect"):
        check_free(HALVES, {1: WHOLE, 7: KeySpan(b"t8", b"")}, [1])


# Attack: a division died when the platform had one of its two territories, which was divided again
def test_a_division_of_which_one_territory_was_ended_goes_on_with_the_others() -> None:
    begun = {2: ChainEnd(Position(41, 42, (Promise(LOW, 9),)), True, (Child(5, LOW),))}
    begun[3] = ChainEnd(Position(41, 42, (Promise(HIGH, 9),)))
    assert next_steps(HALVES, {1: SEALED_AT_40}, begun, {2}) == []


def test_a_territory_without_files_is_not_divided() -> None:
    with pytest.raises(InvalidRequest, match="territory 1 has no files yet"):
        next_steps(HALVES, {1: ChainEnd()}, NONE, {1})


def test_new_territories_have_about_equally_many_regions_and_all_keys() -> None:
    starts = [b"t%d" % number for number in range(6)]
    assert new_children([HIGH, LOW], starts, 3, iter([5, 7, 8])) == (
        Child(5, KeySpan(b"", b"t1")),
        Child(7, KeySpan(b"t1", b"t3")),
        Child(8, KeySpan(b"t3", b"")),
    )
    assert new_children([LOW, HIGH], starts, 1, iter([5])) == (Child(5, WHOLE),)
    with pytest.raises(InvalidRequest, match="2 regions are too few for 3 territories"):
        new_children([WHOLE], [b"t1"], 3, iter([5, 6, 7]))
    with pytest.raises(InvalidRequest, match="no neighbours"):
        new_children([KeySpan(b"", b"t1"), KeySpan(b"t2", b"")], starts, 1, iter([5]))


def test_the_last_file_of_a_chain_names_the_new_territories_and_no_agent_goes_on_after_it() -> None:
    objects = MemoryObjectStore()
    draft = draft_without_rows(ACME, 1, AT_40, SEALED, HALVES)
    objects.put(draft.key, draft.data())
    end = end_of_chain(objects, ACME, 1, WHOLE)
    assert end == ChainEnd(Position(41, 42, AT_40.promises), sealed=True, children=HALVES)
    with pytest.raises(ChainSealed, match="the keys of territory 1 of tenant 7/acme are in 2, 3 now"):
        last_position(objects, ACME, 1, WHOLE)


# Attack: a footer that names children in another way
@pytest.mark.parametrize("text", ["{", "[1]", '[["2","zz",""]]', '[["2","62","61"]]', '[["two","",""]]'])
def test_children_that_cannot_be_read_are_a_damaged_file(text: str) -> None:
    with pytest.raises(CorruptObject, match="is not a list of"):
        read_children(layout.change_file(ACME, 1, 41), {"tistream.agent_children": text})
