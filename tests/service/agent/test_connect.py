"""`tistream connect` against a PD and a TiKV over real gRPC."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from pathlib import Path

import orjson
import pytest
import typer
from typer.testing import CliRunner

from support import golden
from support.certificates import Authority
from support.emulated import EmulatedTikv
from support.listed_territories import replaced
from support.turns import Died
from support.waiting import PATIENCE_S
from tistream.errors import InvalidRequest, TiStreamError, Unavailable
from tistream.model.ids import TenantKey
from tistream.model.span import WHOLE, KeySpan
from tistream.model.tenant_kind import TenantKind
from tistream.schema.records import TableChange
from tistream.schema.tidb.snapshot import Snapshot, parse_snapshot
from tistream.storage import layout
from tistream.storage.backends.memory import MemoryObjectStore
from tistream.storage.object_store import ObjectStore
from tistream.storage.open import open_objects
from tistream.wire.bulk.territories import TERRITORIES_MAX
from tistream_agent.command import register
from tistream_agent.connecting import assigning, connect, divider, division
from tistream_agent.connecting.assigning import assign
from tistream_agent.connecting.checks import CannotConnect, Check
from tistream_agent.connecting.connect import Connection, Connector
from tistream_agent.connecting.divider import Divider
from tistream_agent.core.chain import Child, Position, Promise
from tistream_agent.core.cutter import draft_without_rows
from tistream_agent.core.territory import assert_tiled
from tistream_agent.position import ChainSealed, last_position
from tistream_agent.reservation import Reservation
from tistream_agent.reserved_ids import ReservedIds
from tistream_agent.upstream.gc_hold import PLANNED_TTL_S, GcHold
from tistream_agent.upstream.keyspaces import tenant_keys
from tistream_agent.upstream.own_hold import PROOF_MS
from tistream_agent.upstream.pd import DEADLINE_S, PdClient
from tistream_agent.upstream.pd_leader import OtherCluster
from tistream_agent.upstream.stores import Channels, TlsFiles

NO_TLS = TlsFiles()
TENANT = TenantKey("7", "connected")


class World:
    """A connector, and what came of it."""

    def __init__(
        self,
        tikv: EmulatedTikv,
        tls: TlsFiles = NO_TLS,
        refusal: TiStreamError | None = None,
        kind: TenantKind = TenantKind.TIDB,
        regions_max: int = 20_000,
        territory: int = 1,
        objects: ObjectStore | None = None,
    ) -> None:
        self.objects: ObjectStore = MemoryObjectStore() if objects is None else objects
        self.tikv = tikv
        self.checks, self.registered, self.slept = list[Check](), list[TenantKey](), list[float]()
        self.pd = PdClient([tikv.address], Channels(tls), deadline_s=PATIENCE_S)
        self._refusal = refusal
        self.reached: int | None = None  # what the platform says of the tenant
        self.connector = Connector(
            Connection(TENANT, territory, kind=kind, regions_max=regions_max),
            self.pd,
            Channels(tls),
            self.objects,
            self._register,
            lambda _: self.reached,
            self.slept.append,
            self.checks.append,
            "c0ffee",
        )

    def _register(self, tenant: TenantKey) -> None:
        if self._refusal is not None:
            raise self._refusal
        self.registered.append(tenant)

    def divider(self, assigned: Listed, sleep: Callable[[float], None] = lambda _: None) -> Divider:
        """A division of the tenant's territories."""
        owned = tenant_keys(self.pd, TenantKind.TIDB, "")
        return Divider(TENANT, owned, self.pd, self.objects, assigned, sleep, self.checks.append, "c0ffee")


@pytest.fixture
def serve() -> Iterator[Callable[[EmulatedTikv], EmulatedTikv]]:
    started: list[EmulatedTikv] = []

    def begin(tikv: EmulatedTikv) -> EmulatedTikv:
        started.append(tikv.start())
        return tikv

    yield begin
    for tikv in started:
        tikv.stop()


def _changes(snapshot: Snapshot) -> list[str]:
    found = []
    for change in (record.change for record in snapshot.records):
        if isinstance(change, TableChange):
            assert change.text is not None
            found.append(f"{change.database_id} {change.table_id} {change.text.info()}")
        else:
            found.append(repr(change))
    return sorted(found)


def test_the_schema_in_tikv_is_stored_as_tidb_stated_it(serve: Callable[[EmulatedTikv], EmulatedTikv]) -> None:
    tikv = serve(EmulatedTikv())
    world = World(tikv)
    assert world.connector.check() == tikv.cluster_id
    ts = world.connector.connect()
    key = layout.schema_snap(TENANT)
    found = parse_snapshot(key, world.objects.get(key))
    wanted = parse_snapshot("golden", golden.load("everything").schema_snap.data)
    assert found.snapshot_ts == ts

    assert _changes(found) == _changes(wanted)
    assert tikv.holds == {"tistream-7-connected-1": ts - 1}
    assert world.registered == [TENANT]
    assert all(check.passed for check in world.checks)


def test_a_second_connect_keeps_the_snapshot(serve: Callable[[EmulatedTikv], EmulatedTikv]) -> None:
    world = World(serve(EmulatedTikv()))
    first = world.connector.connect()
    before = world.objects.get(layout.schema_snap(TENANT))
    assert world.connector.connect() == first
    assert world.objects.get(layout.schema_snap(TENANT)) == before


