"""What a run needs: one whole platform with auth, a MinIO whose keys a KES has, a MariaDB; tenants, each with a key and
a token."""

from __future__ import annotations

import json
import os
import re
import secrets
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import httpx

from support import golden, kes, mariadb, minio
from support.change_files import flipped_change_group
from support.faults import has_changes
from support.golden import GoldenSet
from support.hostile.attacker import Orders
from support.hostile.files import with_hostile_names
from support.kes import Kes
from support.minio import Minio
from support.platform import COMMAND, _die_with_us
from support.pull import Consumer, Refused
from support.services import MODULES, Services
from support.waiting import PATIENCE_S, eventually
from tistream.model.ids import TenantKey
from tistream.storage.backends.s3 import S3ObjectStore
from tistream_verify.fingerprint import TruthLine
from tistream_verify.lag import Promise

CLUSTER = "9"
USAGE_MS = 300
SETTINGS = {
    **{f"TISTREAM_{service.upper()}__USAGE_MS": str(USAGE_MS) for service in MODULES},
    "TISTREAM_API__KEYED_CACHE_MS": "5000",  # 30 s by default: a phase is no longer than that
    "TISTREAM_API__LIMITS__REQUESTS_PER_SECOND": "300",
    "TISTREAM_API__LIMITS__NOTIFICATIONS_PER_SECOND": "100",
    "TISTREAM_SORTER__TICK__IDLE_MANIFEST_MS": "500",
    "TISTREAM_API__PULLS_MAX": "96",  # as in deploy/k8s/base/api.yaml,
    "TISTREAM_API__PULL_MEMORY_BYTES": str(2 << 30),  # and half of the memory that its containers may have
}


class Guarded(Services):
    """A platform with authentication, although everything is on this machine."""

    @property
    def auth(self) -> bool:
        return True


@dataclass
class World:
    """A started one. `scratch` holds what is left of a run."""

    scratch: Path
    services: Guarded
    minio: Minio
    kes: Kes
    bucket: str
    names: dict[str, str] = field(default_factory=lambda: {who: f"{who}-{secrets.token_hex(5)}" for who in WHO})
    keys: dict[str, str] = field(default_factory=lambda: {who: f"key-{who}-{secrets.token_hex(5)}" for who in WHO})
    tokens: dict[str, str] = field(default_factory=dict)

    def tenant(self, who: str) -> TenantKey:
        """The key of the tenant `good` or `bad`; their real names differ."""
        return TenantKey(CLUSTER, self.names[who])

    @property
    def store(self) -> S3ObjectStore:
        """A writer of change files."""
        return self.minio.store(self.bucket)

    def register(self, who: str, actions: list[str]) -> None:
        """A tenant with a key and a token of its own."""
        key, tenant = self.kes.create(self.keys[who]), self.tenant(who)
        with self.services.patient_http() as http:
            body = {"tenant_id": tenant.tenant_id, "kms_key_id": key}
            made = http.post(f"{self.services.url}/v1/clusters/{CLUSTER}/tenants", json=body)
            assert made.status_code in (200, 201), made.text  # 200: it was taken and answered 503, and asked again
            grant = {"actions": actions, "cluster": CLUSTER, "tenant": tenant.tenant_id}
            token = http.post(f"{self.services.url}/v1/tokens", json={"grants": [grant]})
            assert token.status_code == 201, token.text
        self.tokens[who] = token.json()["token"]
        self.token_file(who).write_text(self.tokens[who])

    def token_file(self, who: str) -> Path:
        """The token file for commands."""
        return self.scratch / f"{who}.token"

    def operator(self, path: str) -> Any:
        """Send a GET request for a path of the API with all rights; returns the JSON of the answer."""
        with self.services.patient_http() as http:
            answer = http.get(self.services.url + path)
        assert answer.status_code == 200, answer.text
        return answer.json()

    def cpu(self) -> dict[str, float]:
        """Seconds of processor time that each service has taken so far; Spark's processes are the sorter's, and none
        of its own has ended."""
        ticks, found = os.sysconf("SC_CLK_TCK"), Counter[str]()
        for process in self.services.alive():
            try:
                fields = Path(f"/proc/{process.pid}/stat").read_text().rsplit(")", 1)[1].split()
            except (FileNotFoundError, ProcessLookupError):
                continue
            found[process.role if process.role in MODULES else "sorter"] += int(fields[11]) + int(fields[12])
        return {role: used / ticks for role, used in sorted(found.items())}

    def started(self, name: str, *arguments: str, token: Path) -> subprocess.Popen[bytes]:
        """Start one of the platform's commands; its output is written to scratch."""
        environ = {**os.environ, **self.minio.environ, "TISTREAM_TOKEN_FILE": str(token)}
        with (self.scratch / f"{name}.out").open("wb") as out, (self.scratch / f"{name}.log").open("wb") as log:
            return subprocess.Popen(
                [str(COMMAND), name, *arguments],
                stdout=out,
                stderr=log,
                env=environ,
                preexec_fn=_die_with_us,  # noqa: PLW1509 (as in platform.py)
            )

    def said(self, name: str) -> str:
        """The end of a command's output."""
        texts = [(self.scratch / f"{name}.{kind}").read_text(errors="replace")[-1_500:] for kind in ("out", "log")]
        return "\n".join(texts)


