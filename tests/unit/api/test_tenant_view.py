"""How far a tenant can be read: never above what is in the pool and in the schema, whoever answers and whoever does
not. The peers' answers come over HTTP, the manifests from the store."""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace

import httpx
import orjson
import pyarrow as pa
import pytest
from prometheus_client import CollectorRegistry
from starlette.requests import ClientDisconnect

from support.committed_pool import CommittedTask, Row
from support.schema_records import database, drop, table, table_info
from support.waiting import PATIENCE_S, eventually
from tistream import concurrency
from tistream.clock import ManualClock, SystemClock
from tistream.errors import Gone, InvalidRequest, TiStreamError, TooManyRequests, Unavailable, UnknownName
from tistream.filters.event_choice import EventChoice
from tistream.follow.tenant_view import BARRIER_LINES_MS, BARRIERS_MAX, TenantView
from tistream.format.served import decode
from tistream.logbackup.release import STORE_ID
from tistream.model.ids import TenantKey
from tistream.model.span import KeySpan
from tistream.model.ts import Window
from tistream.pool.footers import FooterCache
from tistream.pool.versions.lookup import PLACES, versions_of
from tistream.pool.versions.reader import StoreReader
from tistream.read.cursor import Position, Scope, encode
from tistream.read.group_cache import GroupCache
from tistream.read.imported import TableImported
from tistream.read.row_events import Barrier
from tistream.read.scan import Budget
from tistream.schema.records import Record, to_json
from tistream.schema.tidb.meta_change import record_span
from tistream.storage.backends.memory import MemoryObjectStore
from tistream.wire.clients.client import HttpClient
from tistream.wire.clients.schema_client import SchemaClient, SchemaReplica
from tistream.wire.clients.sorter_client import SorterClient
from tistream.wire.meta import StoreRoute, TaskRoute, TenantRoute
from tistream.wire.schema import LogPage
from tistream.wire.sorter import TaskList, TaskStatus
from tistream_api.admission.memory_budget import SHARE_BYTES, MemoryBudget
from tistream_api.admission.tenant_limits import TenantLimits
from tistream_api.admission.token_bucket import EnforcedLimits
from tistream_api.metrics import ApiMetrics
from tistream_api.points.cached_reader import CachedReader
from tistream_api.points.point_reads import PointReads
from tistream_api.pull.admitted import Admission, Answer, ReadCaller
from tistream_api.pull.decode_slots import DecodeSlots
from tistream_api.pull.guarded_progress import LOOK_MS
from tistream_api.pull.start import Pulls
from tistream_api.request.params import ALL, DDL, FORMATS, ROWS, PullParams
from tistream_api.request.point_queries import DiffRequest
from tistream_api.tenant.lists import Lists
from tistream_api.tenant.ts_validator import TsValidator

TENANT = TenantKey("7", "acme")
SNAPSHOT = 100
CLOCK = ManualClock(1_000)


class TickingClock(ManualClock):
    """Each look at the monotonic time takes a second, so that waits end without real time."""

    def monotonic_ms(self) -> int:
        self.advance(1_000)
        return super().monotonic_ms()


class DeafStore(MemoryObjectStore):
    """Does not answer for keys that contain `deaf`."""

    deaf: str | None = None

    def get(self, key: str) -> bytes:
        if self.deaf is not None and self.deaf in key:
            raise Unavailable(f"no answer: {key}")
        return super().get(key)


