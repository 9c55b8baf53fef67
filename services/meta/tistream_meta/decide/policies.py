"""What should become of the tasks: separate policies, each with intents, and the steps that follow from them. Pure.

basic    every task has exactly one sorter
drain    a node that is to go has none
balance  no sorter has much more load than the mean, or much less, with a budget of moves

The first policy that wants something of a task has it. A task that has a sorter moves in two phases: the next one
prepares while the first goes on. One that has none, or whose sorter is lost, is handed over at once.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice

from tistream_meta.decide.liveness import NodeState
from tistream_meta.decide.placement import Phase, Placement, Step

MOVES_MAX = 8  # tasks under way to another sorter at a time
UNEVEN = 1.2  # times the mean load: a sorter above it gives tasks away; one below 1/UNEVEN of the mean gets some


@dataclass(frozen=True, slots=True)
class Command:
    """One step to execute."""

    task_id: int
    step: Step
    node: str | None = None
    why: str = ""


@dataclass(frozen=True, slots=True)
class MoveLimits:
    """Limits of balancing: tasks that move at a time, and how far above the mean load a sorter may be."""

    moves_max: int = MOVES_MAX
    uneven: float = UNEVEN


DEFAULT_LIMITS = MoveLimits()


class Loads:
    """The load that each live sorter will have: a moving task counts at its destination."""

    def __init__(self, nodes: Iterable[str], placements: Iterable[Placement], load: Mapping[int, float]) -> None:
        self.of = dict.fromkeys(sorted(nodes), 0.0)
        for task in placements:
            node = task.next_node or task.sorter_node
            if node in self.of:
                self.of[node] += _load(task, load)
        self._heap = [(amount, node) for node, amount in self.of.items()]
        heapq.heapify(self._heap)

    def among(self, nodes: Iterable[str]) -> Loads:
        """The same loads for the sorters that are alive now; a new one starts at 0."""
        now = Loads(nodes, (), {})
        for node in now.of:
            now.of[node] = self.of.get(node, 0.0)
        now._heap = [(amount, node) for node, amount in now.of.items()]
        heapq.heapify(now._heap)
        return now

    def least(self) -> str:
        """The sorter with the lowest load; of equals the first by name."""
        while True:
            amount, node = self._heap[0]
            if amount == self.of[node]:
                return node
            heapq.heapreplace(self._heap, (self.of[node], node))

    def add(self, node: str, amount: float) -> None:
        """Add `amount` (which may be negative) to a node's load."""
        self.of[node] += amount
        heapq.heappush(self._heap, (self.of[node], node))


def schedule(
    placements: Sequence[Placement],
    nodes: Mapping[str, NodeState],
    load: Mapping[int, float],
    limits: MoveLimits = DEFAULT_LIMITS,
) -> list[Command]:
    """The steps to execute now; empty if nothing needs to change. The `load` of a task is 1 if it is not known.

    Costs n log n in tasks and nodes.
    """
    loads = Loads(alive(nodes), placements, load)
    return [*urgent(placements, nodes, load, loads), *spread(placements, nodes, load, loads, limits)]


def alive(nodes: Mapping[str, NodeState]) -> list[str]:
    """Nodes that may be given tasks."""
    return [node for node, state in nodes.items() if state is NodeState.ALIVE]


def urgent(
    placements: Iterable[Placement], nodes: Mapping[str, NodeState], load: Mapping[int, float], loads: Loads
) -> list[Command]:
    """Steps that must not be delayed: moves under way, and sorters for tasks without one. Each task is decided by
    itself, so the caller may pass only tasks whose state has changed.
    """
    found = (_under_way(task, nodes) or _basic(task, nodes, load, loads) for task in placements)
    return [command for command in found if command is not None]


def spread(
    placements: Sequence[Placement],
    nodes: Mapping[str, NodeState],
    load: Mapping[int, float],
    loads: Loads,
    limits: MoveLimits,
) -> list[Command]:
    """Moves away from nodes that are being drained, and to sorters with a lower load, within the budget."""
    if not loads.of:
        return []
    budget = limits.moves_max - sum(task.phase is Phase.PREPARING for task in placements)
    settled = [
        task
        for task in placements
        if task.phase in (Phase.COMMITTING, Phase.RUNNING) and not _lost(task.sorter_node, nodes)
    ]
    return list(islice(_moves(settled, nodes, load, loads, limits), max(0, budget)))


def _load(task: Placement, load: Mapping[int, float]) -> float:
    return load.get(task.task_id, 1.0)


def _lost(node: str | None, nodes: Mapping[str, NodeState]) -> bool:
    return node is None or nodes.get(node, NodeState.LOST) is NodeState.LOST


def _under_way(task: Placement, nodes: Mapping[str, NodeState]) -> Command | None:
    """The next step of a moving task: hand it over, or abandon the move."""
    if task.next_node is None or task.sealed:
        return None
    if nodes.get(task.next_node) is not NodeState.ALIVE:
        return Command(task.task_id, Step.ABANDON, None, f"{task.next_node} is not alive")
    if task.prepared:
        return Command(task.task_id, Step.HAND_OVER, task.next_node, "prepared")
    if _lost(task.sorter_node, nodes):
        return Command(task.task_id, Step.HAND_OVER, task.next_node, f"{task.sorter_node} is lost")
    return None


def _basic(task: Placement, nodes: Mapping[str, NodeState], load: Mapping[int, float], loads: Loads) -> Command | None:
    """A task without a live sorter gets the sorter with the lowest load. Tasks of a lost sorter stay while no other
    sorter is alive.
    """
    if not loads.of or task.next_node is not None or task.sealed or not _lost(task.sorter_node, nodes):
        return None
    node = loads.least()
    loads.add(node, _load(task, load))
    why = "it has no sorter" if task.sorter_node is None else f"{task.sorter_node} is lost"
    return Command(task.task_id, Step.HAND_OVER, node, why)


def _moves(
    tasks: Sequence[Placement],
    nodes: Mapping[str, NodeState],
    load: Mapping[int, float],
    loads: Loads,
    limits: MoveLimits,
) -> Iterator[Command]:
    """Moves in the order of their priority: first away from nodes that are being drained, then from overloaded sorters
    to the least loaded.
    """
    for task in tasks:
        if task.sorter_node is not None and nodes.get(task.sorter_node) is NodeState.DRAINING:
            node = loads.least()
            loads.add(node, _load(task, load))
            yield Command(task.task_id, Step.PREPARE, node, f"{task.sorter_node} is drained")
    mean = sum(loads.of.values()) / len(loads.of)
    by_load = sorted(
        (task for task in tasks if task.phase is Phase.RUNNING and not task.ordered and task.sorter_node in loads.of),
        key=lambda task: (-_load(task, load), task.task_id),
    )
    for task in by_load:
        source, amount = task.sorter_node, _load(task, load)
        assert source is not None
        target = loads.least()
        # Move only if both come nearer to the mean: else two sorters would hand one task to and fro.
        much, little = loads.of[source] > limits.uneven * mean, loads.of[target] * limits.uneven < mean
        if (much or (little and loads.of[source] > mean)) and loads.of[target] + amount < loads.of[source]:
            loads.add(source, -amount)
            loads.add(target, amount)
            yield Command(task.task_id, Step.PREPARE, target, f"{source} has more to do than others")
