"""Stores that are let go: nobody reads them, their files go, and one that pushes again is found again."""

from __future__ import annotations

from pathlib import Path

import pytest
from test_tenant_ends import ACME, OTHERS, World

from tistream.errors import InvalidRequest, UnknownName
from tistream.storage import layout
from tistream_meta.decide.liveness import NodeState
from tistream_meta.owner.owner_copy import OwnerCopy
from tistream_meta.owner.store_keeping import ReportedStore, StoreKeeping


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def files(world: World) -> list[str]:
    return [key for key in world.keys(ACME) if key.startswith(layout.store_prefix(ACME, 3))]


def stores(world: World) -> tuple[list[int], list[int]]:
    """Those that are read, and those that were retired, as the route has them."""
    route = world.route(ACME)
    assert route is not None
    assert route.stores is not None
    return [store.store_id for store in route.stores], route.retired_stores


def test_a_retired_store_leaves_the_routes_and_its_files_go_and_nothing_else(world: World) -> None:
    before = {key: world.keys(key) for key in OTHERS}
    rest = set(world.keys(ACME)) - set(files(world))
    world.server.store_rules.retire(ACME, 3, 17, discard=False)
    assert stores(world) == ([], [3])
    world.erase()
    assert stores(world) == ([], []), "it is found anew, if it pushes again"
    assert set(world.keys(ACME)) == rest
    assert {key: world.keys(key) for key in OTHERS} == before
    assert world.repository.plan().stores != ()


def test_files_that_nobody_took_keep_it_unless_they_are_to_go_with_it(world: World) -> None:
    for ts in (20, 21):
        world.objects.put(layout.change_file(ACME, 3, ts), b"x")
    with pytest.raises(InvalidRequest, match=r"2 of its files were never taken, the first is 20 .*--discard"):
        world.server.store_rules.retire(ACME, 3, 17, discard=False)
    assert stores(world) == ([3], [])
    world.server.store_rules.retire(ACME, 3, 17, discard=True)
    world.erase()
    assert files(world) == []


def test_what_it_pushes_after_that_stays_and_it_is_found_again(world: World) -> None:
    world.server.store_rules.retire(ACME, 3, 17, discard=False)
    late = layout.change_file(ACME, 3, 30)
    world.objects.put(late, b"x")
    world.erase()
    assert files(world) == [late]
    keeping = StoreKeeping()
    book = OwnerCopy(world.repository.plan())
    assert keeping.record(book, "dispatcher-1", [ReportedStore(ACME, 3, None)])
    given = keeping.due(book, {"dispatcher-1": NodeState.ALIVE}, 0, turned=True)
    assert (ACME, 3) in {one.store.key for one in given}


def test_while_it_goes_no_dispatcher_is_given_it(world: World) -> None:
    world.server.store_rules.retire(ACME, 3, 17, discard=False)
    keeping = StoreKeeping()
    book = OwnerCopy(world.repository.plan())
    keeping.record(book, "dispatcher-1", [ReportedStore(ACME, 3, None)])
    given = keeping.due(book, {"dispatcher-1": NodeState.ALIVE}, 0, turned=True)
    assert {one.store.key for one in given} == {(key, 3) for key in OTHERS}


def test_it_goes_on_after_the_owners_death_and_the_same_again_is_no_error(world: World) -> None:
    world.server.store_rules.retire(ACME, 3, 17, discard=False)
    world.server.store_rules.retire(ACME, 3, 17, discard=False)
    world.begin("meta-1")
    world.erase()
    assert (files(world), stores(world)) == ([], ([], []))
    with pytest.raises(UnknownName, match="tenant 7/acme has no store 3: it has none"):
        world.server.store_rules.retire(ACME, 3, 17, discard=False)