class World:
    """Two tasks, each on a sorter of its own, and a registry."""

    def __init__(self, clock: ManualClock = CLOCK) -> None:
        self.objects = DeafStore()
        spans = (KeySpan(b"", b"m"), KeySpan(b"m", b""))
        self.tasks = [
            CommittedTask(self.objects, TENANT, SNAPSHOT, task_id=number, span=span)
            for number, span in enumerate(spans, 1)
        ]
        self.parents: dict[int, list[int]] = {}
        self.told: dict[str, TaskStatus] = {}  # sorter -> what it says; one that is not here does not answer
        self.schema_ts = 10_000
        self.records: list[Record] = []  # of the schema, from the snapshot on
        http = HttpClient(transport=httpx.MockTransport(self._answer))
        metrics = ApiMetrics(CollectorRegistry())
        self.view = TenantView(
            self._route(epoch=1),
            self.objects,
            GroupCache(self.objects, 1 << 20),
            SorterClient(http),
            SchemaReplica(SchemaClient(http, lambda: "http://schema"), TENANT),
            clock,
            concurrency.new_event(),
            metrics.undecodable,
        )
        limits = TenantLimits(clock, lambda _: EnforcedLimits(), 8)
        self.pulls = Pulls(
            clock, Budget(), threading.Semaphore(1), limits, metrics, DecodeSlots(8, clock), MemoryBudget(0, clock)
        )

    def _route(self, epoch: int) -> TenantRoute:
        routes = [
            TaskRoute(
                task_id=task.task_id,
                start_key=task.span.start.hex(),
                end_key=task.span.end.hex(),
                task_epoch=epoch,
                sorter_node=f"sorter-{task.task_id}",
                sorter_url=f"http://sorter-{task.task_id}",
                parents=self.parents.get(task.task_id, []),
            )
            for task in self.tasks
        ]
        return TenantRoute(cluster_id="7", tenant_id="acme", snapshot_ts=SNAPSHOT, tasks=routes, problem=None)

    def _answer(self, request: httpx.Request) -> httpx.Response:
        host = request.url.host
        if host == "schema":
            body = LogPage(
                log_id="a",
                snapshot_ts=SNAPSHOT,
                resolved_ts=self.schema_ts,
                next_after=len(self.records),
                more=False,
                records=[
                    orjson.loads(orjson.dumps(to_json(one))) for one in self.records[int(request.url.params["after"]) :]
                ],
            )
            return httpx.Response(200, content=body.model_dump_json().encode())
        if host not in self.told:
            return httpx.Response(503)
        return httpx.Response(200, content=TaskList(node_id=host, tasks=[self.told[host]]).model_dump_json().encode())

    def flush(self, flushed_ts: int, rows: list[Row] | None = None) -> None:
        """Both tasks commit; the first one has the rows."""
        self.tasks[0].flush(flushed_ts, rows or [])
        self.tasks[1].flush(flushed_ts)

    def tell(self, progress_ts: int | None = None, **changes: int) -> None:
        """Both sorters tell what is committed, and more progress."""
        for task in self.tasks:
            self.told[f"sorter-{task.task_id}"] = task.status(progress_ts, **changes)

    def refreshed(self) -> int:
        self.view.refresh()
        return self.view.resolved_ts()

    def route_anew(self, epoch: int) -> None:
        self.view.replace_route(self._route(epoch))


def row(commit_ts: int) -> Row:
    return {"table_id": 5, "commit_ts": commit_ts, "start_ts": commit_ts - 1, "key": b"k", "op": 1, "value": b"v"}


def test_a_task_that_cannot_be_read_holds_the_tenant() -> None:
    world = World()
    world.flush(500)
    world.objects.deaf = "/task-2/"
    assert world.refreshed() == 0
    world.objects.deaf = None
    assert world.refreshed() == 500


def test_a_task_that_a_route_left_out_has_its_segments_again_when_it_is_back() -> None:
    """Else its rows would be missing below a resolved_ts that counts them."""
    world = World()
    world.flush(600, [row(550)])
    world.tell()
    assert world.refreshed() == 600
    route = world.view.route
    world.view.replace_route(route.model_copy(update={"tasks": route.tasks[1:]}))
    world.refreshed()
    world.view.replace_route(route)
    assert world.refreshed() == 600
    assert [segment.rows for segment in world.view.source.segments(Window(500, 600))] == [1]


def test_a_tenant_that_a_restored_database_has_forgotten_keeps_its_rows_until_its_tasks_are_back() -> None:
    """Simulation seed 5174: its start was known again before its tasks were read, and a pull passed their rows."""
    world = World()
    world.flush(600, [row(550)])
    world.tell()
    assert world.refreshed() == 600
    route = world.view.route
    world.view.replace_route(route.model_copy(update={"tasks": [], "snapshot_ts": None}))
    world.refreshed()
    with pytest.raises(Unavailable, match="it has no tasks yet"):
        world.view.kept_ts()
    world.view.replace_route(route)
    assert world.view.kept_ts() == SNAPSHOT
    assert (world.view.resolved_ts(), segments(world), versions(world)) == (600, [550], [550])
    world.flush(700, [row(650)])
    world.tell()
    assert (world.refreshed(), segments(world), versions(world)) == (700, [550, 650], [550, 650])


def test_without_their_sorters_the_manifests_tell() -> None:
    world = World()
    world.flush(500)
    world.tell(700)
    del world.told["sorter-2"]
    assert world.refreshed() == 500


