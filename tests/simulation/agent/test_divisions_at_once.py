"""Territories that are divided by several commands at once, and beside `tistream connect --assign`: each key is in one
territory afterwards, whose chain promises it."""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Iterator, Sequence
from itertools import count
from typing import Any

import pytest

from support.effort import cases, seeds
from support.emulated import EmulatedTikv
from support.listed_territories import replaced
from support.turns import Died, StoreInTurns, Turns
from support.waiting import PATIENCE_S
from tistream.errors import InvalidRequest, TiStreamError
from tistream.model.ids import TenantKey
from tistream.model.span import WHOLE, KeySpan
from tistream.model.tenant_kind import TenantKind
from tistream.storage.backends.memory import MemoryObjectStore
from tistream_agent.connecting import divider, division
from tistream_agent.connecting.checks import Check
from tistream_agent.connecting.connect import Connection, Connector
from tistream_agent.connecting.disconnecting import disconnect
from tistream_agent.connecting.divider import Divider
from tistream_agent.connecting.finishing import finish_division
from tistream_agent.connecting.territories import not_taken
from tistream_agent.core.chain import ChainEnd, Child
from tistream_agent.core.cutter import draft_without_rows
from tistream_agent.core.territory import assert_tiled
from tistream_agent.position import end_of_chain, last_position
from tistream_agent.upstream.gc_hold import PLANNED_TTL_S
from tistream_agent.upstream.keyspaces import tenant_keys
from tistream_agent.upstream.pd import NULL_KEYSPACE, PdClient
from tistream_agent.upstream.stores import Channels, TlsFiles
from tistream_meta.territories import territory_policy

TENANTS = count()


class Platform:
    """The territories of a tenant, by the meta server's own rule. Each call is a step."""

    def __init__(self, tenant: TenantKey, turns: Turns) -> None:
        self.tenant, self.turns = tenant, turns
        self.there: dict[int, KeySpan] = {}

    def spans(self) -> dict[int, KeySpan]:
        self.turns.pause()
        return dict(self.there)

    def replace(self, gone: Collection[int], children: Sequence[Child]) -> None:
        self.turns.pause()
        self.there = replaced(self.tenant, self.there, gone, children)

    def remove(self, number: int) -> None:
        self.turns.pause()
        self.there.pop(number, None)


class WatchedPd(PdClient):
    """Calls `look` after each change of a hold on garbage collection."""

    def __init__(self, address: str, look: Callable[[], None]) -> None:
        super().__init__([address], Channels(TlsFiles()), deadline_s=PATIENCE_S)
        self._look = look

    def hold_gc(
        self,
        service_id: str,
        ts: int,
        ttl_s: int,
        keyspace: int = NULL_KEYSPACE,
        check: Callable[[], None] = lambda: None,
    ) -> None:
        super().hold_gc(service_id, ts, ttl_s, keyspace, check)
        self._look()


