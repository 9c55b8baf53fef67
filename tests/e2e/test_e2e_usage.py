"""What is metered of a tenant is what the store and the access log say, on a whole platform on MinIO."""

from __future__ import annotations

import json
import subprocess
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from support import golden
from support.golden import GoldenSet
from support.minio import running
from support.platform import COMMAND, _kill
from support.services import MODULES, Services
from support.waiting import PATIENCE_S, eventually
from support.wire import Request, Wire, wired
from tistream.clock import SystemClock
from tistream.model.ids import TenantKey
from tistream.storage import layout
from tistream.storage.s3 import S3ObjectStore
from tistream.wire.service_auth import ServiceKeys
from tistream.wire.service_token import Caller

USAGE_MS = 300
SETTINGS = {
    **{f"TISTREAM_{service.upper()}__USAGE_MS": str(USAGE_MS) for service in MODULES},
    "TISTREAM_SORTER__COLLECT__GRACE_MS": "0",  # the bucket holds what manifests name, and nothing beside
    "TISTREAM_SORTER__COLLECT__EVERY_MS": "200",
}


class Metered:
    """A platform, its bucket, and the way between them."""

    def __init__(self, services: Services, bucket: S3ObjectStore, wire: Wire) -> None:
        self.services, self.bucket, self.wire = services, bucket, wire

    def usage(self, tenant: TenantKey) -> dict[str, Any]:
        """Asked of the meta server: through the API the question would be metered itself."""
        path = f"/v1/clusters/{tenant.cluster_id}/tenants/{tenant.tenant_id}/usage"
        keys = ServiceKeys(self.services.data_dir / "secrets" / "service.key", SystemClock())
        headers = {"authorization": f"Bearer {keys.sign(Caller('test', 'api'))}"}
        answer = httpx.get(self.services.url_of("meta") + path, headers=headers, timeout=PATIENCE_S, trust_env=False)
        assert answer.status_code == 200, answer.text
        found: dict[str, Any] = answer.json()
        return found

    def sizes(self, prefix: str, wanted: Any) -> int:
        return sum(info.size for info in self.bucket.list_after(prefix) if wanted(info.key))

    def in_bucket(self, tenant: TenantKey) -> tuple[int, int]:
        """Bytes of change files, and of the pool."""
        pushed = self.sizes(layout.push_prefix(tenant), layout.parse_change_file)
        pool = self.sizes("committed/", lambda key: layout.tenant_of(key) == tenant and layout.epoch_of(key))
        return pushed, pool

    def in_access_log(self, tenant: TenantKey) -> tuple[int, int]:
        """Bytes and rows of what the API servers have answered."""
        lines = [
            json.loads(line)
            for file in self.services.logs.glob("api*.log")
            for line in file.read_text().splitlines()
            if '"logger":"tistream_api.served"' in line
        ]
        mine = [line for line in lines if line["tenant"] == str(tenant) and line["status"] < 300]
        return sum(line["bytes"] for line in mine), sum(line["rows"] for line in mine)

    def on_the_wire(self, tenant: TenantKey) -> dict[str, int]:
        """Requests that the store was sent, by kind."""
        found = Counter(kind_of(one) for one in list(self.wire.requests) if tenant_of(one) == tenant)
        return {kind: count for kind, count in found.items() if count}


def tenant_of(request: Request) -> TenantKey | None:
    return layout.tenant_of(request.key or request.query.get("prefix", ""))


def kind_of(request: Request) -> str:
    headers = {name.lower() for name in request.headers}
    if request.method == "GET" and not request.key:
        return "list"
    if request.operation == "PUT" and "if-none-match" in headers:
        return "put_new"
    if request.operation == "PUT" and "if-match" in headers:
        return "put_if"
    return {"GET": "get", "HEAD": "head", "DELETE": "delete"}.get(request.method, "put")


@pytest.fixture(scope="module")
def metered(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Metered]:
    directory: Path = tmp_path_factory.mktemp("usage")
    with running(directory / "minio") as minio, wired(minio.port) as wire:
        bucket = minio.new_bucket()
        url = minio.url(bucket).replace(minio.endpoint, wire.endpoint)
        services = Services(directory / "up", ranges=3, environ=SETTINGS | minio.environ, objects_url=url)
        services.nodes = {**services.nodes, "api": 2}
        try:
            services.launch()
            services.wait_ready()
            yield Metered(services, minio.store(bucket), wire)
        except BaseException:
            print(services.report())
            raise
        finally:
            services.close()


def pull(metered: Metered, loaded: GoldenSet, name: str, until_ts: int) -> tuple[int, int]:
    """Everything, from one API server; the bytes and rows that came."""
    size = rows = 0
    base = f"/v1/clusters/{loaded.tenant.cluster_id}/tenants/{loaded.tenant.tenant_id}/changes"
    query: dict[str, Any] = {"start_ts": str(loaded.snapshot_ts)}
    with httpx.Client(base_url=metered.services.url_of(name), timeout=PATIENCE_S, trust_env=False) as client:
        while True:
            answer = client.get(base, params={**query, "limit": 2_000, "wait_ms": 1_000})
            if answer.status_code in (404, 503):
                continue
            assert answer.status_code == 200, answer.text
            lines = [json.loads(line) for line in answer.content.splitlines()]
            size += answer.num_bytes_downloaded  # compressed, as httpx asks for it
            rows += sum(line["type"] == "row" for line in lines)
            if int(lines[-1].get("resolved_ts", 0)) >= until_ts:
                return size, rows
            query = {"cursor": lines[-1]["cursor"]}


