"""Bad requests: each wrong parameter, name or cursor is the problem of design.md 5, and never a 500."""

from __future__ import annotations

import base64
import time
from urllib.parse import quote

import httpx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from support.compare import names
from support.effort import examples
from support.platform import Platform
from support.pull import PROBLEM, Refused
from support.pulled import Pulled

LATER_TS = (2**42) << 18  # a TSO of the year 2109
NOT_NUMBERS = ["", "abc", "-1", "+1", "1.0", "1e3", " 1", "0x10", "١٢", "9" * 40, "null", str(2**63), "\x00"]


class Loaded:
    """A platform with two complete tenants."""

    def __init__(self, up: Platform, whole: Pulled, other: Pulled) -> None:
        self.up, self.other = up, other
        self.golden, self.consumer, self.events = whole.golden, whole.consumer, whole.events
        self.start = str(self.golden.snapshot_ts)
        self.end = str(self.golden.end_ts)

    def get(self, path: str, query: dict[str, str] | str = "") -> httpx.Response:
        """A raw request below the tenant."""
        text = query if isinstance(query, str) else str(httpx.QueryParams(query))
        return self.consumer.client.get(f"{self.consumer.base}{path}?{text}")


@pytest.fixture(scope="module")
def loaded(up: Platform, whole: Pulled, whole_large: Pulled) -> Loaded:
    return Loaded(up, whole, whole_large)


def is_problem(answer: httpx.Response, status: int) -> None:
    """An RFC 9457 problem of this status."""
    assert answer.status_code == status, f"{answer.request.url} {answer.status_code} {answer.text[:300]}"
    assert answer.headers["content-type"].startswith(PROBLEM), answer.headers
    problem = answer.json()
    assert problem["status"] == status
    assert problem["type"]
    assert problem["title"]
    assert problem["detail"]
    assert "Traceback" not in answer.text


PULLS = ["/changes", "/databases/shop/changes", "/databases/shop/tables/orders/changes"]


@pytest.mark.parametrize("path", PULLS)
def test_each_wrong_parameter_of_a_pull(loaded: Loaded, path: str) -> None:
    start, end = loaded.start, loaded.end
    wrong: list[dict[str, str] | str] = [
        {},
        {"start_ts": start, "cursor": "x"},
        {"start_ts": start, "unknown": "1"},
        {"start_ts": start, "START_TS": "1"},
        {"start_ts": start, "end_ts": str(int(start) - 1)},
        {"start_ts": start, "limit": "0"},
        {"start_ts": start, "limit": "1000001"},
        {"start_ts": start, "wait_ms": "60001"},
        {"start_ts": start, "follow": "maybe"},
        {"start_ts": start, "follow": "true", "limit": "5"},
        {"start_ts": start, "follow": "true", "end_ts": end},
        {"start_ts": start, "format": "xml"},
        {"start_ts": start, "format": ""},
        {"start_ts": str(LATER_TS)},
        {"cursor": ""},
        {"cursor": "garbage"},
        {"cursor": "A" * 5_000},
        {"cursor": base64.urlsafe_b64encode(b"\x00" * 40).decode()},
        f"start_ts={start}&start_ts={start}",
        f"start_ts={start}&limit=5&limit=6",
        f"start_ts={start}&%ff=1",
        f"start_ts={start}&limit=%ff%fe",
        "start_ts",
        "&&&=",
    ]
    wrong += [{"start_ts": text} for text in NOT_NUMBERS]
    wrong += [{"start_ts": start, name: text} for name in ("end_ts", "limit", "wait_ms") for text in NOT_NUMBERS]
    for query in wrong:
        is_problem(loaded.get(path, query), 400)


def test_unknown_names(loaded: Loaded) -> None:
    start = f"start_ts={loaded.start}"
    client, url = loaded.consumer.client, loaded.up.url
    for path in [
        "/databases/nowhere/changes",
        "/databases/shop/tables/nothing/changes",
        "/databases/nowhere/tables/orders/changes",
        "/databases/mysql/changes",
        "/databases/mysql/tables/tidb_ddl_job/changes",
        "/databases/information_schema/changes",
    ]:
        is_problem(loaded.get(path, start), 404)
    is_problem(loaded.get("/databases/nowhere/tables"), 404)
    is_problem(loaded.get("/databases/mysql/tables"), 404)
    for cluster, tenant in [("8", "nobody"), ("9", "whole"), ("nowhere", "nobody")]:
        base = f"{url}/v1/clusters/{cluster}/tenants/{tenant}"
        for path in ("/changes?" + start, "/databases", "/status", "/coverage"):
            is_problem(client.get(base + path), 404)
    for bad in ("%00", "%ff", "..", "a b", "x" * 64, "-a", quote("é")):
        answer = client.get(f"{url}/v1/clusters/8/tenants/{bad}/changes?{start}")
        assert answer.status_code in (400, 404), (bad, answer.status_code)