class World:
    """A connected tenant with a territory for every third region, each with an agent that has claimed it. `known`: the
    keys of each territory that the platform has had, or that the last file of a chain has named. `unwanted`: keys that
    are being disconnected."""

    def __init__(self, tikv: EmulatedTikv, seed: int) -> None:
        self.tikv, self.turns = tikv, Turns(seed)
        self.tenant = TenantKey("7", f"at-once-{next(TENANTS)}")
        self.objects, self.platform = StoreInTurns(self.turns), Platform(self.tenant, self.turns)
        self.unpaced = MemoryObjectStore()
        self.unpaced.__dict__.update(self.objects.__dict__)  # the same objects, read without a step
        self.known, self.unwanted = dict[int, KeySpan](), list[KeySpan]()
        self.pd = WatchedPd(tikv.address, self.look)
        self.nonces = count(1)
        self.ts = self.connector(3).connect()
        self.assign(3)
        self.claim()
        self.known.update(self.platform.there)

    def look(self) -> None:
        """Check that garbage collection is held back for each key, from the ts on which the first files promise, also
        if all commands die now: not by a hold that ends in minutes."""
        if not self.known:
            return
        self.known.update(self.platform.there)
        unread = list(self.known)
        while unread:
            children = end_of_chain(self.unpaced, self.tenant, unread.pop(), None).children
            unread += [child.store_id for child in children if child.store_id not in self.known]
            self.known.update({child.store_id: child.span for child in children})
        lasting = self.holds(after_s=PLANNED_TTL_S)
        held = [self.known[number] for number, ts in lasting.items() if number in self.known and ts < self.ts]
        assert not_taken([*held, *self.unwanted]) == [], "garbage is collected that a territory has not read"

    def connector(self, regions_max: int, territory: int = 1) -> Connector:
        connection = Connection(self.tenant, territory, regions_max=regions_max)
        return Connector(
            *(connection, self.pd, Channels(TlsFiles()), self.objects, lambda _: None, lambda _: None),
            *(lambda _: self.turns.pause(), list[Check]().append, f"{next(self.nonces):x}"),
        )

    def assign(self, regions_max: int) -> None:
        """What `tistream connect --assign` does once the tenant is connected."""
        found = self.connector(regions_max).divide(self.platform.spans(), self.ts)
        self.platform.replace((), [Child(number, span) for number, span in found])

    def claim(self) -> None:
        for number, span in self.platform.there.items():
            position = last_position(self.objects, self.tenant, number, span)
            assert position is not None
            draft = draft_without_rows(self.tenant, number, position, f"{next(self.nonces):x}")
            self.objects.put_new(draft.key, draft.data())

    def divider(self) -> Divider:
        owned = tenant_keys(self.pd, TenantKind.TIDB, "")
        show, nonce = list[Check]().append, f"{next(self.nonces):x}"
        return Divider(
            self.tenant, owned, self.pd, self.objects, self.platform, lambda _: self.turns.pause(), show, nonce
        )

    def divide(self, parents: list[int], into: int) -> Callable[[], tuple[Child, ...]]:
        one = self.divider()
        return lambda: one.divide(parents, into)

    def end(self, number: int) -> ChainEnd:
        return end_of_chain(self.unpaced, self.tenant, number, None)

    def finish(self, number: int) -> Callable[[], tuple[Child, ...]]:
        """What the agent of a territory does whose chain a division has ended."""
        of = self.objects, self.tenant, number, self.end(number).children
        return lambda: finish_division(self.divider(), *of, self.platform)

    def disconnect(self, number: int | None = None) -> None:
        """What `tistream disconnect` does for a territory, or for all."""
        self.unwanted += [span for one, span in self.platform.there.items() if number in (one, None)]
        found, remove = self.platform.spans(), self.platform.remove
        disconnect(lambda one: self.connector(3, one), number, found, remove)

    def holds(self, after_s: int = 0) -> dict[int, int]:
        """The ts of each hold, by territory, that no process renews for so many seconds."""
        mine, there = f"tistream-7-{self.tenant.tenant_id}-", self.tikv.held_after(after_s)
        found = {name.removeprefix(mine): ts for name, ts in there.items() if name.startswith(mine)}
        return {int(number): ts for number, ts in found.items()}

    def in_order(self) -> list[int]:
        """The territories, by their keys."""
        return sorted(self.platform.there, key=lambda number: self.platform.there[number].start)

    def check(self) -> None:
        """Each key is in one territory, and its chain promises what the first files promised."""
        spans = self.platform.there
        assert_tiled(KeySpan(b"", b""), sorted(spans.values(), key=lambda span: span.start))
        for number, span in spans.items():
            position = last_position(self.objects, self.tenant, number, span)
            assert position is not None
            assert {promise.ts for promise in position.promises} == {self.ts}, f"territory {number}"


@pytest.fixture(scope="module")
def tikv() -> Iterator[EmulatedTikv]:
    started = EmulatedTikv().start()
    yield started
    started.stop()


def _worked(outcomes: list[Any]) -> list[Any]:
    for outcome in outcomes:
        if isinstance(outcome, BaseException):
            raise outcome
    return outcomes


# Attack: two territories are divided at once, while `connect --assign` gives keys away that have no territory
@pytest.mark.parametrize("seed", seeds(6, 300))
def test_divisions_at_once_and_beside_an_assign_leave_no_key_without_its_chain(tikv: EmulatedTikv, seed: int) -> None:
    world = World(tikv, seed)
    first, second, lost, *_ = random.Random(seed).sample(sorted(world.platform.there), 3)
    del world.platform.there[lost]
    bodies = [world.divide([first], 2), world.divide([second], 3), lambda: world.assign(1)]
    parts = _worked(world.turns.run(*((body, None) for body in bodies)))
    assert len({child.store_id for part in parts[:2] for child in part}) == 5
    world.check()
    assert world.holds() == {**dict.fromkeys(world.platform.there, world.ts - 1), lost: world.ts - 1}


