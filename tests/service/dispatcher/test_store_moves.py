"""Several dispatchers between a real meta server and a real sorter: each store has one, whoever comes and goes, and
nothing is lost or taken twice; two that both read a store change nothing."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry
from sqlalchemy import create_engine, text
from test_dispatching import begin, check_end, committed, push, truth

from support import golden as golden_sets
from support.effort import seeds
from support.golden import Delivery
from support.http_world import CLOCK, LONG_LEASE_MS, World, running
from support.sorter_world import Origin
from support.tiny_tenant import TinyTenant, watermark, whole
from support.waiting import eventually
from tistream.errors import InvalidRequest
from tistream.storage import layout
from tistream.wire.clients.sorter_client import SorterClient
from tistream.wire.meta import RetireStore, StoreRoute
from tistream.wire.sorter import StoreNeed
from tistream_api.status.store_retirement import taken_ts
from tistream_dispatcher.delivery.delivery import ResyncPauses
from tistream_dispatcher.delivery.window import WindowLimits
from tistream_dispatcher.metrics import DispatcherMetrics
from tistream_dispatcher.stores.pacing import PollSettings
from tistream_dispatcher.tenant.share import Share
from tistream_dispatcher.tenant.tenant_feed import TenantFeed
from tistream_meta.owner import node_liveness as heard

TINY = TinyTenant()
STORES = range(1, 7)
HOUR_MS = 3_600_000


def begin_tiny(world: World) -> None:
    world.objects.put(layout.schema_snap(TINY.tenant), b'{"version":1,"snapshot_ts":100,"databases":[]}')
    world.client.create_tenant(TINY.tenant.cluster_id, TINY.tenant.tenant_id)
    eventually(lambda: [task.phase for task in world.client.tasks().tasks] == ["running"])


def tiny_file(store: int, number: int) -> Delivery:
    """The number-th file of a store; that of store 1 has a row."""
    ts, prev_ts = 1_000 + 10 * number, 1_000 + 10 * (number - 1) if number else 0
    rows = [whole(b"k%03d" % number, ts + 1, ts + 2, 5 + number)] if store == 1 else []
    marks = {"base_ts": 100} if not number else {}
    return TINY.file(store, ts, prev_ts, rows, watermark(6 if not number else 5 + number, 5 + number, ts + 5, **marks))


def put(world: World, store: int, number: int) -> None:
    file = tiny_file(store, number)
    world.objects.put(file.key, file.data)


def received(world: World, store: int) -> int:
    """The last file of the store that the task has."""
    (task,) = world.tasks().tasks
    return max((chain.at_ts for chain in task.received.get(store, ())), default=0)


def each_has_one(world: World, stores: range = STORES) -> bool:
    readers = world.readers()
    return set(readers) == set(stores) and all(len(names) == 1 for names in readers.values())


def counts(world: World) -> dict[str, int]:
    """Stores by dispatcher, as `tistream node list` has them."""
    return {node.node_id: node.stores for node in world.client.nodes().nodes if node.role == "dispatcher"}


def test_stores_are_spread_and_each_is_read_by_one(tmp_path: Path) -> None:
    with running(tmp_path) as world:
        for name in ("dispatcher-2", "dispatcher-3"):
            world.start_dispatcher(name)
        eventually(lambda: len(counts(world)) == 3)
        begin_tiny(world)
        for store in STORES:
            put(world, store, 0)
        eventually(lambda: each_has_one(world))
        eventually(lambda: all(received(world, store) == 1_000 for store in STORES))
        assert counts(world) == {"dispatcher-1": 2, "dispatcher-2": 2, "dispatcher-3": 2}
        (tenant,) = world.client.routes().tenants
        assert tenant.stores is not None
        named = {store.store_id: [store.dispatcher_node] for store in tenant.stores}
        assert named == world.readers()


def test_a_new_store_waits_for_nobodys_pause(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The heartbeat goes out at once, and so does the route: the next one by itself would come in an hour."""
    with running(tmp_path, lost_ms=2 * HOUR_MS) as world:
        world.start_dispatcher("dispatcher-2")
        begin_tiny(world)
        eventually(lambda: len(counts(world)) == 2)
        monkeypatch.setattr(heard, "BEAT_MS", HOUR_MS)
        world.all_heard()  # they have been told
        for store in STORES:  # every new one goes to the other dispatcher by turns
            put(world, store, 0)
            world.notify(TINY.tenant, store, 1_000)
            eventually(lambda store=store: received(world, store) == 1_000)