def test_what_somebody_was_told_beyond_the_manifests_is_recorded() -> None:
    world = World()
    world.flush(500)
    world.tell(700)
    world.refreshed()
    world.view.record_served()
    assert list(world.objects.list_after("served/")) == [], "nobody has asked"
    assert world.view.wait_above(600, 0)
    world.view.record_served()
    (found,) = world.objects.list_after("served/")
    served = decode(found.key, world.objects.get(found.key))
    assert (served.snapshot_ts, served.resolved_ts, served.written_ms) == (SNAPSHOT, 700, CLOCK.now_ms())


def test_rows_above_what_is_known_of_the_schema_are_not_served() -> None:
    world = World()
    world.schema_ts = 300
    world.flush(500)
    assert world.refreshed() == 300
    world.schema_ts = 400
    assert world.refreshed() == 400


def test_progress_counts_once_the_manifest_that_it_rests_on_was_read() -> None:
    world = World()
    world.flush(500)
    world.tell(900, manifest=world.tasks[0].number + 1)
    assert world.refreshed() == 500
    world.flush(600, [row(550)])
    assert world.refreshed() == 900
    assert [segment.rows for segment in world.view.source.segments(Window(500, 600))] == [1]


def test_where_a_segment_is_gone_the_manifests_are_asked_whatever_a_late_holder_tells() -> None:
    """It has not noticed that another has the task by now, and has put its segments together."""
    world = World()
    task = world.tasks[0]
    world.flush(500, [row(450)])
    world.flush(600, [row(550)])
    world.tell()
    assert world.refreshed() == 600
    before = list(task.live)
    task.rewrite_live([row(450), row(550)])
    world.refreshed()
    assert world.view.source.segments(Window(400, 600)) == before
    world.view.source.replan()
    assert world.view.source.segments(Window(400, 600)) == task.live
    assert world.view.resolved_ts() == 600


def test_a_holder_of_an_older_epoch_is_not_listened_to() -> None:
    world = World()
    world.flush(500)
    world.tell(700)
    world.route_anew(epoch=2)
    assert world.refreshed() == 500
    world.tell(700, task_epoch=2)
    assert world.refreshed() == 700


def test_resolved_ts_never_goes_down() -> None:
    world = World()
    world.flush(500)
    world.tell(900)
    assert world.refreshed() == 900
    world.tell(500)  # the sorters started again: progress that needed no object is told anew
    assert world.refreshed() == 900


def test_what_one_task_does_not_keep_is_gone() -> None:
    """Together with what is told of the segments: nobody finds some of its rows gone without being told."""
    world = World()
    world.flush(500, [row(450)])
    world.tell()
    world.refreshed()
    world.tasks[1].retained_ts = 300
    world.flush(600)
    world.tell()
    world.refreshed()
    assert world.view.earliest_ts() == 300
    world.view.check_served(300)
    with pytest.raises(Gone) as raised:
        world.view.check_served(299)
    assert raised.value.extra["earliest_ts"] == "300"
    with pytest.raises(Gone):
        world.view.source.segments(Window(299, 600))
    assert [segment.rows for segment in world.view.source.segments(Window(300, 600))] == [1]


def test_what_lies_below_the_snapshot_is_gone() -> None:
    world = World()
    world.flush(500)
    world.tell()
    world.refreshed()
    world.view.check_served(SNAPSHOT)
    with pytest.raises(Gone) as raised:
        world.view.check_served(SNAPSHOT - 1)
    assert raised.value.extra["earliest_ts"] == str(SNAPSHOT)


@pytest.mark.parametrize("by_cursor", [False, True])
def test_a_pull_from_below_the_snapshot_is_refused_however_it_says_so(by_cursor: bool) -> None:
    """A cursor can be older than what is kept."""
    world = World()
    world.flush(500)
    world.tell()
    world.refreshed()
    scope = Scope(TENANT)
    for at, refused in ((SNAPSHOT, False), (SNAPSHOT - 1, True)):
        cursor = encode(scope, Position(at)) if by_cursor else None
        asked = PullParams(None if by_cursor else at, cursor, None, 10, 0, False)
        if refused:
            with pytest.raises(Gone):
                world.pulls.answer(world.view, scope, asked, lambda: True)
        else:
            assert b'"resolved_ts":"500"' in b"".join(world.pulls.answer(world.view, scope, asked, lambda: True))


def feed_from_log_backup(world: World, *, removed: bool = False) -> None:
    there: dict[str, object] = {"stores": [StoreRoute(store_id=STORE_ID, dispatcher_node=None)]}
    retired: dict[str, object] = {"stores": [], "retired_stores": [STORE_ID]}
    world.view.replace_route(world.view.route.model_copy(update=retired if removed else there))


