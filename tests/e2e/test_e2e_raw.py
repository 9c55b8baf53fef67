"""RawKV of one emulated cluster, through an agent, the platform and a replay, into another one: both are equal.

The regions of the other one move in service/agent/test_replay.py, and a replay continues at its position after errors;
agent and replay are killed meanwhile in soak/test_e2e_raw_killed.py.
"""

from __future__ import annotations

import asyncio
import json
from base64 import b64decode
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import polars as pl
import pyarrow as pa
import pytest

from support import plain_http, raw_set
from support.emulated import EmulatedTikv
from support.platform import Platform
from support.raw_replay import TENANT, Replay, connect, raw_agent, require_equal
from support.raw_target import RawTarget
from tistream_client import AsyncTiStream, RawEvent, TiStream

SPEED = 2  # the six seconds of the record take three


@pytest.fixture
def tikv() -> Iterator[EmulatedTikv]:
    started = EmulatedTikv("raw", speed=SPEED).start()
    yield started
    started.stop()


def test_two_clusters_are_equal_and_pulls_are_what_was_written(
    up: Platform, tikv: EmulatedTikv, tmp_path: Path
) -> None:
    assert "TISTREAM_AGENT__KIND=raw" in connect(up, tikv)
    agent = raw_agent(up, tikv, tmp_path)
    end_ts = raw_set.load().end_ts
    with RawTarget(moving_s=0) as target, plain_http.patient_client() as http:
        replay = Replay(up, target, tmp_path)
        try:
            agent.start()
            replay.start("--until-ts", str(end_ts))
            replay.wait_end()
        finally:
            agent.kill()
            replay.kill()
        require_equal(target, tikv)

        root = f"{up.url}/v1/clusters/{TENANT.cluster_id}/tenants/{TENANT.tenant_id}"
        tenants = http.get(f"{up.url}/v1/clusters/{TENANT.cluster_id}/tenants").json()["tenants"]
        (snapshot_ts,) = (int(one["snapshot_ts"]) for one in tenants if one["tenant_id"] == TENANT.tenant_id)
        events = pulled(http, root, snapshot_ts, end_ts)
        truth = raw_set.truth().sort("commit_ts", "key")
        found = [(int(one["commit_ts"]), key_of(one), one["op"], value_of(one)) for one in events]
        assert found == [
            (ts, key, "put" if op == 1 else "delete", value)
            for ts, key, op, value in truth.select("commit_ts", "key", "op", "value").iter_rows()
        ]
        read_by_client(up.url, snapshot_ts, end_ts, found)
        values(http, root, truth, end_ts)
        refused = http.get(f"{root}/changes", params={"start_ts": str(snapshot_ts)})
        feed = http.post(f"{root}/changefeeds", json={"changefeed_id": "f", "sink_uri": "kafka://127.0.0.1:9/t"})
        for answer in (refused, feed):
            assert answer.status_code == 400
            assert "raw/changes" in answer.json()["detail"]


def read_by_client(url: str, start_ts: int, end_ts: int, wanted: list[tuple[Any, ...]]) -> None:
    """The writes are the same through the Python client, as events and as Arrow, in threads and in asyncio."""
    with TiStream(url) as client:
        tenant = client.tenant(TENANT.cluster_id, TENANT.tenant_id)
        found = tenant.raw_changes(since=start_ts, until=end_ts, page_size=500)
        events = list(found)
        assert [(one.commit_ts, stored(one.keyspace, one.key), one.op, one.value) for one in events] == wanted
        table = found.to_arrow()
        rows = table.to_pylist()
        assert [(one["commit_ts"], stored(one["keyspace"], one["key"]), one["op"], one["value"]) for one in rows] == (
            wanted
        )
        space = events[0].keyspace
        low, high = sorted({one.key for one in events if one.keyspace == space})[:2]
        some = tenant.raw_changes(since=start_ts, until=end_ts, keyspace=space, start_key=low, end_key=high)
        assert list(some) == [one for one in events if (one.keyspace, one.key) == (space, low)]

    async def read() -> tuple[list[RawEvent], pa.Table]:
        async with AsyncTiStream(url) as client:
            tenant = client.tenant(TENANT.cluster_id, TENANT.tenant_id)
            found = tenant.raw_changes(since=start_ts, until=end_ts)
            return [event async for event in found], await found.to_arrow()

    assert asyncio.run(read()) == (events, table)


def pulled(http: httpx.Client, root: str, start_ts: int, end_ts: int) -> list[dict[str, Any]]:
    """All events of PullRaw, page by page."""
    begin = {"start_ts": str(start_ts)}
    events: list[dict[str, Any]] = []
    while True:
        answer = http.get(f"{root}/raw/changes", params={**begin, "end_ts": str(end_ts), "limit": "999"})
        assert answer.status_code == 200, answer.text
        *more, end = map(json.loads, answer.text.splitlines())
        events += more
        if end.get("resolved_ts") == str(end_ts):
            return events
        begin = {"cursor": end["cursor"]}


def key_of(event: dict[str, Any]) -> bytes:
    return stored(int(event["keyspace"]), b64decode(event["key"]))


def stored(keyspace: int, key: bytes) -> bytes:
    """A key as TiKV stores it."""
    return b"r" + keyspace.to_bytes(3, "big") + key


def value_of(event: dict[str, Any]) -> bytes | None:
    return None if event["value"] is None else b64decode(event["value"])


def values(http: httpx.Client, root: str, truth: pl.DataFrame, ts: int) -> None:
    """RawValue of keys that were put last, deleted last, and never there."""
    newest = truth.sort("key", "commit_ts").group_by("key", maintain_order=True).last()
    chosen = [newest.filter((pl.col("op") == op) & (pl.col("expire_ts") == 0)).row(0, named=True) for op in (1, 2)]
    for row in chosen:
        params = {"key": row["key"][4:].hex(), "keyspace": str(int.from_bytes(row["key"][1:4], "big")), "ts": str(ts)}
        answer = http.get(f"{root}/raw/value", params=params)
        if row["op"] == 1:
            assert answer.status_code == 200, answer.text
            assert b64decode(answer.json()["value"]) == row["value"]
            assert answer.json()["commit_ts"] == str(row["commit_ts"])
        else:
            assert (answer.status_code, "was deleted" in answer.json()["detail"]) == (404, True)
    assert http.get(f"{root}/raw/value", params={"key": "00", "ts": str(ts)}).status_code == 404
