"""The API server over HTTP, on real services: every call, every refusal, streams, and what status says."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import pytest

from support import compare, golden
from support.api_world import Platform, start_api
from support.golden import Delivery, GoldenSet
from support.http_world import Server
from support.pull import PROBLEM, Consumer, parse
from support.waiting import PATIENCE_S, eventually
from tistream.model.ids import TenantKey
from tistream.storage import layout
from tistream_cli.commands.tenant import create_tenant, set_key, set_retention, wait_for_snapshot
from tistream_client.cli.api_client import ApiClient, changes_path
from tistream_client.cli.errors import CliError

EVERYTHING = golden.load("everything")
STREAMED = golden.load_as("large", "5", "streamed")
START = str(EVERYTHING.snapshot_ts)
FUTURE = str(4_102_444_800_000 << 18)  # the year 2100; the same in every process that collects tests


# Each test that makes tenants has a cluster of its own. No test makes one in cluster 8.


@pytest.fixture(scope="module")
def events(loaded: Consumer) -> list[dict[str, Any]]:
    return loaded.pull(until_ts=EVERYTHING.end_ts, start_ts=EVERYTHING.snapshot_ts, limit=100_000)


def problem(consumer: Consumer, path: str, status: int) -> dict[str, Any]:
    answer = consumer.client.get(consumer.url + path)
    assert answer.headers["content-type"] == PROBLEM, (path, answer.status_code, answer.text[:300])
    found: dict[str, Any] = answer.json()
    assert (answer.status_code, found["status"]) == (status, status), (path, found)
    return found


def test_the_tenant_is_what_select_showed(events: list[dict[str, Any]]) -> None:
    assert compare.row_differences(EVERYTHING, events) == []
    assert compare.order_differences(events) == []


TENANT = "/v1/clusters/7/tenants/acme"
WRONG_QUERIES = [
    "",
    "?start_ts=",
    "?start_ts=-1",
    "?start_ts=abc",
    "?start_ts=99999999999999999999",
    f"?start_ts={FUTURE}",
    f"?start_ts={START}&cursor=abc",
    f"?start_ts={START}&start_ts={START}",
    f"?start_ts={START}&end_ts=5",
    f"?start_ts={START}&limit=0",
    f"?start_ts={START}&limit=1000001",
    f"?start_ts={START}&wait_ms=60001",
    f"?start_ts={START}&follow=1",
    f"?start_ts={START}&follow=true&limit=5",
    f"?start_ts={START}&follow=true&end_ts={START}",
    f"?start_ts={START}&format=avro",
    f"?start_ts={START}&colour=red",
    "?cursor=abc",
    "?cursor=%FF%FE",
    "?cursor=" + "A" * 5000,
    "?%FF=1",
]


@pytest.mark.parametrize("query", WRONG_QUERIES)
@pytest.mark.parametrize("scope", ["", "/databases/shop", "/databases/shop/tables/big"])
def test_wrong_parameters(loaded: Consumer, scope: str, query: str) -> None:
    found = problem(loaded, f"{TENANT}{scope}/changes{query}", 400)
    assert found["type"] == "tistream:bad-request"


@pytest.mark.parametrize(
    ("path", "status"),
    [
        (f"/v1/clusters/8/tenants/acme/changes?start_ts={START}", 404),
        (f"/v1/clusters/7/tenants/none/changes?start_ts={START}", 404),
        (f"/v1/clusters/7/tenants/%FF/changes?start_ts={START}", 404),
        (f"/v1/clusters/7/tenants/..%2F/changes?start_ts={START}", 404),
        (f"{TENANT}/databases/none/changes?start_ts={START}", 404),
        (f"{TENANT}/databases/mysql/changes?start_ts={START}", 404),
        (f"{TENANT}/databases/mysql/tables/user/changes?start_ts={START}", 404),
        (f"{TENANT}/databases/%FF%00/changes?start_ts={START}", 404),
        (f"{TENANT}/databases/a%2Fb/changes?start_ts={START}", 404),
        (f"{TENANT}/databases/shop/tables/none/changes?start_ts={START}", 404),
        (f"{TENANT}/databases/none/tables", 404),
        (f"{TENANT}/changes?start_ts=5", 410),
        (f"{TENANT}/databases?ts=5", 410),
        (f"{TENANT}/databases?ts=x", 400),
        (f"{TENANT}/databases?start_ts=5", 400),
        (f"{TENANT}/databases?ts={FUTURE}", 400),
        (f"{TENANT}/databases/shop/tables?ts=1&ts=2", 400),
        (f"{TENANT}/coverage?start_key=xyz", 400),
        (f"{TENANT}/coverage?start_key=75&end_key=74", 400),
        (f"{TENANT}/coverage?key=74", 400),
        (f"{TENANT}/status?x=1", 400),
        (f"{TENANT}/nothing", 404),
        ("/v1/clusters/8/tenants", 404),
    ],
)
def test_refusals(loaded: Consumer, path: str, status: int) -> None:
    found = problem(loaded, path, status)
    if status == 410:
        assert found["earliest_ts"] == START


def test_cursors_of_others(loaded: Consumer, up: Platform) -> None:
    cursor = loaded.page("shop", start_ts=START, limit=1).cursor
    assert loaded.page("SHOP", cursor=cursor, limit=1).events
    for scope in ("", "/databases/types", "/databases/shop/tables/big"):
        problem(loaded, f"{TENANT}{scope}/changes?cursor={cursor}", 400)
    changed = ("A" if cursor[30] != "A" else "B").join((cursor[:30], cursor[31:]))
    problem(loaded, f"{TENANT}/databases/shop/changes?cursor={changed}", 400)
    end_below = f"/databases/shop/changes?cursor={cursor}&end_ts={START}"
    problem(loaded, TENANT + end_below, 400)


def test_a_cursor_is_never_a_404(loaded: Consumer, events: list[dict[str, Any]]) -> None:
    dropped = next(e for e in events if e["type"] == "ddl" and e["action"] == "drop table")
    page = loaded.page(dropped["database"], dropped["table"], start_ts=START, limit=100_000)
    assert any(event["type"] == "ddl" and event["action"] == "drop table" for event in page.events)
    assert loaded.page(dropped["database"], dropped["table"], cursor=page.cursor).events == []


def test_odd_names_and_case(loaded: Consumer, events: list[dict[str, Any]]) -> None:
    odd = {(e["database"], e["table"]) for e in events if not e.get("table", "a").replace("_", "a").isalnum()}
    odd = {names for names in odd if names[1]}
    assert odd
    for database, table in odd:
        page = loaded.page(database.upper(), table.swapcase(), start_ts=START, limit=100_000)
        want = [event for event in events if compare.concerns(event, database, table)]
        assert compare.content(page.events) == compare.content(want)


def test_lists(loaded: Consumer) -> None:
    first = loaded.get("/databases", ts=START)
    assert first == {"ts": START, "databases": ["test"]}
    newest = loaded.get("/databases")
    assert newest["databases"] == sorted(newest["databases"])
    assert int(newest["ts"]) >= EVERYTHING.end_ts
    tables = loaded.get("/databases/SHOP/tables")
    assert list(tables) == ["ts", "database", "tables"]
    assert all(list(table) == ["name", "table_id", "schema_version", "base_ts", "held"] for table in tables["tables"])
    assert "big" in [table["name"] for table in tables["tables"]]
    assert loaded.get("/databases/test/tables", ts=START)["tables"] == []


def test_a_list_ahead_of_what_is_known_is_asked_to_come_back(loaded: Consumer) -> None:
    answer = loaded.client.get(f"{loaded.base}/databases", params={"ts": (int(time.time() * 1000) - 1_000) << 18})
    assert answer.status_code == 503
    assert answer.headers["retry-after"]


def test_status_and_coverage(loaded: Consumer) -> None:
    status = loaded.status()
    assert list(status) == ["resolved_ts", "flushed_ts", "lag_seconds", "held_by"]
    assert status["resolved_ts"] == status["flushed_ts"] == str(EVERYTHING.end_ts)
    assert status["lag_seconds"] > 5  # the golden set is of the past
    assert list(status["held_by"]) == ["stage", "store_id", "region_id", "object", "reason"]
    assert status["held_by"]["stage"] == "push"
    slices = loaded.get("/coverage")["slices"]
    assert slices[0]["start_key"] == ""
    assert slices[-1]["end_key"] == ""
    assert all(left["end_key"] == right["start_key"] for left, right in pairwise(slices))
    some = loaded.get("/coverage", start_key="74", end_key="75")["slices"]
    assert (some[0]["start_key"], some[-1]["end_key"]) == ("74", "75")
    assert {one["resolved_ts"] for one in some} == {str(EVERYTHING.end_ts)}


def test_the_openapi_document_has_the_operations(loaded: Consumer) -> None:
    paths = loaded.client.get(f"{loaded.url}/openapi.json").json()["paths"]
    operations = {call["operationId"]: call for path in paths.values() for call in path.values()}
    assert {"PullTable", "PullDB", "PullTenant", "ListDBs", "ListTables"} <= operations.keys()
    for name in ("PullTable", "PullDB", "PullTenant"):
        told = {parameter["name"] for parameter in operations[name]["parameters"] if parameter["in"] == "query"}
        paging = {"start_ts", "cursor", "end_ts", "limit", "wait_ms", "follow"}
        filters = {"operations", "columns", "where"} | (set() if name == "PullTable" else {"tables"})
        assert told == paging | {"format", "events", "squash", "snapshot"} | filters


def test_a_long_poll_waits_and_answers_with_progress(loaded: Consumer) -> None:
    started = time.monotonic()
    page = loaded.page(start_ts=EVERYTHING.end_ts, wait_ms=300)
    assert time.monotonic() - started > 0.25
    assert (page.events, page.resolved_ts) == ([], EVERYTHING.end_ts)


def test_a_start_ahead_of_resolved_sends_nothing_below_it(loaded: Consumer) -> None:
    ahead = (int(time.time() * 1000) - 1_000) << 18
    page = loaded.page(start_ts=ahead)
    assert (page.events, page.resolved_ts) == ([], ahead)
    assert loaded.page(cursor=page.cursor).resolved_ts == ahead


def test_tenants_and_notifications_reach_meta(up: Platform, loaded: Consumer) -> None:
    post = loaded.client.post
    answer = post(f"{up.api.url}/v1/clusters/9/tenants", json={"tenant_id": "new"})
    assert (answer.status_code, answer.json()["tenant_id"]) == (201, "new")
    assert post(f"{up.api.url}/v1/clusters/9/tenants", json={"tenant_id": "new"}).status_code == 201
    listed = loaded.client.get(f"{up.api.url}/v1/clusters/9/tenants").json()
    assert [tenant["tenant_id"] for tenant in listed["tenants"]] == ["new"]
    for body in (b"", b"{", b"[]", b'{"tenant_id":5}', b'{"tenant_id":"a/b"}', b'{"tenant_id":"a","x":1}'):
        refused = post(f"{up.api.url}/v1/clusters/9/tenants", content=body)
        assert (refused.status_code, refused.headers["content-type"]) == (400, PROBLEM), body
    put, retention = loaded.client.put, f"{up.api.url}/v1/clusters/9/tenants/new/retention"
    assert put(retention, json={"retention_ms": "604800000"}).json()["retention_ms"] == "604800000"
    kept = {"tenant_id": "new", "retention_ms": "3600000"}
    assert post(f"{up.api.url}/v1/clusters/9/tenants", json=kept).status_code == 409
    for body in (b"", b"{}", b'{"retention_ms":604800000}', b'{"retention_ms":"1h"}', b'{"retention_ms":"3599999"}'):
        refused = put(retention, content=body)
        assert (refused.status_code, refused.headers["content-type"]) == (400, PROBLEM), body
    assert put(retention.replace("/new/", "/nobody/"), json={"retention_ms": None}).status_code == 404
    assert put(retention, params={"x": "1"}, json={"retention_ms": None}).status_code == 400
    told = {"cluster_id": "7", "tenant_id": "acme", "store_id": "1", "ts": "5"}
    assert post(f"{up.api.url}/v1/notifications", json=told).status_code == 202
    assert post(f"{up.api.url}/v1/notifications", json={**told, "ts": 5}).status_code == 400
    waiting = f"{up.api.url}/v1/clusters/9/tenants/new"
    assert loaded.client.get(f"{waiting}/changes?start_ts=5").status_code == 503
    held = loaded.client.get(f"{waiting}/status").json()["held_by"]
    assert (held["stage"], held["object"]) == ("push", "data_change_buffer/cluster-9/Tenant-new/schema_snap")


def test_the_command_tells_how_long_rows_are_kept(up: Platform, capsys: pytest.CaptureFixture[str]) -> None:
    client = ApiClient(up.api.url)

    def told() -> dict[str, str | None]:
        listed = client.call("GET", "/v1/clusters/10/tenants")["tenants"]
        return {tenant["tenant_id"]: tenant["retention_ms"] for tenant in listed}

    create_tenant(client, "10", "kept", "36h")
    create_tenant(client, "10", "usual")
    assert told() == {"kept": "129600000", "usual": None}
    set_retention(client, "10", "kept", "7d")
    assert told()["kept"] == "604800000"
    set_retention(client, "10", "kept", "forever")
    assert told()["kept"] is None
    printed = capsys.readouterr().out.splitlines()
    assert printed[-2:] == ["rows of tenant 10/kept are kept for 7d", "rows of tenant 10/kept are kept for ever"]
    for bad, why in (("1m", "an hour"), ("7 weeks", "7d"), ("99999d", "100 years")):
        with pytest.raises(CliError, match=why):
            set_retention(client, "10", "kept", bad)
    with pytest.raises(CliError, match="nobody"):
        set_retention(client, "10", "nobody", "7d")


def test_a_key_is_forwarded_and_refused_where_objects_are_files(up: Platform, loaded: Consumer) -> None:
    put, url = loaded.client.put, f"{up.api.url}/v1/clusters/11/tenants/new/encryption"
    client = ApiClient(up.api.url)
    create_tenant(client, "11", "new")
    assert put(url, json={"kms_key_id": None}).json()["kms_key_id"] is None
    for body in (b"", b"{}", b'{"kms_key_id":5}', b'{"kms_key_id":"a b"}', b'{"kms_key_id":"arn:aws:kms:1"}'):
        refused = put(url, content=body)
        assert (refused.status_code, refused.headers["content-type"]) == (400, PROBLEM), body
    assert put(url.replace("/new/", "/nobody/"), json={"kms_key_id": None}).status_code == 404
    assert put(url, params={"x": "1"}, json={"kms_key_id": None}).status_code == 400
    with pytest.raises(CliError, match="is not S3, so it has no keys of tenants"):
        create_tenant(client, "11", "keyed", kms_key="alias/acme")
    with pytest.raises(CliError, match="is not S3, so it has no keys of tenants"):
        set_key(client, "11", "new", "alias/acme")
    set_key(client, "11", "new", "none")


def test_the_command_waits_until_a_tenant_can_be_pulled(up: Platform, capsys: pytest.CaptureFixture[str]) -> None:
    client, tenant = ApiClient(up.api.url), TenantKey("12", "waited-for")
    create_tenant(client, "12", "waited-for")
    slept = []

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        if len(slept) == 2:
            up.put(Delivery(0, layout.schema_snap(tenant), EVERYTHING.schema_snap.data))
        time.sleep(seconds)

    wait_for_snapshot(client, "12", "waited-for", sleep)
    said = capsys.readouterr()
    assert said.err.startswith("waiting: schema_snap has not come")
    assert said.out.endswith("can be pulled\n")
    (line,) = client.lines(changes_path("12", "waited-for", None, None), {"start_ts": START})
    assert json.loads(line)["type"] == "resolved"


@pytest.fixture
def api(up: Platform) -> Iterator[Server]:
    """An API server of a test's own."""
    server = start_api(up.world)
    yield server
    server.stop()


