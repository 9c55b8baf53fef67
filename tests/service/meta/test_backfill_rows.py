"""Backfills in the meta server: started, listed, ended; and what is refused."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from support.backup_files import Backup
from support.metas import LEASE_MS
from support.waiting import eventually
from tistream.clock import SystemClock
from tistream.storage.backends.memory import MemoryObjectStore
from tistream_meta.app import build_app
from tistream_meta.settings import MetaSettings

TENANT = "/v1/clusters/7/tenants/acme"
BACKFILLS = TENANT + "/backfills"
FULL = "s3://backups/full"
PUSH: dict[str, Any] = {"source": {"kind": "push"}, "tables": ["shop.*"]}


def opened(url: str) -> MemoryObjectStore:
    """The object store of a full backup of cluster 7 as of 42, or of none."""
    bucket = MemoryObjectStore()
    if url == FULL:
        bucket.put("backupmeta", Backup(42, version=0).finish()["backupmeta"])
    return bucket


@pytest.fixture
def meta(tmp_path: Path) -> Iterator[TestClient]:
    """A meta server with one tenant."""
    settings = MetaSettings(database_url=f"sqlite:///{tmp_path}/meta.db", lease_ms=LEASE_MS)
    app = build_app(settings, MemoryObjectStore(), SystemClock(), open_log=opened)
    with TestClient(app, raise_server_exceptions=False) as client:
        eventually(lambda: client.get("/readyz").status_code == 200)
        assert client.post("/v1/clusters/7/tenants", json={"tenant_id": "acme"}).status_code == 201
        yield client


def test_a_backfill_is_started_once_and_listed(meta: TestClient) -> None:
    answer = meta.post(BACKFILLS, json=PUSH)
    assert (answer.status_code, answer.json()) == (202, {"backfill_id": "b1"})
    assert meta.post(BACKFILLS, json=PUSH).json() == {"backfill_id": "b1"}, "the same order again is no other backfill"
    other = {"source": {"kind": "br-full", "url": FULL}, "tables": ["shop.orders"]}
    assert meta.post(BACKFILLS, json=other).json() == {"backfill_id": "b2"}
    found = meta.get(BACKFILLS).json()["backfills"]
    assert [(one["backfill_id"], one["state"], one["tables"]) for one in found] == [
        ("b2", "running", ["shop.orders"]),
        ("b1", "running", ["shop.*"]),
    ]
    running = meta.get("/upcall/v1/backfills").json()["backfills"]
    assert [one["backfill_id"] for one in running] == ["b1", "b2"]
    assert meta.get(f"{BACKFILLS}/b2").json()["source"]["url"] == FULL


def test_a_backfill_ends_once(meta: TestClient) -> None:
    meta.post(BACKFILLS, json=PUSH)
    end = f"/upcall{BACKFILLS}/b1/end"
    failed = {"state": "failed", "reason": "no object backupmeta"}
    for _ in range(2):
        answer = meta.put(end, json=failed)
        assert (answer.status_code, answer.json()["reason"]) == (200, "no object backupmeta")
    assert meta.put(end, json={"state": "finished"}).status_code == 409
    assert meta.delete(f"{BACKFILLS}/b1").status_code == 409
    assert meta.get("/upcall/v1/backfills").json()["backfills"] == []
    assert meta.post(BACKFILLS, json=PUSH).json() == {"backfill_id": "b2"}
    assert meta.delete(f"{BACKFILLS}/b2").json()["state"] == "cancelled"
    assert meta.get(f"{BACKFILLS}/b2").json()["ended_ms"] is not None


def test_the_platform_cancels_a_backfill_with_a_reason(meta: TestClient) -> None:
    meta.post(BACKFILLS, json=PUSH)
    late = {"state": "cancelled", "reason": "no plan was pushed"}
    assert meta.put(f"/upcall{BACKFILLS}/b1/end", json=late).status_code == 200
    found = meta.get(f"{BACKFILLS}/b1").json()
    assert (found["state"], found["reason"]) == ("cancelled", "no plan was pushed")
    assert meta.get("/upcall/v1/backfills").json()["backfills"] == []
    meta.post(BACKFILLS, json=PUSH)
    ended = meta.get("/upcall/v1/ended-backfills").json()["backfills"]
    assert [one["backfill_id"] for one in ended] == ["b1"], "b2 runs"


def test_of_a_paused_tenant_none_runs(meta: TestClient) -> None:
    meta.post(BACKFILLS, json=PUSH)
    meta.put(f"{TENANT}/pause", json={"paused": True})
    assert meta.get("/upcall/v1/backfills").json()["backfills"] == []
    meta.put(f"{TENANT}/pause", json={"paused": False})
    assert len(meta.get("/upcall/v1/backfills").json()["backfills"]) == 1


def test_the_number_of_running_backfills_is_bounded(meta: TestClient) -> None:
    for number in range(16):
        assert meta.post(BACKFILLS, json=PUSH | {"tables": [f"shop.t{number}"]}).status_code == 202
    answer = meta.post(BACKFILLS, json=PUSH | {"tables": ["shop.t16"]})
    assert answer.status_code == 409
    assert "has 16 backfills that run" in answer.json()["detail"]


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ({"source": {"kind": "br-full"}, "tables": ["a.b"]}, "a source of kind br-full needs url"),
        ({"source": {"kind": "push", "url": "/x"}, "tables": ["a.b"]}, "a source of kind push has no url"),
        ({"source": {"kind": "sql"}, "tables": ["a.b"]}, "a source of kind sql needs dsn_file"),
        ({"source": {"kind": "br-full", "url": "ftp://x"}, "tables": ["a.b"]}, "is neither a path nor"),
        (
            {"source": {"kind": "br-full", "url": "s3://user:secret@b"}, "tables": ["a.b"]},
            "must not contain credentials",
        ),
        ({"source": {"kind": "push"}, "tables": ["orders"]}, "is not of the form database.table"),
        ({"source": {"kind": "push"}, "tables": []}, "tables"),
        ({"source": {"kind": "dump"}, "tables": ["a.b"]}, "kind"),
        ({"source": {"kind": "push"}, "tables": ["a.b"], "more": 1}, "more"),
    ],
)
def test_a_malformed_order_is_refused(meta: TestClient, body: dict[str, Any], reason: str) -> None:
    answer = meta.post(BACKFILLS, json=body)
    assert answer.status_code == 400
    assert reason in answer.text
    assert "secret" not in answer.text


def test_a_source_that_cannot_be_read_is_refused(meta: TestClient) -> None:
    def detail(source: dict[str, Any]) -> str:
        answer = meta.post(BACKFILLS, json={"source": source, "tables": ["*.*"]})
        assert (answer.status_code, answer.json()["type"]) == (422, "tistream:source-refused")
        assert meta.get(BACKFILLS).json()["backfills"] == []
        return str(answer.json()["detail"])

    assert "no object `backupmeta` below the URL" in detail({"kind": "br-full", "url": "s3://backups/none"})


def test_names_that_are_not_there(meta: TestClient) -> None:
    assert meta.post("/v1/clusters/7/tenants/nobody/backfills", json=PUSH).status_code == 404
    assert meta.get(f"{BACKFILLS}/b1").status_code == 404
    assert meta.delete(f"{BACKFILLS}/b1").status_code == 404
