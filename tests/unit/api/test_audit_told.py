"""What is changed through the API is in the audit log, with who asked for it and from where; commands show it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path

import httpx
import pytest
from typer.testing import CliRunner

from support.audit_world import CHANGES, FEEDS, LOOK_AT_A_BUCKET, RESTORES, TERRITORIES, Through, World, matches
from support.in_process import AppClient
from tistream import acting, cause
from tistream.clock import ManualClock
from tistream.storage.backends.memory import MemoryObjectStore
from tistream.wire.clients.client import DEADLINE_S, HttpClient
from tistream.wire.clients.meta_client import MetaClient
from tistream.wire.clients.token_client import TokenClient
from tistream.wire.tokens import hash_of, token_text
from tistream_api import app as api_app
from tistream_api.admission.gate import every_route
from tistream_api.app import build_app
from tistream_api.auth.callers import Callers
from tistream_api.settings import ApiSettings
from tistream_cli.app import app as command
from tistream_client.cli.wire import Server
from tistream_client.core.steps import Answer

CHANGING = {"POST", "PUT", "PATCH", "DELETE"}
AUTH_ON = {"CreateToken"}  # a server that asks nobody makes none: tests/service/api/test_token_rules.py
# VerifyChangefeed: of the platform. Its repair writes events of the feed into a topic that the caller names.
CHANGES_NOTHING = {"Notify", "UndoTransactions", "VerifyChangefeed"}
ASKS_SORTERS = {"RetireStore"}  # first; what the log has of it: tests/unit/meta/test_audited.py


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    one = World(tmp_path)
    yield one
    one.repository.close()


@pytest.fixture
def api(world: World) -> AppClient:
    def new_http(*, deadline_s: float = DEADLINE_S) -> HttpClient:
        return HttpClient(deadline_s=deadline_s, transport=Through(world.client))

    app = build_app(ApiSettings(), MemoryObjectStore(), ManualClock(4_000_000_000_000), new_http)
    return AppClient(app, "127.8.7.6", base_url="http://127.0.0.1:8000")


def test_each_route_of_the_api_that_changes_something_leaves_an_entry(world: World, api: AppClient) -> None:
    """A route that is new is in none of these sets: it says here what the log has of it."""
    routes = [route for route in every_route(api.app.routes) if CHANGING & (getattr(route, "methods", None) or set())]
    assert {
        route.operation_id for route in routes
    } == CHANGES.keys() | CHANGES_NOTHING | ASKS_SORTERS | LOOK_AT_A_BUCKET | RESTORES | FEEDS | TERRITORIES
    world.ready_to_change()
    for action, (method, path, body, expected) in CHANGES.items():
        before = world.entries()[-1]["seq"]
        if action in AUTH_ON:
            assert api.request(method, path, json=body).status_code == 409
            world.ask(method, path, body)
            continue
        forged = acting.to_header(acting.Actor("token 00000000000000ff", "192.0.2.7"))
        headers = {acting.HEADER: forged, cause.HEADER: f"why-{action}", "x-forwarded-for": "192.0.2.8"}
        answer = api.request(method, path, json=body, headers=headers)
        assert answer.status_code < 300, answer.text
        found = world.entries(after=before)
        assert matches([[one["subject"], one["was"], one["became"]] for one in found], expected), (action, found)
        for one in found:
            assert (one["action"], one["actor"], one["address"]) == (action, "everybody", "127.8.7.6")
            assert one["cause"] == f"why-{action}"


def test_the_log_names_the_token_that_asked_and_is_told_to_who_operates_the_platform_alone(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    http, clock = HttpClient(transport=Through(world.client)), ManualClock(4_000_000_000_000)
    secret = "s" * 43
    everything, cluster, tenant, reader = (f"{number:016x}" for number in range(1, 5))
    granted: dict[str, dict[str, object]] = {
        everything: {"actions": ["operate"], "cluster": "*"},
        cluster: {"actions": ["operate"], "cluster": "7"},
        tenant: {"actions": ["operate"], "cluster": "7", "tenant": "acme"},
        reader: {"actions": ["read", "push"], "cluster": "*"},
    }
    for token_id, grant in granted.items():
        world.ask("POST", "/v1/tokens", {"token_id": token_id, "secret_hash": hash_of(secret), "grants": [grant]})
    world.app.state.tokens.look()
    callers = Callers(TokenClient(MetaClient(http, "http://meta")), clock, None)
    callers.follow()
    monkeypatch.setattr(api_app, "_callers", lambda *_: callers)
    app = build_app(ApiSettings(auth="on"), MemoryObjectStore(), clock, lambda **_: http)
    api = AppClient(app, "192.0.2.9")

    def ask(token_id: str, method: str, path: str, body: object = None) -> httpx.Response:
        bearer = {"authorization": f"Bearer {token_text(token_id, secret)}"}
        return api.request(method, path, json=body, headers=bearer)

    answer = ask(cluster, "POST", "/v1/clusters/7/tenants", {"tenant_id": "acme"})
    assert answer.status_code == 201
    told = ask(everything, "GET", "/v1/audit")
    entry = told.json()["entries"][-1]
    assert (entry["action"], entry["actor"], entry["address"]) == ("CreateTenant", f"token {cluster}", "192.0.2.9")
    assert entry["cause"] == answer.headers[cause.HEADER]
    assert secret not in told.text
    assert hash_of(secret) not in told.text
    for narrow in (cluster, tenant, reader):
        for query in ("", "?cluster_id=7&tenant_id=acme"):
            assert ask(narrow, "GET", f"/v1/audit{query}").status_code == 403, (narrow, query)


def test_what_is_asked_through_the_api_is_what_the_meta_server_tells(world: World, api: AppClient) -> None:
    for number in range(5):
        world.tenant(f"t{number}")
    assert [one["seq"] for one in api.get("/v1/audit?after=1&limit=2").json()["entries"]] == [2, 3]
    assert [one["seq"] for one in api.get("/v1/audit?cluster_id=7&tenant_id=t3").json()["entries"]] == [4]
    wrong = ["limit=0", "limit=1001", "after=x", "cluster_id=7", "tenant_id=..&cluster_id=7", "since=3"]
    assert {api.get(f"/v1/audit?{query}").status_code for query in wrong} == {400}


def test_the_command_prints_a_line_for_each_entry(
    world: World, api: AppClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.ready_to_change()
    evil = acting.to_header(acting.Actor("subject \x1b[2J\nroot", "192.0.2.7"))
    method, path, body, _ = CHANGES["SetRetention"]
    world.ask(method, path, body, **{acting.HEADER: evil, cause.HEADER: "why"})

    def ask(_: Server, method: str, path: str, headers: Mapping[str, str], body: object) -> Answer:
        answer = api.request(method, path, headers=dict(headers), json=body)
        return Answer(answer.status_code, dict(answer.headers), answer.content)

    monkeypatch.setattr(Server, "ask", ask)
    head, *rows = CliRunner().invoke(command, ["audit", "--url", "http://127.0.0.1:8000"]).output.splitlines()
    assert head.split() == ["seq", "time", "action", "subject", "by", "from", "change", "cause"]
    assert len(rows) == len(world.entries())
    assert "\x1b" not in rows[-1]
    assert "SetRetention  tenant 7/acme  subject \\u001b[2J\\nroot  192.0.2.7" in rows[-1]
    assert rows[-1].endswith("retention_ms: null -> 604800000  why")
    lines = CliRunner().invoke(command, ["audit", "--url", "http://127.0.0.1:8000", "--after", "0", "--json"]).output
    assert [json.loads(line) for line in lines.splitlines()] == world.entries(after=0, limit=1000)
    alone = CliRunner().invoke(command, ["audit", "--cluster", "7"])
    assert "--cluster and --tenant are needed together" in str(alone.exception)