# Attack: the registry has read schema_snap and deleted it before the agent begins
def test_after_connect_the_agent_needs_no_schema_snap(serve: Callable[[EmulatedTikv], EmulatedTikv]) -> None:
    world = World(serve(EmulatedTikv()))
    ts = world.connector.connect()
    world.objects.delete(layout.schema_snap(TENANT))
    position = last_position(world.objects, TENANT, 1, WHOLE)
    assert position is not None
    assert position.promises == (Promise(WHOLE, ts),)
    assert world.connector.connect() == ts


def test_keys_are_divided_by_regions_and_each_part_has_a_chain_and_a_hold(
    serve: Callable[[EmulatedTikv], EmulatedTikv],
) -> None:
    tikv = serve(EmulatedTikv())
    world = World(tikv, regions_max=1)
    ts = world.connector.connect()
    found = world.connector.divide({}, ts)
    assert len(found) > 1
    assert [number for number, _ in found] == list(range(1, len(found) + 1))
    assert_tiled(WHOLE, [span for _, span in found])
    assert tikv.holds == {f"tistream-7-connected-{number}": ts - 1 for number, _ in found}
    for number, span in found:
        position = last_position(world.objects, TENANT, number, span)
        assert position is not None
        assert position.promises == (Promise(span, ts),)
    assert world.connector.divide(dict(found), ts) == [], "every key has one"
    beside = World(tikv, regions_max=1, territory=99, objects=world.objects)
    assert beside.connector.divide(dict(found), beside.connector.connect()) == []
    assert "tistream-7-connected-99" not in tikv.holds, "no agent reads it"
    rest = dict(found)
    lost = rest.pop(2)
    assert world.connector.divide(rest, ts) == [(2, lost)], "a second run gives what the first one has not given"


def test_a_territory_whose_chain_is_damaged_is_disconnected_and_another_takes_its_keys(
    serve: Callable[[EmulatedTikv], EmulatedTikv],
) -> None:
    tikv = serve(EmulatedTikv())
    world = World(tikv, regions_max=1)
    ts = world.connector.connect()
    found = dict(world.connector.divide({}, ts))
    world.objects.put(layout.change_file(TENANT, 1, ts + 2), b"damaged")
    world.connector.disconnect()
    assert "tistream-7-connected-1" not in tikv.holds
    world.objects.delete(layout.schema_snap(TENANT))  # the registry has read it
    other, lost = World(tikv, territory=99, objects=world.objects), found.pop(1)
    other.reached = ts + 1
    assert other.connector.divide(found, other.connector.connect()) == [(99, lost)]
    position = last_position(world.objects, TENANT, 99, lost)
    assert position is not None
    assert position.promises == (Promise(lost, ts + 1),)


# Attack: the chain of a disconnected territory is damaged, and its id is the next free one
def test_an_id_whose_chain_is_damaged_is_left_out(serve: Callable[[EmulatedTikv], EmulatedTikv]) -> None:
    tikv = serve(EmulatedTikv())
    world = World(tikv, regions_max=1)
    ts = world.connector.connect()
    found = dict(world.connector.divide({}, ts))
    world.objects.put(layout.change_file(TENANT, 2, ts + 2), b"damaged")
    World(tikv, territory=2, objects=world.objects).connector.disconnect()
    lost, last = found.pop(2), max(found)
    assert world.connector.divide(found, world.connector.connect()) == [(last + 1, lost)]
    assert "tistream-7-connected-2" not in tikv.holds


# Attack: all territories of a tenant are disconnected, and it is connected again when its cluster has other regions
def test_keys_that_are_divided_anew_go_on_in_chains_that_had_others(
    serve: Callable[[EmulatedTikv], EmulatedTikv],
) -> None:
    tikv = serve(EmulatedTikv())
    world = World(tikv, regions_max=3)
    ts = world.connector.connect()
    before = world.connector.divide({}, ts)
    for number, _ in before:
        World(tikv, territory=number, objects=world.objects).connector.disconnect()
    again = World(tikv, regions_max=5, objects=world.objects)
    after = again.connector.divide({}, again.connector.connect())
    assert 1 < len(after) < len(before)
    assert_tiled(WHOLE, [span for _, span in after])
    assert tikv.holds == {f"tistream-7-connected-{number}": ts - 1 for number, _ in after}
    for number, span in after:
        position = last_position(world.objects, TENANT, number, span)
        assert position is not None
        assert position.promises == (Promise(span, ts),)


# Attack: a territory was disconnected, and GC has passed the end of its chain, when its keys are to be read again
def test_keys_of_a_chain_that_ended_long_ago_go_on_where_the_platform_stands(
    serve: Callable[[EmulatedTikv], EmulatedTikv],
) -> None:
    tikv = serve(EmulatedTikv())
    world = World(tikv, regions_max=1)
    ts = world.connector.connect()
    found = dict(world.connector.divide({}, ts))
    World(tikv, territory=2, objects=world.objects).connector.disconnect()
    lost, later = found.pop(2), Position(ts + 7, ts + 8, (Promise(found[1], ts + 20),))
    draft = draft_without_rows(TENANT, 1, later, "a")
    world.objects.put(draft.key, draft.data())
    tikv.collect(ts + 10)
    world.reached = ts + 20
    assert world.connector.divide(found, world.connector.connect()) == [(2, lost)]
    position = last_position(world.objects, TENANT, 2, lost)
    assert position is not None
    assert position.promises == (Promise(lost, ts + 20),)