def agree(metered: Metered, tenant: TenantKey) -> dict[str, Any]:
    """Until bytes and rows are what bucket and access log say; the usage."""

    def check() -> bool:
        found = metered.usage(tenant)
        total = found["total"]
        stored = int(found["hours"][-1]["bytes_stored"] or 0) if found["hours"] else 0
        told = (int(total["bytes_in"]), stored), (int(total["bytes_served"]), int(total["rows_served"]))
        return told == (metered.in_bucket(tenant), metered.in_access_log(tenant))

    eventually(check)
    return metered.usage(tenant)


@pytest.fixture(scope="module")
def pushed(metered: Metered) -> GoldenSet:
    """Every file of it has come."""
    loaded = golden.load("large")
    metered.services.create_for(loaded)
    for delivery in loaded.deliveries:
        metered.bucket.put(delivery.key, delivery.data)
    pull(metered, loaded, "api", loaded.end_ts)
    return loaded


def test_sums_are_those_of_the_bucket_the_access_log_and_the_wire(metered: Metered) -> None:
    one, other = golden.load_as("large", "8", "one"), golden.load_as("large", "8", "other")
    for loaded in (one, other):
        metered.services.create_for(loaded)
        for delivery in loaded.deliveries:
            metered.bucket.put(delivery.key, delivery.data)
    came = [pull(metered, one, name, one.end_ts) for name in ("api", "api-2", "api")]
    assert came[0][1] == came[1][1] > 100
    pull(metered, other, "api", other.end_ts)
    total = agree(metered, one.tenant)["total"]
    assert int(total["bytes_in"]) == sum(len(file.data) for file in one.files)
    assert int(total["bytes_served"]) == sum(size for size, _ in came)
    assert int(total["rows_served"]) == sum(rows for _, rows in came)
    agree(metered, other.tenant)

    def same_requests() -> bool:
        before = [metered.on_the_wire(loaded.tenant) for loaded in (one, other)]
        told = [metered.usage(loaded.tenant)["total"]["requests"] for loaded in (one, other)]
        counted = [{kind: int(count) for kind, count in of.items() if int(count)} for of in told]
        return before == counted == [metered.on_the_wire(loaded.tenant) for loaded in (one, other)]

    eventually(same_requests)  # as soon as nothing is asked for a moment


def test_who_is_killed_loses_nothing_of_what_is_durable_or_was_told(metered: Metered, pushed: GoldenSet) -> None:
    loaded = pushed
    late = golden.load_as("large", "7", "late")
    services, half = metered.services, len(late.deliveries) // 2
    before = agree(metered, loaded.tenant)["total"]
    services.create_for(late)
    for delivery in late.deliveries[:half]:
        metered.bucket.put(delivery.key, delivery.data)
    for name in ("sorter", "api", "dispatcher"):
        _kill(services._children[name].pid)
        services._children[name].wait()
        services.start_one(name)
    services.wait_ready()
    for delivery in late.deliveries[half:]:
        metered.bucket.put(delivery.key, delivery.data)
    came = pull(metered, late, "api", late.end_ts)
    total = agree(metered, late.tenant)["total"]
    assert int(total["bytes_in"]) == sum(len(file.data) for file in late.files), "who was killed counts once"
    assert (int(total["bytes_served"]), int(total["rows_served"])) == came
    size, rows = pull(metered, loaded, "api", loaded.end_ts)
    after = agree(metered, loaded.tenant)["total"]
    assert after["bytes_in"] == before["bytes_in"]
    assert int(after["bytes_served"]) == int(before["bytes_served"]) + size
    assert int(after["rows_served"]) == int(before["rows_served"]) + rows
    for kind, count in after["requests"].items():
        assert int(count) <= metered.on_the_wire(loaded.tenant).get(kind, 0)


def test_the_command_shows_usage_and_changes_quotas(metered: Metered, pushed: GoldenSet) -> None:
    key = pushed.tenant
    of = ("--cluster", key.cluster_id, "--tenant", key.tenant_id, "--url", metered.services.url)

    def run(*words: str) -> str:
        return subprocess.run([COMMAND, "tenant", *words, *of], check=True, capture_output=True, text=True).stdout

    table = [line.split() for line in run("usage").splitlines()]
    assert table[0] == ["hour", "bytes_in", "bytes_stored", "bytes_served", "rows_served", "requests"]

    def bytes_in() -> int:
        return int(next(line.split() for line in run("usage").splitlines() if line.startswith("total"))[1])

    eventually(lambda: bytes_in() > 0)
    assert json.loads(run("usage", "--from", "2020-01-01", "--to", "2020-01-02", "--json"))["hours"] == []
    assert json.loads(run("quotas", "stored_bytes=1", "pulls_at_once=5"))["stored_bytes_exceeded"]
    found = json.loads(run("quotas", "stored_bytes=default"))
    assert (found["stored_bytes"], found["pulls_at_once"], found["stored_bytes_exceeded"]) == (None, 5, False)
    wrong = subprocess.run([COMMAND, "tenant", "quotas", "unheard=1", *of], capture_output=True, text=True, check=False)
    assert wrong.returncode != 0
    assert "unheard" in wrong.stderr
    for query in ("?from=x", "?from=1&from=2", "?since=1", "?from=5&to=1"):
        url = f"{metered.services.url}/v1/clusters/{key.cluster_id}/tenants/{key.tenant_id}/usage{query}"
        assert httpx.get(url, trust_env=False).status_code == 400