@pytest.mark.parametrize("removed", [False, True])
@pytest.mark.parametrize("by_cursor", [False, True])
def test_a_backfilled_log_backup_is_served_from_the_highest_base_ts_on(by_cursor: bool, removed: bool) -> None:
    """Changes up to it have no old values: a delete of a row that was never read could not even be named."""
    world = World()
    feed_from_log_backup(world, removed=removed)
    world.flush(500)
    world.tasks[0].backfill(KeySpan(b"a", b"c"), 200)
    world.tasks[1].backfill(KeySpan(b"n", b"p"), 300)
    world.tell()
    world.refreshed()
    scope = Scope(TENANT)
    for at, refused in ((300, False), (299, True), (SNAPSHOT, True)):
        cursor = encode(scope, Position(at)) if by_cursor else None
        asked = PullParams(None if by_cursor else at, cursor, None, 10, 0, False)
        if refused:
            with pytest.raises(Gone) as raised:
                world.pulls.answer(world.view, scope, asked, lambda: True)
            assert raised.value.extra["earliest_ts"] == "300"
        else:
            assert b'"resolved_ts":"500"' in b"".join(world.pulls.answer(world.view, scope, asked, lambda: True))
    world.view.check_kept(SNAPSHOT)


def test_a_full_backup_at_the_snapshot_hides_no_change_of_a_log_backup() -> None:
    world = World()
    feed_from_log_backup(world)
    world.flush(500, [row(450)])
    for task in world.tasks:
        task.backfill(task.span, SNAPSHOT)
    world.tell()
    world.refreshed()
    assert world.view.earliest_ts() == SNAPSHOT


def test_a_backfill_hides_no_change_that_stores_pushed_with_old_values() -> None:
    world = World()
    world.flush(500, [row(450)])
    world.tasks[0].backfill(world.tasks[0].span, 300)
    world.tell()
    world.refreshed()
    assert world.view.earliest_ts() == SNAPSHOT


def test_an_imported_table_is_held_until_it_is_backfilled_and_others_are_served() -> None:
    """IMPORT INTO writes SST files, which no log has: only TableInfo shows that it ran."""
    world = World()
    imported, other = table_info(100, "t"), table_info(101, "u")
    world.records = [database(SNAPSHOT, 1, "d"), table(SNAPSHOT, 1, imported), table(SNAPSHOT, 1, other)]
    world.flush(500)
    world.tell()
    lists = Lists(CLOCK, 0)

    def pull(table_name: str | None, low: int) -> bytes:
        asked = PullParams(low, None, None, 10, 0, False)
        scope = Scope(TENANT, None if table_name is None else "d", table_name)
        return b"".join(world.pulls.answer(world.view, scope, asked, lambda: True))

    def shown() -> dict[str, bool]:
        return {one.name: one.held is not None for one in lists.tables(world.view, "d", 500, None).tables}

    world.records.append(table(200, 1, table_info(100, "t", mode=1)))
    assert world.refreshed() == 500
    for name in ("t", None):
        with pytest.raises(TableImported, match=r"table d\.t: since 200 rows are imported") as raised:
            pull(name, 400)
        assert raised.value.http_status == 422
    assert b'"resolved_ts":"500"' in pull("u", 400)
    assert shown() == {"t": True, "u": False}

    world.records.append(table(300, 1, imported))
    rows_of = [record_span(one) for one in (100, 101)]
    world.tasks[1].backfill(rows_of[0], 299)  # read before the import has ended
    world.tell()
    world.refreshed()
    with pytest.raises(TableImported, match=r"until 300.*backfill it"):
        pull("t", 400)

    world.tasks[1].backfill(rows_of[0], 300)
    world.tell()
    world.refreshed()
    assert b'"resolved_ts":"500"' in pull("t", 300)
    assert b'"resolved_ts":"500"' in pull(None, 300)
    assert shown() == {"t": False, "u": False}
    with pytest.raises(TableImported, match="begin with a snapshot as of 300"):
        pull("t", 299)


