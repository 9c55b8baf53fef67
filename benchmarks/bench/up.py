"""`tistream up` in a process tree of its own, and what its services count."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

import httpx

from bench import proc_tree
from tistream.clock import SystemClock
from tistream.model.ids import TenantKey
from tistream.storage import layout
from tistream.wire.auth import service_token
from tistream.wire.auth.service_token import Caller

COMMAND = Path(sys.executable).with_name("tistream")
READY_SECONDS = 240
PUTS = ("put", "put_new", "put_if", "list")  # what S3 bills at the higher price
_SAMPLE = re.compile(r'^(\w+?)(?:_total)?(?:\{\w+="(\w+)"\})? ([0-9.e+]+)$', re.MULTILINE)


class Up:
    """`with Up(folder) as up:` the platform runs, and is ready."""

    def __init__(self, folder: Path, environ: Mapping[str, str] | None = None) -> None:
        self.folder = folder
        self.objects = folder / "objects"
        port = free_port()
        self.url = f"http://127.0.0.1:{port}"
        self._environ = {**os.environ, **(environ or {})}
        self._command = [str(COMMAND), "up", "--data-dir", str(folder), "--port", str(port)]
        self._http = httpx.Client(trust_env=False, timeout=30)
        self._ports: dict[str, int] = {}

    def __enter__(self) -> Up:
        self._process = subprocess.Popen(self._command, env=self._environ, stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line.startswith("ready"):
            self._end()
            raise RuntimeError(f"tistream up did not start: {line!r}; see {self.folder}/logs")
        logged = (json.loads(text) for text in (self.folder / "logs" / "up.log").read_text().splitlines())
        self._ports = next(entry["ports"] for entry in logged if "ports" in entry)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._http.close()
        self._end()

    def _end(self) -> None:
        self._process.send_signal(signal.SIGTERM)
        try:
            self._process.wait(30)
        except subprocess.TimeoutExpired:
            self._process.kill()  # its children end with it
            self._process.wait(30)

    def cpu_seconds(self) -> float:
        """Processor time so far, of the whole tree."""
        return proc_tree.cpu_seconds(self._process.pid)

    def memory_bytes(self) -> int:
        """Anonymous memory of the whole tree."""
        return proc_tree.memory_bytes(self._process.pid)

    def _of_service(self, port: int, path: str, params: Mapping[str, str] | None = None) -> httpx.Response:
        """Asked as one service asks another: with the platform's key."""
        [key, *_] = service_token.parse_keys((self.folder / "secrets" / "service.key").read_text())
        token = service_token.sign(key, Caller("bench", "bench"), SystemClock().now_ms() // 1000)
        headers = {"authorization": f"Bearer {token}"}
        return self._http.get(f"http://127.0.0.1:{port}{path}", params=params, headers=headers)

    def requests(self) -> Counter[str]:
        """Requests to the object store so far by kind, of all services, Spark's workers among them; and bytes."""
        out: Counter[str] = Counter()
        for name, port in self._ports.items():
            text = self._of_service(port, "/metrics").text
            for metric, label, value in _SAMPLE.findall(text):
                if metric == "tistream_object_requests":
                    out[label] += int(float(value))
                    out[f"{name} {label}"] += int(float(value))
                elif metric == "tistream_object_bytes":
                    out[f"{label} bytes"] += int(float(value))
        return out

    def metric(self, service: str, name: str) -> float:
        """The sum of a metric's samples."""
        text = self._of_service(self._ports[service], "/metrics").text
        return sum(float(value) for metric, _, value in _SAMPLE.findall(text) if metric == name.removesuffix("_total"))

    def create(self, tenant: TenantKey) -> None:
        """Register a tenant; asked again while the platform is not ready for it."""
        until = time.perf_counter() + 60
        while True:
            answer = self._http.post(
                f"{self.url}/v1/clusters/{tenant.cluster_id}/tenants", json={"tenant_id": tenant.tenant_id}
            )
            if answer.status_code == httpx.codes.CREATED:
                return
            if time.perf_counter() > until:
                answer.raise_for_status()
            time.sleep(0.2)

    def notify(self, tenant: TenantKey, store_id: int, ts: int) -> None:
        """Announce a file."""
        body = {
            "cluster_id": tenant.cluster_id,
            "tenant_id": tenant.tenant_id,
            "store_id": str(store_id),
            "ts": str(ts),
        }
        self._http.post(f"{self.url}/v1/notifications", json=body).raise_for_status()

    def status(self, tenant: TenantKey) -> dict[str, Any]:
        """The tenant's status, {} while there is none."""
        answer = self._http.get(f"{self.url}/v1/clusters/{tenant.cluster_id}/tenants/{tenant.tenant_id}/status")
        return dict(answer.json()) if answer.status_code == httpx.codes.OK else {}

    def tasks(self, tenant: TenantKey) -> list[int]:
        """Ids of the tenant's tasks."""
        names = {"cluster_id": tenant.cluster_id, "tenant_id": tenant.tenant_id}
        answer = self._of_service(self._ports["sorter"], "/v1/tasks", names).raise_for_status()
        return [task["task_id"] for task in answer.json()["tasks"]]

    def wait_resolved(self, tenant: TenantKey, ts: int, seconds: float = 60) -> float:
        """Seconds until the tenant's resolved_ts has reached `ts`. Raises TimeoutError."""
        began = time.perf_counter()
        while int(self.status(tenant).get("resolved_ts", 0)) < ts:
            if time.perf_counter() - began > seconds:
                raise TimeoutError(f"{tenant} has not come to {ts}: {self.status(tenant)}")
            time.sleep(0.05)
        return time.perf_counter() - began


def free_port() -> int:
    """A port of 127.0.0.1 that is free now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def put(root: Path, key: str, body: bytes) -> None:
    """As a writer beside the platform does: the object appears whole."""
    path = root / key
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = root.with_name(f"pushing-{os.getpid()}")
    temporary.write_bytes(body)
    temporary.rename(path)


def put_snapshot(root: Path, tenant: TenantKey, snapshot_ts: int) -> None:
    """A schema_snap without a table."""
    text = json.dumps({"version": 1, "snapshot_ts": snapshot_ts, "databases": []})
    put(root, layout.schema_snap(tenant), text.encode())


def dollars(requests: Mapping[str, int]) -> float:
    """What they cost at S3's list prices (us-east-1, standard storage): PUT and LIST 0.005 per 1,000, GET and HEAD
    0.0004 per 1,000; DELETE is free."""
    puts = sum(requests.get(kind, 0) for kind in PUTS)
    gets = requests.get("get", 0) + requests.get("head", 0)
    return puts * 0.005 / 1_000 + gets * 0.0004 / 1_000
