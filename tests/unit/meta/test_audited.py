"""The audit log: what was changed, by whom, from where, what from, what to, and for which request."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fastapi import APIRouter, FastAPI

from support.audit_world import ACME, CHANGES, FEEDS, HASH, LOOK_AT_A_BUCKET, RESTORES, TERRITORIES, World, matches
from support.in_process import AppClient
from support.meta_database import database_url
from tistream import acting, cause
from tistream.clock import ManualClock
from tistream.errors import Fenced
from tistream.model.ids import TenantKey
from tistream.storage.backends.memory import MemoryObjectStore
from tistream.wire.tokens import hash_of
from tistream_meta.app import build_app
from tistream_meta.database.repository import Repository
from tistream_meta.decide.model import Store
from tistream_meta.owner.audit_keeping import AuditKeeping
from tistream_meta.routes.audit_routes import NotAudited, changing, refuse_unaudited
from tistream_meta.settings import MetaSettings


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    one = World(tmp_path)
    yield one
    one.repository.close()


def test_each_change_that_can_be_asked_for_is_in_the_log_once_with_who_and_where_and_why(world: World) -> None:
    """A route that changes something and is not here is not audited until somebody says what the log has of it."""
    elsewhere = LOOK_AT_A_BUCKET | RESTORES | FEEDS | TERRITORIES
    assert {route.operation_id for route in changing(world.app.routes)} == CHANGES.keys() | elsewhere
    world.ready_to_change()
    actor = acting.to_header(acting.Actor("token 00000000000000ff", "192.0.2.7"))
    for action, (method, path, body, expected) in CHANGES.items():
        before = world.entries()[-1]["seq"]
        for _ in range(1 if action == "DeleteTenant" else 2):  # the same again is no change, but for a later time
            world.ask(method, path, body, **{acting.HEADER: actor, cause.HEADER: f"why-{action}"})
        found = world.entries(after=before)
        assert matches([[one["subject"], one["was"], one["became"]] for one in found], expected), (action, found)
        for one in found:
            assert (one["action"], one["actor"], one["address"]) == (action, "token 00000000000000ff", "192.0.2.7")
            assert one["cause"] == f"why-{action}"
    assert HASH not in json.dumps(world.entries(limit=1000))


def test_a_token_for_several_tenants_is_among_the_entries_of_each(world: World) -> None:
    world.tenant("acme")
    grants = [{"actions": ["read"], "cluster": "7", "tenant": name} for name in ("beta", "acme", "beta")]
    token = {**CHANGES["CreateToken"][2], "grants": grants}
    world.ask("POST", "/v1/tokens", token)
    world.ask("DELETE", f"/v1/tokens/{token['token_id']}")
    for name in ("acme", "beta"):
        page = world.ask("GET", f"/v1/audit?cluster_id=7&tenant_id={name}")
        found = [(one["action"], one["subject"]) for one in page["entries"] if one["action"].endswith("Token")]
        subject = f"token {token['token_id']}"
        assert found == [("CreateToken", subject), ("RevokeToken", subject)]


def test_who_is_not_named_is_known_by_the_address_that_asks(world: World) -> None:
    world.ask("POST", "/v1/clusters/7/tenants", {"tenant_id": "acme"}, **{acting.HEADER: "nonsense"})
    [entry] = world.entries()
    assert (entry["actor"], entry["address"], entry["action"]) == ("a service", "10.9.8.7", "CreateTenant")


def test_what_is_refused_or_fails_leaves_no_entry(world: World) -> None:
    world.tenant("acme")
    before = world.entries()[-1]["seq"]
    wrong: list[tuple[str, str, Any]] = [
        ("PUT", f"{ACME}/deletion", {"confirm": "acne", "grace_ms": "0"}),
        ("PUT", "/v1/clusters/7/tenants/nobody/retention", {"retention_ms": None}),
        ("POST", "/v1/nodes/nobody/drain", {"draining": True}),
        ("POST", "/v1/clusters/7/tenants", {"tenant_id": "acme", "retention_ms": "604800000"}),
    ]
    for method, path, body in wrong:
        assert world.client.request(method, path, json=body).status_code >= 400
    assert world.entries(after=before) == []


def test_a_change_and_its_entry_are_there_together_or_not_at_all(world: World) -> None:
    """Another has become the owner: neither is written."""
    world.tenant("acme")
    before = world.entries()[-1]["seq"]
    other = Repository.open(str(world.repository._engine.url), "meta-2")
    world.repository.renew(-1_000_000)
    other.take_ownership(600_000, "http://meta-2")
    with pytest.raises(Fenced):
        world.repository.ends.pause(TenantKey("7", "acme"), paused=True)
    assert other.audit.page(before, 100).entries == []
    assert not other.tenant(TenantKey("7", "acme")).paused
    other.ends.pause(TenantKey("7", "acme"), paused=True)
    assert [one.seq for one in other.audit.page(before, 100).entries] == [before + 1]
    other.close()


def test_what_the_platform_does_later_of_what_was_asked_for_is_in_the_log(world: World) -> None:
    world.tenant("acme")
    key, ends = TenantKey("7", "acme"), world.repository.ends
    world.ask("POST", "/v1/tokens", CHANGES["CreateToken"][2])
    ends.delete_in(key, 0)
    before = world.entries()[-1]["seq"]
    assert ends.begin_erasing(key) is not None
    ends.forget(key)
    begun, closed, gone = world.entries(after=before)
    assert (closed["action"], closed["subject"], closed["became"]) == ("ForgetTenant", "token 00000000000000aa", None)
    assert (begun["action"], begun["actor"], begun["was"]) == ("BeginErasing", "the platform", {"erasing": False})
    assert (gone["action"], gone["subject"], gone["became"]) == ("ForgetTenant", "tenant 7/acme", None)
    assert gone["was"]["delete_at_ms"] is not None


def test_a_store_that_is_retired_is_in_the_log_when_it_is_asked_for_and_when_it_is_gone(world: World) -> None:
    world.tenant("acme")
    key = TenantKey("7", "acme")
    world.server.write(lambda: world.repository.assign_stores([Store(key, 3)]))
    before = world.entries()[-1]["seq"]
    actor = acting.to_header(acting.Actor("token 00000000000000ff", "192.0.2.7"))
    for _ in range(2):
        world.ask("PUT", f"/upcall{ACME}/stores/3/retirement", {"taken_ts": "0"}, **{acting.HEADER: actor})
    world.repository.ends.forget_store(key, 3)
    asked, gone = world.entries(after=before)
    assert (asked["action"], asked["actor"], asked["subject"]) == (
        "RetireStore",
        "token 00000000000000ff",
        "store 3 of tenant 7/acme",
    )
    assert (asked["was"], asked["became"]) == (
        {"retired": False, "through_ts": None},
        {"retired": True, "through_ts": "0"},
    )
    assert (gone["action"], gone["actor"], gone["became"]) == ("ForgetStore", "the platform", None)


SIGNED = {
    "database": "shop",
    "table": "orders",
    "start_ts": "7",
    "end_ts": "9",
    "row_groups": 2,
    "rows": 100,
    "bytes": 4096,
    "seconds": 300,
}


def test_what_signed_urls_give_is_in_the_log_of_its_tenant(world: World) -> None:
    world.tenant("acme")
    before = world.entries()[-1]["seq"]
    actor = acting.to_header(acting.Actor("token 00000000000000ff", "192.0.2.7"))
    world.ask("POST", f"/upcall{ACME}/signed-changes", SIGNED, **{acting.HEADER: actor, cause.HEADER: "why"})
    [entry] = world.entries(after=before, cluster_id="7", tenant_id="acme")
    assert (entry["action"], entry["subject"]) == ("SignedChanges", "tenant 7/acme")
    assert (entry["actor"], entry["address"], entry["cause"]) == ("token 00000000000000ff", "192.0.2.7", "why")
    assert (entry["was"], entry["became"]) == ({"signed": None}, {"signed": SIGNED})
    for wrong in ({**SIGNED, "url": "http://bucket/?X-Amz-Signature=1"}, {**SIGNED, "rows": "100"}, {}):
        assert world.client.post(f"/upcall{ACME}/signed-changes", json=wrong).status_code == 400
    assert len(world.entries(after=before)) == 1


def test_the_first_token_is_in_the_log_and_the_file_s_text_is_not(tmp_path: Path) -> None:
    secret = "F" * 43
    path = tmp_path / "first.token"
    path.write_text(f"tst_00000000000000aa_{secret}")
    settings = MetaSettings(database_url=database_url(tmp_path), first_token_file=path, lease_ms=600_000)
    app = build_app(settings, MemoryObjectStore(), ManualClock(4_000_000_000_000))
    app.state.server.hold_lease()
    app.state.tokens.look()
    text = AppClient(app).get("/v1/audit").text
    [entry] = json.loads(text)["entries"]
    assert (entry["action"], entry["subject"], entry["actor"]) == (
        "KeepFirstToken",
        "token 00000000000000aa",
        "the platform",
    )
    assert secret not in text
    assert hash_of(secret) not in text


def test_pages_go_on_where_the_last_one_ended_and_hold_one_tenant_if_asked(world: World) -> None:
    for number in range(7):
        world.tenant(f"t{number % 2}-{number}")
    first = world.entries(after=0, limit=3)
    second = world.entries(after=first[-1]["seq"], limit=3)
    assert [one["seq"] for one in first + second] == [1, 2, 3, 4, 5, 6]
    assert [one["seq"] for one in world.entries(limit=2)] == [6, 7], "the newest, where nothing is said"
    assert [one["subject"] for one in world.entries(cluster_id="7", tenant_id="t1-3")] == ["tenant 7/t1-3"]
    page = world.client.get("/v1/audit", params={"after": 7}).json()
    assert page == {"entries": [], "newest_seq": 7}
    for asked in ({"limit": 0}, {"limit": 1001}, {"after": -1}, {"cluster_id": "7"}):
        assert world.client.get("/v1/audit", params=asked).status_code == 400, asked


def test_old_entries_go_by_the_database_s_clock_and_numbers_do_not_come_again(world: World) -> None:
    world.tenant("acme")
    owner = True
    AuditKeeping(world.repository.audit, lambda: owner, keep_ms=86_400_000).step()
    assert len(world.entries()) == 1
    owner = False
    AuditKeeping(world.repository.audit, lambda: owner, keep_ms=-60_000).step()
    assert len(world.entries()) == 1, "who is not the owner deletes nothing"
    owner = True
    AuditKeeping(world.repository.audit, lambda: owner, keep_ms=-60_000).step()
    assert world.entries() == []
    world.tenant("other")
    assert [one["seq"] for one in world.entries()] == [2]


def test_a_route_that_changes_something_and_is_not_audited_is_refused() -> None:
    app, router = FastAPI(), APIRouter()

    @router.put("/v1/clusters/{cluster_id}/colour")
    def set_colour(cluster_id: str) -> None:
        """A route."""

    app.include_router(router)
    with pytest.raises(NotAudited, match=r"/v1/clusters/\{cluster_id\}/colour changes something"):
        refuse_unaudited(app.routes)


@pytest.mark.parametrize(
    "text",
    [
        None,
        "",
        "[]",
        "{}",
        '{"name": 1, "address": null}',
        '{"name": "", "address": null}',
        json.dumps({"name": "a" * 201, "address": None}),
        json.dumps({"name": "a", "address": "b" * 65}),
        json.dumps({"name": "a", "address": 4}),
    ],
)
def test_a_header_that_names_nobody_is_none(text: str | None) -> None:
    assert acting.from_header(text) is None


@pytest.mark.parametrize("name", ["subject 𝄞\r\nX: y", "token 00000000000000ff", "a" * 200])
def test_a_name_comes_through_a_header_as_it_was(name: str) -> None:
    text = acting.to_header(acting.Actor(name, "::1"))
    assert text.isascii()
    assert text.isprintable()
    assert acting.from_header(text) == acting.Actor(name, "::1")
