"""Agents whose territories are split and merged while they read, by commands that are killed and run twice."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from support.agent_model import KEYS
from support.agent_world import TENANT, AgentWorld, Process
from support.listed_territories import replaced
from tistream.errors import AlreadyDiffers, InvalidRequest
from tistream.storage.backends.memory import MemoryObjectStore
from tistream_agent.connecting.division import (
    BeginChild,
    DivisionStep,
    new_children,
    next_steps,
    recorded_children,
)
from tistream_agent.core.chain import SEALED, Child
from tistream_agent.core.cutter import draft_without_rows
from tistream_agent.reservation import Reservation
from tistream_agent.reserved_ids import ReservedIds

PAUSES_MS = (0, 20, 60, 200, 500)
HEARD_MS = max(PAUSES_MS)  # until the agent of a territory that was removed has stopped


@dataclass
class Command:
    """A run of `tistream agent divide`: it acts at `at_ms`, on what it has read before."""

    parents: tuple[int, ...]
    into: int
    at_ms: int
    nonce: str
    planned: tuple[Child, ...] = ()
    children: tuple[Child, ...] = ()
    found: deque[DivisionStep] = field(default_factory=deque)
    heirs: tuple[Child, ...] = ()  # what the platform gets in place of the parents
    rest: deque[tuple[str, int]] | None = None  # calls to the platform and to PD, once the chains are there


class DivisionWorld(AgentWorld):
    """`territories` is what the platform lists. `undone`: divisions that a command has begun and none has finished."""

    def __init__(self, seed: int, range_bounds: tuple[bytes, ...] | None = None) -> None:
        self.commands: list[Command] = []
        self.undone: set[tuple[int, ...]] = set()
        self.removed_ms: dict[int, int] = {}  # territory -> when its agent hears that it is gone
        self.done, self.run_before = 0, 0
        self.left: set[int] = (
            set()
        )  # whose holds end by themselves, if the commands that were to release them have died
        self.reserved = ReservedIds(MemoryObjectStore(), TENANT)
        super().__init__(seed, range_bounds=range_bounds)

    def faults(self) -> None:
        super().faults()
        rng = self.rng
        if rng.random() < 0.01 and len(self.undone) < 3 and self.territories:
            parents, busy = self._any_parents(), {one for its in self.undone for one in its}
            if not busy.intersection(parents):
                self.divide(parents, rng.choice([1, 2, 3]))
        elif rng.random() < 0.02 and self.undone:  # a person runs the command again, or a second one beside it
            self.divide(rng.choice(sorted(self.undone)), 2)
        for command in list(self.commands):
            if rng.random() < 0.03:
                self.commands.remove(command)
                self._expire(command)

    def _any_parents(self) -> tuple[int, ...]:
        by_key = [number for number, _ in sorted(self.territories.items(), key=lambda one: one[1].start)]
        at = self.rng.randrange(len(by_key))
        return tuple(sorted(by_key[at : at + self.rng.choice([1, 2, 3])]))

    def divide(self, parents: tuple[int, ...], into: int) -> None:
        self.undone.add(parents)
        self.run_before += 1
        self.commands.append(Command(parents, into, self.cluster.now_ms, f"{self.run_before:x}"))

    def turn(self, process: Process) -> None:
        heard_ms = self.removed_ms.get(process.store_id)
        if heard_ms is not None and heard_ms <= self.cluster.now_ms and process.paused_ms <= self.cluster.now_ms:
            self.end(process)
            return
        super().turn(process)

    def start(self, store_id: int = 1) -> None:
        if store_id in self.territories:
            super().start(store_id)

    def run_commands(self) -> None:
        for command in list(self.commands):
            if command.at_ms > self.cluster.now_ms:
                continue
            command.at_ms = self.cluster.now_ms + self.rng.choice(PAUSES_MS)
            try:
                self.act(command)
            except InvalidRequest as error:  # it came too late
                if not any(text in str(error) for text in ("complete", "lower --into", "no neighbours")):
                    raise
                self._forget(command)

    def _forget(self, command: Command) -> None:
        self.commands.remove(command)
        for child in recorded_children({number: self.end_of_chain(number) for number in command.parents}):
            end = self.end_of_chain(child.store_id)
            if end.position is not None and not end.sealed and child.store_id not in self.territories:
                return  # it has to be run again
        if not any(self.end_of_chain(number).children for number in command.parents) or not any(
            number in self.territories for number in command.parents
        ):
            self.undone.discard(command.parents)
            self.left.update(number for number in command.parents if number not in self.territories)

    def _expire(self, command: Command) -> None:
        """Nobody refreshes the holds of what was planned, and then divided otherwise or not at all."""
        for child in command.planned:
            if child.store_id not in self.territories and not self._chain(child.store_id):
                self.holds.pop(child.store_id, None)
        self.collect()

    def act(self, command: Command) -> None:
        """One call to the object store, the platform or PD."""
        if command.rest is not None:
            return self._finish(command, command.rest)
        if command.found:
            return self._put(command, command.found.popleft())
        ends = {number: self.end_of_chain(number) for number in command.parents}
        command.children = recorded_children(ends) or command.planned or self._plan(command)
        if command.planned and command.planned != command.children:
            self._expire(command)
            command.planned = ()
        begun = {child.store_id: self.end_of_chain(child.store_id) for child in command.children}
        command.found.extend(next_steps(command.children, ends, begun, self.territories))
        for child in command.children if command.found else ():
            self.hold(child.store_id, min(end.position.lowest_ts for end in ends.values()) - 1)
        if not command.found:
            command.heirs = tuple(
                one
                for one in command.children
                if begun[one.store_id].position is not None and not begun[one.store_id].sealed
            )
            command.rest = deque([("replace", 0), *(("release", number) for number in command.parents)])
        return None

    def _plan(self, command: Command) -> tuple[Child, ...]:
        if any(number not in self.territories for number in command.parents):
            raise InvalidRequest("this division is complete")
        ids = (number for number in range(max(self.territories) + 1, 10_000) if self._reserve(number, command))
        spans = [self.territories[number] for number in command.parents]
        starts = self.rng.sample(KEYS, self.rng.randint(1, 5))
        command.planned = new_children(spans, starts, command.into, ids)
        return command.planned

    def _reserve(self, number: int, command: Command) -> bool:
        wanted = Reservation(number, command.nonce)
        return not self._chain(number) and self.reserved.reserve(wanted) is None

    def _chain(self, number: int) -> bool:
        return self.end_of_chain(number).position is not None

    def _put(self, command: Command, step: DivisionStep) -> None:
        last = not isinstance(step, BeginChild)
        nonce, children = (SEALED, command.children) if last else ("c0ffee", ())
        draft = draft_without_rows(TENANT, step.store_id, step.position, nonce, children)
        if draft.key not in self.objects:
            self.objects[draft.key] = draft.data(), nonce

    def _finish(self, command: Command, rest: deque[tuple[str, int]]) -> None:
        what, number = rest.popleft()
        if what == "replace":
            self._replace(command.parents, command.heirs)
        else:
            self.holds.pop(number, None)
            self.collect()
        if what == "replace":
            command.at_ms = self.cluster.now_ms + HEARD_MS
        if not rest:
            self.commands.remove(command)
            self.done += command.parents in self.undone
            self.undone.discard(command.parents)

    def _replace(self, gone: tuple[int, ...], heirs: tuple[Child, ...]) -> None:
        """What the platform does in one step, or not at all."""
        try:
            after = replaced(TENANT, self.territories, gone, heirs)
        except AlreadyDiffers as error:
            raise InvalidRequest("this division is complete") from error
        for number in gone:
            if self.territories.pop(number, None) is not None:
                self.removed_ms[number] = self.cluster.now_ms + self.rng.choice(PAUSES_MS)
        for number in sorted(after.keys() - self.territories.keys()):
            self.territories[number] = after[number]
            self.start(number)

    def run(self, ms: int, step_ms: int = 20, faults: bool = True, work: bool = True) -> None:
        until = self.cluster.now_ms + ms
        while self.cluster.now_ms < until:
            super().run(step_ms, step_ms, faults, work)
            self.run_commands()

    def finish(self) -> None:
        """Every division that was begun is finished, by commands that nothing kills."""
        while self.undone or self.commands:
            for parents in self.undone - {one.parents for one in self.commands}:
                self.divide(parents, 2)
            self.run(100, faults=False)
        self.run(HEARD_MS, faults=False)
        for number in self.left:
            self.holds.pop(number, None)
        self.collect()

    def arrivals(self) -> list[tuple[str, bytes]]:
        """The files in an order in which dispatchers may deliver them: each chain in its own order, some far behind."""
        chains: dict[str, deque[tuple[str, bytes]]] = {}
        for key, data in self.files:
            chains.setdefault(key.rpartition("/")[0], deque()).append((key, data))
        out: list[tuple[str, bytes]] = []
        while chains:
            one = self.rng.choice(sorted(chains))
            for _ in range(min(len(chains[one]), self.rng.choice([1, 3, 30]))):
                out.append(chains[one].popleft())
            if not chains[one]:
                del chains[one]
        return out
