"""The whole platform in real time: how late it is, and at which rate it no longer keeps up."""

from __future__ import annotations

import json
import shutil
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import httpx
import numpy as np
import pyarrow as pa

from bench.contenders.live_load import Floats, Follower, Pushed, Pusher, now_s
from bench.inputs.changes import TENANT, Load, snapshot_ts
from bench.inputs.mixed_rows import schema_snap
from bench.measure import Bench
from bench.up import Up, put
from tistream.model.ids import TenantKey
from tistream.storage import layout

WHAT = (
    "`tistream up` with its defaults on local disk; three stores whose files, one each and second, appear and are "
    "announced when the second has ended; a client that follows by long polls. Lag is the time from a commit at the "
    "upstream until an answer's resolved_ts is at or above it, so up to 1 s of it is the push interval. The load is "
    "made, and read, on the same two cores: what those processes take is told, and how late the latest file itself "
    "was, which counts as lag. At 20,000 entries/s the client pulls every row as NDJSON; beyond, a table without "
    "changes, so that it learns resolved_ts; after the ten minutes all rows are pulled as Arrow and counted"
)
STORES, REGIONS, TABLES = 3, 24, 4
STEADY, STEADY_S = 20_000, 120  # entries a second: each row is a prewrite and a commit
STEPS = (100_000, 200_000, 300_000, 400_000, 500_000, 600_000, 800_000, 1_000_000)
STEP_S, LONG_S, WARM_S = 40, 600, 15
LATE_S = 5.0
AIM_S = 2.0
BEGINS_IN_S = 4  # the tenant is registered, and the first second's files are made
PATIENCE_S = 120
SLOWER = 0.8  # of the rate, if ten minutes of it are too much


@dataclass(frozen=True, slots=True)
class Run:
    """One tenant's load, and what was seen of it."""

    pushed: Pushed
    lags: Floats
    rows: int
    level: bool  # whether everything was seen in the end
    cpu: tuple[float, float]  # cores: the platform, this process
    written: float  # bytes for each byte pushed
    memory: int

    @property
    def p99(self) -> float:
        """Seconds."""
        return float(np.percentile(self.lags, 99)) if len(self.lags) else float("inf")


def run(bench: Bench) -> None:
    """See WHAT."""
    steady = _alone(bench, STEADY, STEADY_S, every=True)
    bench.agree({"rows pushed": steady.pushed.rows, "rows pulled": steady.rows})
    name = f"{STEADY:,} entries/s for {STEADY_S} s, all rows pulled as NDJSON"
    _tell(bench, name, steady, STEADY_S, AIM_S)
    best = 0
    for rate in STEPS:
        step = _alone(bench, rate, STEP_S)
        _tell(bench, f"{rate:,} entries/s for {STEP_S} s", step, STEP_S, LATE_S)
        if not step.level or step.p99 > LATE_S:
            break
        best = rate
    while best > STEADY:
        long = _alone(bench, best, LONG_S, count=True)
        name = f"{best:,} entries/s for {LONG_S} s"
        _tell(bench, name, long, LONG_S, LATE_S)
        if long.level and long.p99 <= LATE_S:
            bench.agree({"rows pushed": long.pushed.rows, "rows pulled": long.rows})
            break
        best = int(best * SLOWER)
    bench.figure("highest rate tried that was sustained for ten minutes", best, "entries/s", better="more")


def _alone(bench: Bench, rate: int, seconds: int, *, every: bool = False, count: bool = False) -> Run:
    """A platform of its own. every: the client pulls all rows; else a table without changes, so that it learns
    resolved_ts and costs next to nothing. count: at the end all rows are pulled as Arrow, and counted."""
    folder = bench.tmp / f"{rate}-{seconds}"
    try:
        return _measured(bench, folder, rate, seconds, every=every, count=count)
    finally:
        shutil.rmtree(folder)  # a rate has gigabytes


