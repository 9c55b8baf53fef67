"""One tenant's hostile schema_snap keeps no other tenant waiting."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import orjson
import pytest
from fastapi.testclient import TestClient

from support.metas import LEASE_MS
from support.waiting import eventually
from tistream.clock import SystemClock
from tistream.model.ids import TenantKey
from tistream.storage import layout
from tistream.storage.backends.directory import DirectoryObjectStore
from tistream_meta.app import build_app
from tistream_meta.settings import MetaSettings

BAD, GOOD = TenantKey("7", "bad"), TenantKey("7", "good")


def snap(*tables: object) -> bytes:
    databases = [{"db_info": {"id": 1}, "tables": list(tables)}] if tables else []
    return orjson.dumps({"version": 1, "snapshot_ts": 42, "databases": databases})


def body(data: bytes) -> Callable[[Path], object]:
    return lambda path: path.write_bytes(data)


@pytest.mark.parametrize(
    "hostile",
    [
        pytest.param(body(snap({"id": 5, "partition": [1]})), id="partition-is-a-list"),
        pytest.param(body(snap({"id": 5, "partition": "x"})), id="partition-is-text"),
        pytest.param(body(snap({"id": 5, "partition": {"definitions": 3}})), id="definitions-is-a-number"),
        pytest.param(body(orjson.dumps({"version": "\u6f22"})), id="other-characters"),
        pytest.param(lambda path: path.symlink_to("/etc/hostname"), id="link-out-of-the-store"),
        pytest.param(lambda path: path.symlink_to(path), id="link-to-itself"),
        pytest.param(os.mkdir, id="directory"),
        pytest.param(os.mkfifo, id="fifo"),
    ],
)
def test_the_others_start_and_the_bad_one_is_told(tmp_path, hostile):
    objects = DirectoryObjectStore(tmp_path / "objects")
    path = tmp_path / "objects" / layout.schema_snap(BAD)
    path.parent.mkdir(parents=True)
    hostile(path)
    objects.put(layout.schema_snap(GOOD), snap())
    timings = {"check_ms": 10, "snapshot_retry_max_ms": 50, "lease_ms": LEASE_MS}
    settings = MetaSettings(database_url=f"sqlite:///{tmp_path}/meta.db", **timings)
    with TestClient(build_app(settings, objects, SystemClock()), raise_server_exceptions=False) as http:
        eventually(lambda: http.get("/readyz").status_code == 200)
        for tenant in (BAD, GOOD):
            assert http.post("/v1/clusters/7/tenants", json={"tenant_id": tenant.tenant_id}).status_code == 201

        def told() -> bool:
            bad, good = http.get("/v1/clusters/7/tenants").json()["tenants"]
            return good["snapshot_ts"] == "42" and layout.schema_snap(BAD) in (bad["problem"] or "")

        eventually(told)
        problem = http.get("/v1/clusters/7/tenants").json()["tenants"][0]["problem"]
        assert problem.isascii(), "a database may know no other characters"
