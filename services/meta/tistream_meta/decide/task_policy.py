"""Assigns tasks to sorters: decides which node gets a task. Policies choose moves, and each move is executed in steps.
Pure. There are three policies:

* basic: every task has exactly one sorter.
* drain: a node that is being drained has no task.
* balance: no sorter has much more load than the mean, or much less. The number of moves at a time is limited.

For each task, the first policy in this order that has a step for it decides. A task that has a sorter moves in two
phases: the next sorter prepares while the present one continues. A task without a sorter, or whose sorter is lost, is
handed over at once.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice

from tistream_meta.decide.balance import UNEVEN, Move, NodeLoads, WeighedItem, drain, even_out
from tistream_meta.decide.liveness import NodeState, is_lost
from tistream_meta.decide.task_phases import Phase, PhaseEvent, Placement

MOVES_MAX = 8  # tasks under way to another sorter at a time


@dataclass(frozen=True, slots=True)
class Command:
    """One step of a task's move that must be executed, and the reason for it."""

    task_id: int
    step: PhaseEvent
    node: str | None = None
    why: str = ""


@dataclass(frozen=True, slots=True)
class MoveLimits:
    """Limits of balancing: the number of tasks that move at a time, and the load of a sorter, as a multiple of the
    mean, above which tasks are moved away from it."""

    moves_max: int = MOVES_MAX
    uneven: float = UNEVEN


DEFAULT_LIMITS = MoveLimits()


def expected_loads(nodes: Iterable[str], placements: Iterable[Placement], load: Mapping[int, float]) -> NodeLoads:
    """The load of each live sorter, from the tasks that it has. A moving task counts at its destination."""
    of = dict.fromkeys(sorted(nodes), 0.0)
    for task in placements:
        node = task.next_node or task.sorter_node
        if node in of:
            of[node] += _load(task, load)
    return NodeLoads(of)


def schedule(
    placements: Sequence[Placement],
    nodes: Mapping[str, NodeState],
    load: Mapping[int, float],
    limits: MoveLimits = DEFAULT_LIMITS,
) -> list[Command]:
    """Compute the steps of moves to execute now; empty if nothing needs to change. `load`: of each task; 1 for a task
    without an entry. Costs n log n in tasks and nodes."""
    loads = expected_loads(alive(nodes), placements, load)
    return [*urgent(placements, nodes, load, loads), *spread(placements, nodes, load, loads, limits)]


def alive(nodes: Mapping[str, NodeState]) -> list[str]:
    """The nodes to which tasks may be assigned."""
    return [node for node, state in nodes.items() if state is NodeState.ALIVE]


def urgent(
    placements: Iterable[Placement], nodes: Mapping[str, NodeState], load: Mapping[int, float], loads: NodeLoads
) -> list[Command]:
    """Compute the steps that must not wait: the next steps of moves in progress, and the assignment of a sorter to each
    task without one. Each task is decided by itself, so the caller may pass only tasks whose state has changed. Adds
    the load of each assigned task to `loads`."""
    found = (_under_way(task, nodes) or _basic(task, nodes, load, loads) for task in placements)
    return [command for command in found if command is not None]


def spread(
    placements: Sequence[Placement],
    nodes: Mapping[str, NodeState],
    load: Mapping[int, float],
    loads: NodeLoads,
    limits: MoveLimits,
) -> list[Command]:
    """Begin moves away from nodes that are being drained, and to sorters with a lower load, within `limits`. Adds each
    move to `loads`."""
    if not loads.of:
        return []
    budget = limits.moves_max - sum(task.phase is Phase.PREPARING for task in placements)
    settled = [
        task
        for task in placements
        if task.phase in (Phase.COMMITTING, Phase.RUNNING) and not is_lost(task.sorter_node, nodes)
    ]
    return list(islice(_moves(settled, nodes, load, loads, limits), max(0, budget)))


def _load(task: Placement, load: Mapping[int, float]) -> float:
    return load.get(task.task_id, 1.0)


def _under_way(task: Placement, nodes: Mapping[str, NodeState]) -> Command | None:
    """The next step of a moving task: hand it over, or abandon the move; None if the move must wait."""
    if task.next_node is None or task.sealed:
        return None
    if nodes.get(task.next_node) is not NodeState.ALIVE:
        return Command(task.task_id, PhaseEvent.ABANDON, None, f"{task.next_node} is not alive")
    if task.prepared:
        return Command(task.task_id, PhaseEvent.HAND_OVER, task.next_node, "prepared")
    if is_lost(task.sorter_node, nodes):
        return Command(task.task_id, PhaseEvent.HAND_OVER, task.next_node, f"{task.sorter_node} is lost")
    return None


def _basic(
    task: Placement, nodes: Mapping[str, NodeState], load: Mapping[int, float], loads: NodeLoads
) -> Command | None:
    """Assign a task without a live sorter to the sorter with the lowest load. Returns None if the task has a live
    sorter. Tasks of a lost sorter stay there while no other sorter is alive."""
    if not loads.of or task.next_node is not None or task.sealed or not is_lost(task.sorter_node, nodes):
        return None
    node = loads.least()
    loads.give(node, _load(task, load))
    why = "it has no sorter" if task.sorter_node is None else f"{task.sorter_node} is lost"
    return Command(task.task_id, PhaseEvent.HAND_OVER, node, why)


def _moves(
    tasks: Sequence[Placement],
    nodes: Mapping[str, NodeState],
    load: Mapping[int, float],
    loads: NodeLoads,
    limits: MoveLimits,
) -> Iterator[Command]:
    """The moves of tasks, most important first: away from nodes that are being drained, then from overloaded sorters to
    the least loaded."""
    weighed = [WeighedItem(task, task.sorter_node, _load(task, load)) for task in tasks if task.sorter_node is not None]
    yield from map(_prepare, drain((one for one in weighed if nodes.get(one.node) is NodeState.DRAINING), loads))
    by_load = sorted(
        (one for one in weighed if one.item.phase is Phase.RUNNING and not one.item.ordered and one.node in loads.of),
        key=lambda one: (-one.amount, one.item.task_id),
    )
    yield from map(_prepare, even_out(by_load, loads, limits.uneven, fill=True))


def _prepare(move: Move[Placement]) -> Command:
    return Command(move.item.task_id, PhaseEvent.PREPARE, move.target, move.why)
