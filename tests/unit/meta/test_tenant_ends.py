"""How tenants end: paused, kept, deleted with all that they have, and nothing of another tenant."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from functools import partial
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry

from support.meta_database import database_url
from tistream.clock import ManualClock
from tistream.errors import AlreadyDiffers, InvalidRequest, Unavailable, UnknownName
from tistream.model.ids import TenantKey
from tistream.model.span import WHOLE
from tistream.storage import layout
from tistream.storage.backends.memory import MemoryObjectStore
from tistream.wire.bulk.backfills import BackfillSource
from tistream.wire.bulk.changefeeds import FeedReport, FeedShard, NewChangefeed, WorkerBeat
from tistream.wire.bulk.restores import MySqlPlace, NewRestore, RestoreName
from tistream.wire.clients.client import HttpClient
from tistream.wire.clients.meta_client import MetaClient
from tistream.wire.limits import Limits
from tistream.wire.meta import TenantRoute
from tistream.wire.tokens import Grant, StoreToken
from tistream.wire.usage import HOUR_MS, CountedUsage, StoredUsage, UsageReport
from tistream_meta.backfills.backfill_book import BackfillBook
from tistream_meta.database.repository import Repository
from tistream_meta.database.tables import metadata
from tistream_meta.decide.liveness import Timings
from tistream_meta.decide.model import Store
from tistream_meta.decide.options import Options
from tistream_meta.feeds.feed_book import FeedBook
from tistream_meta.feeds.secret_book import SecretBook
from tistream_meta.metrics import MetaMetrics
from tistream_meta.owner.server import MetaServer
from tistream_meta.restores.book import RestoreBook
from tistream_meta.tenants.erasing import TenantEraser
from tistream_meta.territories.territory_book import TerritoryBook
from tistream_meta.territories.territory_policy import Territory, Upstream

ACME = TenantKey("7", "acme")
OTHERS = [TenantKey("7", "acme2"), TenantKey("7", "acm"), TenantKey("77", "acme")]
QUIET_MS, DAY_MS = 60_000, 24 * HOUR_MS


FEED = NewChangefeed(changefeed_id="all", sink_uri="kafka://b:9092/t", start_ts="1", start_given=True)
RESTORE = NewRestore(
    restore_id="a" * 32,
    ts="42",
    tables=[RestoreName(database="shop", table="orders")],
    target=MySqlPlace(kind="mysql", dsn_file="target"),
    if_exists="fail",
)


def objects_of(key: TenantKey) -> list[str]:
    """One of each kind."""
    segment, pending, run = (prefix + "0000000001-ab-0001.parquet" for prefix in layout.data_prefixes(key, 1))
    return [
        layout.schema_snap(key),
        layout.change_file(key, 3, 17),
        layout.store_prefix(key, 3) + "something-else",
        layout.log_release(key, 1),
        layout.manifest(key, 1, 1),
        layout.manifest(key, 999, 5),  # of a task that no row names any more
        layout.floor(key, 1),
        segment,
        layout.backfill_plan(key, "b1"),
        layout.base_chunk(key, "b1", 0),
        pending,
        run,
        layout.schema_log(key, 1),
        layout.schema_floor(key),
        layout.served(key),
    ]


class Refusing(MemoryObjectStore):
    """Deletes nothing any more after so many."""

    left = 1_000_000

    def delete(self, key: str) -> None:
        self.left -= 1
        if self.left < 0:
            raise Unavailable("it is down")
        super().delete(key)


class World:
    """An owner with four tenants that are served and have objects, and the store."""

    def __init__(self, folder: Path) -> None:
        # The database's clock decides when a time has come; this process's only must not be behind it.
        self.folder, self.objects, self.clock = folder, Refusing(), ManualClock(4_000_000_000_000)
        self.begin("meta-1")
        for number, key in enumerate([ACME, *OTHERS]):
            self.repository.create_tenant(key)
            self.repository.activate(key, 42, [WHOLE])
            self.repository.assign_stores([Store(key, 3)])
            self.repository.sources.add(key, "log_backup", f"s3://logs/{key}", ("pushed", None), "")
            self.repository.set_rule(key, Limits(stored_bytes=9))
            for name in objects_of(key):
                self.objects.put(name, b"x")
            counted = CountedUsage(
                cluster_id=key.cluster_id,
                tenant_id=key.tenant_id,
                hour_ms=0,
                bytes_served=7,
                rows_served=7,
                requests={},
            )
            stored = StoredUsage(
                cluster_id=key.cluster_id,
                tenant_id=key.tenant_id,
                hour_ms=0,
                task_id=number + 1,
                manifest=1,
                bytes_of={number + 1: 7},
            )
            report = UsageReport(node_id=f"api-{number}", instance="i", counted=[counted], stored=[stored])
            self.repository.usage.take(report)
        self.begin("meta-1")
        for key in (ACME, *OTHERS):
            self.repository.part(BackfillBook).start(key, BackfillSource(kind="push"), ["shop.*"])
            self.repository.part(RestoreBook).add(key, RESTORE)
            self.repository.part(FeedBook).add(key, FEED)
            self._deliver(key)
            self.repository.part(FeedBook).add(key, FEED.model_copy(update={"changefeed_id": "kept"}))
            self.repository.part(FeedBook).remove(key, "kept", keep_progress=True)
            self.repository.part(SecretBook).put(key, "kafka", "sealed")
            self.repository.part(TerritoryBook).add(Territory(key, 1, WHOLE, Upstream("pd:2379", 17)))

    def _deliver(self, key: TenantKey) -> None:
        """A worker takes the feed of a tenant, and tells of rows in its sink."""
        book = self.repository.part(FeedBook)
        found = book.beat(WorkerBeat(node_id="w1", instance="1", reports=[]), {"w1"})
        feed, shard = next(one for one in found if one[0].tenant == key)
        report = FeedReport(
            shard=FeedShard(
                cluster_id=key.cluster_id,
                tenant_id=key.tenant_id,
                changefeed_id=feed.feed_id,
                shard=shard.shard,
                generation=feed.generation,
            ),
            epoch=shard.epoch,
            phase="running",
            checkpoint_ts=43,
            resolved_ts=43,
            rows=7,
            bytes=70,
        )
        book.beat(WorkerBeat(node_id="w1", instance="1", reports=[report]), {"w1"})

    def begin(self, node: str) -> None:
        """A meta server starts, and is the owner."""
        self.repository = Repository.open(database_url(self.folder), node)
        metrics = MetaMetrics(CollectorRegistry())
        options = Options("http://meta", 1, 600_000, Timings(50_000, 100_000), 1_000, 100)
        self.server = MetaServer(
            self.repository,
            self.objects,
            self.clock,
            metrics,
            options,
            partial(MetaClient, HttpClient()),
        )
        self.server.hold_lease()
        self.server.hold_lease()
        self.erasing = TenantEraser(self.objects, self.server, self.repository.ends, self.clock, QUIET_MS, metrics)

    def erase(self, turns: int = 4) -> None:
        """Turns of the loop, with time between."""
        for _ in range(turns):
            self.server.hold_lease()
            self.erasing.step()
            self.clock.advance(QUIET_MS)

    def keys(self, of: TenantKey) -> list[str]:
        return [info.key for info in self.objects.list_after("") if layout.tenant_of(info.key) == of]

    def route(self, of: TenantKey) -> TenantRoute | None:
        self.server.look_after_nodes()
        table = self.server.routes().current()
        assert table is not None
        return next(
            (one for one in table.tenants if (one.cluster_id, one.tenant_id) == (of.cluster_id, of.tenant_id)), None
        )

    def rows(self, of: TenantKey) -> dict[str, int]:
        """Rows of a tenant in each table that names tenants, as the file has them; the audit log keeps its own."""
        named = {"cluster_id", "tenant_id"}
        tables = [
            one.name for one in metadata.sorted_tables if named <= set(one.columns.keys()) and one.name != "audit"
        ]
        with closing(sqlite3.connect(self.folder / "meta.db")) as database:
            count = "SELECT COUNT(*) FROM {} WHERE cluster_id = ? AND tenant_id = ?"
            return {
                name: database.execute(count.format(name), (of.cluster_id, of.tenant_id)).fetchone()[0]
                for name in tables
            }

    def token(self, name: str, *of: TenantKey) -> None:
        grants = [Grant(actions=["read"], cluster=key.cluster_id, tenant=key.tenant_id) for key in of]
        self.repository.store_token(StoreToken(token_id=name, secret_hash="0" * 64, label="", grants=grants))

    def grants(self) -> dict[str, list[str]]:
        return {
            token.token_id: [f"{grant.cluster}/{grant.tenant}" for grant in token.grants]
            for token in self.repository.tokens()
        }


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def test_all_that_a_tenant_has_goes_and_nothing_of_another(world: World) -> None:
    world.token("aaaaaaaaaaaaaaaa", ACME)
    world.token("bbbbbbbbbbbbbbbb", ACME, OTHERS[0])
    world.server.tenant_rules.delete(ACME, "acme", 0)
    world.erase()
    assert world.keys(ACME) == []
    assert world.route(ACME) is None
    for read in (world.repository.tenant, lambda key: world.repository.usage.of_tenant(key, 0, HOUR_MS)):
        with pytest.raises(UnknownName):
            read(ACME)
    for key in OTHERS:
        assert world.keys(key) == sorted(objects_of(key))
        route = world.route(key)
        assert route is not None
        assert (len(route.tasks), [store.store_id for store in route.stores or ()]) == (1, [3])
        assert world.repository.usage.of_tenant(key, 0, HOUR_MS).total.bytes_served == "7"
    assert world.grants() == {"bbbbbbbbbbbbbbbb": ["7/acme2"]}


def test_no_table_of_the_database_has_a_row_of_it_but_the_audit_log(world: World) -> None:
    before = {key: world.rows(key) for key in [ACME, *OTHERS]}
    assert all(before[ACME].values()), f"each kind of row is there to be deleted: {before[ACME]}"
    world.server.tenant_rules.delete(ACME, "acme", 0)
    world.erase()
    assert not any(world.rows(ACME).values())
    assert {key: world.rows(key) for key in OTHERS} == {key: before[key] for key in OTHERS}


def test_who_is_registered_under_its_name_later_begins_with_nothing(world: World) -> None:
    before = world.route(ACME)
    assert before is not None
    world.server.tenant_rules.delete(ACME, "acme", 0)
    world.erase()
    late = CountedUsage(
        cluster_id="7", tenant_id="acme", hour_ms=0, bytes_served=9, rows_served=9, requests={}
    )  # a process tells of it when it is gone
    world.repository.usage.take(UsageReport(node_id="api-1", instance="i", counted=[late]))
    world.server.tenant_rules.create(ACME)
    again = world.route(ACME)
    assert again is not None
    assert (again.tasks, again.stores, again.erasing) == ([], [], False)
    assert world.repository.usage.of_tenant(ACME, 0, HOUR_MS).total.bytes_served == "0"
    world.repository.activate(ACME, 42, [WHOLE])
    world.begin("meta-1")
    anew = world.route(ACME)
    assert anew is not None
    assert anew.tasks[0].task_id > before.tasks[0].task_id, "what an old holder writes late is no part of it"


def test_until_its_time_has_come_a_tenant_is_paused_and_can_be_kept(world: World) -> None:
    world.server.tenant_rules.delete(ACME, "acme", DAY_MS)
    world.erase()
    route = world.route(ACME)
    assert route is not None
    assert (route.paused, route.erasing, len(route.tasks)) == (True, False, 1)
    assert world.keys(ACME) == sorted(objects_of(ACME))
    assert world.server.tenant_rules.keep(ACME).accepts_files
    route = world.route(ACME)
    assert route is not None
    assert not route.paused
    world.erase()
    assert world.keys(ACME) == sorted(objects_of(ACME))


def test_a_paused_tenant_that_was_to_be_deleted_stays_paused_when_it_is_kept(world: World) -> None:
    world.server.tenant_rules.pause(ACME, paused=True)
    world.server.tenant_rules.delete(ACME, "acme", DAY_MS)
    assert not world.server.tenant_rules.keep(ACME).accepts_files
    assert world.server.tenant_rules.pause(ACME, paused=False).accepts_files


def test_nobody_is_deleted_whose_name_is_not_said_twice(world: World) -> None:
    with pytest.raises(InvalidRequest, match="to delete tenant 7/acme with all that it has, say 'acme'"):
        world.server.tenant_rules.delete(ACME, "acme2", 0)
    with pytest.raises(UnknownName):
        world.server.tenant_rules.delete(TenantKey("7", "nobody"), "nobody", 0)
    assert world.repository.tenant(ACME).delete_at_ms is None


def test_once_it_is_being_deleted_nothing_takes_it_back(world: World) -> None:
    world.server.tenant_rules.delete(ACME, "acme", 0)
    world.erase(turns=1)
    rules = world.server.tenant_rules
    for change in (
        lambda: rules.keep(ACME),
        lambda: rules.pause(ACME, paused=False),
        lambda: rules.delete(ACME, "acme", DAY_MS),
    ):
        with pytest.raises(InvalidRequest, match="is being deleted"):
            change()
    with pytest.raises(AlreadyDiffers, match="is being deleted"):
        rules.create(ACME)
    route = world.route(ACME)
    assert route is not None
    assert (route.tasks, route.stores, route.erasing) == ([], [], True)


def test_another_owner_goes_on_where_the_store_refused_and_the_first_one_died(world: World) -> None:
    world.server.tenant_rules.delete(ACME, "acme", 0)
    world.erase(turns=1)
    world.objects.left = 4
    with pytest.raises(Unavailable):
        world.erasing.step()
    left = world.keys(ACME)
    assert 0 < len(left) < len(objects_of(ACME))
    world.begin("meta-1")
    world.objects.left = 1_000_000
    world.erase()
    assert world.keys(ACME) == []
    assert world.route(ACME) is None


def test_its_name_is_not_free_while_somebody_writes_on(world: World, caplog: pytest.LogCaptureFixture) -> None:
    world.server.tenant_rules.delete(ACME, "acme", 0)
    for ts in range(100, 110):
        world.erase(turns=1)
        world.objects.put(layout.change_file(ACME, 3, ts), b"x")
    assert world.repository.tenant(ACME).erasing
    told = [record for record in caplog.records if "still written to" in record.message]
    assert [getattr(record, "object", "") for record in told] == [layout.change_file(ACME, 3, 101)], "once, by name"
    world.erase()
    assert world.keys(ACME) == []
    assert world.route(ACME) is None
