"""Many consumers at once: memory, time to the first byte, and how soon waiting ones hear of a change."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence

import httpx
import orjson

from bench import proc_tree
from bench.contenders.pull_server import PullServer
from bench.inputs.changes import TENANT
from bench.inputs.pulled_pool import SNAPSHOT_TS
from bench.measure import Bench
from bench.remote import Remote

WHAT = (
    "170 long polls and 20 pulls of everything at full speed on one API server, over HTTP; its process also runs the "
    "rest of a small platform, and the consumers share the machine's cores"
)
ROWS = 200_000
POLLS, PULLS = 170, 20  # of one tenant a server answers 196
PATH = f"/v1/clusters/{TENANT.cluster_id}/tenants/{TENANT.tenant_id}/changes"
PATIENCE_S = 900
USUAL = 16


def run(bench: Bench) -> None:
    """See WHAT."""
    for scale in bench.scales:
        with bench.remote(PullServer, ROWS) as server:
            polls, pulls = bench.sized(POLLS, scale), max(1, bench.sized(PULLS, scale))
            asyncio.run(_measure(bench, server, server("url"), polls, pulls, scale))


async def _measure(bench: Bench, server: Remote, url: str, poll_count: int, pull_count: int, scale: int) -> None:
    limits = httpx.Limits(max_connections=None, max_keepalive_connections=poll_count + pull_count)
    async with httpx.AsyncClient(
        base_url=url, timeout=PATIENCE_S, limits=limits, trust_env=False, headers={"accept-encoding": "identity"}
    ) as client:
        cursor = await _caught_up(client)
        await _pull(client)
        bench.figure("time to the first byte, one pull alone", await _first_byte(client), "ms", 100, scale=scale)
        before = proc_tree.memory_bytes(server.pid)
        bench.figure("memory before", before / 2**20, "MiB", scale=scale)
        with proc_tree.PeakMemory(server.pid) as peak:
            polls = [asyncio.create_task(_poll(client, cursor)) for _ in range(poll_count)]
            await asyncio.sleep(2)
            waiting = proc_tree.memory_bytes(server.pid)
            began = time.perf_counter()
            pulls = await asyncio.gather(*(_pull(client) for _ in range(pull_count)))
            took = time.perf_counter() - began
            assert not any(poll.done() for poll in polls)
            pushed = asyncio.create_task(asyncio.to_thread(server, "push"))
            heard = await asyncio.gather(*polls)
            await pushed
        bench.figure("memory that waiting polls add", (waiting - before) / 2**20, "MiB", scale=scale)
        bench.figure("memory that everything adds at its peak", (peak.bytes - before) / 2**20, "MiB", scale=scale)
        rate, slowest = sum(rows for rows, _ in pulls) / took, max(first for _, first in pulls)
        bench.figure("pulls together", rate, "events/s", better="more", scale=scale)
        bench.figure("the slowest of them to its first byte", 1000 * slowest, "ms", scale=scale)
        bench.figure("from the first poll that heard to the last", 1000 * (max(heard) - min(heard)), "ms", scale=scale)


async def _caught_up(client: httpx.AsyncClient) -> str:
    """The cursor behind everything."""
    for _ in range(PATIENCE_S):
        answer = await client.get(PATH, params={"start_ts": str(SNAPSHOT_TS), "limit": "1000000"})
        if answer.status_code == 200 and answer.content.count(b"\n") > ROWS:
            return str(orjson.loads(answer.content.splitlines()[-1])["cursor"])
        await asyncio.sleep(1)
    raise TimeoutError(answer.text[:500])


async def _pull(client: httpx.AsyncClient) -> tuple[int, float]:
    """Everything in one answer: events, and seconds to the first byte."""
    began, first, rows = time.perf_counter(), 0.0, -1
    async with client.stream("GET", PATH, params={"start_ts": str(SNAPSHOT_TS), "limit": "1000000"}) as answer:
        assert answer.status_code == 200, await answer.aread()
        async for piece in answer.aiter_raw():
            first = first or time.perf_counter() - began
            rows += piece.count(b"\n")
    return rows, first


async def _first_byte(client: httpx.AsyncClient) -> float:
    """Milliseconds, the median of some."""
    times: list[float] = []
    for _ in range(9):
        times.append((await _pull_some(client)) * 1000)
    return _median(times)


async def _pull_some(client: httpx.AsyncClient) -> float:
    began = time.perf_counter()
    async with client.stream("GET", PATH, params={"start_ts": str(SNAPSHOT_TS), "limit": "10000"}) as answer:
        async for _ in answer.aiter_raw():
            return time.perf_counter() - began
    raise AssertionError("an empty answer")


def _median(values: Sequence[float]) -> float:
    return sorted(values)[len(values) // 2]


async def _poll(client: httpx.AsyncClient, cursor: str) -> float:
    """Long polls until there is an event; when it came."""
    while True:
        answer = await client.get(PATH, params={"cursor": cursor, "wait_ms": "60000"})
        assert answer.status_code == 200, answer.text
        if answer.content.count(b"\n") > 1:
            return time.perf_counter()
