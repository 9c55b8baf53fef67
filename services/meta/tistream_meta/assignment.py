"""Which node serves which task. Pure: decides from what is there; the repository makes it true.

Every change of a task's sorter, and every start of that sorter, takes a new task_epoch; the epoch never falls.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tistream_meta.liveness import Liveness


@dataclass(frozen=True, slots=True)
class Held:
    """A task and who serves it now; None while nobody does."""

    task_id: int
    sorter_node: str | None


@dataclass(frozen=True, slots=True)
class Move:
    """Give the task to this sorter, under a new epoch."""

    task_id: int
    sorter_node: str


def assign(tasks: Sequence[Held], sorters: Mapping[str, Liveness]) -> tuple[Move, ...]:
    """Moves that give every task a sorter.

    A task without a sorter, or with a lost one, goes to the alive sorter with the fewest tasks; ties go to the first
    name, tasks in the order given, so neighbours in the key space spread over the sorters. Tasks of a lost sorter
    stay while no other is alive: nothing is won by taking them away, and a restart gets them back.
    """
    alive = sorted(node for node, state in sorters.items() if state is Liveness.ALIVE)
    if not alive:
        return ()
    load = dict.fromkeys(alive, 0)
    homeless = []
    for task in tasks:
        node = task.sorter_node
        if node is None or sorters.get(node, Liveness.LOST) is Liveness.LOST:
            homeless.append(task.task_id)
        elif node in load:
            load[node] += 1
    moves = []
    for task_id in homeless:
        least = min(alive, key=lambda name: (load[name], name))
        load[least] += 1
        moves.append(Move(task_id, least))
    return tuple(moves)
