"""An agent renews the hold on GC of its territory only while the newest file of the chain is its own."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from threading import Event
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from support.emulated import EmulatedTikv
from support.waiting import PATIENCE_S
from tistream.clock import ManualClock
from tistream.errors import Unavailable
from tistream.model.ids import TenantKey
from tistream.model.span import WHOLE
from tistream.storage.backends.memory import MemoryObjectStore
from tistream.storage.object_store import ObjectInfo
from tistream_agent.core import steps
from tistream_agent.core.chain import SEALED, new_chain
from tistream_agent.core.cutter import Draft, draft_without_rows
from tistream_agent.core.steps import Command
from tistream_agent.driver import TerritoryDriver
from tistream_agent.inbox import Inbox
from tistream_agent.metrics import AgentMetrics
from tistream_agent.outbox import Outbox
from tistream_agent.position import last_position, newest_nonce
from tistream_agent.upstream.gc_hold import GcHold
from tistream_agent.upstream.own_hold import PROOF_MS, UNSEEN_MS, ChainUnseen, Overtaken, OwnHold
from tistream_agent.upstream.pd import PdClient
from tistream_agent.upstream.stores import Channels, TlsFiles
from tistream_agent.upstream.streams import StoreStreams

TENANT, NAME, OWN = TenantKey("7", "sleeper"), "tistream-7-sleeper-1", "aa"


class Objects(MemoryObjectStore):
    """Object storage that may be away. `lists`: the number of LISTs so far."""

    def __init__(self) -> None:
        super().__init__()
        self.lists, self.away = 0, False

    def list_after(self, prefix: str, after: str = "", delimiter: str = "") -> Iterator[ObjectInfo]:
        self.lists += 1
        if self.away:
            raise Unavailable("no answer from the object store")
        return super().list_after(prefix, after, delimiter)


@pytest.fixture(scope="module")
def tikv() -> Iterator[EmulatedTikv]:
    started = EmulatedTikv().start()
    yield started
    started.stop()


class TwoClocks(ManualClock):
    """A wall clock, and a monotonic one, which stands still while the machine is `suspended`."""

    def __init__(self, now_ms: int) -> None:
        super().__init__(now_ms)
        self.suspended_ms = 0

    def suspend(self, ms: int) -> None:
        self.suspended_ms += ms
        self.advance(ms)

    def monotonic_ms(self) -> int:
        return super().monotonic_ms() - self.suspended_ms


class World:
    """An agent that has claimed its territory, and holds back garbage collection for it."""

    def __init__(self, tikv: EmulatedTikv) -> None:
        self.tikv, self.objects, self.clock = tikv, Objects(), TwoClocks(1_000)
        self.pd = PdClient([tikv.address], Channels(TlsFiles()), deadline_s=PATIENCE_S)
        self.ts = self.pd.timestamps(1)
        self.released = GcHold(self.pd, TENANT, 1)
        self.own = OwnHold(self.released, OWN, partial(newest_nonce, self.objects, TENANT, 1), self.clock)
        self.objects.put_new(*self.draft(OWN))
        self.own.seen(self.own.moment())

    def draft(self, nonce: str) -> tuple[str, bytes]:
        position = last_position(self.objects, TENANT, 1, WHOLE) or new_chain(WHOLE, self.ts)
        made = draft_without_rows(TENANT, 1, position, nonce)
        return made.key, made.data()

    def end_chain(self, nonce: str = SEALED) -> None:
        """What `disconnect` does while the agent sleeps, or another agent."""
        self.objects.put_new(*self.draft(nonce))
        self.released.release()

    @property
    def held(self) -> int | None:
        return self.tikv.holds.get(NAME)


# Attack: an agent sleeps while its territory is disconnected or taken over, and wakes before it renews its hold
@pytest.mark.parametrize("nonce", [SEALED, "bb"])
def test_an_agent_that_slept_does_not_renew_a_hold_that_was_released(tikv: EmulatedTikv, nonce: str) -> None:
    world = World(tikv)
    assert world.own.move(world.ts - 1) == steps.HoldSet(world.ts - 1)
    assert world.held == world.ts - 1
    world.end_chain(nonce)
    world.clock.advance(PROOF_MS)
    with pytest.raises(Overtaken, match=f"has nonce {nonce}"):
        world.own.move(world.ts - 1)
    assert world.held is None


def test_the_chain_is_read_only_if_the_agents_last_file_is_not_recent(tikv: EmulatedTikv) -> None:
    world = World(tikv)
    before = world.objects.lists
    for _ in range(3):
        world.own.move(world.ts - 1)
    assert world.objects.lists == before
    world.clock.advance(PROOF_MS)
    for _ in range(3):
        world.own.move(world.ts - 1)
    assert world.objects.lists > before
    after = world.objects.lists
    world.own.move(world.ts - 1)
    assert world.objects.lists == after, "it has seen the chain"


# Attack: the clock that counts time awake stands still while the machine is suspended
def test_a_suspended_machine_reads_the_chain_though_its_monotonic_clock_stood(tikv: EmulatedTikv) -> None:
    world = World(tikv)
    world.end_chain()
    world.clock.suspend(PROOF_MS)
    with pytest.raises(Overtaken):
        world.own.move(world.ts - 1)


class Slow:
    """Reads the newest file of the chain; after each read so much time passes. `then`: called before it passes."""

    def __init__(self, world: World, passes: Callable[[int], object], then: Callable[[], object]) -> None:
        self._world, self._passes, self._then, self.known = world, passes, then, list[int]()

    def __call__(self, known: int) -> tuple[int, str]:
        self.known.append(known)
        found = newest_nonce(self._world.objects, TENANT, 1, known)
        self._then()
        self._passes(PROOF_MS)
        return found


# Attack: the chain ends while the agent reads it, and the read takes as long as it takes to release the hold
@pytest.mark.parametrize("suspended", [False, True])
def test_a_chain_that_was_read_slowly_proves_nothing(tikv: EmulatedTikv, suspended: bool) -> None:
    world = World(tikv)
    world.clock.advance(PROOF_MS)
    ends = [world.end_chain]
    newest = Slow(world, world.clock.suspend if suspended else world.clock.advance, lambda: ends and ends.pop()())
    own = OwnHold(world.released, OWN, newest, world.clock)
    with pytest.raises(ChainUnseen, match="too slowly"):
        own.move(world.ts - 1)
    assert world.held is None
    with pytest.raises(Overtaken, match=f"has nonce {SEALED}"):
        own.move(world.ts - 1)
    assert world.held is None
    assert newest.known == [0, world.ts + 1], "the second read begins where the first one ended"


# Attack: each read of the chain is slow for longer than a hold lasts
def test_a_hold_whose_chain_is_always_read_slowly_is_renewed_in_the_second_half_of_its_day(tikv: EmulatedTikv) -> None:
    world = World(tikv)
    own = OwnHold(world.released, OWN, Slow(world, world.clock.advance, lambda: None), world.clock)
    own.seen(own.moment())
    own.move(world.ts - 1)
    world.released.release()
    world.clock.advance(UNSEEN_MS - 1)
    with pytest.raises(ChainUnseen):
        own.move(world.ts - 1)
    assert world.held is None
    own.move(world.ts - 1)
    assert world.held == world.ts - 1


# Attack: the object store does not answer for longer than a hold lasts
def test_without_the_object_store_a_hold_is_renewed_in_the_second_half_of_its_day(tikv: EmulatedTikv) -> None:
    world = World(tikv)
    world.own.move(world.ts - 1)
    world.objects.away = True
    world.clock.advance(UNSEEN_MS - 1)
    world.released.release()
    with pytest.raises(ChainUnseen, match="no answer from the object store"):
        world.own.move(world.ts - 1)
    assert world.held is None
    world.clock.advance(1)
    world.own.move(world.ts - 1)
    assert world.held == world.ts - 1


class Renewing:
    """A machine that puts a file, sleeps, and then moves its hold. It stops at a file of another process."""

    def __init__(self, world: World) -> None:
        self.world, self.found = world, list[steps.Event]()

    def step(self, event: steps.Event, now_ms: int) -> Sequence[Command]:
        match event:
            case steps.FileDurable():
                self.world.end_chain()
                self.world.clock.advance(PROOF_MS)
                return [steps.MoveHold(self.world.ts - 1)]
            case steps.Tick() if not self.found:
                self.found.append(event)
                return [steps.PutFile(self._draft())]
            case steps.ForeignFile():
                return [steps.Stop("fenced", event.nonce)]
        return []

    def _draft(self) -> Draft:
        position = last_position(self.world.objects, TENANT, 1, WHOLE)
        assert position is not None
        return draft_without_rows(TENANT, 1, position, OWN)


def _driver(world: World, machine: Any, waits: Any = lambda _: False) -> tuple[TerritoryDriver, ThreadPoolExecutor]:
    inbox, channels, pool = Inbox(), Channels(TlsFiles()), ThreadPoolExecutor(2)
    streams = StoreStreams(world.pd, channels, inbox, 7)
    outbox = Outbox(world.objects, lambda _: None, lambda _: False)
    metrics = AgentMetrics(CollectorRegistry())
    arguments = (world.own, inbox, pool, pool, world.clock, metrics, waits, lambda: None)
    return TerritoryDriver(machine, world.pd, streams, outbox, *arguments), pool


def test_a_territory_whose_hold_was_released_stops_as_fenced(tikv: EmulatedTikv) -> None:
    world = World(tikv)
    driver, pool = _driver(world, Renewing(world))
    assert driver.run() == steps.Stop("fenced", SEALED)
    pool.shutdown()
    assert world.held is None


class Stopping:
    """A machine that moves its hold, and stops when that has waited once."""

    def __init__(self, asked: Sequence[float]) -> None:
        self._asked, self._began = asked, False

    def step(self, event: steps.Event, now_ms: int) -> Sequence[Command]:
        if not self._began:
            self._began = True
            return [steps.MoveHold(5)]
        return [steps.Stop("fenced", "by another")] if self._asked else []


# Attack: the object store answers again when the territory has stopped
def test_a_territory_that_has_stopped_does_not_move_its_hold_again(tikv: EmulatedTikv) -> None:
    world = World(tikv)
    world.objects.away = True
    world.clock.advance(PROOF_MS)
    asked, ended = list[float](), Event()

    def waits(seconds: float) -> bool:
        if seconds:
            asked.append(seconds)
            assert ended.wait(PATIENCE_S)
        return False

    driver, pool = _driver(world, Stopping(asked), waits)
    assert driver.run() == steps.Stop("fenced", "by another")
    ended.set()
    pool.shutdown()
    assert len(asked) == 1
