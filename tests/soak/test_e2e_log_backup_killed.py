"""A full backup and a log backup as the only source of a tenant, while processes of every service, and the JVMs in
which backfills, releases and merges of the version index run, are killed (kill -9) at random.

KILLS (default 25) of the environment sets how often.
"""

from __future__ import annotations

import json
import os
import random
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from support import compare, golden, log_backup, platform, pull
from support.cut_set import CutSet, commit_timestamps, cut
from support.effort import seeds
from support.golden import Delivery
from support.platform import Platform
from support.points_world import point_world
from support.waiting import PATIENCE_S, eventually
from tistream.logbackup import prefix
from tistream.model.ids import TenantKey

NAME, TENANT = "everything", TenantKey("7", "killed-log")
KILLS = int(os.environ.get("KILLS", "25"))
PUTS_S = 60.0  # the whole log arrives within this time
VICTIMS = ("ingest", "ingest", "sorter", "sorter", "jvm", "jvm", "meta", "schema", "dispatcher", "api")
# The log is years old, so age_ms keeps nothing from the index: a run is due for each KiB of segments.
OFTEN = {
    "TISTREAM_SORTER__INDEX__AGE_MS": "0",
    "TISTREAM_SORTER__INDEX__WAIT_MS": "1000",
    "TISTREAM_SORTER__INDEX__RUN_BYTES": "1024",
}


@pytest.fixture
def up(tmp_path: Path) -> Iterator[Platform]:
    with platform.running(tmp_path / "platform", ranges=4, killed=True, environ=OFTEN) as started:
        yield started


class Tenant:
    """REST calls about the tenant. A call is repeated while a process that it needs is started again."""

    def __init__(self, up: Platform, http: httpx.Client) -> None:
        self._url, self._http = f"{up.url}/v1/clusters/{TENANT.cluster_id}/tenants/{TENANT.tenant_id}", http

    def get(self, path: str, **params: Any) -> httpx.Response:
        found: list[httpx.Response] = []

        def answered() -> bool:
            try:
                answer = self._http.get(f"{self._url}{path}", params=params)
            except httpx.TransportError:
                return False
            found.append(answer)
            return answer.status_code != 503

        eventually(answered)
        assert found[-1].status_code == 200, found[-1].text
        return found[-1]

    def lines(self, path: str, **params: Any) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.get(path, **params).content.splitlines()]

    def add_source(self, wanted: dict[str, Any]) -> None:
        def added() -> bool:
            try:
                answer = self._http.post(f"{self._url}/sources", json=wanted)
            except httpx.TransportError:
                return False
            assert answer.status_code in (200, 201, 503), answer.text
            return answer.status_code != 503

        eventually(added)


def shown(rows: list[dict[str, Any]]) -> Counter[str]:
    return Counter(json.dumps([line["key"], line["row"]], sort_keys=True) for line in rows if line["type"] == "row")


# Attack: processes of every service, and the JVMs of ingest and sorter, die at random from the backfill to the end
@pytest.mark.parametrize("seed", seeds(1, 3))
def test_rows_changes_and_differences_are_those_of_the_cluster(up: Platform, tmp_path: Path, seed: int) -> None:
    rng, recorded, stamps = random.Random(seed), log_backup.load(NAME), commit_timestamps(NAME)
    made = cut(NAME, rng.choice([ts for ts in stamps if recorded.start_ts < ts < stamps[len(stamps) // 2]]))
    log, full = tmp_path / "log", tmp_path / "full"
    upstream = prefix.parse_backupmeta(dict(recorded.puts)[prefix.BACKUPMETA]).cluster_id
    for key, body in made.backup(seed, cluster_id=upstream).items():
        golden.put(full, Delivery(0, key, body))
    begun = 20
    for key, body in recorded.puts[:begun]:
        golden.put(log, Delivery(0, key, body))
    up.create_tenant(TENANT)

    def replay() -> None:
        for key, body in recorded.puts[begun:]:
            time.sleep(PUTS_S / len(recorded.puts))
            golden.put(log, Delivery(0, key, body))

    with up.http(PATIENCE_S) as http:
        tenant, upstream_puts = Tenant(up, http), threading.Thread(target=replay)
        tenant.add_source({"kind": "log-backup", "url": str(log), "snapshot": {"kind": "br-full", "url": str(full)}})
        upstream_puts.start()
        told = Counter[str]()
        for _ in range(KILLS):
            time.sleep(rng.uniform(0.2, 2 * PUTS_S / KILLS))  # at any moment
            eventually(lambda: _struck(up, rng.choice(VICTIMS), told))  # one that is just being started is not there
        upstream_puts.join()
        assert told.total() == KILLS, told
        eventually(lambda: int(tenant.get("/status").json()["resolved_ts"] or 0) == recorded.end_ts)
        eventually(lambda: tenant.get("/backfills/b1").json()["state"] == "finished")
        whole = tenant.get("/changes", start_ts=made.t0, limit=1_000_000)
        events = [pull.parse(line) for line in whole.content.splitlines()]
        assert compare.order_differences(events) == []
        assert compare.row_differences(made.set_, events, above=made.t0) == []
        eventually(lambda: any(up.objects.rglob("run/*.parquet")))
        _compare_reads(tenant, made, [ts for ts in stamps if made.t0 <= ts <= recorded.end_ts], rng)


def _struck(up: Platform, victim: str, told: Counter[str]) -> bool:
    """Kill one of these, if there is one, and count it."""
    struck = up.strike(victim)
    told[victim] += struck
    return struck


def _compare_reads(tenant: Tenant, made: CutSet, stamps: list[int], rng: random.Random) -> None:
    """Rows at random timestamps, and differences of random pairs, against the recorded rows."""
    plain = point_world(NAME)
    for _ in range(6):
        low, high = sorted(rng.sample(stamps, 2))
        for version in rng.sample(made.tables(low), 4):
            database, name = version.database, version.head.name
            path = f"/databases/{database}/tables/{name}"
            rows = tenant.lines(f"{path}/rows", ts=low, limit=1_000_000)
            assert shown(rows) == shown(plain.lines(database, name, low)), (database, name, low)
            found = tenant.lines(f"{path}/diff", **{"from": low, "to": high}, limit=1_000_000)
            events = [line for line in found if line["type"] == "row"]
            assert unversioned(events) == unversioned(plain.diff(database, name, low, high)), (name, low, high)


def unversioned(events: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The events without the schema_version, which no snapshot states: it is 0 until the first DDL."""
    return [{name: value for name, value in event.items() if name != "schema_version"} for event in events]
