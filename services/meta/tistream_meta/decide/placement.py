"""Where a task is, and the steps by which it moves. Pure.

The phases are TiCDC's; what a step writes is one row of the meta database, under the owner_rev of who takes it:

    next_node   the sorter that prepares: it reads the task's manifests and what is pending, and follows them
    sorter_node the sorter that may claim the task under task_epoch

Safety does not rest on any of this: a sorter works only after it has won a claim manifest of its epoch, so two that
believe to hold a task cannot both commit (design.md 4). What the phases give is speed (it is prepared before it is
taken over) and liveness (every task ends up with one sorter that works).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import Enum
from types import MappingProxyType


class Phase(Enum):
    """Of a task."""

    ABSENT = "absent"  # no sorter
    PREPARING = "preparing"  # another sorter gets ready; the one that has it, if any, goes on
    COMMITTING = "committing"  # given to a sorter that has not said yet that it holds it
    RUNNING = "running"
    REMOVING = "removing"  # ended by a seal: its children go on


class Step(Enum):
    """What happens to a task: what the owner decides, and what sorters say."""

    PREPARE = "prepare"  # the owner names the next sorter
    ABANDON = "abandon"  # the owner gives that up
    HAND_OVER = "hand over"  # the owner gives the task to a sorter, under a new epoch
    HELD = "held"  # the sorter says that it works under the newest epoch
    SEALED = "sealed"  # its last manifest names its children


TRANSITIONS: Mapping[Phase, Mapping[Step, Phase]] = MappingProxyType(
    {
        Phase.ABSENT: {Step.HAND_OVER: Phase.COMMITTING},
        Phase.PREPARING: {
            Step.ABANDON: Phase.COMMITTING,  # or running, if its sorter has said so
            Step.HAND_OVER: Phase.COMMITTING,
            Step.HELD: Phase.PREPARING,
            Step.SEALED: Phase.REMOVING,
        },
        Phase.COMMITTING: {
            Step.HELD: Phase.RUNNING,
            Step.PREPARE: Phase.PREPARING,
            Step.HAND_OVER: Phase.COMMITTING,
            Step.SEALED: Phase.REMOVING,
        },
        Phase.RUNNING: {
            Step.HELD: Phase.RUNNING,
            Step.PREPARE: Phase.PREPARING,
            Step.HAND_OVER: Phase.COMMITTING,
            Step.SEALED: Phase.REMOVING,
        },
        Phase.REMOVING: {},
    }
)


class WrongStep(Exception):
    """A step that a task in that phase does not take."""


@dataclass(frozen=True, slots=True)
class Placement:
    """A task as the scheduler sees it. `held`, `prepared`: what its sorter, or the next one, has told this owner."""

    task_id: int
    sorter_node: str | None = None
    task_epoch: int = 0
    next_node: str | None = None
    held: bool = False
    prepared: bool = False
    ordered: bool = False  # to seal itself: whoever holds it then does
    sealed: bool = False

    @property
    def phase(self) -> Phase:
        """Follows from the rest: there is nothing to get out of step."""
        if self.sealed:
            return Phase.REMOVING
        if self.next_node is not None:
            return Phase.PREPARING
        if self.sorter_node is None:
            return Phase.ABSENT
        return Phase.RUNNING if self.held else Phase.COMMITTING

    def after(self, step: Step, node: str | None = None) -> Placement:
        """The task once the step is taken; `node` is the one that it is about. Raises WrongStep."""
        if step not in TRANSITIONS[self.phase]:
            raise WrongStep(f"task {self.task_id} is {self.phase.value}: no {step.value}")
        match step:
            case Step.PREPARE:
                if node is None or node == self.sorter_node:
                    raise WrongStep(f"task {self.task_id} is with {node} already")
                return replace(self, next_node=node, prepared=False)
            case Step.ABANDON:
                return replace(self, next_node=None, prepared=False)
            case Step.HAND_OVER:
                if node is None:
                    raise WrongStep(f"task {self.task_id} is handed to nobody")
                epoch = self.task_epoch + 1
                return replace(self, sorter_node=node, task_epoch=epoch, next_node=None, held=False, prepared=False)
            case Step.HELD:
                return replace(self, held=True)
            case Step.SEALED:
                return replace(self, sealed=True, next_node=None, prepared=False)