def test_names_that_need_quoting(loaded: Loaded) -> None:
    for database, table in [("shop", "we`ird 名 table"), ("SHOP", "Orders")]:
        page = loaded.consumer.page(database, table, start_ts=loaded.start, limit=100_000)
        assert page.events
    for bad in ("%ff%fe", "%00", "a" * 3_000, "%2f", "..%2f..", "'; drop table x"):
        answer = loaded.get(f"/databases/shop/tables/{bad}/changes", f"start_ts={loaded.start}")
        assert answer.status_code in (400, 404), (bad, answer.status_code, answer.text[:200])


def test_cursors_of_others(loaded: Loaded) -> None:
    other = loaded.other
    foreign = other.consumer.page(start_ts=other.golden.snapshot_ts, limit=3).cursor
    tenant = loaded.consumer.page(start_ts=loaded.start, limit=3).cursor
    database = loaded.consumer.page("shop", start_ts=loaded.start, limit=3).cursor
    table = loaded.consumer.page("shop", "orders", start_ts=loaded.start, limit=3).cursor
    for path, cursor in [
        (PULLS[0], foreign),
        (PULLS[0], database),
        (PULLS[1], tenant),
        (PULLS[1], table),
        (PULLS[2], database),
        ("/databases/shop/tables/items/changes", table),
        ("/databases/other/changes", database),
    ]:
        is_problem(loaded.get(path, {"cursor": cursor}), 400)
    for at in range(0, len(tenant), max(1, len(tenant) // 40)):
        spoiled = tenant[:at] + ("A" if tenant[at] != "A" else "B") + tenant[at + 1 :]
        is_problem(loaded.get(PULLS[0], {"cursor": spoiled}), 400)
        is_problem(loaded.get(PULLS[0], {"cursor": tenant[:at]}), 400)


def test_a_cursor_outlives_its_name(loaded: Loaded) -> None:
    """404 never for a cursor: at the end of the range nothing bears the name any more."""
    page = loaded.consumer.page("shop", "gone", start_ts=loaded.start, limit=100_000)
    assert page.events
    again = loaded.consumer.page("shop", "gone", cursor=page.cursor)
    assert again.events == []
    last = max(int(e["commit_ts"]) for e in page.events)
    is_problem(loaded.get("/databases/shop/tables/gone/changes", {"start_ts": str(last)}), 404)
    is_problem(
        loaded.get("/databases/shop/tables/gone/changes", {"start_ts": loaded.start, "end_ts": loaded.start}), 404
    )


def test_start_ts_at_the_edges(loaded: Loaded) -> None:
    below = loaded.get("/changes", {"start_ts": str(int(loaded.start) - 1)})
    is_problem(below, 410)
    assert below.json()["earliest_ts"] == loaded.start
    is_problem(loaded.get("/changes", {"start_ts": "0"}), 410)
    assert loaded.consumer.page(start_ts=loaded.start, limit=1).events
    # above resolved_ts, but not above the clock: nothing below it is sent
    now = int(time.time() * 1000) << 18
    page = loaded.consumer.page(start_ts=now)
    assert page.events == []
    assert page.resolved_ts is not None
    resumed = loaded.consumer.page(cursor=page.cursor)
    assert resumed.events == []
    is_problem(loaded.get("/changes", {"start_ts": str(now + (3_600_000 << 18))}), 400)


def test_lists_follow_time(loaded: Loaded) -> None:
    newest = loaded.consumer.get("/databases")
    assert newest["databases"] == ["shop", "test", "types"] or newest["databases"] == ["shop", "types"]
    assert int(newest["ts"]) >= int(loaded.end)
    at_start = loaded.consumer.get("/databases", ts=loaded.start)
    assert at_start["ts"] == loaded.start
    assert "shop" not in at_start["databases"]
    tables = loaded.consumer.get("/databases/shop/tables")
    assert set(tables) == {"ts", "database", "tables"}
    assert {tuple(table) for table in tables["tables"]} == {("name", "table_id", "schema_version", "base_ts", "held")}
    listed = {table["name"] for table in tables["tables"]}
    assert {"orders", "we`ird 名 table", "swap1", "swap2"} <= listed
    assert not {"gone", "busy", "ddl1", "ddl2"} & listed
    renamed = next(e for e in loaded.events if e["type"] == "ddl" and e["query"] == "rename table ddl1 to ddl2")
    for ts, there, not_there in [
        (int(renamed["commit_ts"]) - 1, "ddl1", "ddl2"),
        (int(renamed["commit_ts"]), "ddl2", "ddl1"),
    ]:
        at = {table["name"] for table in loaded.consumer.get("/databases/shop/tables", ts=ts)["tables"]}
        assert there in at
        assert not_there not in at
    for text in NOT_NUMBERS:
        is_problem(loaded.get("/databases", {"ts": text}), 400)
        is_problem(loaded.get("/databases/shop/tables", {"ts": text}), 400)
    is_problem(loaded.get("/databases", {"what": "1"}), 400)
    is_problem(loaded.get("/databases", {"ts": str(int(loaded.start) - 1)}), 410)
    is_problem(loaded.get("/databases", {"ts": str(LATER_TS)}), 400)


def test_status_and_coverage(loaded: Loaded) -> None:
    status = loaded.consumer.status()
    assert set(status) == {"resolved_ts", "flushed_ts", "lag_seconds", "held_by"}
    assert isinstance(status["resolved_ts"], str)
    assert isinstance(status["flushed_ts"], str)
    assert status["lag_seconds"] > 5
    assert set(status["held_by"]) == {"stage", "store_id", "region_id", "object", "reason"}
    is_problem(loaded.get("/status", {"x": "1"}), 400)
    whole = loaded.consumer.get("/coverage")
    assert whole["slices"]
    assert whole["slices"][0]["start_key"] == ""
    assert whole["slices"][-1]["end_key"] == ""
    for left, right in zip(whole["slices"], whole["slices"][1:], strict=False):
        assert left["end_key"] == right["start_key"]
    part = loaded.consumer.get("/coverage", start_key="6d", end_key="6e")
    assert part["slices"]
    for query in [{"start_key": "zz"}, {"start_key": "1"}, {"end_key": "é"}, {"start_key": "6e", "end_key": "6d"}]:
        is_problem(loaded.get("/coverage", query), 400)
    is_problem(loaded.get("/coverage", {"what": "1"}), 400)


def test_registering_tenants(loaded: Loaded) -> None:
    url, client = f"{loaded.up.url}/v1/clusters", loaded.consumer.client
    first = client.post(f"{url}/reg/tenants", json={"tenant_id": "new"})
    assert first.status_code == 201
    assert client.post(f"{url}/reg/tenants", json={"tenant_id": "new"}).status_code in (200, 201)
    listed = client.get(f"{url}/reg/tenants")
    assert "new" in listed.text
    bad_bodies = [{}, {"tenant_id": ""}, {"tenant_id": "a/b"}, {"tenant_id": 5}, {"tenant_id": "x", "y": 1}, [], "x"]
    for body in bad_bodies:
        is_problem(client.post(f"{url}/reg/tenants", json=body), 400)
    is_problem(client.post(f"{url}/reg/tenants", content=b"{"), 400)
    is_problem(client.post(f"{url}/-bad/tenants", json={"tenant_id": "x"}), 400)


def test_notifications_are_strict(loaded: Loaded) -> None:
    url, client = f"{loaded.up.url}/v1/notifications", loaded.consumer.client
    good = {"cluster_id": "8", "tenant_id": "whole", "store_id": "1", "ts": loaded.end}
    assert client.post(url, json=good).status_code == 202
    assert client.post(url, json={**good, "tenant_id": "nobody"}).status_code in (202, 404)
    for name in good:
        is_problem(client.post(url, json={key: value for key, value in good.items() if key != name}), 400)
        for value in (5, None, "", "a/b", "x" * 200, -1, [], True):
            is_problem(client.post(url, json={**good, name: value}), 400)
    for body in (b"", b"{", b"[]", b"\xff"):
        is_problem(client.post(url, content=body), 400)


def test_everything_else_is_404_or_405(loaded: Loaded) -> None:
    client, url = loaded.consumer.client, loaded.up.url
    is_problem(client.get(f"{url}/nothing"), 404)
    is_problem(client.get(f"{url}/v1"), 404)
    is_problem(client.delete(f"{loaded.consumer.base}/changes"), 405)
    is_problem(client.post(f"{loaded.consumer.base}/changes"), 405)
    document = client.get(f"{url}/openapi.json").json()
    operations = {method["operationId"] for path in document["paths"].values() for method in path.values()}
    assert {"PullTable", "PullDB", "PullTenant", "ListDBs", "ListTables"} <= operations
    assert client.get(f"{url}/healthz").status_code == 200
    assert client.get(f"{url}/readyz").status_code == 200
    assert "tistream" in client.get(f"{url}/metrics").text


@given(st.dictionaries(st.sampled_from(["start_ts", "cursor", "end_ts", "limit", "format", "ts", "x"]), st.text()))
@settings(max_examples=examples(150), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_no_query_is_a_500(loaded: Loaded, query: dict[str, str]) -> None:
    try:
        encoded = str(httpx.QueryParams(query))
    except UnicodeEncodeError:
        return
    for path in ("/changes", "/databases"):
        answer = loaded.get(path, encoded)
        assert answer.status_code in (200, 400, 404, 410), (query, answer.status_code, answer.text[:200])


def test_the_other_tenant_is_untouched(loaded: Loaded) -> None:
    large, consumer = loaded.other.golden, loaded.other.consumer
    events = consumer.pull(until_ts=large.end_ts, start_ts=large.snapshot_ts, limit=100_000)
    assert names(events)[0] == {"wide"}
    with pytest.raises(Refused) as refused:
        consumer.page("shop", start_ts=large.snapshot_ts)
    assert refused.value.status == 404
