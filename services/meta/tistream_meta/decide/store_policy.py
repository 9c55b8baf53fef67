"""Which dispatcher reads which store. Pure.

basic    every store has exactly one dispatcher: a new store, or one whose dispatcher is lost, gets the dispatcher with
         the lowest load, at once
drain    a dispatcher that is being drained has no stores
balance  no dispatcher has a much higher load than another, with a budget of moves

A move is one row: the next dispatcher asks the sorters how far the store has been read, and continues there. Two
dispatchers may read one store for a moment. That costs requests only, because sorters take a store's files in the order
of its chain and each file once. So a move needs no preparation. The budget bounds the lag: the lag of a moving store
grows by about the time that it takes to ask the sorters and to LIST.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from tistream.model.ids import TenantKey
from tistream_meta.decide.liveness import NodeState
from tistream_meta.decide.model import Store

UNEVEN = 1.2  # times the mean load: a dispatcher above it gives stores away
# Load of a store that pushes nothing, in the unit of loads: as much as a file with some regions each second. With it,
# stores that are idle or not measured yet count.
RESTING = 1_000.0

Loads = Mapping[tuple[TenantKey, int], float]


@dataclass(frozen=True, slots=True)
class Given:
    """A store with its new dispatcher, and the reason. `taken`: from a live dispatcher, so it counts against the
    budget.
    """

    store: Store
    why: str
    taken: bool = False


def summed_up(given: Sequence[Given]) -> list[dict[str, object]]:
    """Log fields: for each reason the number of stores, three of them by name, and their dispatchers."""
    out: list[dict[str, object]] = []
    for why in sorted({one.why for one in given}):
        of_why = [one.store for one in given if one.why == why]
        nodes = sorted({store.dispatcher_node for store in of_why if store.dispatcher_node})
        named = [f"{store.tenant} {store.store_id}" for store in of_why[:3]]
        out.append({"stores": len(of_why), "named": named, "nodes": nodes, "why": why})
    return out


def allot(stores: Sequence[Store], nodes: Mapping[str, NodeState], loads: Loads, budget: int) -> list[Given]:
    """The stores to assign to another dispatcher now; empty if nothing needs to change.

    `loads`: bytes of watermarks and references per second; 0 if not known. At most `budget` stores are taken from live
    dispatchers. Costs n log n in stores and dispatchers.
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
    """The load that each live dispatcher will have."""

    def __init__(self, nodes: Iterable[str], stores: Iterable[Store], loads: Loads) -> None:
        self.of = dict.fromkeys(sorted(nodes), 0.0)
        self._loads = loads
        for store in stores:
            if store.dispatcher_node in self.of:
                self.of[store.dispatcher_node] += _weight(store, loads)
        self._heap = [(amount, node) for node, amount in self.of.items()]
        heapq.heapify(self._heap)

    def least(self) -> str:
        """The dispatcher with the lowest load; of equals the first by name."""
        while self._heap[0][0] != self.of[self._heap[0][1]]:
            node = self._heap[0][1]
            heapq.heapreplace(self._heap, (self.of[node], node))
        return self._heap[0][1]

    def give(self, store: Store, node: str) -> Store:
        """The store with this dispatcher; its load counts there from now on."""
        amount = _weight(store, self._loads)
        for of, change in ((store.dispatcher_node, -amount), (node, amount)):
            if of in self.of:
                self.of[of] += change
                heapq.heappush(self._heap, (self.of[of], of))
        return replace(store, dispatcher_node=node)


def _moves(stores: Sequence[Store], nodes: Mapping[str, NodeState], loads: Loads, shares: _Shares) -> Iterator[Given]:
    """Moves in the order of their priority: first away from dispatchers that are being drained, then from overloaded
    dispatchers to the least loaded.
    """
    leaving = [store for store in stores if nodes[store.dispatcher_node or ""] is NodeState.DRAINING]
    for store in _heaviest_first(leaving, loads):
        yield Given(shares.give(store, shares.least()), f"{store.dispatcher_node} is drained", taken=True)
    enough = UNEVEN * sum(shares.of.values()) / len(shares.of)
    heavy = {node for node, amount in shares.of.items() if amount > enough}
    for store in _heaviest_first([store for store in stores if store.dispatcher_node in heavy], loads):
        source, target, amount = store.dispatcher_node or "", shares.least(), _weight(store, loads)
        # Move only if both come nearer to the mean: else two dispatchers would hand one store to and fro.
        if shares.of[source] > enough and shares.of[target] + amount < shares.of[source]:
            yield Given(shares.give(store, target), f"{source} has more to do than others", taken=True)
