"""A platform whose usage is metered, beside who else can count it: the bucket, the access log and the wire."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx

from support import plain_http
from support.golden import GoldenSet
from support.minio import running
from support.services import MODULES, Services
from support.waiting import PATIENCE_S, awaited
from support.wire import Request, Wire, wired
from tistream.clock import SystemClock
from tistream.model.ids import TenantKey
from tistream.storage import layout
from tistream.storage.backends.s3 import S3ObjectStore
from tistream.wire.auth.service_auth import ServiceKeys
from tistream.wire.auth.service_token import Caller

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
        """Asked of the meta server, as often as it takes: through the API the question would be metered itself."""
        path = f"/v1/clusters/{tenant.cluster_id}/tenants/{tenant.tenant_id}/usage"
        keys = ServiceKeys(self.services.data_dir / "secrets" / "service.key", SystemClock())
        headers = {"authorization": f"Bearer {keys.sign(Caller('test', 'api'))}"}
        answer = plain_http.patient_get(self.services.url_of("meta") + path, headers=headers)
        assert answer.status_code == 200, answer.text
        told: dict[str, Any] = answer.json()
        return told

    def sizes(self, prefix: str, wanted: Any) -> int:
        return sum(info.size for info in self.bucket.list_after(prefix) if wanted(info.key))

    def in_bucket(self, tenant: TenantKey) -> tuple[int, int]:
        """The bytes of change files and of the pool in the bucket."""
        pushed = self.sizes(layout.push_prefix(tenant), layout.parse_change_file)
        pool = self.sizes("committed/", lambda key: layout.tenant_of(key) == tenant and layout.epoch_of(key))
        return pushed, pool

    def in_access_log(self, tenant: TenantKey) -> tuple[int, int]:
        """Bytes and rows of all answers, according to the access logs of the API servers."""
        lines = [
            json.loads(line)
            for file in self.services.logs.glob("api*.log")
            for line in file.read_text().rpartition("\n")[0].splitlines()  # the last line may be there in part
            if '"logger":"tistream_api.served"' in line
        ]
        mine = [line for line in lines if line["tenant"] == str(tenant) and line["status"] < 300]
        return sum(line["bytes"] for line in mine), sum(line["rows"] for line in mine)

    def on_the_wire(self, tenant: TenantKey) -> dict[str, int]:
        """The number of requests sent to the store, by kind. A HEAD that finds no object is followed by one that asks
        whether there is the bucket: it names no tenant, and is made for this one."""
        seen = Counter(kind_of(one) for one in list(self.wire.requests) if tenant_of(one) == tenant)
        seen["head"] += sum(one.method == "HEAD" and tenant_of(one) == tenant for one in list(self.wire.missing))
        return {kind: count for kind, count in seen.items() if count}


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


@contextmanager
def platform_on_a_wire(directory: Path) -> Iterator[Metered]:
    """Services and a MinIO, and what is said between them; two API servers."""
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


def pull_all(metered: Metered, loaded: GoldenSet, name: str, until_ts: int) -> tuple[int, int]:
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
    """Wait until the usage agrees with bucket and access log; returns the usage."""

    def agreed() -> dict[str, Any]:
        usage = metered.usage(tenant)
        total = usage["total"]
        stored = int(usage["hours"][-1]["bytes_stored"] or 0) if usage["hours"] else 0
        told = (int(total["bytes_in"]), stored), (int(total["bytes_served"]), int(total["rows_served"]))
        return usage if told == (metered.in_bucket(tenant), metered.in_access_log(tenant)) else {}

    return awaited(agreed)
