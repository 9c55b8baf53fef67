"""Which dispatcher reads which store. Pure.

basic    every store has exactly one dispatcher: a new one, or one whose dispatcher is lost, gets the one with the least
         to do, at once
drain    a dispatcher that is to go has none
balance  no dispatcher has much more to do than another, with a budget of moves

A move is one row: the next dispatcher asks the sorters how far the store has come, and reads on from there. That two
may read a store for a moment costs requests only, since sorters take a store's files in the order of its chain and each
once. So nothing is prepared, and the budget is there for the lag: of a store that moves it grows by about what it takes
to ask and to LIST.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from tistream.model.ids import TenantKey
from tistream_meta.decide.liveness import NodeState
from tistream_meta.decide.model import Store

UNEVEN = 1.2  # times the mean load: above it a dispatcher gives stores away
# What a store costs of which nothing comes, in load's unit: as much as a file with some regions a second. So stores
# that are idle, or not measured yet, are counted.
RESTING = 1_000.0

Loads = Mapping[tuple[TenantKey, int], float]


@dataclass(frozen=True, slots=True)
class Given:
    """A store as it is to be: with whom, and why. `taken`: from a dispatcher that is there, out of the budget."""

    store: Store
    why: str
    taken: bool = False


def summed_up(given: Sequence[Given]) -> list[dict[str, object]]:
    """For a log: how many stores are given for each reason, some of them by name, and to which dispatchers."""
    out: list[dict[str, object]] = []
    for why in sorted({one.why for one in given}):
        of_why = [one.store for one in given if one.why == why]
        nodes = sorted({store.dispatcher_node for store in of_why if store.dispatcher_node})
        named = [f"{store.tenant} {store.store_id}" for store in of_why[:3]]
        out.append({"stores": len(of_why), "named": named, "nodes": nodes, "why": why})
    return out


def allot(stores: Sequence[Store], nodes: Mapping[str, NodeState], loads: Loads, budget: int) -> list[Given]:
    """The stores that are to be given to another dispatcher now; none once everything is as it should be.

    `loads` in bytes of watermarks and references a second, 0 where it is not known. At most `budget` stores are taken
    from dispatchers that are there. Costs n log n of stores and dispatchers.
    """
    alive = [node for node, state in nodes.items() if state is NodeState.ALIVE]
    if not alive:
        return []
    shares = _Shares(alive, stores, loads)
    homeless = [store for store in stores if _lost(store.dispatcher_node, nodes)]
    given = []
    for store in _heaviest_first(homeless, loads):
        why = "new" if store.dispatcher_node is None else f"{store.dispatcher_node} is lost"
        given.append(Given(shares.give(store, shares.least()), why))
    for move in _moves([store for store in stores if not _lost(store.dispatcher_node, nodes)], nodes, loads, shares):
        if budget <= 0:
            break
        given.append(move)
        budget -= 1
    return given


def _lost(node: str | None, nodes: Mapping[str, NodeState]) -> bool:
    return node is None or nodes.get(node, NodeState.LOST) is NodeState.LOST


def _weight(store: Store, loads: Loads) -> float:
    return RESTING + loads.get(store.key, 0.0)


def _heaviest_first(stores: Iterable[Store], loads: Loads) -> list[Store]:
    return sorted(stores, key=lambda store: (-_weight(store, loads), store.key))


class _Shares:
    """What each dispatcher that takes stores will have to do."""

    def __init__(self, nodes: Iterable[str], stores: Iterable[Store], loads: Loads) -> None:
        self.of = dict.fromkeys(sorted(nodes), 0.0)
        self._loads = loads
        for store in stores:
            if store.dispatcher_node in self.of:
                self.of[store.dispatcher_node] += _weight(store, loads)
        self._heap = [(amount, node) for node, amount in self.of.items()]
        heapq.heapify(self._heap)

    def least(self) -> str:
        """The one with the least to do; of equals the first by name."""
        while self._heap[0][0] != self.of[self._heap[0][1]]:
            node = self._heap[0][1]
            heapq.heapreplace(self._heap, (self.of[node], node))
        return self._heap[0][1]

    def give(self, store: Store, node: str) -> Store:
        """The store with that dispatcher; it counts there from now on."""
        amount = _weight(store, self._loads)
        for of, change in ((store.dispatcher_node, -amount), (node, amount)):
            if of in self.of:
                self.of[of] += change
                heapq.heappush(self._heap, (self.of[of], of))
        return replace(store, dispatcher_node=node)


def _moves(stores: Sequence[Store], nodes: Mapping[str, NodeState], loads: Loads, shares: _Shares) -> Iterator[Given]:
    """First away from dispatchers that are to go, then from those with too much to those with the least."""
    leaving = [store for store in stores if nodes[store.dispatcher_node or ""] is NodeState.DRAINING]
    for store in _heaviest_first(leaving, loads):
        yield Given(shares.give(store, shares.least()), f"{store.dispatcher_node} is drained", taken=True)
    enough = UNEVEN * sum(shares.of.values()) / len(shares.of)
    heavy = {node for node, amount in shares.of.items() if amount > enough}
    for store in _heaviest_first([store for store in stores if store.dispatcher_node in heavy], loads):
        source, target, amount = store.dispatcher_node or "", shares.least(), _weight(store, loads)
        # Only what leaves both nearer to the mean: else two would hand one store to and fro.
        if shares.of[source] > enough and shares.of[target] + amount < shares.of[source]:
            yield Given(shares.give(store, target), f"{source} has more to do than others", taken=True)