class Listed:
    """The territories of a platform without agents. `refuses`: it does not answer any more. `of_another`: they are of
    another keyspace than the command."""

    def __init__(self, there: dict[int, KeySpan]) -> None:
        self.there, self.refuses, self.of_another = there, False, False

    def spans(self) -> dict[int, KeySpan]:
        if self.of_another:
            raise InvalidRequest("territory 1 is of --keyspace ''")
        return dict(self.there)

    def replace(self, gone: Collection[int], children: Sequence[Child]) -> None:
        if self.refuses:
            raise Unavailable("no answer from the API")
        self.there = replaced(TENANT, self.there, gone, children)


def connected(tikv: EmulatedTikv, objects: ObjectStore | None = None) -> tuple[World, int, Listed]:
    """A tenant that is connected as one territory: its world, the ts of the connection, and the platform's list."""
    world = World(tikv, objects=objects)
    ts = world.connector.connect()
    return world, ts, Listed(dict(world.connector.divide({}, ts)))


# Attack: a division ends half way, and is run again with other wishes; it is run once more when it is complete
def test_a_territory_is_split_and_merged_and_holds_back_what_the_new_ones_need(
    serve: Callable[[EmulatedTikv], EmulatedTikv],
) -> None:
    tikv = serve(EmulatedTikv())
    world, ts, listed = connected(tikv)
    divider = world.divider(listed)
    listed.refuses = True
    with pytest.raises(Unavailable):
        divider.divide([1], 2)
    assert {f"tistream-7-connected-{number}" for number in (1, 2, 3)} == set(tikv.holds)
    listed.refuses = False
    low, high = divider.divide([1], 3)
    assert listed.there == {2: low.span, 3: high.span}
    assert "--into 3 was not used" in world.checks[-1].why
    assert_tiled(WHOLE, [low.span, high.span])
    assert tikv.holds == {f"tistream-7-connected-{number}": ts - 1 for number in (2, 3)}
    for child in (low, high):
        position = last_position(world.objects, TENANT, child.store_id, child.span)
        assert position is not None
        assert position.promises == (Promise(child.span, ts),)
    with pytest.raises(CannotConnect, match=r"are in 2, 3 now: .* else connect with --territory 2"):
        world.connector.connect()
    both = divider.divide([2, 3], 1)
    assert both == divider.divide([2, 3], 1) == (Child(4, WHOLE),)
    assert listed.there == {4: WHOLE}
    assert tikv.holds == {"tistream-7-connected-4": ts - 1}
    with pytest.raises(CannotConnect, match=r"are in 2, 3 now: .* else connect with --territory 4"):
        world.connector.connect()
    with pytest.raises(InvalidRequest, match="have no territory 9"):
        divider.divide([9], 2)
    other = World(tikv, regions_max=1, territory=4, objects=world.objects)
    assert [number for number, _ in other.connector.divide({4: KeySpan(b"", b"t")}, ts)][:2] == [5, 6]


# Attack: ids that a division has reserved, or whose reservations are damaged, are named or come next
def test_ids_that_are_reserved_or_damaged_are_left_out(serve: Callable[[EmulatedTikv], EmulatedTikv]) -> None:
    tikv = serve(EmulatedTikv())
    world, ts, listed = connected(tikv)
    ReservedIds(world.objects, TENANT).reserve(Reservation(2, "dead"))
    world.objects.put(layout.reserved_territory(TENANT, 4), b"damaged")
    divider = world.divider(listed)
    assert [child.store_id for child in divider.divide([1], 2)] == [3, 5]
    assert any("id 4 is left out: " in check.why and "is damaged" in check.why for check in world.checks)
    for number, why in ((2, "id 2 is reserved for a new territory of a division"), (4, "is damaged: it is not JSON")):
        with pytest.raises(CannotConnect, match=f"{why}.*another"):
            World(tikv, territory=number, objects=world.objects).connector.connect()
        assert f"tistream-7-connected-{number}" not in tikv.holds
    other = World(tikv, regions_max=1, territory=2, objects=world.objects)
    assert [number for number, _ in other.connector.divide({3: KeySpan(b"", b"t")}, ts)][:2] == [6, 7]


# Attack: the highest id that there can be is given to a territory, which is divided
def test_no_id_is_above_those_that_files_can_have(serve: Callable[[EmulatedTikv], EmulatedTikv]) -> None:
    highest = (1 << 63) - 1
    world = World(serve(EmulatedTikv()), territory=highest)
    listed = Listed(dict(world.connector.divide({}, world.connector.connect())))
    divider = world.divider(listed)
    assert [child.store_id for child in divider.divide([highest], 2)] == [1, 2]


class Busy(MemoryObjectStore):
    """The agent of territory 1 writes a file whenever a division would write the last one."""

    def put_new(self, key: str, body: bytes) -> None:
        name = layout.parse_change_file(key)
        if name is not None and name[1] == 1:
            position = last_position(self, TENANT, 1, WHOLE)
            if position is not None:
                super().put_new(key, draft_without_rows(TENANT, 1, position, "a").data())
        super().put_new(key, body)


# Attack: of the two territories of a division one is divided again, the other is removed, and the command is repeated
def test_a_division_is_finished_after_one_of_its_territories_was_divided_and_brings_none_back(
    serve: Callable[[EmulatedTikv], EmulatedTikv],
) -> None:
    tikv = serve(EmulatedTikv())
    world, ts, listed = connected(tikv)
    divider = world.divider(listed)
    low, high = divider.divide([1], 2)
    divider.divide([2], 2)
    assert divider.divide([1], 2) == (low, high)
    assert sorted(listed.there) == [3, 4, 5]
    assert_tiled(WHOLE, sorted(listed.there.values(), key=lambda span: span.start))
    assert _held(tikv) == dict.fromkeys([3, 4, 5], ts - 1)
    del listed.there[high.store_id]
    with pytest.raises(InvalidRequest, match="neither 1 nor 3, so some were disconnected: run `tistream disconnect"):
        divider.divide([1], 2)
    assert sorted(listed.there) == [4, 5]
    assert _lasting(tikv) == {4, 5}
    World(tikv, territory=3, objects=world.objects).connector.disconnect()
    assert divider.divide([1], 2) == (low, high)
    assert sorted(listed.there) == [4, 5]


