"""What a new user tries first: HEAD, compressed answers, `/`, `/docs`, the status of a tenant that has nothing yet."""

from __future__ import annotations

import gzip
import io
import json
import re
import zlib
from typing import Any

import httpx
import pyarrow as pa
import pytest
import zstandard

from support import golden, plain_http
from support.api_world import Platform
from support.pull import Consumer
from support.waiting import eventually
from tistream.model.ids import TenantKey
from tistream_agent.connecting.platform import PlatformApi

EVERYTHING = golden.load("everything")
START = str(EVERYTHING.snapshot_ts)
TENANT = "/v1/clusters/7/tenants/acme"
PULL = f"{TENANT}/databases/shop/tables/orders/changes?start_ts={START}&end_ts={EVERYTHING.end_ts}"


def raw(loaded: Consumer, path: str, accept: str | None) -> tuple[httpx.Headers, bytes]:
    """An answer as it came over the wire."""
    headers = {} if accept is None else {"accept-encoding": accept}
    with plain_http.client() as client:
        del client.headers["accept-encoding"]
        with client.stream("GET", loaded.url + path, headers=headers) as answer:
            assert answer.status_code == 200
            return answer.headers, b"".join(answer.iter_raw())


@pytest.mark.parametrize(
    "path",
    [
        PULL,
        f"{PULL}&format=arrow&events=rows",
        f"{PULL}&format=parquet",
        f"{TENANT}/changes?start_ts={START}&follow=true",
        f"{TENANT}/changes?start_ts={START}&end_ts={START}&wait_ms=60000",
        f"{TENANT}/databases",
        f"{TENANT}/status",
        "/v1/tenants",
        "/openapi.json",
        "/healthz",
        "/readyz",
        "/metrics",
        "/console/",
        "/console/app.js",
        f"{TENANT}/changes?start_ts=5",
        f"{TENANT}/changes?start_ts=x",
        f"{TENANT}/databases/none/changes?start_ts={START}",
        "/v1/nothing",
        "/v1/notifications",
    ],
)
def test_head_answers_what_get_answers_without_a_body(loaded: Consumer, path: str) -> None:
    head = loaded.client.head(loaded.url + path)
    with loaded.client.stream("GET", loaded.url + path) as get:
        assert (head.status_code, head.headers.get("content-type")) == (get.status_code, get.headers["content-type"])
        assert set(head.headers) == set(get.headers)
    assert head.content == b""


@pytest.mark.parametrize(
    ("accept", "wanted"),
    [
        (None, None),
        ("identity", None),
        ("*", None),
        ("br", None),
        ("gzip;q=0, zstd;q=0", None),
        ("gzip", "gzip"),
        ("gzip, deflate, br, zstd", "zstd"),
        ("zstd;q=0.5, gzip;q=0.8", "gzip"),
        ("GZIP; q=1.0", "gzip"),
        ("gzip;q=0.1, identity", None),
        ("gzip;q=x", None),
    ],
)
@pytest.mark.parametrize("form", ["ndjson", "arrow&events=rows"])
def test_pulls_are_compressed_for_who_says_so(loaded: Consumer, form: str, accept: str | None, wanted: str) -> None:
    path = f"{PULL}&format={form}"
    _, plain = raw(loaded, path, None)
    headers, body = raw(loaded, path, accept)
    assert (headers.get("content-encoding"), headers["vary"]) == (wanted, "Accept-Encoding")
    if wanted == "gzip":
        body = gzip.decompress(body)
    elif wanted == "zstd":
        body = zstandard.ZstdDecompressor().stream_reader(io.BytesIO(body)).read()
    assert body == plain
    if form == "ndjson":
        assert json.loads(body.splitlines()[-1])["type"] == "resolved"
    else:
        assert pa.ipc.open_stream(body).read_all().num_rows > 0


def test_parquet_is_compressed_already(loaded: Consumer) -> None:
    headers, _ = raw(loaded, f"{PULL}&format=parquet", "gzip, zstd")
    assert "content-encoding" not in headers


@pytest.mark.parametrize("accept", ["gzip", "zstd"])
def test_a_compressed_stream_tells_each_event_when_it_comes(loaded: Consumer, accept: str) -> None:
    path = f"{TENANT}/changes?start_ts={EVERYTHING.end_ts}&follow=true"
    opener: Any = zlib.decompressobj(31) if accept == "gzip" else zstandard.ZstdDecompressor().decompressobj()
    told = b""
    with loaded.client.stream("GET", loaded.url + path, headers={"accept-encoding": accept}) as answer:
        for piece in answer.iter_raw():
            told += opener.decompress(piece)
            if told.endswith(b"\n"):
                break
    assert json.loads(told.splitlines()[0])["resolved_ts"] == str(EVERYTHING.end_ts)


@pytest.fixture(scope="module")
def unborn(up: Platform) -> TenantKey:
    """A tenant whose snapshot has not come."""
    tenant = TenantKey("6", "unborn")
    up.world.client.create_tenant(tenant.cluster_id, tenant.tenant_id)
    eventually(lambda: plain_http.get(Consumer(up.api.url, tenant).base + "/status").status_code == 200)
    return tenant


def test_before_its_snapshot_a_tenant_has_no_lag(loaded: Consumer, unborn: TenantKey) -> None:
    status = Consumer(loaded.url, unborn).status()
    assert status["lag_seconds"] is None
    assert status["held_by"] is not None
    assert loaded.status()["lag_seconds"] > 5


def test_connect_learns_where_a_new_territory_has_to_begin(loaded: Consumer, unborn: TenantKey) -> None:
    api = PlatformApi(loaded.url, {})
    assert api.reached_ts(loaded.tenant) == EVERYTHING.end_ts
    assert [api.reached_ts(one) for one in (unborn, TenantKey("7", "nobody"))] == [None, None]
    assert api.reached_ts(TenantKey("none", "acme")) is None


def test_the_root_leads_to_the_console_and_docs_to_a_page_of_its_own(loaded: Consumer) -> None:
    root = loaded.client.get(loaded.url + "/", follow_redirects=True)
    assert (root.status_code, root.url.path) == (200, "/console/")
    docs = loaded.client.get(loaded.url + "/docs", follow_redirects=True)
    assert docs.status_code == 200
    assert docs.headers["content-security-policy"] == root.headers["content-security-policy"]
    assert re.findall(r"https?://", docs.text) == []
    for name in re.findall(r'(?:src|href)="([^"#]+)"', docs.text):
        assert loaded.client.get(str(docs.url.join(name))).status_code == 200, name