WHO = ("good", "bad", "flooded")


@contextmanager
def running(scratch: Path) -> Iterator[World]:
    """A World for a `with` block. The test is reported as not run if a server is missing."""
    with ExitStack() as stack:
        keys = stack.enter_context(kes.running(scratch / "kes"))
        server = stack.enter_context(minio.running(scratch / "minio", kms=keys.environ))
        database = stack.enter_context(mariadb.running(scratch / "mariadb"))
        bucket = server.new_bucket()
        services = Guarded(
            scratch / "services",
            ranges=1,  # two would be merged in the middle of a run, and a lag would be nobody's doing
            environ={**SETTINGS, **server.environ},
            objects_url=server.url(bucket),
            database_url=database.url,
        )
        stack.callback(services.close)
        try:
            services.start()
            yield World(scratch, services, server, keys, bucket)
            services.stop()
        except BaseException:
            print(services.report())
            raise


class Load:
    """The good tenant's upstream, and who checks all that is pulled of it."""

    def __init__(self, world: World, rows_per_s: int, seed: int) -> None:
        self.world, self.truth = world, world.scratch / "truth"
        self._promises = world.scratch / "promises"
        name = world.names["good"]
        where = ["--cluster", CLUSTER, "--tenant", name, "--truth", str(self.truth)]
        told = ["--promises", str(self._promises), "--seed", str(seed)]
        load = ["--rows-per-s", str(rows_per_s), "--txns-per-s", str(max(1, rows_per_s // 4)), "--rows-max", "500"]
        # Nothing that holds an upstream back by itself: what is late is the platform's.
        calm = ["--churn-per-s", "0", "--huge-rows", "0", "--ddl-per-min", "12", "--columns", "4"]
        url = ["--url", world.services.url]
        objects = ["--objects", world.minio.url(world.bucket)]
        token = world.services.first_token
        self._simulate = world.started("simulate", *objects, *url, *where, *told, *load, *calm, token=token)
        eventually(lambda: self._alive() and self.truth.exists() and b"\n" in self.truth.read_bytes())
        checks = [world.services.url, *where, "--scopes", "1", "--json"]
        self._verify = world.started("verify", *checks, token=world.token_file("good"))

    def _alive(self) -> bool:
        assert self._simulate.poll() is None, self.world.said("simulate")
        return True

    @property
    def start_ts(self) -> int:
        """The ts at which the tenant begins."""
        return TruthLine.parse(self.truth.read_bytes().splitlines(keepends=True)[0]).ts

    def promises(self) -> list[Promise]:
        """When files were there that promise how much."""
        whole = self._promises.read_bytes().rpartition(b"\n")[0]
        return [Promise.parse(line) for line in whole.splitlines()]

    def finish(self) -> tuple[int, dict[str, Any]]:
        """The upstream ends; the last truth, and what the checks found."""
        for name, process in (("simulate", self._simulate), ("verify", self._verify)):
            assert process.poll() is None, f"{name} ended by itself: {self.world.said(name)}"
            process.send_signal(signal.SIGTERM)
            assert process.wait(PATIENCE_S) == 0, self.world.said(name)
        last = TruthLine.parse(self.truth.read_bytes().splitlines(keepends=True)[-1]).ts
        return last, json.loads((self.world.scratch / "verify.out").read_text())

    def end(self) -> None:
        """Stop both processes, whatever has happened."""
        for process in (self._simulate, self._verify):
            if process.poll() is None:
                process.kill()
                process.wait()


class Bad:
    """The hostile tenant: its proper data is a golden set, which comes in parts."""

    def __init__(self, world: World) -> None:
        self.world, self.tenant = world, world.tenant("bad")
        self.set: GoldenSet = with_hostile_names(golden.load_as("everything", CLUSTER, world.names["bad"]))
        self._pushed = 0
        self._store = world.store
        self._store.put(self.set.schema_snap.key, self.set.schema_snap.data)
        headers = {"authorization": f"Bearer {world.tokens['bad']}"}
        client = httpx.Client(timeout=PATIENCE_S, trust_env=False, headers=headers)
        self.consumer = Consumer(world.services.url, self.tenant, client)

    def push(self, until: float, *, spoil: bool = False) -> str:
        """Up to this part of its files; of those with changes the first one with a flipped bit, whose key is told."""
        end, spoilt = round(len(self.set.files) * until), ""
        for file in self.set.files[self._pushed : end]:
            damaged = spoil and not spoilt and has_changes(file)
            self._store.put(file.key, flipped_change_group(file.data) if damaged else file.data)
            spoilt = file.key if damaged else spoilt
        self._pushed = end
        return spoilt

    def mend(self, key: str) -> None:
        """Put the undamaged version of the file."""
        [file] = [file for file in self.set.files if file.key == key]
        self._store.put(file.key, file.data)

    def resolved_ts(self) -> int:
        """The resolved_ts in the status answer."""
        return int(self.status()["resolved_ts"])

    def status(self) -> dict[str, Any]:
        """The status of the tenant; the request is repeated while it is rejected."""
        deadline = time.monotonic() + PATIENCE_S
        while True:
            try:
                return self.consumer.status()
            except Refused as refused:
                if refused.retry_after is None or time.monotonic() > deadline:
                    raise
                time.sleep(refused.retry_after)

    def held(self) -> dict[str, Any]:
        """What status says holds it; nothing is {}."""
        return self.status()["held_by"] or {}

    def refusal(self) -> str:
        """Which problem a pull of what it had is; "" if there is none."""
        try:
            self.consumer.page(start_ts=self.set.snapshot_ts, limit=10)
        except Refused as refused:
            return cast(str, refused.problem["type"])
        return ""


class Attack:
    """One kind of traffic, from a process of its own."""

    def __init__(self, orders: Orders) -> None:
        self.kind = orders.kind
        self._process = subprocess.Popen(
            [sys.executable, "-m", "support.hostile.attacker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
            preexec_fn=_die_with_us,  # noqa: PLW1509 (as in platform.py)
        )
        assert self._process.stdin is not None
        fields = {name: getattr(orders, name) for name in Orders.__dataclass_fields__}
        self._process.stdin.write(json.dumps(fields))
        self._process.stdin.close()
        self._process.stdin = None

    def told(self, seconds: float) -> dict[str, Any]:
        """The answers that the attack received, once it is over."""
        out, errors = self._process.communicate(timeout=seconds)
        assert self._process.returncode == 0, f"{self.kind}: {errors[-2_000:]}"
        told: dict[str, Any] = json.loads(out)
        return told

    def end(self) -> None:
        """End the attack's process, whatever has happened."""
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait()


def idle_seconds() -> float:
    """Of all processors of this machine since it was started; waiting for disks is idle."""
    fields = Path("/proc/stat").read_text().split("\n", 1)[0].split()
    return (int(fields[4]) + int(fields[5])) / os.sysconf("SC_CLK_TCK")


def token_id(token: str) -> str:
    """The id of a token, which lists show."""
    found = re.match(r"tst_([0-9a-f]+)_", token)
    assert found is not None
    return found[1]
