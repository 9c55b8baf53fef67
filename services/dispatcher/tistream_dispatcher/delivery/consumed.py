"""Finds the change files of a store that no recovery can need any more (docs/adr/0009, invariant 12). Pure.

If the newest manifest of a task does not need a file, no later manifest of the task or of its children needs it:
positions and flushed_ts only rise, a child of several tasks begins with their lowest positions, and a pending row
points into files that its task pointed into before, or has read since. So outdated facts about a task do no harm, and
neither do those of its sealed parents. But while nothing is known of a task, no file is deleted. For each store, let c
be the newest chain that every task has begun, and whose beginning every task has flushed:

    files before the first of c        not needed: older chains are closed (chain.py)
    of c, up to the lowest position    every task has a manifest that covers them
    files that are pointed into, or    needed, and so are all files above them
    lie in a sorter's inbox
    the newest file of any chain       kept (chain.py, collection.py): its writer continues there, and it keeps
                                       other writers from continuing the chain
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from tistream.format.manifest import ChainPosition
from tistream.model.ts import MAX_TS

Chains = Mapping[int, tuple[ChainPosition, ...]]  # by store


@dataclass(frozen=True, slots=True)
class TaskNeeds:
    """The change files that a task would need after a crash. `flushed_ts` and `durable` (positions) are those of its
    newest manifest. `pointed`: by store, the oldest file whose values its pending parts still use. `received`: the
    positions of the files that its sorter has received, in manifests or not."""

    flushed_ts: int
    durable: Chains
    pointed: Mapping[int, int]
    received: Chains


@dataclass(frozen=True, slots=True)
class ConsumedMark:
    """Which files of a store may be deleted: no task needs a file with ts <= `through`. All chains before `chain_ts`
    are closed."""

    chain_ts: int
    through: int


def consumed(tasks: Iterable[TaskNeeds | None], store_id: int) -> ConsumedMark | None:
    """Find out which files of a store may be deleted; None if no file may be deleted. `tasks` are all tasks of the
    tenant's route; None stands for a task of which nothing is known."""
    every = list(tasks)
    needs = [task for task in every if task is not None]
    if not needs or len(needs) < len(every):
        return None
    several = [_places(task.durable, store_id) for task in needs]
    flushed_ts = min(task.flushed_ts for task in needs)
    begun = set(several[0]).intersection(*several[1:])
    chain_ts = max((first_ts for first_ts in begun if first_ts <= flushed_ts), default=None)
    if chain_ts is None:
        return None
    through = min(at[chain_ts] for at in several)
    later = min((first_ts for at in several for first_ts in at if first_ts > chain_ts), default=MAX_TS)
    pointed = min((task.pointed.get(store_id, MAX_TS) for task in needs), default=MAX_TS)
    under_way = min(_under_way(task, at, store_id) for task, at in zip(needs, several, strict=True))
    return ConsumedMark(chain_ts, min(through, later - 1, pointed - 1, under_way))


def chain_begins(tasks: Iterable[TaskNeeds | None], store_id: int) -> set[int]:
    """The first ts of each chain of the store in which a task has a position, closed chains included."""
    known = (positions for task in tasks if task is not None for positions in (task.durable, task.received))
    return {chain.first_ts for positions in known for chain in positions.get(store_id, ())}


def _places(positions: Chains, store_id: int) -> dict[int, int]:
    return {chain.first_ts: chain.at_ts for chain in positions.get(store_id, ())}


def _under_way(task: TaskNeeds, durable: Mapping[int, int], store_id: int) -> int:
    """The highest ts below all files that the task's sorter has received and that no manifest covers yet. A tick may
    still read such files, even if their chain was closed in the meantime."""
    begins = [
        durable.get(first_ts, first_ts - 1)
        for first_ts, at_ts in _places(task.received, store_id).items()
        if durable.get(first_ts, -1) < at_ts
    ]
    return min(begins, default=MAX_TS)
