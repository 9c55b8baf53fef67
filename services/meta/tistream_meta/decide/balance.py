"""Balances load over nodes: chooses the items that move, and the node with the lowest load for each. Pure.

task_policy.py uses it for tasks on sorters, store_policy.py for stores on dispatchers. These modules decide which items
may move, in which order, and how many at a time.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

Item = TypeVar("Item")

UNEVEN = 1.2  # times the mean load: a node above it has too much; one below 1/UNEVEN of the mean has too little


class NodeLoads:
    """The expected load of each live node. An item that is moving counts at its destination."""

    def __init__(self, of: Mapping[str, float]) -> None:
        self.of = {node: of[node] for node in sorted(of)}
        self._heap = [(amount, node) for node, amount in self.of.items()]
        heapq.heapify(self._heap)

    def among(self, nodes: Iterable[str]) -> NodeLoads:
        """A copy of the loads for exactly these nodes, which are alive now. A new node has load 0."""
        return NodeLoads({node: self.of.get(node, 0.0) for node in nodes})

    def least(self) -> str:
        """The node with the lowest load; of several, the first by name. At least one node must exist."""
        while True:
            amount, node = self._heap[0]
            if amount == self.of[node]:
                return node
            heapq.heapreplace(self._heap, (self.of[node], node))

    def mean(self) -> float:
        """The mean load of a node. At least one node must exist."""
        return sum(self.of.values()) / len(self.of)

    def give(self, node: str, amount: float) -> None:
        """Add `amount` to the load of a node."""
        self.of[node] += amount
        heapq.heappush(self._heap, (self.of[node], node))

    def move(self, source: str | None, target: str, amount: float) -> None:
        """Move `amount` of load from `source` to `target`. `source` may be None, or a node that is not alive."""
        if source is not None and source in self.of:
            self.give(source, -amount)
        self.give(target, amount)


@dataclass(frozen=True, slots=True)
class WeighedItem(Generic[Item]):
    """An item that can be moved, its load, and the node that has it."""

    item: Item
    node: str
    amount: float


@dataclass(frozen=True, slots=True)
class Move(Generic[Item]):
    """An item that must move, the node that it moves to, and why."""

    item: Item
    target: str
    why: str


def drain(items: Iterable[WeighedItem[Item]], loads: NodeLoads) -> Iterator[Move[Item]]:
    """Yield a move of each item to the node with the lowest load at that moment. Each move that the caller takes from
    the iterator is added to `loads`."""
    for one in items:
        target = loads.least()
        loads.move(one.node, target, one.amount)
        yield Move(one.item, target, f"{one.node} is drained")


def even_out(
    items: Iterable[WeighedItem[Item]], loads: NodeLoads, uneven: float, *, fill: bool
) -> Iterator[Move[Item]]:
    """Yield moves of items from nodes above `uneven` times the mean load to the node with the lowest load. With `fill`,
    items also move from nodes above the mean, while the node with the lowest load is below the mean divided by
    `uneven`. An item moves only if its new node then has less load than the old one had. Items are considered in their
    order, each once. Each move that the caller takes from the iterator is added to `loads`."""
    mean = loads.mean()
    for one in items:
        source, target = one.node, loads.least()
        much, little = loads.of[source] > uneven * mean, fill and loads.of[target] * uneven < mean
        # Move only if both come nearer to the mean: else two nodes would hand one item to and fro.
        if (much or (little and loads.of[source] > mean)) and loads.of[target] + one.amount < loads.of[source]:
            loads.move(source, target, one.amount)
            yield Move(one.item, target, f"{source} has more to do than others")