class Refusing(MemoryObjectStore):
    """No file of the territories `of` can be put."""

    def __init__(self) -> None:
        super().__init__()
        self.of: set[int] = set()

    def put_new(self, key: str, body: bytes) -> None:
        name = layout.parse_change_file(key)
        if name is not None and name[1] in self.of:
            raise Unavailable("no answer from the object store")
        super().put_new(key, body)


class Divided:
    """A tenant whose territory 1 has all keys, and a division of it into 2 and 3 that died."""

    def __init__(self, tikv: EmulatedTikv, of: set[int]) -> None:
        self.objects = Refusing()
        self.world, self.ts, self.listed = connected(tikv, self.objects)
        self.divider = self.world.divider(self.listed)
        self.objects.of = of
        with pytest.raises(Unavailable):
            self.divider.divide([1], 2)
        self.objects.of = set()


def _held(tikv: EmulatedTikv) -> dict[int, int]:
    return {int(name.removeprefix("tistream-7-connected-")): ts for name, ts in tikv.holds.items()}


# Attack: the object store does not answer before a division has changed anything
def test_a_division_that_has_changed_nothing_holds_nothing(serve: Callable[[EmulatedTikv], EmulatedTikv]) -> None:
    tikv = serve(EmulatedTikv())
    divided = Divided(tikv, {1})
    assert _held(tikv) == {1: divided.ts - 1}
    assert divided.listed.there == {1: WHOLE}
    assert list(ReservedIds(divided.objects, TENANT).by_divisions()) == [], "and no division counts its ids"


class Interrupted(MemoryObjectStore):
    """Ctrl-C comes once while a file of territory 1 is put, which is `stored` or not."""

    def __init__(self, *, stored: bool) -> None:
        super().__init__()
        self.stored, self.armed = stored, False

    def put_new(self, key: str, body: bytes) -> None:
        name = layout.parse_change_file(key)
        if not self.armed or name is None or name[1] != 1:
            super().put_new(key, body)
            return
        self.armed = False
        if self.stored:
            super().put_new(key, body)
        raise KeyboardInterrupt


# Attack: Ctrl-C comes when the last file is on its way, so it is unknown whether it names the new territories
@pytest.mark.parametrize("stored", [True, False])
def test_a_division_that_is_interrupted_in_its_last_file_holds_what_that_may_name(
    stored: bool, serve: Callable[[EmulatedTikv], EmulatedTikv]
) -> None:
    tikv = serve(EmulatedTikv())
    objects = Interrupted(stored=stored)
    world, ts, listed = connected(tikv, objects)
    objects.armed = True
    with pytest.raises(KeyboardInterrupt):
        world.divider(listed).divide([1], 2)
    assert _held(tikv) == dict.fromkeys([1, 2, 3], ts - 1)
    assert {one.store_id for one in ReservedIds(objects, TENANT).by_divisions()} == {2, 3}
    children = world.divider(listed).divide([1], 2)
    assert listed.there == {child.store_id: child.span for child in children}
    assert _held(tikv) == dict.fromkeys(listed.there, ts - 1), "what no file names is released"


class Killing(MemoryObjectStore):
    """The process of a division is killed once it has put `left` files of the territories `of`; before, if 0."""

    def __init__(self) -> None:
        super().__init__()
        self.of, self.left = set[int](), -1

    def put_new(self, key: str, body: bytes) -> None:
        name = layout.parse_change_file(key)
        if name is None or name[1] not in self.of:
            super().put_new(key, body)
            return
        if self.left:
            super().put_new(key, body)
        self.left -= 1
        if self.left <= 0:
            raise Died


def _lasting(tikv: EmulatedTikv) -> set[int]:
    """The territories whose holds last for more than minutes."""
    return {int(name.removeprefix("tistream-7-connected-")) for name in tikv.held_after(PLANNED_TTL_S)}


# Attack: a division is killed, and never run again
def test_the_holds_of_a_killed_division_that_no_file_names_end_in_minutes(
    serve: Callable[[EmulatedTikv], EmulatedTikv],
) -> None:
    tikv, objects = serve(EmulatedTikv()), Killing()
    world, ts, listed = connected(tikv, objects)
    objects.of, objects.left = {1}, 0
    with pytest.raises(Died):
        world.divider(listed).divide([1], 2)
    assert _held(tikv) == dict.fromkeys([1, 2, 3], ts - 1)
    assert _lasting(tikv) == {1}


@pytest.mark.parametrize(("of", "lasting"), [({1}, {1}), ({2}, {1, 2, 3})])
def test_a_killed_division_holds_what_its_last_file_names_for_a_day(
    of: set[int], lasting: set[int], serve: Callable[[EmulatedTikv], EmulatedTikv]
) -> None:
    tikv, objects = serve(EmulatedTikv()), Killing()
    world, ts, listed = connected(tikv, objects)
    objects.of, objects.left = of, 1
    with pytest.raises(Died):
        world.divider(listed).divide([1], 2)
    assert _lasting(tikv) == lasting
    objects.of = set()
    children = world.divider(listed).divide([1], 2)
    assert listed.there == {child.store_id: child.span for child in children}
    assert _held(tikv) == dict.fromkeys(listed.there, ts - 1)
    assert _lasting(tikv) == set(listed.there)