def _measured(bench: Bench, folder: Path, rate: int, seconds: int, *, every: bool, count: bool) -> Run:
    with Up(folder) as up, bench.remote(Pusher, str(up.objects), up.url) as pusher:
        tenant = TenantKey(TENANT.cluster_id, "live")
        first_ms = int(now_s() + BEGINS_IN_S) * 1000
        put(up.objects, layout.schema_snap(tenant), schema_snap(snapshot_ts(first_ms), TABLES + 1))
        up.create(tenant)
        base = f"/v1/clusters/{tenant.cluster_id}/tenants/{tenant.tenant_id}"
        table = f"/databases/{_database()}/tables/mixed_{TABLES}"
        follower = Follower(
            up, f"{base}{'' if every else table}/changes", snapshot_ts(first_ms), 1_000 if every else 50
        )
        total = WARM_S + seconds
        load = Load(rate // 2 * total, total, STORES, REGIONS, TABLES, tenant=tenant, first_ms=first_ms, rows=True)
        with ThreadPoolExecutor(1) as beside:
            pushing = beside.submit(pusher, load)
            time.sleep(max(0.0, first_ms / 1000 + WARM_S - now_s()))
            cpu, own, traffic = up.cpu_seconds(), time.process_time(), up.requests()
            pushed: Pushed = pushing.result()
            took = now_s() - first_ms / 1000 - WARM_S
            cores = (up.cpu_seconds() - cpu) / took, (time.process_time() - own) / took
            memory = up.memory_bytes()
        level = follower.wait(pushed.end_ts, PATIENCE_S)
        written = (up.requests() - traffic)["written bytes"]
        follower.stop()
        low, high = ((first_ms + 1000 * at) << 18 for at in (WARM_S, total))
        seen = _counted(up, f"{base}/changes", snapshot_ts(first_ms), pushed.end_ts) if count else follower.rows
        share = written / (pushed.bytes * seconds / total)
        return Run(pushed, follower.lags(low, high), seen, level, cores, share, memory)


def _database() -> str:
    name: str = json.loads(schema_snap(0))["databases"][0]["db_info"]["db_name"]["O"]
    return name


def _counted(up: Up, path: str, start_ts: int, end_ts: int) -> int:
    """Rows that pulls give from the beginning to the end."""
    rows = 0
    place = {"start_ts": str(start_ts)}
    fixed = {"end_ts": str(end_ts), "limit": "1000000", "format": "arrow", "events": "all"}
    with httpx.Client(
        base_url=up.url, timeout=PATIENCE_S, trust_env=False, headers={"accept-encoding": "identity"}
    ) as client:
        while True:
            answer = client.get(path, params=place | fixed).raise_for_status()
            source, tables = pa.BufferReader(answer.content), []
            while source.tell() < source.size():
                with pa.ipc.open_stream(source) as stream:
                    tables.append(stream.read_all())
            rows += int(sum(table.num_rows for table in tables[:-1]))
            end = tables[-1].to_pylist()[0]
            if (end["resolved_ts"] or 0) >= end_ts:
                return rows
            place = {"cursor": end["cursor"]}


def _tell(bench: Bench, name: str, done: Run, seconds: int, aim: float) -> None:
    for percent, wanted in ((50, None), (99, aim), (100, None)):
        value = float(np.percentile(done.lags, percent)) if len(done.lags) else float("inf")
        bench.figure(f"{name}: lag, {'max' if percent == 100 else f'p{percent}'}", value, "s", wanted)
    if not done.level:
        print(f"  it did not come level within {PATIENCE_S} s")
    bench.figure(f"{name}: latest file, behind its time", done.pushed.late_s, "s")
    bench.figure(f"{name}: processor of the platform", done.cpu[0], "cores")
    bench.figure(f"{name}: processor of the load", done.pushed.cpu_s / (WARM_S + seconds), "cores")
    bench.figure(f"{name}: processor of the client", done.cpu[1], "cores")
    bench.figure(f"{name}: bytes written for each byte pushed", done.written, "", 1.3)
    bench.figure(f"{name}: memory of the platform at the end", done.memory / (1 << 20), "MiB")