# Attack: the same neighbours are merged by one command and divided anew by another one, at once
@pytest.mark.parametrize("seed", cases([0, 1, 2, 3, 21], range(4, 300)))
def test_two_divisions_of_the_same_territories_at_once_become_one_and_the_other_holds_nothing(
    tikv: EmulatedTikv, seed: int
) -> None:
    world = World(tikv, seed)
    by_key = sorted(world.platform.there, key=lambda number: world.platform.there[number].start)
    parents = sorted(by_key[:2])
    outcomes = world.turns.run((world.divide(parents, 1), None), (world.divide(parents, 3), None))
    for outcome in outcomes:
        if not isinstance(outcome, tuple | TiStreamError):
            raise outcome  # a violation, seen within a division
    both = [outcome if isinstance(outcome, tuple) else world.divide(parents, 1)() for outcome in outcomes]
    assert both[0] == both[1]
    world.check()
    assert world.holds() == dict.fromkeys(world.platform.there, world.ts - 1)


# Attack: a division dies anywhere beside another one; then both are run again
@pytest.mark.parametrize("seed", seeds(4, 300))
def test_a_division_that_dies_costs_ids_only(tikv: EmulatedTikv, seed: int) -> None:
    rng, world = random.Random(seed), World(tikv, seed)
    first, second = rng.sample(sorted(world.platform.there), 2)
    bodies = (world.divide([first], 2), rng.randrange(60)), (world.divide([second], 2), None)
    died, whole = world.turns.run(*bodies)
    assert isinstance(died, Died | tuple)
    world.look()
    assert set(world.holds(after_s=PLANNED_TTL_S)) <= world.known.keys(), "no file names it, and it is held for a day"
    again = world.divide([first], 3)()
    assert not {child.store_id for child in again} & {child.store_id for child in whole}
    world.check()
    assert world.holds() == dict.fromkeys(world.platform.there, world.ts - 1)


# Attack: a division dies anywhere, and its agents finish it at once, beside the command, which is run again or not
@pytest.mark.parametrize("seed", seeds(5, 300))
def test_a_division_that_dies_is_finished_by_its_agents(tikv: EmulatedTikv, seed: int) -> None:
    rng, world = random.Random(seed), World(tikv, seed)
    by_key = sorted(world.platform.there, key=lambda number: world.platform.there[number].start)
    parents, into = sorted(by_key[: rng.choice([1, 1, 2])]), rng.choice([1, 2])
    [died] = world.turns.run((world.divide(parents, into), rng.randrange(90)))
    assert isinstance(died, Died | tuple)
    ended = [number for number in parents if world.end(number).children]
    bodies = [world.finish(number) for number in ended if number in world.platform.there]
    bodies += [world.divide(parents, 3)] if bodies and rng.random() < 0.3 else []
    for outcome in world.turns.run(*((body, None) for body in bodies)):
        if isinstance(outcome, BaseException):
            raise outcome
    world.check()
    assert set(world.holds(after_s=PLANNED_TTL_S)) == set(world.platform.there)


# Attack: neighbours are merged at once with a territory that both want, and the commands are run again
@pytest.mark.parametrize("seed", seeds(4, 300))
def test_two_divisions_that_share_a_territory_are_both_finished(tikv: EmulatedTikv, seed: int) -> None:
    world = World(tikv, seed)
    low, mid, high, *_ = sorted(world.platform.there, key=lambda number: world.platform.there[number].start)
    wanted = [low, mid], [mid, high]
    outcomes = world.turns.run(*((world.divide(its, 1), None) for its in wanted))
    for its, outcome in zip(wanted, outcomes, strict=True):
        if isinstance(outcome, InvalidRequest):
            _again(world, its)
        else:
            _worked([outcome])
    world.check()
    assert world.holds() == dict.fromkeys(world.platform.there, world.ts - 1)