@pytest.mark.parametrize("database_name", [None, "d"])
@pytest.mark.parametrize("by_cursor", [False, True])
def test_a_filter_that_leaves_an_imported_table_out_is_served(database_name: str | None, by_cursor: bool) -> None:
    world = World()
    world.records = [
        database(SNAPSHOT, 1, "d"),
        table(SNAPSHOT, 1, table_info(101, "u")),
        table(SNAPSHOT, 1, table_info(100, "t", mode=1)),
    ]
    world.flush(500)
    world.tell()
    assert world.refreshed() == 500
    scope = Scope(TENANT, database_name)

    def pull(rules: str | None, events: str = ALL) -> bytes:
        cursor = encode(scope, Position(400)) if by_cursor else None
        choice = EventChoice.parse(rules, None, None, None)
        asked = PullParams(None if by_cursor else 400, cursor, None, 10, 0, False, events=events, choice=choice)
        return b"".join(world.pulls.answer(world.view, scope, asked, lambda: True))

    assert b'"resolved_ts":"500"' in pull("d.*,!d.t")
    assert b'"resolved_ts":"500"' in pull("d.u")
    for rules in ("d.*", "d.t", "*.*,!d.u", None):
        with pytest.raises(TableImported, match=r"table d\.t: since 100"):
            pull(rules)
        with pytest.raises(TableImported):
            pull(rules, ROWS)
        assert b'"resolved_ts":"500"' in pull(rules, DDL)  # no DDL event is missing


def test_a_name_is_unknown_only_once_the_schema_at_the_start_is_known() -> None:
    """A table is created, and pulled from the present on before its DDL has arrived here."""
    world = World()
    world.records = [database(SNAPSHOT, 1, "d"), table(SNAPSHOT, 1, table_info(100, "t"))]
    world.flush(500)
    world.tell()
    assert world.refreshed() == 500

    def pull(name: str, start_ts: int) -> bytes:
        asked = PullParams(start_ts, None, None, 10, 0, False)
        return b"".join(world.pulls.answer(world.view, Scope(TENANT, "d", name), asked, lambda: True))

    unsure = r"known up to 500, and at start_ts 600 .* retry once .* no table d\.\w+ between 500 and 500"
    for name in ("new", "never"):
        with pytest.raises(Unavailable, match=unsure):
            pull(name, 600)
        with pytest.raises(UnknownName):
            pull(name, 500)
    assert b'"resolved_ts":"600"' in pull("t", 600)

    world.records.append(table(550, 1, table_info(101, "new")))
    world.schema_ts = 560
    assert world.refreshed() == 500
    world.flush(560)
    world.tell()
    assert world.refreshed() == 560
    assert b'"resolved_ts":"600"' in pull("new", 600)
    with pytest.raises(Unavailable):
        pull("never", 600)
    world.schema_ts = 10_000
    world.flush(700)
    world.tell()
    assert world.refreshed() == 700
    assert b'"resolved_ts":"700"' in pull("new", 600)
    with pytest.raises(UnknownName, match=r"there is no table d\.never between 600 and 700"):
        pull("never", 600)


def test_a_diff_across_the_whole_life_of_a_table_has_no_differences() -> None:
    """It is the net of its changes: 404 is for a name that no table had."""
    world = World()
    world.records = [database(SNAPSHOT, 1, "d"), table(200, 1, table_info(100, "t")), drop(300, 1, 100)]
    world.flush(500)
    world.tell()
    world.refreshed()
    points = PointReads(
        CachedReader(world.objects, GroupCache(world.objects, 1 << 20), FooterCache()),
        Admission(
            CLOCK, world.pulls.slots, world.pulls.limits, world.pulls.metrics, world.pulls.memory, world.pulls.dropped
        ),
        world.pulls.working,
        TsValidator(CLOCK, 0),
        Budget(),
    )

    def diff(name: str) -> bytes:
        ask = DiffRequest(150, 400, None, 10, "ndjson")
        return b"".join(points.diff(world.view, Scope(TENANT, "d", name), ask, ReadCaller(lambda: True), None))

    assert orjson.loads(diff("t")) == {"type": "end", "from": "150", "to": "400", "cursor": None}
    with pytest.raises(UnknownName, match=r"there is no table d\.u between 150 and 400"):
        diff("u")


FILTERS_OF_NEWER_NAMES = [
    ({"tables": "d.new"}, {"tables": "d.never"}),
    ({"tables": "d.t", "columns": "id,c"}, {"tables": "d.t", "columns": "id,never"}),
    ({"tables": "d.t", "where": "c = 1"}, {"tables": "d.t", "where": "never = 1"}),
]


def filtered(world: World, of: dict[str, str], start_ts: int, *, wait_ms: int = 0, still: Callable[[], bool]) -> bytes:
    choice = EventChoice.parse(of.get("tables"), None, of.get("columns"), of.get("where"))
    asked = PullParams(start_ts, None, None, 10, wait_ms, False, choice=choice)
    return b"".join(world.pulls.answer(world.view, Scope(TENANT, "d"), asked, still))


def world_before_a_ddl(clock: ManualClock = CLOCK) -> World:
    world = World(clock)
    world.records = [database(SNAPSHOT, 1, "d"), table(SNAPSHOT, 1, table_info(100, "t"))]
    world.flush(500)
    world.tell()
    assert world.refreshed() == 500
    return world


