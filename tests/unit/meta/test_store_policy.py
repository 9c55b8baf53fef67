"""Which dispatcher reads which store: whatever happens, each store comes to have exactly one that is there."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.effort import examples
from tistream.model.ids import TenantKey
from tistream_meta.decide.balance import UNEVEN
from tistream_meta.decide.liveness import NodeState
from tistream_meta.decide.model import Node, Plan, Store, Tenant
from tistream_meta.decide.store_policy import RESTING, Loads, assignments
from tistream_meta.owner.owner_copy import OwnerCopy
from tistream_meta.owner.store_keeping import MOVES_MAX, MOVES_MS, ReportedStore, StoreKeeping

ALIVE, SUSPECT, LOST, DRAINING = NodeState.ALIVE, NodeState.SUSPECT, NodeState.LOST, NodeState.DRAINING
ACME = TenantKey("7", "acme")
NODES = ["a", "b", "c", "d"]


def stores(*nodes: str | None) -> list[Store]:
    return [Store(ACME, number, node) for number, node in enumerate(nodes)]


def taken(before: Sequence[Store], moved: Sequence[Store]) -> list[Store]:
    new = {store.key: store for store in moved}
    assert len(new) == len(moved), "each once"
    return [new.get(store.key, store) for store in before]


def settled(before: Sequence[Store], nodes: Mapping[str, NodeState], loads: Loads | None = None) -> list[Store]:
    now = list(before)
    for _ in range(len(now) + 2):
        given_now = assignments(now, nodes, loads or {}, 4)
        if not given_now:
            return now
        now = taken(now, [one.store for one in given_now])
    raise AssertionError("it does not come to rest")


def counted(found: Sequence[Store]) -> list[tuple[str | None, int]]:
    return sorted(Counter(store.dispatcher_node for store in found).items(), key=str)


def test_new_stores_go_where_there_is_least_to_do() -> None:
    after = settled(stores("a", "a", "a", *[None] * 6), {"a": ALIVE, "b": ALIVE, "c": SUSPECT, "d": DRAINING})
    assert counted(after) == [("a", 5), ("b", 4)] or counted(after) == [("a", 4), ("b", 5)]
    heavy = {(ACME, 0): 50 * RESTING}
    after = settled(stores("a", *[None] * 6), {"a": ALIVE, "b": ALIVE}, heavy)
    assert counted(after) == [("a", 1), ("b", 6)]


def test_those_of_a_lost_one_go_to_others_at_once_whatever_the_budget() -> None:
    moved = assignments(stores(*["a"] * 30), {"a": LOST, "b": ALIVE, "c": ALIVE}, {}, 0)
    assert counted([one.store for one in moved]) == [("b", 15), ("c", 15)]
    assert {(one.why, one.taken) for one in moved} == {("a is lost", False)}


def test_they_stay_with_it_while_no_other_is_alive() -> None:
    assert assignments(stores("a", "a", None), {"a": LOST, "b": SUSPECT, "c": DRAINING}, {}, 9) == []


def test_who_is_only_late_keeps_its_stores() -> None:
    assert assignments(stores("a", "b"), {"a": SUSPECT, "b": ALIVE}, {}, 9) == []


def test_who_is_to_go_is_emptied_within_the_budget_and_gets_none() -> None:
    before = stores(*["a"] * 9, None)
    nodes = {"a": DRAINING, "b": ALIVE, "c": ALIVE}
    first = assignments(before, nodes, {}, 3)
    assert [one.taken for one in first] == [False, True, True, True]
    assert counted(settled(before, nodes)) == [("b", 5), ("c", 5)]


def test_who_comes_gets_its_part_and_no_store_goes_to_and_fro() -> None:
    before = stores(*["a"] * 10)
    after = settled(before, {"a": ALIVE, "b": ALIVE})
    assert counted(after) == [("a", 5), ("b", 5)] or counted(after) == [("a", 6), ("b", 4)]
    assert settled(stores("a", "a", "b"), {"a": ALIVE, "b": ALIVE}) == stores("a", "a", "b"), "no better the other way"


def test_load_and_not_the_number_of_stores_is_balanced() -> None:
    loads = {(ACME, 0): 8 * RESTING, **{(ACME, number): 0.0 for number in range(1, 9)}}
    after = settled(stores(*["a"] * 9), {"a": ALIVE, "b": ALIVE}, loads)
    weight = Counter[str]()
    for store in after:
        weight[store.dispatcher_node or ""] += int(RESTING + loads[store.key])
    assert max(weight.values()) <= UNEVEN * sum(weight.values()) / 2


@settings(max_examples=examples(200), deadline=None)
@given(
    st.lists(st.tuples(st.sampled_from([None, *NODES]), st.floats(0, 1e6)), max_size=40),
    st.dictionaries(st.sampled_from(NODES), st.sampled_from(list(NodeState)), min_size=1),
)
def test_any_allotment_comes_to_rest_and_is_even(
    held: list[tuple[str | None, float]], nodes: dict[str, NodeState]
) -> None:
    loads = {(ACME, number): load for number, (_, load) in enumerate(held)}
    before = stores(*(node for node, _ in held))
    after = settled(before, nodes, loads)
    alive = [node for node, state in nodes.items() if state is ALIVE]
    if not alive:
        assert after == before
        return
    weight = dict.fromkeys(alive, 0.0)
    for store in after:
        assert nodes[store.dispatcher_node or ""] in (ALIVE, SUSPECT)
        if store.dispatcher_node in weight:
            weight[store.dispatcher_node] += RESTING + loads[store.key]
    mean = sum(weight.values()) / len(alive)
    for node, amount in weight.items():
        mine = [RESTING + loads[store.key] for store in after if store.dispatcher_node == node]
        assert amount <= UNEVEN * mean or min(weight.values()) + min(mine) >= amount - 1e-6


class Owner:
    """An owner and its database, as the meta server runs them; and what the dispatchers believe."""

    def __init__(self) -> None:
        self.states: dict[str, NodeState] = {}
        self._before: dict[str, NodeState] = {}
        self.rows: dict[tuple[TenantKey, int], Store] = {}
        self.there: set[int] = set()  # stores that some dispatcher has found
        self.keeping = StoreKeeping()
        self.now_ms = 0

    def book(self) -> OwnerCopy:
        nodes = tuple(Node(name, "dispatcher", "", 1, name) for name in sorted(self.states))
        return OwnerCopy(Plan(1, (Tenant(ACME, 1, None),), (), nodes, tuple(self.rows.values())))

    def round(self, load: Mapping[int, float]) -> int:
        """Everybody who is there tells, and the owner decides; how many stores moved that somebody had."""
        self.now_ms += 250
        book, turned, self._before = self.book(), self.states != self._before, dict(self.states)
        for node, state in self.states.items():
            if state in (ALIVE, DRAINING):
                mine = [store.store_id for store in self.rows.values() if store.dispatcher_node == node]
                found = [store_id for store_id in self.there if (ACME, store_id) not in self.rows]
                told = [ReportedStore(ACME, store_id, load.get(store_id)) for store_id in [*mine, *found]]
                self.keeping.record(book, node, told)
        given_now = self.keeping.due(book, self.states, self.now_ms, turned=turned)
        spent = sum(one.taken for one in given_now)
        assert spent <= MOVES_MAX
        for one in given_now:
            before = self.rows.get(one.store.key)
            lost = before is None or self.states.get(before.dispatcher_node or "", LOST) is LOST
            assert lost or one.taken, "who works keeps its stores, but for the budget"
            self.rows[one.store.key] = one.store
        return spent


steps = st.one_of(
    st.tuples(st.sampled_from(["join", "lose", "drain", "suspect"]), st.sampled_from(NODES)),
    st.tuples(st.just("discover"), st.integers(0, 30)),
    st.tuples(st.just("elect"), st.just(0)),
    st.tuples(st.just("wait"), st.integers(1, 12)),
)


@settings(max_examples=examples(150), deadline=None)
@given(st.lists(steps, max_size=25), st.dictionaries(st.integers(0, 30), st.floats(0, 1e5)))
def test_after_any_joins_losses_drains_and_discoveries_every_store_has_one_living_dispatcher(
    happened: list[tuple[str, str | int]], load: dict[int, float]
) -> None:
    owner = Owner()
    changes = {"join": ALIVE, "lose": LOST, "drain": DRAINING, "suspect": SUSPECT}
    for what, which in happened:
        if what in changes:
            owner.states[str(which)] = changes[what]
        elif what == "discover":
            owner.there.add(int(which))
        elif what == "elect":
            owner.keeping.forget()
        for _ in range(int(which) if what == "wait" else 1):
            owner.round(load)
    owner.states["a"] = ALIVE
    moved = sum(owner.round(load) for _ in range(40 * MOVES_MS // 250))
    assert {store_id for _, store_id in owner.rows} == owner.there, "each found store has one row"
    for store in owner.rows.values():
        assert owner.states[store.dispatcher_node or ""] in (ALIVE, SUSPECT)
    assert moved <= 2 * len(owner.rows), "nothing goes to and fro"
    assert owner.round(load) == 0


def test_a_new_owner_moves_nothing_before_it_has_heard_how_much_each_has_to_do() -> None:
    owner = Owner()
    owner.states = {"a": ALIVE, "b": ALIVE}
    owner.rows = {store.key: store for store in stores("a", *["b"] * 9)}
    owner.there = set(range(10))
    book = owner.book()
    assert owner.keeping.due(book, owner.states, 0, turned=True) == []
    owner.keeping.record(book, "b", [ReportedStore(ACME, number, 10.0) for number in range(1, 10)])
    assert owner.keeping.due(book, owner.states, 250, turned=True) == []
    owner.keeping.record(book, "a", [ReportedStore(ACME, 0, 9_000.0)])
    assert owner.keeping.due(book, owner.states, 500, turned=True) == [], "the one store weighs as much as the nine"


def test_a_store_that_has_moved_weighs_what_it_weighed_until_it_is_measured_again() -> None:
    owner = Owner()
    owner.states = {"a": ALIVE, "b": ALIVE}
    owner.rows = {store.key: store for store in stores("a", "a", "b")}
    owner.there = {0, 1, 2}
    heavy = {0: 9_000.0, 1: 9_000.0, 2: 0.0}
    assert owner.round(heavy) == 1
    assert [sum(owner.round({}) for _ in range(MOVES_MS // 250 * 3))] == [0]


@pytest.mark.parametrize("state", [DRAINING, LOST, SUSPECT])
def test_a_store_that_nobody_can_take_is_known_all_the_same(state: NodeState) -> None:
    keeping = StoreKeeping()
    book = OwnerCopy(Plan(1, (Tenant(ACME, 1, None),), (), (Node("a", "dispatcher", "", 1, "i"),)))
    assert keeping.record(book, "a", [ReportedStore(ACME, 5, None)])
    (one,) = keeping.due(book, {"a": state}, 0, turned=True)
    assert one.store == Store(ACME, 5, None)


def test_a_store_of_a_tenant_that_nobody_registered_is_not_taken() -> None:
    keeping = StoreKeeping()
    book = OwnerCopy(Plan(1, (Tenant(ACME, 1, None),), (), ()))
    assert not keeping.record(book, "a", [ReportedStore(TenantKey("7", "other"), 5, None)])
    assert keeping.due(book, {"a": ALIVE}, 0, turned=True) == []