def test_a_dispatcher_that_is_drained_ends_with_no_store_and_gets_none(tmp_path: Path) -> None:
    with running(tmp_path) as world:
        world.start_dispatcher("dispatcher-2")
        begin_tiny(world)
        for store in STORES:
            put(world, store, 0)
        eventually(lambda: counts(world) == {"dispatcher-1": 3, "dispatcher-2": 3})
        world.client.drain("dispatcher-2")
        eventually(lambda: counts(world) == {"dispatcher-1": 6, "dispatcher-2": 0})
        eventually(lambda: set(map(tuple, world.readers().values())) == {("dispatcher-1",)})
        put(world, 7, 0)
        eventually(lambda: received(world, 7) == 1_000)
        assert counts(world)["dispatcher-2"] == 0
        for store in STORES:
            put(world, store, 1)
        eventually(lambda: all(received(world, store) == 1_010 for store in STORES))


def test_what_a_lost_dispatcher_read_goes_to_the_others_and_comes_back(tmp_path: Path) -> None:
    with running(tmp_path, lease_ms=LONG_LEASE_MS) as world:
        world.start_dispatcher("dispatcher-2")
        begin_tiny(world)
        for store in STORES:
            put(world, store, 0)
        eventually(lambda: each_has_one(world) and counts(world) == {"dispatcher-1": 3, "dispatcher-2": 3})
        world.stop_dispatcher("dispatcher-2")
        world.long_silence()
        for store in STORES:
            put(world, store, 1)
        put(world, 7, 0)
        eventually(lambda: all(received(world, store) == 1_010 for store in STORES))
        eventually(lambda: received(world, 7) == 1_000)  # whoever looked for new stores before
        eventually(lambda: counts(world) == {"dispatcher-1": 7, "dispatcher-2": 0})
        world.start_dispatcher("dispatcher-2")
        eventually(lambda: counts(world)["dispatcher-2"] == 3)
        eventually(lambda: each_has_one(world, range(1, 8)))


def test_without_a_meta_server_known_stores_go_on_and_a_new_one_waits_and_says_so(tmp_path: Path) -> None:
    with running(tmp_path) as world:
        begin_tiny(world)
        put(world, 1, 0)
        eventually(lambda: received(world, 1) == 1_000)

        def meanwhile() -> None:
            put(world, 1, 1)
            put(world, 2, 0)
            eventually(lambda: received(world, 1) == 1_010)
            eventually(lambda: [(hold.stage, hold.store_id) for hold in world.stores().holds] == [("dispatch", "2")])
            assert received(world, 2) == 0

        world.restart_meta(meanwhile)
        eventually(lambda: received(world, 2) == 1_000)
        eventually(lambda: world.stores().holds == [])


@pytest.mark.parametrize("restarted", [False, True])
def test_a_database_that_has_forgotten_the_stores_learns_them_again(tmp_path: Path, restarted: bool) -> None:
    """By a heartbeat of who reads them. To a dispatcher that has started anew it is like a database of before there
    were stores in it: a LIST names them, since the newest file of a chain is never collected."""
    with running(tmp_path) as world:
        begin_tiny(world)
        for store in (1, 2):
            put(world, store, 0)
        put(world, 2, 1)
        eventually(lambda: (received(world, 1), received(world, 2)) == (1_000, 1_010))

        def forget() -> None:
            if restarted:
                world.stop_dispatcher("dispatcher-1")
            with create_engine(f"sqlite:///{tmp_path}/meta.db").begin() as connection:
                connection.execute(text("DELETE FROM stores"))
            world.objects.delete(tiny_file(2, 0).key)  # reclaimed

        world.restart_meta(forget)
        if restarted:
            world.start_dispatcher()
        eventually(lambda: counts(world) == {"dispatcher-1": 2})
        put(world, 1, 1)
        put(world, 2, 2)
        eventually(lambda: (received(world, 1), received(world, 2)) == (1_010, 1_020))