def ddl_arrives(world: World, resolved_ts: int) -> None:
    """A table `d.new` and a column `c` of `d.t` were created at 550."""
    world.records += [table(550, 1, table_info(101, "new")), table(550, 1, table_info(100, "t", ["id", "c"]))]
    world.flush(resolved_ts)
    world.tell()
    assert world.refreshed() == resolved_ts


@pytest.mark.parametrize(("right", "wrong"), FILTERS_OF_NEWER_NAMES)
def test_a_filter_is_wrong_only_once_the_schema_at_the_start_is_known(
    right: dict[str, str], wrong: dict[str, str]
) -> None:
    """A table or a column is created, and a filter names it before its DDL has arrived here."""
    world = world_before_a_ddl()
    for of in (right, wrong):
        with pytest.raises(Unavailable, match=r"known up to 500, and at start_ts 600 .* retry"):
            filtered(world, of, 600, still=lambda: True)
        with pytest.raises(InvalidRequest) as refused:
            filtered(world, of, 500, still=lambda: True)
        assert refused.value.http_status == 400
    with pytest.raises(InvalidRequest, match=r"other\.new is not in database d"):
        filtered(world, {"tables": "other.new"}, 600, still=lambda: True)
    assert b'"resolved_ts":"600"' in filtered(world, {"tables": "d.t"}, 600, still=lambda: True)
    ddl_arrives(world, 560)
    assert b'"resolved_ts":"600"' in filtered(world, right, 600, still=lambda: True)
    with pytest.raises(Unavailable, match="known up to 560"):
        filtered(world, wrong, 600, still=lambda: True)
    world.flush(700)
    world.tell()
    assert world.refreshed() == 700
    assert b'"resolved_ts":"700"' in filtered(world, right, 600, still=lambda: True)
    with pytest.raises(InvalidRequest) as refused:
        filtered(world, wrong, 600, still=lambda: True)
    assert refused.value.http_status == 400


@pytest.mark.parametrize("resolved_ts", [560, 700], ids=["above the name", "above the start"])
@pytest.mark.parametrize("of", [None, *(right for right, _ in FILTERS_OF_NEWER_NAMES)])
def test_a_pull_that_waits_for_a_name_waits_no_longer_than_wait_ms(of: dict[str, str] | None, resolved_ts: int) -> None:
    """It waits for the name, and then for an event: both together as long as the client expects."""
    clock, wait_ms = TickingClock(1_000), 600_000
    arrived: list[bool] = []
    world = world_before_a_ddl(clock)
    began_ms = clock.now_ms()

    def still() -> bool:
        if not arrived and clock.now_ms() - began_ms > wait_ms / 2:
            arrived.append(True)
            ddl_arrives(world, resolved_ts)
        return True

    if of is None:
        asked = PullParams(600, None, None, 10, wait_ms, False)
        found = b"".join(world.pulls.answer(world.view, Scope(TENANT, "d", "new"), asked, still))
    else:
        found = filtered(world, of, 600, wait_ms=wait_ms, still=still)
    assert f'"resolved_ts":"{max(600, resolved_ts)}"'.encode() in found
    assert arrived
    assert clock.now_ms() - began_ms < 1.1 * wait_ms


def test_one_pull_too_many_is_asked_to_come_back() -> None:
    world = World()
    world.flush(500)
    world.refreshed()
    asked = PullParams(SNAPSHOT, None, None, 10, 0, False)
    under_way = world.pulls.answer(world.view, Scope(TENANT), asked, lambda: True)
    with pytest.raises(TooManyRequests) as raised:
        world.pulls.answer(world.view, Scope(TENANT), asked, lambda: True)
    assert raised.value.http_status == 429
    assert b"".join(under_way)
    assert b"".join(world.pulls.answer(world.view, Scope(TENANT), asked, lambda: True))


