"""Watches change files being deleted: none may go that a recovery from the manifests that are there would ask for.

It knows nothing of how dispatchers decide. A recovery asks for the files of every chain beyond a task's position in it,
and for what the task's pending rows point into; not for those of a chain that is closed: one that is older than one
which some task has begun, and which all have flushed through the beginning of (design.md 2). And of each chain that a
task has begun the newest file stays: it is where the chain's writer goes on after its death.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from sortedcontainers import SortedList

from tistream.errors import CorruptObject
from tistream.format.change_file import ChangeFile, parse_footer
from tistream.format.manifest import KIND_SEAL, Manifest
from tistream.model.ts import MAX_TS
from tistream.storage import layout


@dataclass
class Sources:
    """Every change file that was ever there. `states`: each task's newest manifest with a state."""

    prev: dict[tuple[int, int], int] = field(default_factory=dict)  # (store, ts) -> prev_ts
    states: dict[int, Manifest] = field(default_factory=dict)
    there: dict[int, SortedList] = field(default_factory=dict)  # by store
    retired: set[int] = field(default_factory=set)  # stores that somebody wanted to be rid of
    before_restore: set[int] = field(default_factory=set)  # tasks that a restored database did not know
    database_tasks: Callable[[], set[int]] = field(default=set)  # those that it knows now
    deleted: int = 0

    def pushed(self, key: str, body: bytes) -> None:
        """An object is there; what is no sound change file is none of ours."""
        identity = layout.parse_change_file(key)
        if identity is None:
            return
        there = self.there.setdefault(identity[1], SortedList())
        if identity[2] not in there:
            there.add(identity[2])
        try:
            found = parse_footer(key, identity, body, len(body))
        except CorruptObject:
            return
        if isinstance(found, ChangeFile):
            self.prev[found.store_id, found.ts] = found.prev_ts

    def noted(self, manifest: Manifest) -> None:
        """A manifest is there."""
        if manifest.slices is not None:
            self.states[manifest.task_id] = manifest

    def gone(self, key: str, last: Mapping[int, Manifest]) -> list[str]:
        """An object is deleted; `last`: each task's newest manifest of any kind. Who still needs it."""
        identity = layout.parse_change_file(key)
        if identity is None:
            return []
        self.deleted += 1
        _, store_id, ts = identity
        living = self._living(last)
        unread = last.keys() - self.states.keys() - self.forgotten
        unheard = [task_id for task_id in sorted(unread) if not self._is_child(task_id)]
        flushed_ts = min((state.flushed_ts for state in living), default=0)
        begun = {chain.first_ts for state in living for chain in state.positions.get(store_id, ())}
        self.there[store_id].discard(ts)
        next_chain = min((first_ts for first_ts in begun if first_ts > ts), default=MAX_TS)
        first_ts = self._chain_of(store_id, ts)
        closed = any(first_ts < newer <= flushed_ts for newer in begun)
        problems = [f"{key} is deleted, and task {task_id} has no state yet" for task_id in unheard]
        later = next(self.there[store_id].irange(ts, next_chain, inclusive=(False, False)), None)
        if first_ts in begun and later is None and store_id not in self.retired:
            problems.append(f"{key} is deleted, and it was the newest file of its chain")
        for state in living:
            at = {chain.first_ts: chain.at_ts for chain in state.positions.get(store_id, ())}
            if not closed and at.get(first_ts, 0) < ts:
                problems.append(f"{key} is deleted, and task {state.task_id} is at {at} in its chains")
            if any(source.key == key for part in state.pending for source in part.sources):
                problems.append(f"{key} is deleted, and task {state.task_id} points into it")
        return problems

    @property
    def forgotten(self) -> set[int]:
        """Tasks of before a restore to which nobody comes back. A tenant that begins anew may give their ids again, and
        then their manifests go on."""
        known = self.database_tasks() if self.before_restore else set()
        return self.before_restore - known if known else set()

    def _living(self, last: Mapping[int, Manifest]) -> list[Manifest]:
        """The states that somebody may come back from: a seal's, until each of its children has one."""
        forgotten = self.forgotten
        return [
            state
            for task_id, state in self.states.items()
            if task_id not in forgotten
            if last[task_id].kind != KIND_SEAL or any(child not in self.states for child, _ in last[task_id].children)
        ]

    def _is_child(self, task_id: int) -> bool:
        seals = (state for state in self.states.values() if state.kind == KIND_SEAL)
        return any(task_id == child for seal in seals for child, _ in seal.children)

    def _chain_of(self, store_id: int, ts: int) -> int:
        while prev_ts := self.prev.get((store_id, ts), 0):
            ts = prev_ts
        return ts
