"""Assigns stores to dispatchers. Pure. There are three policies:

* basic: every store has exactly one dispatcher. A new store, or one whose dispatcher is lost, gets the dispatcher with
  the lowest load at once.
* drain: a dispatcher that is being drained has no stores.
* balance: no dispatcher has a much higher load than another. The number of moves at a time is limited.

A move writes one row: the next dispatcher asks the sorters up to which file the store has been read, and continues
there. Two dispatchers may read one store for a moment. That costs requests only, because sorters accept a store's files
in the order of its chain and each file once. So a move needs no preparation. The limit of moves bounds the lag: the lag
of a moving store grows by about the time that it takes to ask the sorters and to LIST.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice

from tistream.model.ids import TenantKey
from tistream_meta.decide.balance import UNEVEN, Move, NodeLoads, WeighedItem, drain, even_out
from tistream_meta.decide.liveness import NodeState, is_lost
from tistream_meta.decide.model import Store

# Load of a store that pushes nothing, in the unit of loads: as much as a file with some regions each second. With it,
# stores that are idle or not measured yet count.
RESTING = 1_000.0

Loads = Mapping[tuple[TenantKey, int], float]


@dataclass(frozen=True, slots=True)
class StoreAssignment:
    """A store with its new dispatcher, and the reason. `taken`: a live dispatcher loses the store, so the move counts
    against the limit of moves."""

    store: Store
    why: str
    taken: bool = False


def summed_up(given: Sequence[StoreAssignment]) -> list[dict[str, object]]:
    """A summary of assignments for the log: for each reason the number of stores, the names of three stores, and their
    new dispatchers."""
    out: list[dict[str, object]] = []
    for why in sorted({one.why for one in given}):
        of_why = [one.store for one in given if one.why == why]
        nodes = sorted({store.dispatcher_node for store in of_why if store.dispatcher_node})
        named = [f"{store.tenant} {store.store_id}" for store in of_why[:3]]
        out.append({"stores": len(of_why), "named": named, "nodes": nodes, "why": why})
    return out


def assignments(
    stores: Sequence[Store], nodes: Mapping[str, NodeState], loads: Loads, budget: int
) -> list[StoreAssignment]:
    """The stores that must be assigned to another dispatcher now; empty if nothing needs to change. `loads`: bytes of
    watermarks and references per second; 0 if not known. At most `budget` stores are taken from live dispatchers. Costs
    n log n in stores and dispatchers."""
    alive = [node for node, state in nodes.items() if state is NodeState.ALIVE]
    if not alive:
        return []
    shares = _expected_loads(alive, stores, loads)
    given = []
    for one in _heaviest_first((store for store in stores if is_lost(store.dispatcher_node, nodes)), loads):
        node = shares.least()
        shares.give(node, one.amount)
        why = f"{one.node} is lost" if one.node else "new"
        given.append(StoreAssignment(replace(one.item, dispatcher_node=node), why))
    kept = [store for store in stores if not is_lost(store.dispatcher_node, nodes)]
    given += (
        StoreAssignment(replace(move.item, dispatcher_node=move.target), move.why, taken=True)
        for move in islice(_moves(kept, nodes, loads, shares), max(0, budget))
    )
    return given


def _weight(store: Store, loads: Loads) -> float:
    return RESTING + loads.get(store.key, 0.0)


def _heaviest_first(stores: Iterable[Store], loads: Loads) -> list[WeighedItem[Store]]:
    weighed = [WeighedItem(store, store.dispatcher_node or "", _weight(store, loads)) for store in stores]
    return sorted(weighed, key=lambda one: (-one.amount, one.item.key))


def _expected_loads(nodes: Iterable[str], stores: Iterable[Store], loads: Loads) -> NodeLoads:
    """The load of each live dispatcher, from the stores that it has."""
    of = dict.fromkeys(sorted(nodes), 0.0)
    for store in stores:
        if store.dispatcher_node in of:
            of[store.dispatcher_node] += _weight(store, loads)
    return NodeLoads(of)


def _moves(
    stores: Sequence[Store], nodes: Mapping[str, NodeState], loads: Loads, shares: NodeLoads
) -> Iterator[Move[Store]]:
    """The moves of stores, most important first: away from dispatchers that are being drained, then from overloaded
    dispatchers to the least loaded."""
    leaving = [store for store in stores if nodes[store.dispatcher_node or ""] is NodeState.DRAINING]
    yield from drain(_heaviest_first(leaving, loads), shares)
    enough = UNEVEN * shares.mean()
    heavy = {node for node, amount in shares.of.items() if amount > enough}
    here = [store for store in stores if store.dispatcher_node in heavy]
    yield from even_out(_heaviest_first(here, loads), shares, UNEVEN, fill=False)