def test_pulls_that_nobody_reads_hold_no_more_than_their_budget() -> None:
    """Whatever their format and however much they ask for; and what they held is there again when they have gone."""
    world = World()
    world.flush(500)
    world.refreshed()
    memory = MemoryBudget(8 * SHARE_BYTES, SystemClock(), wait_ms=1)
    pulls = replace(world.pulls, slots=threading.Semaphore(64), memory=memory)
    pulls.limits.pulls_max = 64

    def begun(form: str, gone: Callable[[], bool] = lambda: False) -> Answer:
        asked = PullParams(SNAPSHOT, None, None, 1_000_000, 0, False, form)
        return pulls.answer(world.view, Scope(TENANT), asked, lambda: True, gone=gone)

    unread = [begun(form) for form in ("parquet", "arrow", "ndjson", "parquet")]
    for form in FORMATS:
        with pytest.raises(TooManyRequests, match=r"memory for pulls \(TISTREAM_API__PULL_MEMORY_BYTES\) is used up"):
            begun(form)
    assert memory.held == 4 * SHARE_BYTES
    assert b"".join(unread.pop())
    assert memory.held == 3 * SHARE_BYTES
    with pytest.raises(ClientDisconnect):
        begun("parquet", lambda: True)
    assert memory.held == 3 * SHARE_BYTES
    unread.clear()
    pulls.dropped.release()
    assert memory.held == 0


class CollectingLocks(concurrency.SystemThreads):
    """Locks under which the garbage collector runs, as it may at any allocation."""

    def lock(self) -> concurrency.Lock:
        return _CollectingLock()


class _CollectingLock:
    def __init__(self) -> None:
        self._lock = threading.Lock()

    def acquire(self, blocking: bool = True) -> bool:
        return self._lock.acquire(blocking)

    def release(self) -> None:
        self._lock.release()

    def __enter__(self) -> bool:
        taken = self._lock.acquire()
        gc.collect()
        return taken

    def __exit__(self, *_: object) -> None:
        self._lock.release()


@pytest.fixture
def manual_collection() -> Iterator[None]:
    """Garbage is collected by call alone, and only what came from now on."""
    gc.disable()
    gc.freeze()
    yield
    gc.unfreeze()
    gc.enable()


@pytest.mark.usefixtures("manual_collection")
def test_an_unread_answer_that_the_garbage_collector_finds_stops_no_pull() -> None:
    """Its memory and its slot need locks, one of which the thread that collects it may hold."""
    with concurrency.installed(CollectingLocks()):
        world = World()
        pulls = replace(world.pulls, memory=MemoryBudget(8 * SHARE_BYTES, SystemClock()), slots=threading.Semaphore(2))
        pulls.limits.pulls_max = 64
    world.flush(500)
    world.refreshed()
    asked = PullParams(SNAPSHOT, None, None, 1_000_000, 0, False)
    ring: list[object] = [pulls.answer(world.view, Scope(TENANT), asked, lambda: True)]
    ring.append(ring)
    assert pulls.memory.held == SHARE_BYTES
    del ring
    answers: list[bytes] = []
    for _ in range(2):
        pulling = threading.Thread(
            target=lambda: answers.append(b"".join(pulls.answer(world.view, Scope(TENANT), asked, lambda: True))),
            daemon=True,
        )
        pulling.start()
        pulling.join(PATIENCE_S)
        assert not pulling.is_alive(), "the pull waits for a lock of its own thread"
    assert len(answers) == 2
    assert pulls.memory.held == 0


def test_a_pull_that_waits_for_rows_ends_when_its_client_leaves() -> None:
    """Long before the minute is over that it would wait: on this clock ten seconds pass and no more."""
    world, gone = World(), threading.Event()
    world.flush(500)
    world.refreshed()
    asked = PullParams(500, None, None, 10, 60_000, False)
    answers = []
    waits = threading.Thread(
        target=lambda: answers.append(
            b"".join(world.pulls.answer(world.view, Scope(TENANT), asked, lambda: True, gone=gone.is_set))
        ),
        daemon=True,
    )
    waits.start()

    def has_looked() -> bool:
        """At the clock as it stands; or it has ended."""
        return world.view._requested_ms == CLOCK.monotonic_ms() or not waits.is_alive()

    eventually(has_looked)
    assert waits.is_alive()
    gone.set()
    for _ in range(20):
        CLOCK.advance(LOOK_MS)
        eventually(has_looked)
    waits.join(PATIENCE_S)  # no more time passes on this clock
    assert not waits.is_alive()
    assert world.pulls.memory.held == 0


def test_a_pull_of_a_tenant_of_which_nothing_is_known_yet_ends_when_its_client_leaves() -> None:
    """Within a second on this clock: such a pull may wait for three."""
    world, gone = World(), threading.Event()
    ended: list[BaseException] = []

    def pull() -> None:
        asked = PullParams(SNAPSHOT, None, None, 10, 0, False)
        try:
            world.pulls.answer(world.view, Scope(TENANT), asked, lambda: True, gone=gone.is_set)
        except (ClientDisconnect, TiStreamError) as error:
            ended.append(error)

    waits = threading.Thread(target=pull, daemon=True)
    waits.start()
    waits.join(0.1)
    assert waits.is_alive()
    gone.set()
    CLOCK.advance(1_000)
    waits.join(PATIENCE_S)
    assert [type(error) for error in ended] == [ClientDisconnect]
    assert world.pulls.limits._pulls == {}


