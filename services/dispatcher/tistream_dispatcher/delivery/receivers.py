"""Records which files each task of a tenant has received, and so which files it lacks. Pure.

A task's positions come from its sorter: all of them from `GET /v1/tasks`, and those of sent files from the answers to
`POST /v1/files`. They may decrease: a sorter that restarted, or that found a file damaged, needs files again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from tistream.format.manifest import ChainPosition
from tistream.wire.sorter import Chain, TaskStatus
from tistream_dispatcher.delivery.consumed import TaskNeeds

Positions = Mapping[int, tuple[ChainPosition, ...]]


@dataclass(frozen=True, slots=True)
class FilePlace:
    """Identifies a file by its store, its chain (the ts of the chain's first file), and its own ts."""

    store_id: int
    chain_ts: int
    ts: int


def positions_of(received: Mapping[int, Iterable[Chain]]) -> dict[int, tuple[ChainPosition, ...]]:
    """Convert positions from the form of HTTP messages. Returns by store the position in each of its chains, ordered by
    the chains' first ts."""
    return {
        store: tuple(sorted((ChainPosition(chain.first_ts, chain.at_ts) for chain in chains), key=lambda c: c.first_ts))
        for store, chains in received.items()
    }


@dataclass(frozen=True, slots=True)
class DurableState:
    """The change files that a task's newest manifest needs, as its sorter reported them. `positions`: those of the
    manifest. `pointed`: by store, the oldest file whose values the pending parts still use."""

    flushed_ts: int
    positions: Positions
    pointed: Mapping[int, int]


@dataclass(slots=True)
class Receivers:
    """The positions of a tenant's tasks, in each chain of each store. No file is sent to a task whose positions are not
    known yet. `received`: by task and store, the positions of the files that the task's sorter has received. `flushed`:
    by task, its flushed_ts. `durable`: by task, the files that its newest manifest needs, if its sorter has reported
    them."""

    received: dict[int, dict[int, tuple[ChainPosition, ...]]] = field(default_factory=dict)
    flushed: dict[int, int] = field(default_factory=dict)
    durable: dict[int, DurableState] = field(default_factory=dict)
    newest_ts: int = 0  # the newest file of all that any task has ever reported, whichever dispatcher sent it

    def set_received(self, task_id: int, received: Mapping[int, Sequence[Chain]]) -> None:
        """Replace the positions of a task."""
        self.received[task_id] = positions_of(received)
        self.newest_ts = max([self.newest_ts, *(chain.at_ts for chains in received.values() for chain in chains)])

    def set_status(self, status: TaskStatus, epoch: int) -> None:
        """Store the positions in a sorter's status of a task. The files that its manifests cover are stored only if the
        sorter holds the task under `epoch`."""
        task_id = status.task_id
        self.set_received(task_id, status.received)
        self.flushed[task_id] = status.flushed_ts
        if status.task_epoch == epoch and status.pointed is not None:
            positions = positions_of(status.durable)
            self.durable[task_id] = DurableState(status.flushed_ts, positions, status.pointed)
        else:
            self.durable.pop(task_id, None)

    def forget(self, task_id: int) -> None:
        """Forget the task's positions and the files that its manifest needs, because they are not known any more."""
        self.received.pop(task_id, None)
        self.durable.pop(task_id, None)

    def keep_only(self, task_ids: Iterable[int]) -> None:
        """Forget all tasks but these."""
        wanted = set(task_ids)
        self.received = {task: positions for task, positions in self.received.items() if task in wanted}
        self.flushed = {task: ts for task, ts in self.flushed.items() if task in wanted}
        self.durable = {task: durable for task, durable in self.durable.items() if task in wanted}

    def needs(self, task_ids: Iterable[int]) -> list[TaskNeeds | None]:
        """For each task, the files that it would need after a crash; None for a task of which that is not known."""
        return [self._needs(task_id) for task_id in task_ids]

    def _needs(self, task_id: int) -> TaskNeeds | None:
        durable, received = self.durable.get(task_id), self.received.get(task_id)
        if durable is None or received is None:
            return None
        return TaskNeeds(durable.flushed_ts, durable.positions, durable.pointed, received)

    def flushed_by_all(self, task_ids: Iterable[int]) -> int | None:
        """The ts up to which all of these tasks have flushed; None if it is not known for some task. It only rises, and
        children begin where their parents ended, so what is known of parents is true for their children too."""
        known = [self.durable.get(task_id) for task_id in task_ids]
        flushed = [one.flushed_ts for one in known if one is not None]
        return min(flushed) if flushed and len(flushed) == len(known) else None

    def flushed_ts(self) -> int:
        """The lowest flushed_ts of the known tasks; 0 if no task is known."""
        return min((self.flushed.get(task, 0) for task in self.received), default=0)

    def at(self, task_id: int, store_id: int, chain_ts: int) -> int | None:
        """The task's position in a chain; None if it has no position there."""
        for chain in self.received[task_id].get(store_id, ()):
            if chain.first_ts == chain_ts:
                return chain.at_ts
        return None

    def lacks(self, task_id: int, place: FilePlace) -> bool:
        """Whether the file must be sent to the task: the positions of the task are known, and the file is not among the
        received ones."""
        if task_id not in self.received:
            return False
        at_ts = self.at(task_id, place.store_id, place.chain_ts)
        if at_ts is None:
            return not self.outlived(task_id, place.store_id, place.chain_ts)
        return at_ts < place.ts

    def outlived(self, task_id: int, store_id: int, chain_ts: int) -> bool:
        """Whether the task accepts no more files of the chain that begins at `chain_ts`, because its sorter has a later
        chain of the store whose first ts is at or below the task's flushed_ts. Ask only for a chain in which the task
        has no position."""
        flushed_ts = self.flushed.get(task_id, 0)
        return any(chain_ts < chain.first_ts <= flushed_ts for chain in self._chains(task_id, store_id))

    def lowest_positions(self, store_id: int) -> tuple[ChainPosition, ...]:
        """For each chain of the store, the lowest position of all known tasks: reading must continue there, so that no
        task lacks a file.

        A chain is left out, so that it is read from its first file, if some task has no position in it and still
        accepts its files (it has not `outlived` the chain). A chain is also left out if a later chain of the store
        began at or below the lowest flushed_ts, because no task needs its files any more.
        """
        firsts = sorted({chain.first_ts for task in self.received for chain in self._chains(task, store_id)})
        flushed_ts = self.flushed_ts()
        while len(firsts) > 1 and firsts[1] <= flushed_ts:
            del firsts[0]
        out = []
        for first_ts in firsts:
            positions = {task: self.at(task, store_id, first_ts) for task in self.received}
            if all(at is not None or self.outlived(task, store_id, first_ts) for task, at in positions.items()):
                out.append(ChainPosition(first_ts, min(at for at in positions.values() if at is not None)))
        return tuple(out)

    def open_chains(self, store_id: int) -> set[int]:
        """The first ts of each chain of the store from which some known task may still need files."""
        return {
            chain.first_ts
            for task in self.received
            for chain in self._chains(task, store_id)
            if not self.outlived(task, store_id, chain.first_ts)
        }

    def stores(self) -> set[int]:
        """The stores from which some task has received a file."""
        return {store for positions in self.received.values() for store in positions}

    def _chains(self, task_id: int, store_id: int) -> tuple[ChainPosition, ...]:
        return self.received[task_id].get(store_id, ())
