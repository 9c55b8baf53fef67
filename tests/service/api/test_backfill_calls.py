"""Backfills and snapshots over HTTP, on real services: a recorded tenant that begins in the middle of its history, its
full backup in a folder, and chunks that another program pushes."""

from __future__ import annotations

import functools
import json
import random
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
from prometheus_client import CollectorRegistry
from typer.testing import CliRunner

from support.api_world import Platform, platform
from support.cut_set import CutSet, commit_timestamps, cut
from support.points_world import point_world
from support.pull import PROBLEM, Consumer
from support.waiting import eventually
from tistream.clock import SystemClock
from tistream.format.backfill.base_chunk import ChunkId, write_chunk
from tistream.format.backfill.chunk_plan import ChunkPlan, encode_plan
from tistream.model.base_cover import Cover
from tistream.model.ids import TenantKey
from tistream.model.span import KeySpan
from tistream.model.ts import MAX_TS
from tistream.pool.base_covers import cover_of
from tistream.schema.tidb.meta_change import record_span
from tistream.service.worker import Loop
from tistream.storage import layout
from tistream.storage.backends.directory import DirectoryObjectStore
from tistream.wire.bulk.backfills import BackfillRow, EndBackfill
from tistream.wire.clients.meta_client import MetaClient
from tistream_cli.app import app
from tistream_ingest.backfill.backfill_runner import BackfillRunner
from tistream_ingest.backfill.chunk_job import BackupWork, write_backup_chunks
from tistream_ingest.jobs.chunk_put import ChunksWritten
from tistream_ingest.metrics import IngestMetrics
from tistream_ingest.sqlread.dsn_files import DsnFiles
from tistream_ingest.sqlread.sql_backfills import SqlBackfills

NAME = "everything"
TENANT = "/v1/clusters/7/tenants/acme"
BACKFILLS = f"{TENANT}/backfills"
Line = dict[str, Any]


@dataclass(frozen=True)
class Routed:
    task_id: int
    span: KeySpan
    parents: Sequence[int]


@dataclass
class Ingest:
    """The ingest service's backfills without Spark: its units run here."""

    up: Platform
    meta: MetaClient

    def running(self) -> Sequence[BackfillRow]:
        return self.meta.running_backfills().backfills

    def end(self, row: BackfillRow, end: EndBackfill) -> None:
        self.meta.end_backfill(row, end)

    def write(self, backup_url: str, works: Sequence[BackupWork]) -> list[ChunksWritten]:
        store = DirectoryObjectStore(Path(backup_url))
        return [write_backup_chunks(self.up.world.objects, store, work) for work in works]

    def cover(self, tenant: TenantKey) -> Cover:
        (route,) = [one for one in self.meta.routes().tenants if one.tenant_id == tenant.tenant_id]
        tasks = [
            Routed(one.task_id, KeySpan(bytes.fromhex(one.start_key), bytes.fromhex(one.end_key)), one.parents)
            for one in route.tasks
        ]
        return cover_of(self.up.world.objects, tenant, tasks)

    def runner(self) -> BackfillRunner:
        objects, metrics = self.up.world.objects, IngestMetrics(CollectorRegistry())
        opened = lambda url: DirectoryObjectStore(Path(url))  # noqa: E731
        by_sql = SqlBackfills(lambda _: pytest.fail("no backfill of this file reads SQL"), DsnFiles(None).server)
        return BackfillRunner(objects, self, self, opened, self.cover, by_sql, metrics, SystemClock(), 86_400_000)


@pytest.fixture(scope="module")
def up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Platform]:
    with platform(tmp_path_factory.mktemp("world"), ranges=3) as one:
        ingest = Ingest(one, MetaClient(one.world.http, one.world.meta.url))
        runner = ingest.runner()
        loop = Loop("backfills", lambda: 0 if runner.step() else None, interval_ms=50, backoff_max_ms=100).start()
        try:
            yield one
        finally:
            loop.stop(60)


@pytest.fixture(scope="module")
def loaded(up: Platform) -> Consumer:
    consumer = up.create(made().set_)
    up.put(*made().set_.deliveries)
    consumer.wait_for(made().set_.end_ts)
    return consumer