def segments(world: World, high: int = 10_000) -> list[int]:
    return sorted(one.commit_ts_max for one in world.view.source.segments(Window(0, high)))


def versions(world: World) -> list[int]:
    """The commit_ts of every version of the one key, from shards that have each key once."""
    shards = world.view.shards()
    assert [shard.span.end for shard in shards] == [*(shard.span.start for shard in shards[1:]), b""]
    places = pa.table([[5], [b"k"]], schema=PLACES)
    found = versions_of(shards, StoreReader(world.objects), places, Window(0, 10_000))
    return sorted(found.column("commit_ts").to_pylist())


def split(world: World) -> list[CommittedTask]:
    """The first task is sealed; its children have nothing but their claims."""
    spans = (KeySpan(b"", b"f"), KeySpan(b"f", b"m"))
    children = [
        CommittedTask(world.objects, TENANT, SNAPSHOT, task_id=one, span=span) for one, span in enumerate(spans, 3)
    ]
    world.tasks[0].seal(*children)
    return children


@pytest.mark.parametrize("route_first", [True, False], ids=["by its route", "by the seal"])
def test_a_split_is_crossed_without_going_back_or_counting_twice(route_first: bool) -> None:
    world = World()
    world.flush(500, [row(450)])
    world.tell(600)
    assert world.refreshed() == 600
    parent, other = world.tasks
    world.flush(600, [row(550)])
    children = split(world)
    del world.told["sorter-1"]

    def learn() -> None:
        world.tasks, world.parents = [*children, other], {3: [1], 4: [1]}
        world.route_anew(epoch=1)

    if route_first:
        learn()
        world.told |= {f"sorter-{child.task_id}": child.status(progress_ts=9_000) for child in children}
    other.flush(700)
    world.told["sorter-2"] = other.status(800)
    assert (world.refreshed(), world.view.flushed_ts(), segments(world)) == (600, 600, [450, 550])
    assert versions(world) == [450, 550]
    children[0].inherit(parent)
    children[0].flush(800, [row(650)])
    assert (world.refreshed(), segments(world)) == (600, [450, 550, 650])
    assert set(versions(world)) >= {450, 550}
    children[1].inherit(parent)
    children[1].flush(750, [row(660)])
    world.told |= {f"sorter-{child.task_id}": child.status() for child in children}
    assert (world.refreshed(), world.view.flushed_ts(), segments(world)) == (750, 700, [450, 550, 650, 660])
    owned = [450, 550, 660]  # 650 was written for a key of the first child, and is none of the key's versions
    assert versions(world) == owned
    learn()
    assert (world.refreshed(), segments(world)) == (750, [450, 550, 650, 660])
    assert versions(world) == owned


def test_what_the_old_route_was_read_from_stays_until_the_new_ones_tasks_have_been_read() -> None:
    """Else rows below resolved_ts would be missing for a while."""
    world = World()
    world.flush(500, [row(450)])
    world.tell(500)
    assert world.refreshed() == 500
    children = split(world)
    for child in children:
        child.inherit(world.tasks[0])
    world.tasks, world.parents = [*children, world.tasks[1]], {3: [1], 4: [1]}
    world.route_anew(epoch=1)
    assert segments(world) == [450]
    assert versions(world) == [450]
    world.objects.deaf = "/task-"
    assert (world.refreshed(), segments(world)) == (500, [450])
    assert set(world.view.problems) >= {"task 3", "task 4"}
    world.objects.deaf = None
    assert (world.refreshed(), segments(world)) == (500, [450])
    assert versions(world) == [450]


def test_rows_that_cannot_be_shown_are_few_lines_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    """Beyond those that are remembered each pull meets them as if for the first time."""
    world = World()

    def met(seed: int) -> int:
        caplog.clear()
        for number in range(3 * BARRIERS_MAX):
            world.view.record_barrier(Barrier(500, "shop.orders", 7, f"{seed}-{number}".encode(), "no schema"))
        return sum(record.message == "a row cannot be decoded" for record in caplog.records)

    assert met(1) == BARRIERS_MAX
    assert met(2) == 0
    CLOCK.advance(BARRIER_LINES_MS)
    assert met(3) == BARRIERS_MAX
    assert len(world.view.barriers()) == BARRIERS_MAX