def _again(world: World, parents: list[int]) -> None:
    """What a person does whose division met another one: it is run again, at last for what is left alone."""
    try:
        world.divide(parents, 1)()
    except InvalidRequest:
        for number in parents:
            if number in world.platform.there:
                world.divide([number], 1)()


# Attack: a division dies anywhere, or does not, and its agents finish it while the whole tenant is disconnected
@pytest.mark.parametrize("seed", seeds(5, 300))
def test_a_division_that_is_finished_beside_a_disconnect_brings_no_territory_back(
    tikv: EmulatedTikv, seed: int
) -> None:
    rng, world = random.Random(seed), World(tikv, seed)
    parents = sorted(world.in_order()[: rng.choice([1, 1, 2])])
    [died] = world.turns.run((world.divide(parents, rng.choice([1, 2])), rng.choice([None, rng.randrange(90)])))
    assert isinstance(died, Died | tuple)
    bodies = [world.finish(number) for number in parents if world.end(number).children]
    bodies += [world.divide(parents, 2)] if rng.random() < 0.5 else []
    *outcomes, ended = world.turns.run(*((body, None) for body in [*bodies, world.disconnect]))
    assert ended is None
    _worked([outcome for outcome in outcomes if not isinstance(outcome, InvalidRequest)])
    assert world.platform.there == {}
    if len(parents) == 1:
        assert world.holds(after_s=PLANNED_TTL_S) == {}


# Attack: a merge dies anywhere, or does not, and one of its territories is disconnected meanwhile
@pytest.mark.parametrize("seed", seeds(5, 300))
def test_the_territory_that_was_to_be_merged_with_a_disconnected_one_is_read_on(tikv: EmulatedTikv, seed: int) -> None:
    rng, world = random.Random(seed), World(tikv, seed)
    pair = world.in_order()[:2]
    kept, other = rng.sample(pair, 2)
    keys = dict(world.platform.there)
    merge = world.divide(sorted(pair), 1), rng.choice([None, rng.randrange(90)])
    merged, ended = world.turns.run(merge, (lambda: world.disconnect(other), rng.choice([None, rng.randrange(20)])))
    for outcome in (merged, ended):
        assert outcome is None or isinstance(outcome, Died | tuple | InvalidRequest), outcome
    world.disconnect(other)  # it is run again
    for _ in range(2):
        if kept in world.platform.there and world.end(kept).children:
            world.finish(kept)()
    there = world.platform.there
    [(reads, span)] = [one for one in there.items() if one[1].overlaps(keys[kept])]
    assert not world.end(reads).sealed
    beside = [] if span.overlaps(keys[other]) else [keys[other]]
    assert_tiled(WHOLE, sorted([*there.values(), *beside], key=lambda span: span.start))
    lasting = set(world.holds(after_s=PLANNED_TTL_S))
    assert there.keys() <= lasting
    assert [one for one in lasting - there.keys() if world.end(one).position is not None] == []


# Attack: two divisions at once, of which the tenant has room for one
@pytest.mark.parametrize("seed", seeds(2, 300))
def test_of_two_divisions_at_once_one_is_refused_if_the_tenant_has_room_for_one(
    tikv: EmulatedTikv, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World(tikv, seed)
    for module in (division, territory_policy):
        monkeypatch.setattr(module, "TERRITORIES_MAX", len(world.platform.there) + 1)
    monkeypatch.setattr(divider, "TERRITORIES_MAX", len(world.platform.there) + 1)
    parents = random.Random(seed).sample(sorted(world.platform.there), 2)
    outcomes = world.turns.run(*((world.divide([one], 2), None) for one in parents))
    refused = [one for one, outcome in zip(parents, outcomes, strict=True) if isinstance(outcome, InvalidRequest)]
    _worked([outcome for outcome in outcomes if not isinstance(outcome, InvalidRequest)])
    assert refused
    if len(refused) == 2:  # each has seen the other one; alone, the first is not refused
        world.divide([refused.pop(0)], 2)()
    with pytest.raises(InvalidRequest, match="territories: give a lower --into"):
        world.divide(refused, 2)()
    world.check()
    assert refused[0] in world.platform.there
    assert world.holds() == dict.fromkeys(world.platform.there, world.ts - 1)