# Attack: a division is killed while it waits for the agents of the old territories to notice
def test_the_holds_of_territories_that_were_handed_over_end_in_minutes(
    serve: Callable[[EmulatedTikv], EmulatedTikv],
) -> None:
    tikv = serve(EmulatedTikv())
    world, ts, listed = connected(tikv)

    def killed(_: float) -> None:
        raise Died

    with pytest.raises(Died):
        world.divider(listed, killed).divide([1], 2)
    assert sorted(listed.there) == [2, 3]
    assert _held(tikv) == dict.fromkeys([1, 2, 3], ts - 1)
    assert _lasting(tikv) == {2, 3}


# Attack: a division dies when one of its two chains is begun; this one is disconnected, and the command is run again
def test_the_keys_beside_a_begun_territory_that_was_disconnected_are_handed_over(
    serve: Callable[[EmulatedTikv], EmulatedTikv],
) -> None:
    tikv = serve(EmulatedTikv())
    divided = Divided(tikv, {3})
    World(tikv, territory=2, objects=divided.objects).connector.disconnect()
    _, high = divided.divider.divide([1], 2)
    assert divided.listed.there == {3: high.span}
    position = last_position(divided.objects, TENANT, 3, high.span)
    assert position is not None
    assert position.promises == (Promise(high.span, divided.ts),)
    assert _held(tikv) == {3: divided.ts - 1}
    assert "no territory has all keys of 2, which ended: `tistream connect --assign`" in divided.world.checks[-1].why


# Attack: a tenant is disconnected when a division of its territory has died, with one of its two chains begun
def test_what_a_division_that_died_has_left_is_disconnected_with_the_tenant(
    serve: Callable[[EmulatedTikv], EmulatedTikv],
) -> None:
    tikv = serve(EmulatedTikv())
    divided = Divided(tikv, {3})
    assert _held(tikv) == dict.fromkeys([1, 2, 3], divided.ts - 1)
    assert divided.world.connector.left_by_divisions(divided.listed.there) == [2]
    assert sorted(_held(tikv)) == [1, 2]


# Attack: `connect` opens a begun territory again that was disconnected; a day later its division is run again
def test_a_begun_territory_that_was_opened_again_is_held_back(serve: Callable[[EmulatedTikv], EmulatedTikv]) -> None:
    tikv = serve(EmulatedTikv())
    world, ts, listed = connected(tikv)
    listed.refuses = True
    with pytest.raises(Unavailable):
        world.divider(listed).divide([1], 2)
    begun = World(tikv, territory=2, objects=world.objects)
    begun.connector.disconnect()
    begun.connector.connect()
    tikv.collect(ts - 1)
    listed.refuses = False
    world.divider(listed).divide([1], 2)
    assert sorted(listed.there) == [2, 3]
    assert _held(tikv) == dict.fromkeys([2, 3], ts - 1)


# Attack: a tenant is connected again under the id of a territory whose division died before it began a chain
def test_no_id_is_advised_that_is_refused(serve: Callable[[EmulatedTikv], EmulatedTikv]) -> None:
    divided = Divided(serve(EmulatedTikv()), {2})
    with pytest.raises(CannotConnect, match=r"are in 2, 3 now: .* else connect with another --territory"):
        divided.world.connector.connect()
    with pytest.raises(CannotConnect, match="id 2 is reserved for a new territory of a division of 1, which alone may"):
        World(divided.world.tikv, territory=2, objects=divided.objects).connector.connect()


# Attack: a division that died is run again with the address or the keyspace of another tenant
def test_a_repeat_for_other_keys_changes_nothing(serve: Callable[[EmulatedTikv], EmulatedTikv]) -> None:
    tikv = serve(EmulatedTikv())
    divided = Divided(tikv, {2})
    divided.listed.of_another = True
    files, holds = [info.key for info in divided.objects.list_after("")], tikv.holds
    with pytest.raises(InvalidRequest, match="is of --keyspace"):
        divided.divider.divide([1], 2)
    assert [info.key for info in divided.objects.list_after("")] == files
    assert tikv.holds == holds


# Attack: a division that died is run again a day later, when PD has forgotten its holds
def test_a_repeat_holds_back_what_no_agent_has_claimed_before_it_releases_the_rest(
    serve: Callable[[EmulatedTikv], EmulatedTikv],
) -> None:
    tikv = serve(EmulatedTikv())
    world, ts, listed = connected(tikv)
    divider = world.divider(listed)
    listed.refuses = True
    with pytest.raises(Unavailable):
        divider.divide([1], 2)
    tikv.collect(ts - 1)
    listed.refuses = False
    divider.divide([1], 2)
    assert _held(tikv) == {2: ts - 1, 3: ts - 1}


# Attack: a division dies before it releases its holds; both its territories are divided again, one store is retired
def test_a_division_is_finished_after_a_store_of_its_territories_was_retired(
    serve: Callable[[EmulatedTikv], EmulatedTikv],
) -> None:
    tikv = serve(EmulatedTikv())
    world, ts, listed = connected(tikv)
    divider = world.divider(listed)
    divider.divide([1], 2)
    for number in (2, 3):
        divider.divide([number], 2)
    for info in world.objects.list_after(layout.change_file_prefix(TENANT, 3)):
        world.objects.delete(info.key)
    GcHold(world.pd, TENANT, 1).move(ts - 1)
    divider.divide([1], 2)
    assert sorted(listed.there) == [4, 5, 6, 7]
    assert _held(tikv) == dict.fromkeys([4, 5, 6, 7], ts - 1)
    assert not list(world.objects.list_after(layout.change_file_prefix(TENANT, 3)))


