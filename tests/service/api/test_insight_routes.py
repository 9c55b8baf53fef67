"""What the console asks: over HTTP, on real services."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from typing import Any

import pytest

from support import golden
from support.api_world import Platform
from support.pull import PROBLEM, Consumer
from support.waiting import eventually
from tistream_api.routes.console_pages import read_pages
from tistream_api.status.stage_lags import STAGES

EVERYTHING = golden.load("everything")


def get(consumer: Consumer, path: str) -> Any:
    answer = consumer.client.get(consumer.base + path)
    assert answer.status_code == 200, answer.text
    return answer.json()


def test_every_tenant_is_in_the_overview_with_what_status_says(up: Platform, loaded: Consumer) -> None:
    up.world.client.create_tenant("6", "never-pushed")
    found: dict[str, Any] = {}

    def told_why() -> object:
        told = loaded.client.get(f"{up.api.url}/v1/tenants").json()["tenants"]
        found.update({one["tenant_id"]: one for one in told})
        own = found.get(EVERYTHING.tenant.tenant_id, {})
        return own.get("resolved_ts") and "schema_snap" in (found.get("never-pushed", {}).get("waits") or "")

    eventually(told_why)
    own = found[EVERYTHING.tenant.tenant_id]  # recorded long ago
    assert own["resolved_ts"] == loaded.status()["resolved_ts"]
    assert (own["state"], own["tasks"], own["stores"]) == (
        "late",
        4,
        len(EVERYTHING.stores),
    )
    assert found["never-pushed"]["state"] == "waiting"


def test_lag_is_noted_by_stage_and_grows_from_stage_to_stage(loaded: Consumer) -> None:
    seen: list[dict[str, Any]] = []

    def newest_is_whole() -> bool:
        seen.append(get(loaded, "/lag?minutes=1"))
        stages = seen[-1]["stages"].values()
        return len(seen[-1]["at_ms"]) >= 2 and None not in [numbers[-1] for numbers in stages]

    eventually(newest_is_whole)
    told = seen[-1]
    assert tuple(told["stages"]) == STAGES
    newest = [told["stages"][stage][-1] for stage in STAGES]
    assert newest[-1] >= newest[0] > 0
    assert [int(at) for at in told["at_ms"]] == sorted(int(at) for at in told["at_ms"])


def test_the_history_of_ddl_is_what_a_pull_says_newest_first_and_page_by_page(loaded: Consumer) -> None:
    events = loaded.pull(until_ts=EVERYTHING.end_ts, start_ts=EVERYTHING.snapshot_ts, limit=100_000)
    pulled = [event for event in events if event["type"] == "ddl"]
    assert len(pulled) > 20
    whole = get(loaded, "/ddl?limit=1000")
    assert whole["events"] == pulled[::-1]
    assert whole["more"] is False
    paged: list[Any] = []
    page = get(loaded, "/ddl?limit=7")
    while page["more"]:
        paged += page["events"]
        page = get(loaded, f"/ddl?limit=7&before_ts={paged[-1]['commit_ts']}")
    assert paged + page["events"] == whole["events"]


def test_columns_of_a_table_are_those_of_its_events(loaded: Consumer) -> None:
    events = loaded.pull(until_ts=EVERYTHING.end_ts, start_ts=EVERYTHING.snapshot_ts, limit=100_000)
    newest = {(event["database"], event["table"]): event for event in events if event["type"] == "row" and event["row"]}
    compared = 0
    for database in get(loaded, "/databases")["databases"]:
        for table in get(loaded, f"/databases/{database}/tables")["tables"]:
            event = newest.get((database, table["name"]))
            schema = get(loaded, f"/databases/{database.upper()}/tables/{table['name']}/schema")
            assert (schema["database"], schema["table"]) == (database, table["name"])
            if event is None:
                continue
            at = get(loaded, f"/databases/{database}/tables/{table['name']}/schema?ts={int(event['commit_ts']) - 1}")
            assert [column["name"] for column in at["columns"]] == list(event["row"])
            keys = {column["name"] for column in at["columns"] if column["key"]}
            assert keys == set(event["key"]) - {"_tidb_rowid"}
            compared += 1
    assert compared > 3


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/lag?minutes=0", 400),
        ("/lag?minutes=61", 400),
        ("/lag?hours=1", 400),
        ("/ddl?limit=1001", 400),
        ("/ddl?before_ts=x", 400),
        ("/databases/shop/tables/nothing/schema", 404),
        ("/databases/nothing/tables/orders/schema", 404),
    ],
)
def test_what_is_asked_wrongly_is_refused(loaded: Consumer, path: str, status: int) -> None:
    answer = loaded.client.get(loaded.base + path)
    assert (answer.status_code, answer.headers["content-type"]) == (status, PROBLEM)


# ---- the console's files


class _Outside(HTMLParser):
    """What a page loads."""

    def __init__(self) -> None:
        super().__init__()
        self.named: list[str] = []
        self.inline = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        self.named += [value for name, value in attrs if name in ("src", "href") and value]
        self.inline += "style" in given or any(name.startswith("on") for name in given)
        self.inline += tag == "style" or (tag == "script" and "src" not in given)


def test_the_console_is_served_with_a_policy_that_lets_nothing_else_in(up: Platform, loaded: Consumer) -> None:
    answer = loaded.client.get(f"{up.api.url}/console", follow_redirects=True)
    assert str(answer.url).endswith("/console/")
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    policy = answer.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert "http" not in policy
    assert answer.headers["x-content-type-options"] == "nosniff"
    outside = _Outside()
    outside.feed(answer.text)
    assert outside.inline == 0
    for name in outside.named:
        if not name.startswith("#"):
            assert loaded.client.get(f"{up.api.url}/console/{name}").status_code == 200
    again = loaded.client.get(f"{up.api.url}/console/", headers={"If-None-Match": answer.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")


@pytest.mark.parametrize("name", ["nothing.js", "../app.py", "..%2fapp.py", "%2e%2e/app.py", "a%00b", "/etc/passwd"])
def test_the_console_has_its_files_alone(up: Platform, loaded: Consumer, name: str) -> None:
    answer = loaded.client.get(f"{up.api.url}/console/{name}")
    assert answer.status_code == 404
    assert "import" not in answer.text


def test_no_file_of_the_console_makes_markup_of_data_or_names_another_host() -> None:
    pages = read_pages()
    assert {"index.html", "app.js", "console.css"} <= set(pages)
    for name, page in pages.items():
        text = page.body.decode()
        forbidden = r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(|new Function|@import|url\("
        assert re.findall(forbidden, text) == [], name
        assert set(re.findall(r"(?:https?:)?//[a-z][\w.-]+\.[a-z]+", text)) <= {"http://www.w3.org"}, name
