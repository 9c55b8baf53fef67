"""Defines the phases of a task, and the steps by which it moves to another sorter. Pure.

The phases are TiCDC's. A step writes one row of the meta database, under the owner_rev of its writer. The row has:

    next_node   the sorter that prepares: it reads the task's manifests and its pending state, and follows them
    sorter_node the sorter that may claim the task under task_epoch

Correctness does not depend on this module: a sorter works only after it has won a claim manifest of its epoch. So if
two sorters both take themselves for the holder of a task, only one of them can commit (design.md 4). The phases give
speed (a task is prepared before it is taken over) and liveness (every task ends up with one working sorter).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import Enum
from types import MappingProxyType


class Phase(Enum):
    """The phase of a task; docs/scheduling.md has the diagram."""

    ABSENT = "absent"  # no sorter
    PREPARING = "preparing"  # another sorter prepares; the present one, if any, continues
    COMMITTING = "committing"  # given to a sorter that has not reported yet that it holds it
    RUNNING = "running"
    REMOVING = "removing"  # ended by a seal: its children continue


class PhaseEvent(Enum):
    """What changes the phase of a task: a decision of the owner, or a report of a sorter."""

    PREPARE = "prepare"  # the owner names the next sorter
    ABANDON = "abandon"  # the owner abandons the move
    HAND_OVER = "hand over"  # the owner gives the task to a sorter, under a new epoch
    HELD = "held"  # the sorter reports that it works under the newest epoch
    SEALED = "sealed"  # its last manifest names its children


TRANSITIONS: Mapping[Phase, Mapping[PhaseEvent, Phase]] = MappingProxyType(
    {
        Phase.ABSENT: {PhaseEvent.HAND_OVER: Phase.COMMITTING},
        Phase.PREPARING: {
            PhaseEvent.ABANDON: Phase.COMMITTING,  # or running, if its sorter has reported so
            PhaseEvent.HAND_OVER: Phase.COMMITTING,
            PhaseEvent.HELD: Phase.PREPARING,
            PhaseEvent.SEALED: Phase.REMOVING,
        },
        Phase.COMMITTING: {
            PhaseEvent.HELD: Phase.RUNNING,
            PhaseEvent.PREPARE: Phase.PREPARING,
            PhaseEvent.HAND_OVER: Phase.COMMITTING,
            PhaseEvent.SEALED: Phase.REMOVING,
        },
        Phase.RUNNING: {
            PhaseEvent.HELD: Phase.RUNNING,
            PhaseEvent.PREPARE: Phase.PREPARING,
            PhaseEvent.HAND_OVER: Phase.COMMITTING,
            PhaseEvent.SEALED: Phase.REMOVING,
        },
        Phase.REMOVING: {},
    }
)


class WrongStep(Exception):
    """Raised for a step that is not possible in the task's phase."""


@dataclass(frozen=True, slots=True)
class Placement:
    """The sorters of a task and the state of its move, as the scheduler knows them. `held`: its sorter has reported to
    this owner that it holds the task under `task_epoch`. `prepared`: the next sorter has reported that it is ready to
    take the task over. `ordered`: the task is ordered to seal itself, for a split or merge. `sealed`: its sorter has
    reported that it did."""

    task_id: int
    sorter_node: str | None = None
    task_epoch: int = 0
    next_node: str | None = None
    held: bool = False
    prepared: bool = False
    ordered: bool = False  # to seal itself; the order is for any sorter that holds it then
    sealed: bool = False

    @property
    def phase(self) -> Phase:
        """The phase, computed from the other fields so that it cannot contradict them."""
        if self.sealed:
            return Phase.REMOVING
        if self.next_node is not None:
            return Phase.PREPARING
        if self.sorter_node is None:
            return Phase.ABSENT
        return Phase.RUNNING if self.held else Phase.COMMITTING

    def after(self, step: PhaseEvent, node: str | None = None) -> Placement:
        """The task's placement after a step; `node` is the sorter that the step names. Raises WrongStep."""
        if step not in TRANSITIONS[self.phase]:
            raise WrongStep(f"task {self.task_id} is {self.phase.value}: no {step.value}")
        match step:
            case PhaseEvent.PREPARE:
                if node is None or node == self.sorter_node:
                    raise WrongStep(f"task {self.task_id} is at {node} already: there is nothing to move")
                return replace(self, next_node=node, prepared=False)
            case PhaseEvent.ABANDON:
                return replace(self, next_node=None, prepared=False)
            case PhaseEvent.HAND_OVER:
                if node is None:
                    raise WrongStep(f"task {self.task_id} is handed over without a node")
                epoch = self.task_epoch + 1
                return replace(self, sorter_node=node, task_epoch=epoch, next_node=None, held=False, prepared=False)
            case PhaseEvent.HELD:
                return replace(self, held=True)
            case PhaseEvent.SEALED:
                return replace(self, sealed=True, next_node=None, prepared=False)
