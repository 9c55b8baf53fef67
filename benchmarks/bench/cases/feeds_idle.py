"""Two hundred changefeeds on one worker, nearly all of them idle."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import httpx

from bench import proc_tree
from bench.contenders.live_load import Pusher, now_s
from bench.inputs.changes import TENANT, Load, snapshot_ts
from bench.inputs.mixed_rows import schema_snap
from bench.measure import Bench
from bench.up import Up, free_port, put
from tistream.model.ids import TenantKey
from tistream.storage import layout
from tistream_cli.platform.local_kafka import LocalKafka, local_kafka

WHAT = (
    "`tistream up` with one worker of changefeeds, a Kafka 4 beside it, and two tenants of 101 tables: ten tables of "
    "one get 1,000 rows a second together, and one of the other gets ten. First ten feeds, of each busy table, then "
    "190 more, of each of the other tables of both: what they take beside the ten, in processor time"
)
BUSY, FEEDS_MAX, TABLES = 10, 100, 101
ENTRIES, FEW_ENTRIES = 2_000, 20  # a second: each row is a prewrite and a commit
LOAD_S, BEGINS_IN_S = 900, 4
SETTLE_S, MEASURED_S = 20, 60
PATIENCE_S = 300
AIM = 0.2
BUSY_TENANT, QUIET_TENANT = TenantKey(TENANT.cluster_id, "busy"), TenantKey(TENANT.cluster_id, "quiet")
IDLE = 2 * FEEDS_MAX - BUSY
Cores = dict[str, float]


def run(bench: Bench) -> None:
    """See WHAT."""
    with (
        local_kafka(bench.tmp / "kafka", free_port(), free_port()) as kafka,
        Up(bench.tmp / "up") as up,
        bench.remote(Pusher, str(up.objects), up.url) as busy,
        bench.remote(Pusher, str(up.objects), up.url) as quiet,
        ThreadPoolExecutor(2) as beside,
        httpx.Client(base_url=up.url, timeout=60, trust_env=False) as http,
    ):
        try:
            loads = [
                beside.submit(busy, _load(up, BUSY_TENANT, ENTRIES, BUSY)),
                beside.submit(quiet, _load(up, QUIET_TENANT, FEW_ENTRIES, 1)),
            ]
            _create(http, BUSY_TENANT, kafka, range(BUSY))
            before = _cores(up, kafka)
            _tell(bench, f"{BUSY} busy feeds", before)
            _create(http, BUSY_TENANT, kafka, range(BUSY, FEEDS_MAX))
            _create(http, QUIET_TENANT, kafka, range(1, FEEDS_MAX + 1))
            after = _cores(up, kafka)
            assert not any(load.done() for load in loads), "the loads have ended before"
            _tell(bench, f"{BUSY} busy and {IDLE} idle feeds", after)
        finally:
            busy.end()
            quiet.end()
        for name, value in after.items():
            aim = AIM if name == "the worker" else None
            bench.figure(f"{IDLE} idle feeds: {name}", value - before[name], "cores", aim)


def _load(up: Up, tenant: TenantKey, entries: int, tables: int) -> Load:
    """A load that begins soon, of a new tenant."""
    first_ms = int(now_s() + BEGINS_IN_S) * 1000
    put(up.objects, layout.schema_snap(tenant), schema_snap(snapshot_ts(first_ms), TABLES))
    up.create(tenant)
    return Load(entries // 2 * LOAD_S, LOAD_S, 1, 8, tables, tenant=tenant, first_ms=first_ms, rows=True)


def _create(http: httpx.Client, tenant: TenantKey, kafka: LocalKafka, numbers: range) -> None:
    """Create a feed for each of these tables, and wait until all are at work."""
    base = f"/v1/clusters/{tenant.cluster_id}/tenants/{tenant.tenant_id}/changefeeds"
    for number in numbers:
        topic = f"{tenant.tenant_id}-{number}"
        uri = f"kafka://{kafka.address}/{topic}?protocol=open-protocol&partition-num=3"
        rules = {"filter": {"rules": [f"{database()}.mixed_{number}"]}}
        body = {"changefeed_id": topic, "sink_uri": uri, "config": rules}
        _until(partial(_taken, http, base, body), f"{topic} is not taken")
    wanted = {f"{tenant.tenant_id}-{number}" for number in numbers}
    _until(lambda: wanted <= _begun(http, base), "not all feeds have begun")


def _taken(http: httpx.Client, base: str, body: Mapping[str, object]) -> bool:
    return http.post(base, json=body).status_code in (httpx.codes.OK, httpx.codes.CREATED)


def _begun(http: httpx.Client, base: str) -> set[str]:
    feeds = http.get(base).raise_for_status().json()["changefeeds"]
    return {feed["changefeed_id"] for feed in feeds if int(feed["checkpoint_ts"]) > int(feed["start_ts"])}


def _until(done: Callable[[], object], what: str) -> None:
    until = time.perf_counter() + PATIENCE_S
    while not done():
        if time.perf_counter() > until:
            raise TimeoutError(what)
        time.sleep(0.5)


def _cores(up: Up, kafka: LocalKafka) -> Cores:
    """What the processes take."""
    time.sleep(SETTLE_S)
    began, before = time.perf_counter(), _seconds(up, kafka)
    time.sleep(MEASURED_S)
    after, took = _seconds(up, kafka), time.perf_counter() - began
    return {name: (after[name] - before[name]) / took for name in before}


def _seconds(up: Up, kafka: LocalKafka) -> Cores:
    return {
        "the worker": up.metric("changefeed", "process_cpu_seconds_total"),
        "the meta server": up.metric("meta", "process_cpu_seconds_total"),
        "the platform": up.cpu_seconds(),
        "the broker": proc_tree.cpu_seconds(kafka.pid),
    }


def _tell(bench: Bench, what: str, cores: Cores) -> None:
    for name, value in cores.items():
        bench.figure(f"{what}: {name}", value, "cores")


def database() -> str:
    """The database of mixed_rows' tables."""
    name: str = json.loads(schema_snap(0))["databases"][0]["db_info"]["db_name"]["O"]
    return name