@pytest.fixture(scope="module")
def backup(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The URL of the tenant's full backup as of T0."""
    folder = tmp_path_factory.mktemp("backup")
    store = DirectoryObjectStore(folder)
    for name, body in made().backup(1).items():
        store.put(name, body)
    return str(folder)


def ask(consumer: Consumer, method: str, path: str, body: Any = None) -> httpx.Response:
    return consumer.client.request(method, consumer.url + path, json=body)


def problem(answer: httpx.Response, status: int, kind: str) -> dict[str, Any]:
    assert answer.headers["content-type"].startswith(PROBLEM)
    found: dict[str, Any] = answer.json()
    assert (answer.status_code, found["type"]) == (status, f"tistream:{kind}"), found
    return found


def table_path(version: Any) -> str:
    return f"{TENANT}/databases/{version.database}/tables/{version.head.name}"


@functools.cache
def made() -> CutSet:
    return cut(NAME, commit_timestamps(NAME)[900])


@functools.cache
def a_table() -> Any:
    """A table that exists from T0 to the end, with some rows, whose name needs no quoting."""
    state = made().state(made().t0)
    last = {one.head.id for one in made().tables(made().set_.end_ts)}
    for version in made().tables(made().t0):
        mine = state.filter(state["table_id"].is_in(list(version.head.physical_ids)))
        if version.head.id in last and mine.height >= 5 and version.head.name.isidentifier():
            return version
    raise AssertionError("no such table")


def named() -> str:
    return f"{a_table().database}.{a_table().head.name}"


@functools.cache
def table_spans() -> tuple[KeySpan, ...]:
    """The record spans of the table's physical ids."""
    return tuple(record_span(table_id) for table_id in sorted(a_table().head.physical_ids))


@functools.cache
def later() -> int:
    return next(ts for ts in commit_timestamps(NAME) if ts > made().t0 + (made().set_.end_ts - made().t0) // 4)


def pulled(consumer: Consumer, path: str) -> list[Line]:
    answer = ask(consumer, "GET", path)
    assert answer.status_code == 200, answer.text[:500]
    return [json.loads(line) for line in answer.content.splitlines()]


def shown(lines: Sequence[Line]) -> Counter[str]:
    return Counter(json.dumps([line["key"], line["row"], line["schema_version"]]) for line in lines)


def listed(consumer: Consumer) -> dict[str, str | None]:
    """The base_ts of the tables in the table's database, now."""
    tables = ask(consumer, "GET", f"{TENANT}/databases/{a_table().database}/tables").json()["tables"]
    return {one["name"]: one["base_ts"] for one in tables}


# The tenant has one history, and each step continues it. A test asks for the step whose answers it checks, and pytest
# takes the steps before it first, so the tests may run in any order.


@dataclass(frozen=True)
class Before:
    """Answers while the tenant had no backfill."""

    snapshots: Sequence[httpx.Response]
    base_ts: str | None


@dataclass(frozen=True)
class Pushed:
    """Answers while chunks of the table were pushed: to the order, to the same again, and about the backfill without a
    plan, without chunks, and finished."""

    started: httpx.Response
    again: httpx.Response
    unplanned: Line
    planned: Line
    finished: Line
    rows: int


@dataclass(frozen=True)
class Cancelled:
    """Answers to two calls that cancel a backfill of all tables, and the list of backfills after them."""

    calls: Sequence[httpx.Response]
    backfills: Sequence[Line]
    base_ts: str | None


@pytest.fixture(scope="module")
def before(loaded: Consumer) -> Before:
    changes = f"{table_path(a_table())}/changes"
    snapshots = [ask(loaded, "GET", f"{changes}?snapshot={query}") for query in ("now", made().set_.end_ts)]
    return Before(snapshots, listed(loaded)[a_table().head.name])


@pytest.fixture(scope="module")
def pushed(up: Platform, loaded: Consumer, before: Before) -> Pushed:
    order = {"source": {"kind": "push"}, "tables": [named()]}
    started, again = (ask(loaded, "POST", BACKFILLS, order) for _ in range(2))
    tenant, backfill_id = made().set_.tenant, started.json()["backfill_id"]
    one = f"{BACKFILLS}/{backfill_id}"
    unplanned = ask(loaded, "GET", one).json()
    spans = table_spans()
    up.world.objects.put(layout.backfill_plan(tenant, backfill_id), encode_plan(ChunkPlan(spans, made().t0)))
    planned = ask(loaded, "GET", one).json()
    rows = [made().chunk_rows(span, later(), with_commit_ts=False) for span in spans]
    for number, (span, chunk) in enumerate(zip(spans, rows, strict=True)):
        body = write_chunk([chunk], ChunkId(tenant, backfill_id, number), span, later())
        up.world.objects.put(layout.base_chunk(tenant, backfill_id, number), body)
    eventually(lambda: ask(loaded, "GET", one).json()["state"] == "finished")
    eventually(lambda: listed(loaded)[a_table().head.name] == str(later()))
    finished = ask(loaded, "GET", one).json()
    return Pushed(started, again, unplanned, planned, finished, sum(chunk.num_rows for chunk in rows))


@pytest.fixture(scope="module")
def cancelled(loaded: Consumer, pushed: Pushed) -> Cancelled:
    order = {"source": {"kind": "push"}, "tables": ["*.*"]}
    backfill_id = ask(loaded, "POST", BACKFILLS, order).json()["backfill_id"]
    calls = [ask(loaded, "DELETE", f"{BACKFILLS}/{backfill_id}") for _ in range(2)]
    backfills = ask(loaded, "GET", BACKFILLS).json()["backfills"]
    return Cancelled(calls, backfills, listed(loaded)[a_table().head.name])


@pytest.fixture(scope="module")
def backed_up(loaded: Consumer, backup: str, cancelled: Cancelled) -> Line:
    """The backfill of all tables from the full backup, when it has ended and the API knows every table's base_ts."""
    order = {"source": {"kind": "br-full", "url": backup}, "tables": ["*.*"]}
    one = f"{BACKFILLS}/{ask(loaded, 'POST', BACKFILLS, order).json()['backfill_id']}"
    eventually(lambda: ask(loaded, "GET", one).json()["state"] != "running")
    eventually(lambda: None not in listed(loaded).values())
    eventually(lambda: not [table for table in ask(loaded, "GET", one).json()["tables"] if untaken(table)])
    found: Line = ask(loaded, "GET", one).json()
    return found


def untaken(table: Line) -> bool:
    """Whether the API does not know yet that the sorters have taken the table's chunks: it follows each task's log, and
    the backfill ends as soon as the logs have them."""
    return "the sorters have not taken" in (table["held_by"] or "")


def test_before_a_backfill_a_snapshot_is_refused_with_the_way_out(before: Before) -> None:
    for answer in before.snapshots:
        found = problem(answer, 409, "not-complete")
        assert (found["table"], found["base_ts"]) == (named(), None)
        assert found["progress"] == {"known_parts": 0, "missing_parts": len(a_table().head.physical_ids)}
        assert "run a backfill of it" in found["detail"]
    assert before.base_ts is None


@pytest.mark.parametrize(
    ("query", "parameter"),
    [
        ("snapshot=yesterday", "snapshot"),
        ("snapshot=", "snapshot"),
        (f"snapshot={MAX_TS + 1}", "snapshot"),
        (f"snapshot={MAX_TS}", "snapshot"),
        ("snapshot=now&snapshot=now", "snapshot"),
        ("snapshot=now&cursor=x", "snapshot"),
        ("snapshot=now&start_ts=1", "start_ts"),
        ("snapshot=now&end_ts=1", "end_ts"),
        ("snapshot=now&follow=true", "follow"),
        ("snapshot=now&squash=true", "squash"),
        ("snapshot=now&format=arrow", "format"),
        ("snapshot=now&limit=0", "limit"),
        ("snapshot=now&depth=3", "depth"),
    ],
)
def test_a_wrong_parameter_is_named(loaded: Consumer, query: str, parameter: str) -> None:
    for path in (table_path(a_table()), f"{TENANT}/databases/{a_table().database}", TENANT):
        found = problem(ask(loaded, "GET", f"{path}/changes?{query}"), 400, "bad-request")
        assert found["parameter"] == parameter, found


def test_below_what_is_kept_and_unknown_names(loaded: Consumer) -> None:
    gone = problem(ask(loaded, "GET", f"{TENANT}/changes?snapshot={made().t0 - 1}"), 410, "gone")
    assert gone["earliest_ts"] == str(made().t0)
    nothing = f"{TENANT}/databases/{a_table().database}/tables/nothing_like_it/changes?snapshot=now"
    problem(ask(loaded, "GET", nothing), 404, "unknown-name")


@pytest.mark.parametrize(
    ("body", "status", "kind", "reason"),
    [
        ({"source": {"kind": "push"}}, 400, "bad-request", "tables"),
        ({"source": {"kind": "push"}, "tables": ["orders"]}, 400, "bad-request", "database.table"),
        ({"source": {"kind": "br-full"}, "tables": ["a.b"]}, 400, "bad-request", "needs url"),
        ({"source": {"kind": "sql"}, "tables": ["a.b"]}, 400, "bad-request", "needs dsn_file"),
        ({"source": {"kind": "br-full", "url": "/no/such/folder"}, "tables": ["a.b"]}, 422, "source-refused", "folder"),
    ],
)
def test_an_order_that_cannot_be_carried_out_is_refused(
    loaded: Consumer, body: Line, status: int, kind: str, reason: str
) -> None:
    assert reason in problem(ask(loaded, "POST", BACKFILLS, body), status, kind)["detail"]


def test_chunks_that_are_pushed_make_a_table_complete_from_their_ts_on(loaded: Consumer, pushed: Pushed) -> None:
    assert pushed.started.status_code == 202
    assert pushed.again.json() == pushed.started.json()
    info, chunks = pushed.unplanned, len(table_spans())
    assert (info["state"], info["reason"], info["tables"]) == ("running", "no plan was pushed yet", [])
    (table,) = pushed.planned["tables"]
    assert (table["chunks_done"], table["chunks"], table["base_ts"]) == (0, chunks, None)
    assert table["held_by"] == f"{chunks} of {chunks} chunks are not written yet; the first is 0"
    (table,) = pushed.finished["tables"]
    assert table["rows"] == pushed.rows
    assert (table["chunks_done"], table["base_ts"], table["held_by"]) == (chunks, str(later()), None)
    found = problem(ask(loaded, "GET", f"{table_path(a_table())}/changes?snapshot={later() - 1}"), 409, "not-complete")
    assert found["base_ts"] == str(later())
    lines = pulled(loaded, f"{table_path(a_table())}/changes?snapshot={later()}")
    assert shown(lines[1:-2]) == shown(point_world(NAME).lines(a_table().database, a_table().head.name, later()))
    assert lines[1]["commit_ts"] is None or int(lines[1]["commit_ts"]) <= later()


def test_a_cancelled_backfill_keeps_what_was_taken(loaded: Consumer, cancelled: Cancelled) -> None:
    for answer in cancelled.calls:
        assert (answer.status_code, answer.json()["state"]) == (200, "cancelled")
    assert [one["state"] for one in cancelled.backfills] == ["cancelled", "finished"]
    newest, finished = cancelled.backfills
    assert newest["ended_ms"] is not None
    problem(ask(loaded, "DELETE", f"{BACKFILLS}/{finished['backfill_id']}"), 409, "already-differs")
    for name in ("b999", "..%2F..", "x"):
        assert ask(loaded, "DELETE", f"{BACKFILLS}/{name}").status_code == 404
        assert ask(loaded, "GET", f"{BACKFILLS}/{name}").status_code == 404
    assert cancelled.base_ts == str(later())


def test_a_full_backup_makes_every_table_complete(loaded: Consumer, backed_up: Line) -> None:
    info = backed_up
    assert (info["state"], info["reason"], info["asked"]) == ("finished", None, ["*.*"])
    by_name = {(one["database"], one["table"]): one for one in info["tables"]}
    state = made().state(made().t0)
    kept = {one.head.id: one for one in made().tables(made().set_.end_ts)}
    for version in made().tables(made().t0):
        now = kept.get(version.head.id)
        if now is None or set(now.head.physical_ids) != set(version.head.physical_ids):
            continue  # some of its ids have gone
        table = by_name[now.database, now.head.name]
        assert table["rows"] == state.filter(state["table_id"].is_in(list(version.head.physical_ids))).height
        assert table["chunks_done"] == table["chunks"] >= len(version.head.physical_ids)
        expected = later() if version.head.id == a_table().head.id else made().t0
        assert (table["base_ts"], table["held_by"]) == (str(expected), None), table
    assert listed(loaded)[a_table().head.name] == str(later()), "the newer base counts, never the older one"


@pytest.mark.usefixtures("backed_up")
def test_a_snapshot_and_the_changes_above_it_are_what_select_shows(loaded: Consumer) -> None:
    """Rows at S for each scope, page by page, and then the events: together the rows at the end."""
    plain = point_world(NAME)
    rng = random.Random(5)
    stamps = [ts for ts in commit_timestamps(NAME) if ts >= later()]
    for ts in rng.sample(stamps, 2):
        whole = pulled(loaded, f"{TENANT}/changes?snapshot={ts}&limit=1000000")
        paged: list[Line] = []
        query = f"snapshot={ts}"
        while not paged or paged[-1]["type"] != "resolved":
            page = pulled(loaded, f"{TENANT}/changes?{query}&limit=900")
            paged = [one for one in paged if one["type"] != "continue"] + page
            query = f"cursor={page[-1]['cursor']}"
        assert paged == whole
        assert [whole[0]["type"], *(one["type"] for one in whole[-2:])] == [
            "snapshot_begin",
            "snapshot_end",
            "resolved",
        ]
        by_table: dict[tuple[str, str], list[Line]] = {}
        for line in whole[1:-2]:
            by_table.setdefault((line["database"], line["table"]), []).append(line)
        for version in made().tables(ts):
            name = version.database, version.head.name
            assert shown(by_table.get(name, [])) == shown(plain.lines(*name, ts)), (ts, name)
        events: list[Line] = []
        query = f"cursor={whole[-1]['cursor']}"
        while True:
            page = pulled(loaded, f"{TENANT}/changes?{query}&end_ts={made().set_.end_ts}&limit=100000")
            events += page[:-1]
            if page[-1].get("resolved_ts") == str(made().set_.end_ts):
                break
            query = f"cursor={page[-1]['cursor']}"
        from_log = pulled(loaded, f"{TENANT}/changes?start_ts={ts}&end_ts={made().set_.end_ts}&limit=1000000")
        assert events == from_log[:-1]
        assert all(int(one["commit_ts"]) > ts for one in events)


@pytest.mark.usefixtures("backed_up")
def test_the_command_runs_lists_and_cancels_and_pulls_a_snapshot(loaded: Consumer, backup: str) -> None:
    tenant = ["--cluster", "7", "--tenant", "acme", "--url", loaded.url]

    def run(*arguments: str) -> str:
        found = CliRunner().invoke(app, [*arguments, *tenant])
        assert found.exit_code == 0, (found.output, found.exception)
        return found.output

    said = run("backfill", "run", "--br-full", backup, "--table", named(), "--wait")
    assert named() in said
    assert "finished" in said
    listed_now = json.loads(run("backfill", "list", "--json"))["backfills"]
    assert listed_now[0]["asked"] == [named()]
    assert "finished" in run("backfill", "list")
    waiting = run("backfill", "run", "--push", "--table", "*.*")
    backfill_id = waiting.split()[1]
    assert "no plan was pushed yet" in run("backfill", "show", backfill_id)
    assert "cancelled" in run("backfill", "cancel", backfill_id)
    one = ["--database", a_table().database, "--table", a_table().head.name]
    lines = run("pull", *one, "--snapshot", "now").splitlines()
    types = [json.loads(line)["type"] for line in lines]
    assert types[0] == "snapshot_begin"
    assert types[types.index("snapshot_end") + 1] == "resolved"
    rows = [json.loads(line) for line in lines[1 : types.index("snapshot_end")]]
    expected = pulled(loaded, f"{table_path(a_table())}/rows?ts=now")[:-1]
    assert shown(rows) == shown(expected)
    refused = CliRunner().invoke(app, ["backfill", "run", "--br-full", "/no/such/folder", *tenant])
    assert refused.exit_code == 1
