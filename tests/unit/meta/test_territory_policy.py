"""Which agent holds which territory: whatever happens, each comes to have exactly one that is there."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.effort import examples
from tistream.errors import AlreadyDiffers, LimitReached
from tistream.model.ids import TenantKey
from tistream.model.span import WHOLE, KeySpan
from tistream.wire.bulk.territories import TERRITORIES_MAX
from tistream_meta.decide.liveness import NodeState
from tistream_meta.territories.territory_policy import (
    LOST_MS,
    Agent,
    Territory,
    Upstream,
    assignments,
    check_new,
    check_replacement,
    is_held,
)

ALIVE, SUSPECT, LOST, DRAINING = NodeState.ALIVE, NodeState.SUSPECT, NodeState.LOST, NodeState.DRAINING
ACME = TenantKey("7", "acme")
PD = Upstream("pd:2379", 17)


def territories(*nodes: str | None) -> list[Territory]:
    """One for each name of an agent that holds it in its start `1`."""
    return [
        Territory(ACME, number, KeySpan(bytes([number]), bytes([number + 1])), PD, 1, node, "1" if node else "")
        for number, node in enumerate(nodes, 1)
    ]


def agents(**states: NodeState) -> dict[str, Agent]:
    return {name: Agent("1", state, 0) for name, state in states.items()}


def moved(before: Sequence[Territory], found: Mapping[str, Agent]) -> dict[int, tuple[str | None, int, str]]:
    """By id: the new holder, its epoch, and why."""
    return {one.store_id: (one.node_id, one.epoch, why) for one, why in assignments(before, found)}


def settled(before: Sequence[Territory], found: Mapping[str, Agent]) -> list[Territory]:
    now = list(before)
    for _ in range(2 * len(now) + 2):
        changed = {one.key: one for one, _ in assignments(now, found)}
        if not changed:
            return now
        for key, one in changed.items():
            old = next(one for one in now if one.key == key)
            assert one.epoch == old.epoch + 1
        now = [changed.get(one.key, one) for one in now]
    raise AssertionError("it does not come to rest")


def held(found: Sequence[Territory]) -> Counter[str | None]:
    return Counter(one.node_id for one in found)


def test_new_territories_go_to_the_agents_with_the_fewest() -> None:
    assert held(settled(territories("a", "a", None, None, None), agents(a=ALIVE, b=ALIVE))) == {"a": 3, "b": 2}
    assert moved(territories(None), agents(a=SUSPECT, b=DRAINING, c=LOST)) == {}


def test_what_a_lost_agent_had_goes_to_others_at_once() -> None:
    found = moved(territories("a", "a", "b"), agents(a=LOST, b=ALIVE, c=ALIVE))
    assert {node for node, _, _ in found.values()} == {"b", "c"}
    assert found[1] == ("c", 2, "a is lost")


def test_five_seconds_of_silence_lose_an_agent_its_territories_and_less_do_not() -> None:
    there = agents(a=SUSPECT, b=ALIVE)
    assert moved(territories("a"), there | {"a": Agent("1", SUSPECT, LOST_MS - 1)}) == {}
    assert moved(territories("a"), there | {"a": Agent("1", SUSPECT, LOST_MS)}) == {1: ("b", 2, "a is lost")}


def test_without_another_agent_the_holder_stays() -> None:
    assert moved(territories("a"), {"a": Agent("1", LOST, 60_000)}) == {}


def test_an_agent_that_has_started_anew_gets_its_territories_back_under_the_next_epoch() -> None:
    found = assignments(territories("a", "b"), agents(b=ALIVE) | {"a": Agent("2", ALIVE, 0)})
    assert [(one.store_id, one.instance, one.epoch, why) for one, why in found] == [(1, "2", 2, "a has restarted")]


def test_a_drained_agent_is_emptied_and_gets_nothing() -> None:
    found = moved(territories("a", "a", None), agents(a=DRAINING, b=ALIVE))
    assert found == {1: ("b", 2, "a is drained"), 2: ("b", 2, "a is drained"), 3: ("b", 2, "new")}


def test_a_new_agent_takes_its_share_one_at_a_time() -> None:
    there = agents(a=ALIVE, b=ALIVE)
    assert len(moved(territories(*"aaaa"), there)) == 1
    assert held(settled(territories(*"aaaa"), there)) == {"a": 2, "b": 2}
    assert moved(territories("a"), there) == {}, "one territory is not handed to and fro"


def test_an_agent_that_has_not_asked_is_given_nothing_and_loses_nothing() -> None:
    there = {"a": Agent("1", ALIVE, 0, requests_territories=False), "b": Agent("1", ALIVE, 0)}
    assert held(settled(territories("a", None), there)) == {"a": 1, "b": 1}


def test_an_agent_of_one_cluster_is_given_none_of_another() -> None:
    there = {"a": Agent("1", ALIVE, 0, serves=18), "b": Agent("1", ALIVE, 0, serves=17)}
    assert held(settled(territories("a", None, None), there)) == {"b": 3}
    assert moved(territories(None), {"a": there["a"]}) == {}


@settings(max_examples=examples(200))
@given(
    st.lists(st.sampled_from(["a", "b", "c", "gone", None]), max_size=9),
    st.dictionaries(st.sampled_from("abc"), st.tuples(st.sampled_from(NodeState), st.sampled_from("12")), min_size=1),
)
def test_each_comes_to_rest_with_one_agent_that_is_ready(
    nodes: list[str | None], states: dict[str, tuple[NodeState, str]]
) -> None:
    there = {name: Agent(instance, state, 0) for name, (state, instance) in states.items()}
    after = settled(territories(*nodes), there)
    ready = {name for name, one in there.items() if one.ready}
    if not ready:
        return
    kept = ready | {name for name, one in there.items() if one.state is SUSPECT}
    for one in after:
        assert one.node_id in kept
        assert one.instance == there[one.node_id or ""].instance
    counts = [held(after)[name] for name in ready]
    if set(there) == ready:
        assert max(counts) - min(counts) <= 1


def test_a_territory_is_added_once_and_shares_no_key() -> None:
    one = Territory(ACME, 1, KeySpan(b"", b"t"), PD)
    assert check_new([], one)
    assert not check_new([replace(one, epoch=4, node_id="a", instance="1")], one)
    with pytest.raises(AlreadyDiffers, match="another PD, keyspace or keys"):
        check_new([one], replace(one, upstream=Upstream("other:2379", 18)))
    with pytest.raises(AlreadyDiffers, match=r"territory 1 .* has keys of territory 2"):
        check_new([one], replace(one, store_id=2, span=WHOLE))
    assert check_new([one], replace(one, store_id=2, span=KeySpan(b"t", b"")))
    with pytest.raises(LimitReached, match=f"{TERRITORIES_MAX} is the maximum"):
        check_new(
            [replace(one, store_id=number, span=KeySpan(b"a", b"b")) for number in range(TERRITORIES_MAX)],
            replace(one, store_id=999, span=KeySpan(b"t", b"")),
        )


# Attack: a territory is removed, or its tenant disconnected, after a division has read the list
def test_territories_are_replaced_as_a_whole_or_not_at_all() -> None:
    old = [Territory(ACME, number, KeySpan(bytes([number]), bytes([number + 1])), PD) for number in (1, 2)]
    whole = [Territory(ACME, 3, KeySpan(b"\x01", b"\x03"), PD)]
    parts = [replace(one, store_id=number) for number, one in enumerate(old, 3)]
    assert check_replacement(old, {1, 2}, whole) == whole
    assert check_replacement(whole, {1, 2}, whole) == check_replacement([], {1, 2}, []) == [], "it is repeated"
    assert check_replacement(parts, {1, 2}, parts) == []
    assert check_replacement([], (), parts) == parts
    assert check_replacement([old[0]], {1, 2}, [old[0]]) == [old[0]]
    for there, wanted in (([], whole), (old[:1], whole), (old[:1], []), (parts[:1], parts), (old[:1], parts[1:])):
        with pytest.raises(AlreadyDiffers, match=r"territory [12] of tenant 7/acme was removed meanwhile\. `tistream"):
            check_replacement(there, {1, 2}, wanted)


def test_a_territory_is_held_by_the_start_of_an_agent_that_is_not_lost() -> None:
    held, lost, none = territories("a", "b", None)
    there = {**agents(a=ALIVE), "b": Agent("1", ALIVE, LOST_MS)}
    assert [is_held(one, there) for one in (held, lost, none)] == [True, False, False]
    assert is_held(held, agents(a=DRAINING)), "until another has it"
    assert not is_held(replace(held, instance="0"), there), "a former start of it"
    assert not is_held(held, {})