# Attack: the chain of one of several territories is damaged, and garbage collection is only held back for it there
def test_a_new_territory_takes_the_keys_of_one_with_a_damaged_chain_before_its_hold_ends(
    serve: Callable[[EmulatedTikv], EmulatedTikv],
) -> None:
    tikv = serve(EmulatedTikv())
    world = World(tikv, regions_max=1)
    ts = world.connector.connect()
    listed, seen = Listed(dict(world.connector.divide({}, ts))), list[set[int]]()
    lost, others = listed.there[1], set(listed.there) - {1}

    def disconnect(number: int) -> None:
        seen.append(set(_held(tikv)))
        World(tikv, territory=number, objects=world.objects).connector.disconnect()

    other = World(tikv, territory=99, objects=world.objects)
    with pytest.raises(InvalidRequest, match="the chain of territory 1 is not damaged: `tistream agent divide"):
        assign(other.connector, listed, [1], disconnect)
    assert 99 not in _held(tikv)
    world.objects.put(layout.change_file(TENANT, 1, ts + 2), b"damaged")
    for _ in range(2):  # the second run changes nothing
        assign(other.connector, listed, [1], disconnect)
        assert listed.there[99] == lost
        assert set(listed.there) == {99, *others} == set(_held(tikv))
    assert seen[0] == {1, 99, *others}