def test_a_stream_gives_the_same_events_while_files_arrive_and_ends_with_the_service(up: Platform, api: Server) -> None:
    loaded: GoldenSet = STREAMED
    consumer = Consumer(api.url, loaded.tenant)
    up.create(loaded)
    up.put(loaded.schema_snap)
    eventually(lambda: consumer.client.get(f"{consumer.base}/databases").status_code == 200)
    got: list[dict[str, Any]] = []
    ended = threading.Event()

    def follow() -> None:
        query = {"follow": "true", "start_ts": str(loaded.snapshot_ts)}
        with consumer.client.stream("GET", consumer.changes_url(), params=query) as answer:
            got.extend(parse(line) for line in answer.iter_lines())
        ended.set()

    thread = threading.Thread(target=follow, daemon=True)
    thread.start()
    missing = sorted(loaded.files, key=lambda file: file.store_and_ts[::-1])[5]
    for file in loaded.files:
        if file is not missing:
            up.put(file)
            time.sleep(0.01)

    def held() -> bool:
        told = consumer.status()["held_by"]
        return told is not None and told["object"] == missing.key and told["stage"] == "push"

    eventually(held)
    assert int(consumer.status()["resolved_ts"]) < loaded.end_ts
    up.put(missing)
    eventually(lambda: got and got[-1].get("resolved_ts") == str(loaded.end_ts))
    pulled = consumer.pull(until_ts=loaded.end_ts, start_ts=loaded.snapshot_ts, limit=5_000)
    assert compare.content(got) == compare.content(pulled)
    assert compare.row_differences(loaded, got) == []
    assert compare.order_differences(got) == []
    told = len(got)
    eventually(lambda: len(got) > told + 1)  # an idle stream shows that it lives
    assert {event["type"] for event in got[told:]} == {"resolved"}
    api.app.state.stopping.set()
    assert ended.wait(PATIENCE_S)
    assert json.dumps(got[-1]["resolved_ts"]) == f'"{loaded.end_ts}"'