@pytest.mark.parametrize("seed", seeds(1, 2))
def test_dispatchers_come_and_go_while_files_come_in_any_order(tmp_path: Path, seed: int) -> None:
    golden = golden_sets.load("large")
    rng = random.Random(seed)
    with running(tmp_path, 3, lease_ms=LONG_LEASE_MS) as world:
        names = ["dispatcher-1", "dispatcher-2", "dispatcher-3"]
        for name in names[1:]:
            world.start_dispatcher(name)
        begin(world, golden)
        for file in golden_sets.shuffled(golden.files, seed):
            push(world, [file], golden, announced=rng.random() < 0.5)
            if rng.random() < 0.06:
                disturb(world, names, rng)
        for name in names:
            if name not in world.dispatchers:
                world.start_dispatcher(name)
            world.client.drain(name, draining=False)
        check_end(world, golden)
        eventually(lambda: each_has_one(world, range(1, 4)))


def disturb(world: World, names: list[str], rng: random.Random) -> None:
    name = rng.choice(names)
    match rng.choice(["stop", "drain", "undo", "meta", "sorter"]):
        case "stop" if name in world.dispatchers:
            world.stop_dispatcher(name)
            if rng.random() < 0.5:
                world.long_silence()
        case "stop":
            world.start_dispatcher(name)
        case "drain":
            world.client.drain(name)
        case "undo":
            world.client.drain(name, draining=False)
        case "meta":
            world.restart_meta()
        case _:
            world.restart_sorter()


def lone_feed(
    world: World, origin: Origin, resync: ResyncPauses | None = None, registry: CollectorRegistry | None = None
) -> TenantFeed:
    """A dispatcher's reading of a tenant, beside the platform's own."""
    return TenantFeed(
        origin.tenant,
        world.objects,
        SorterClient(world.http),
        CLOCK,
        DispatcherMetrics(registry or CollectorRegistry()),
        WindowLimits(99, 1 << 20, 7, 1 << 20),
        PollSettings(20, 100, 50, 60_000, 60_000),
        resync or ResyncPauses(100, 1_000),
        lambda: None,
    )


def test_two_that_both_read_every_store_are_harmless(tmp_path: Path) -> None:
    golden = golden_sets.load("large")
    with running(tmp_path, 4) as world:
        begin(world, golden)
        eventually(lambda: world.client.tasks().tasks)
        others = [lone_feed(world, golden) for _ in range(2)]
        rng = random.Random(5)
        for number, file in enumerate(golden_sets.shuffled(golden.files, 5)):
            push(world, [file], golden)
            if number % 10 == 0:
                table = world.client.routes()
                (route,) = table.tenants
                for feed in others:
                    feed.set_route(table.version, route, Share.of(route.model_copy(update={"stores": None}), "other"))
            rng.choice(others).step()
        for _ in range(20):
            for feed in others:
                feed.step()
        check_end(world, golden)
        assert committed(world, golden) == truth(golden)
        assert sum(task.counters.get("repeated_rows", 0) for task in world.tasks().tasks) == 0