# Attack: a territory with a damaged chain is replaced by more than one call may name, and is there for the first only
def test_many_new_territories_take_the_keys_of_one_with_a_damaged_chain(
    serve: Callable[[EmulatedTikv], EmulatedTikv], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(assigning, "REPLACED_BY_MAX", 2)
    world, ts, listed = connected(serve(EmulatedTikv()))
    world.objects.put(layout.change_file(TENANT, 1, ts + 2), b"damaged")
    other = World(world.tikv, regions_max=1, territory=99, objects=world.objects)
    for _ in range(2):
        assign(other.connector, listed, [1], lambda _: None)
        assert len(listed.there) > 2
        assert min(listed.there) == 99
        assert_tiled(WHOLE, sorted(listed.there.values(), key=lambda span: span.start))


# Attack: a tenant with as many territories as it may have is divided further
def test_a_division_into_too_many_territories_is_refused_before_it_begins(
    serve: Callable[[EmulatedTikv], EmulatedTikv],
) -> None:
    tikv = serve(EmulatedTikv())
    world = World(tikv)
    ts = world.connector.connect()
    listed = Listed({1: WHOLE, **{number: KeySpan(b"z", b"") for number in range(2, TERRITORIES_MAX + 1)}})
    files = [info.key for info in world.objects.list_after("")]
    divider = world.divider(listed)
    with pytest.raises(InvalidRequest, match=f"more than {TERRITORIES_MAX} territories: give a lower --into"):
        divider.divide([1], 2)
    assert [info.key for info in world.objects.list_after("")] == files
    assert tikv.holds == {"tistream-7-connected-1": ts - 1}


def _at_most(number: int, patch: pytest.MonkeyPatch) -> None:
    for module in (connect, divider, division):
        patch.setattr(module, "TERRITORIES_MAX", number)


# Attack: a tenant is connected whose keys would be in more territories than it may have
def test_keys_for_too_many_territories_are_refused_before_anything_is_begun(
    serve: Callable[[EmulatedTikv], EmulatedTikv], monkeypatch: pytest.MonkeyPatch
) -> None:
    tikv = serve(EmulatedTikv())
    world, listed = World(tikv, regions_max=1), Listed({})
    _at_most(2, monkeypatch)
    with pytest.raises(InvalidRequest, match="more than 2 territories: merge others first, with"):
        assign(world.connector, listed, [], lambda _: None)
    assert list(world.objects.list_after("")) == []
    assert (tikv.holds, listed.there, world.registered) == ({}, {}, [])


# Attack: keys are given away while a division of another territory is under way, which needs the room
def test_keys_leave_the_room_that_divisions_under_way_need(
    serve: Callable[[EmulatedTikv], EmulatedTikv], monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World(serve(EmulatedTikv()))
    listed = Listed({1: KeySpan(b"", b"t")})
    _at_most(2, monkeypatch)
    for number in (8, 9):
        ReservedIds(world.objects, TENANT).reserve(Reservation(number, "dead", (1,)))
    with pytest.raises(InvalidRequest, match="more than 2 territories with the divisions of 1, which"):
        assign(world.connector, listed, [], lambda _: None)
    _at_most(3, monkeypatch)
    assign(world.connector, listed, [], lambda _: None)
    assert listed.there == {1: KeySpan(b"", b"t"), 2: KeySpan(b"t", b"")}


# Attack: the platform gets other territories between the last file of a chain and its repeat
def test_a_division_without_room_at_its_end_hands_nothing_over(
    serve: Callable[[EmulatedTikv], EmulatedTikv], monkeypatch: pytest.MonkeyPatch
) -> None:
    divided = Divided(serve(EmulatedTikv()), {2})
    _at_most(1, monkeypatch)
    with pytest.raises(InvalidRequest, match="and 1 is the maximum, so there is no room for 2, 3: merge others first"):
        divided.divider.divide([1], 2)
    assert divided.listed.there == {1: WHOLE}
    _at_most(2, monkeypatch)
    divided.divider.divide([1], 2)
    assert sorted(divided.listed.there) == [2, 3]


# Attack: the agent of the territory is always faster than the division
def test_a_division_that_gives_up_holds_nothing(serve: Callable[[EmulatedTikv], EmulatedTikv]) -> None:
    tikv = serve(EmulatedTikv())
    world, ts, listed = connected(tikv, Busy())
    divider = world.divider(listed)
    with pytest.raises(CannotConnect, match="write faster than their chains are ended"):
        divider.divide([1], 2)
    assert tikv.holds == {"tistream-7-connected-1": ts - 1}
    assert listed.there == {1: WHOLE}


def test_a_small_cluster_is_one_territory(serve: Callable[[EmulatedTikv], EmulatedTikv]) -> None:
    world = World(serve(EmulatedTikv()))
    ts = world.connector.connect()
    shown = len(world.checks)
    world.connector.undivided()
    assert len(world.checks) == shown
    assert world.connector.divide({}, ts) == [(1, WHOLE)]


def test_an_agent_of_its_own_with_too_many_regions_is_pointed_out(
    serve: Callable[[EmulatedTikv], EmulatedTikv],
) -> None:
    world = World(serve(EmulatedTikv()), regions_max=3)
    world.connector.undivided()
    assert world.checks[-1].passed
    assert "regions in one: --assign" in world.checks[-1].why


def test_a_platform_that_does_not_answer_leaves_a_connect_that_can_be_repeated(
    serve: Callable[[EmulatedTikv], EmulatedTikv],
) -> None:
    world = World(serve(EmulatedTikv()), refusal=Unavailable("no answer from the API"))
    with pytest.raises(CannotConnect, match="run the command again"):
        world.connector.connect()
    world._refusal = None
    world.connector.connect()
    assert world.registered == [TENANT]


def test_a_dry_run_changes_nothing(serve: Callable[[EmulatedTikv], EmulatedTikv]) -> None:
    tikv = serve(EmulatedTikv())
    world = World(tikv)
    world.connector.check()
    assert not tikv.holds
    assert not list(world.objects.list_after(""))


# Attack: a tenant is connected again after garbage collection has passed the end of its chain
def test_a_dry_run_says_that_the_history_of_a_connected_tenant_is_gone(
    serve: Callable[[EmulatedTikv], EmulatedTikv],
) -> None:
    first = World(serve(EmulatedTikv()))
    ts = first.connector.connect()
    again = World(serve(EmulatedTikv(collected_ts=ts + 1)))
    for info in first.objects.list_after(""):
        again.objects.put(info.key, first.objects.get(info.key))
    with pytest.raises(CannotConnect, match="connect a new tenant, and backfill"):
        again.connector.check()
    assert [check.name for check in again.checks if not check.passed] == ["history"]


@pytest.mark.parametrize(("version", "why"), [("6.1.7", "upgrade it to 6.5.0"), ("nightly", "use a released TiKV")])
def test_a_tikv_that_is_too_old_is_named(serve: Callable[[EmulatedTikv], EmulatedTikv], version: str, why: str) -> None:
    with pytest.raises(CannotConnect, match=why):
        World(serve(EmulatedTikv(version=version))).connector.check()


def test_the_command_prints_a_failed_check_once(serve: Callable[[EmulatedTikv], EmulatedTikv], tmp_path: Path) -> None:
    tikv = serve(EmulatedTikv(version="6.1.7"))
    given = [
        "connect",
        "--pd",
        tikv.address,
        "--objects",
        f"file://{tmp_path}/new",
        "--cluster",
        "7",
        "--tenant",
        "old",
    ]
    app = typer.Typer()
    register(app)
    done = CliRunner().invoke(app, [*given, "--dry-run"])
    assert done.exit_code == 1
    assert done.output.count("upgrade it to 6.5.0") == 1
    *checks, end = done.output.splitlines()
    assert [line.rsplit("  ", 1)[0].split()[-1] for line in checks] == ["yes", "NO"]
    assert end == "tistream: a check has failed (NO); nothing after it was done"
    assert not (tmp_path / "new").exists(), "--dry-run changes nothing"


def test_rawkv_is_connected_without_a_schema(serve: Callable[[EmulatedTikv], EmulatedTikv]) -> None:
    tikv = serve(EmulatedTikv("raw"))
    world = World(tikv, kind=TenantKind.RAW)
    world.connector.check()
    ts = world.connector.connect()
    key = layout.schema_snap(TENANT)
    assert orjson.loads(world.objects.get(key)) == {"version": 1, "kind": "raw", "snapshot_ts": ts, "databases": []}
    assert parse_snapshot(key, world.objects.get(key)) == Snapshot(ts, ())
    assert world.registered == [TENANT]
    assert tikv.subscribed() == []


# Attack: a cluster without API V2 is connected as RawKV
def test_rawkv_of_api_v1_is_refused_by_name(serve: Callable[[EmulatedTikv], EmulatedTikv]) -> None:
    world = World(serve(EmulatedTikv()), kind=TenantKind.RAW)
    with pytest.raises(CannotConnect, match=r"RawKV: store 1 refuses RawKV: its API is V1.*storage.api-version = 2"):
        world.connector.check()


def test_a_rawkv_before_6_2_is_refused(serve: Callable[[EmulatedTikv], EmulatedTikv]) -> None:
    with pytest.raises(CannotConnect, match=r"upgrade it to 6\.2\.0"):
        World(serve(EmulatedTikv("raw", version="6.1.7")), kind=TenantKind.RAW).connector.check()


def test_a_disconnect_ends_the_hold(serve: Callable[[EmulatedTikv], EmulatedTikv]) -> None:
    tikv = serve(EmulatedTikv())
    world = World(tikv)
    world.connector.connect()
    world.connector.disconnect()
    assert not tikv.holds


# Attack: an agent reads its chain just before the last file, and its request reaches PD only at its deadline
def test_no_request_of_the_agent_is_under_way_when_its_hold_is_released(
    serve: Callable[[EmulatedTikv], EmulatedTikv],
) -> None:
    world, _, listed = connected(serve(EmulatedTikv()))
    world.divider(listed, world.slept.append).divide([1], 2)
    begun = World(world.tikv, territory=2, objects=world.objects)
    begun.connector.disconnect()
    assert len(world.slept) == len(begun.slept) == 1
    assert min(world.slept + begun.slept) * 1_000 > PROOF_MS + DEADLINE_S * 1_000


# Attack: a tenant whose agent is one of its own has a territory that no platform knows
def test_the_command_disconnects_without_a_platform(
    serve: Callable[[EmulatedTikv], EmulatedTikv], tmp_path: Path
) -> None:
    tikv, url = serve(EmulatedTikv()), f"file://{tmp_path}"
    World(tikv, objects=open_objects(url)).connector.connect()
    assert set(_held(tikv)) == {1}
    app, of = typer.Typer(), ["--cluster", TENANT.cluster_id, "--tenant", TENANT.tenant_id]
    register(app)
    done = CliRunner(env={"TISTREAM_URL": ""}).invoke(app, ["disconnect", "--pd", tikv.address, "--objects", url, *of])
    assert done.exit_code == 0, done.output
    assert _held(tikv) == {}
    with pytest.raises(ChainSealed):
        last_position(open_objects(url), TENANT, 1, WHOLE)


def test_without_a_certificate_or_with_one_of_another_authority_nothing_is_connected(
    serve: Callable[[EmulatedTikv], EmulatedTikv], tmp_path: Path
) -> None:
    authority, other = Authority(tmp_path, "ours"), Authority(tmp_path, "other")
    tikv = serve(EmulatedTikv(tls=authority.sign("pd")))
    mine, strange = authority.sign("agent"), other.sign("stranger")
    good = TlsFiles(authority.file, mine.cert_file, mine.key_file)
    assert World(tikv, good).connector.check() == tikv.cluster_id
    for bad in (
        TlsFiles(),
        TlsFiles(authority.file),
        TlsFiles(authority.file, strange.cert_file, strange.key_file),
        TlsFiles(other.file, mine.cert_file, mine.key_file),
    ):
        with pytest.raises(CannotConnect, match="no PD answers"):
            World(tikv, bad).connector.check()


def test_a_renewed_certificate_is_used_by_the_next_connection(
    serve: Callable[[EmulatedTikv], EmulatedTikv], tmp_path: Path
) -> None:
    authority, other = Authority(tmp_path, "ours"), Authority(tmp_path, "other")
    tikv = serve(EmulatedTikv(tls=authority.sign("pd")))
    mine, strange = authority.sign("agent"), other.sign("stranger")
    cert, key = tmp_path / "client.crt", tmp_path / "client.key"
    pd = PdClient([tikv.address], Channels(TlsFiles(authority.file, cert, key)))
    for pair, works in ((strange, False), (mine, True)):
        cert.write_bytes(pair.cert_file.read_bytes())
        key.write_bytes(pair.key_file.read_bytes())
        if works:
            assert pd.cluster_id == tikv.cluster_id
        else:
            with pytest.raises(Unavailable):
                _ = pd.cluster_id


def test_a_pd_of_another_cluster_is_refused(serve: Callable[[EmulatedTikv], EmulatedTikv]) -> None:
    tikv = serve(EmulatedTikv())
    with pytest.raises(OtherCluster, match="correct --pd"):
        _ = PdClient([tikv.address], Channels(TlsFiles()), cluster_id=5).stores()


def test_timestamps_grow_and_are_taken_once(serve: Callable[[EmulatedTikv], EmulatedTikv]) -> None:
    pd = PdClient([serve(EmulatedTikv()).address], Channels(TlsFiles()), deadline_s=PATIENCE_S)
    first, second, third = pd.timestamps(1), pd.timestamps(100), pd.timestamps(3)
    assert second - 100 >= first
    assert third - 3 >= second


def test_disconnect_seals_the_chain_and_ends_the_hold_and_connect_opens_it_again(
    serve: Callable[[EmulatedTikv], EmulatedTikv],
) -> None:
    tikv = serve(EmulatedTikv())
    world = World(tikv)
    ts = world.connector.connect()
    world.connector.disconnect()
    assert tikv.holds == {}
    with pytest.raises(ChainSealed, match="`tistream connect` opens it again"):
        last_position(world.objects, TENANT, 1, WHOLE)
    files = len(list(world.objects.list_after("")))
    world.connector.disconnect()
    assert len(list(world.objects.list_after(""))) == files, "a second one changes nothing"
    assert world.connector.connect() == ts
    position = last_position(world.objects, TENANT, 1, WHOLE)
    assert position is not None
    assert position.promises == (Promise(WHOLE, ts),)
    assert tikv.holds == {"tistream-7-connected-1": ts - 1}