def test_a_store_that_is_taken_away_is_dropped_and_one_that_comes_back_goes_on_where_the_tasks_are(
    tmp_path: Path,
) -> None:
    golden = golden_sets.load("large")
    with running(tmp_path, 2) as world:
        begin(world, golden)
        eventually(lambda: world.client.tasks().tasks)
        world.stop_dispatcher("dispatcher-1")
        table = world.client.routes()
        (route,) = table.tenants
        feeds = {name: lone_feed(world, golden) for name in "ab"}
        store_ids = sorted({file.store_and_ts[0] for file in golden.files})
        rng = random.Random(3)

        def give() -> dict[int, str]:
            given = {store_id: rng.choice("ab") for store_id in store_ids}
            stores = [StoreRoute(store_id=store_id, dispatcher_node=node) for store_id, node in given.items()]
            changed = route.model_copy(update={"stores": stores, "dispatcher_node": None})
            for name, feed in feeds.items():
                feed.set_route(table.version, changed, Share.of(changed, name))
                feed.step()
            return given

        for number, file in enumerate(golden.files):
            world.objects.put(file.key, file.data)
            if number % 15 == 0:
                given = give()
                for name, feed in feeds.items():
                    mine = {store_id for store_id, node in given.items() if node == name}
                    assert set(feed.loads()) <= mine, "no other store is read"
            for feed in feeds.values():
                feed.step()

        def all_read() -> bool:
            for feed in feeds.values():
                feed.step()
            return world.progress_ts(golden.tenant) >= golden.end_ts

        eventually(all_read)
        assert committed(world, golden) == truth(golden)


def test_a_store_that_comes_is_begun_where_its_tasks_are_now_however_long_ago_they_were_asked(tmp_path: Path) -> None:
    """Sorters that have nothing new to tell are asked less and less; meanwhile another dispatcher may have read on."""
    with running(tmp_path) as world:
        begin_tiny(world)
        for number in range(3):
            put(world, 1, number)
            put(world, 2, number)
        eventually(lambda: received(world, 1) == received(world, 2) == 1_020)
        registry = CollectorRegistry()
        feed = lone_feed(world, TINY, ResyncPauses(60_000, 60_000), registry)
        table = world.client.routes()
        (route,) = table.tenants
        for node in ("dispatcher-1", "other"):
            given = [
                StoreRoute(store_id=1, dispatcher_node="dispatcher-1"),
                StoreRoute(store_id=2, dispatcher_node=node),
            ]
            changed = route.model_copy(update={"stores": given, "dispatcher_node": "other"})
            feed.set_route(table.version, changed, Share.of(changed, "other"))
            feed.step()
            put(world, 2, 3)
            eventually(lambda: received(world, 2) == 1_030)
        (store,) = feed.status()[0]
        assert (store.store_id, store.read, store.chains[-1].at_ts) == (2, True, 1_030)
        assert registry.get_sample_value("tistream_dispatcher_files_total") == 0, "nothing is read again"


def test_a_store_that_is_retired_is_read_by_nobody_until_it_pushes_again(tmp_path: Path) -> None:
    with running(tmp_path) as world:
        begin_tiny(world)
        for store in (1, 2):
            put(world, store, 0)
        eventually(lambda: each_has_one(world, range(1, 3)))
        eventually(lambda: received(world, 2) == 1_000)
        (task,) = world.tasks().tasks
        url = f"{world.sorter.server.url}/v1/tasks/{task.task_id}/stores/2"

        def needed() -> str | None:
            try:
                taken_ts(2, {task.task_id: world.http.get(url, StoreNeed)})
            except InvalidRequest as error:
                return str(error)
            return None

        put(world, 1, 1)
        eventually(lambda: needed() is None)
        retirement = RetireStore(taken_ts="1000")
        world.client.retire_store(TINY.tenant.cluster_id, TINY.tenant.tenant_id, "2", retirement)
        eventually(lambda: each_has_one(world, range(1, 2)))
        eventually(lambda: not list(world.objects.list_after(layout.store_prefix(TINY.tenant, 2))))
        put(world, 1, 2)
        eventually(lambda: received(world, 1) == 1_020)
        assert each_has_one(world, range(1, 2)), "what tasks have received of it brings no store back"
        put(world, 2, 1)
        eventually(lambda: received(world, 2) == 1_010)
