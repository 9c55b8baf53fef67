"""The input of sorter-job through the whole platform: from the moment files are there until they may be pulled."""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from bench.cases.sorter_job import TRANSACTIONS
from bench.inputs.changes import CLUSTER, Load, Written, snapshot_ts, write
from bench.measure import Bench
from support.platform import Platform
from support.pull import Consumer
from tistream.model.ids import TenantKey
from tistream.storage import layout

WHAT = (
    "2 M transactions (4 M entries, 20 files) become visible at once in the bucket of a running `tistream up` with its "
    "defaults; measured until the tenant's resolved_ts is above all of them, so that pulls answer with them"
)
ROUNDS = 3
PATIENCE_S = 300
POLL_S = 0.01
AIM = 2_000_000  # entries a second


def run(bench: Bench) -> None:
    """See WHAT. Each round has a tenant of its own, the first of them a small one to warm up with."""
    loads = [Load(TRANSACTIONS // 100, 2), *[Load(TRANSACTIONS, 10)] * ROUNDS]
    platform = Platform(bench.tmp / "platform").start()
    try:
        rounds = _rounds(bench.tmp, platform, loads)
        next(rounds)()
        prepared = list(rounds)
        turns = iter(prepared)

        def turn() -> None:
            next(turns)()

        bench.compare(
            "files visible to pullable",
            {"tistream": turn},
            rounds=ROUNDS,
            amount=2 * TRANSACTIONS,
            unit="entries",
            warm=False,
        )
        own = [sample.wall_s for sample in bench.samples]
        bench.figure("entries a second, best round", 2 * TRANSACTIONS / min(own), "entries/s", AIM, "more")
    finally:
        platform.stop()


class _Round:
    """A tenant that is registered and waits for its files."""

    def __init__(self, platform: Platform, consumer: Consumer, source: Path, written: Written) -> None:
        self._objects, self._consumer = platform.objects, consumer
        self._source, self._written = source, written

    def __call__(self) -> None:
        """Show the files, second by second as they were pushed, and wait."""
        for key in [key for second in self._written.keys for key in second]:
            target = self._objects / key
            target.parent.mkdir(parents=True, exist_ok=True)
            os.link(self._source / key, target)
        deadline = time.perf_counter() + PATIENCE_S
        while int(self._consumer.status()["resolved_ts"]) < self._written.end_ts:
            assert time.perf_counter() < deadline, self._consumer.status()
            time.sleep(POLL_S)


def _rounds(folder: Path, platform: Platform, loads: list[Load]) -> Iterator[_Round]:
    for number, load in enumerate(loads):
        tenant = TenantKey(CLUSTER, f"bench-{number}")
        source = folder / f"input-{number}"
        written = write(replace(load, tenant=tenant), source)
        consumer = platform.create_tenant(tenant)
        snapshot = platform.objects / layout.schema_snap(tenant)
        snapshot.parent.mkdir(parents=True, exist_ok=True)
        part = snapshot.with_suffix(".part")
        part.write_text(json.dumps({"version": 1, "snapshot_ts": snapshot_ts(), "databases": []}))
        shutil.move(part, snapshot)
        _wait_for_snapshot(consumer)
        yield _Round(platform, consumer, source, written)


def _wait_for_snapshot(consumer: Consumer) -> None:
    """Until the platform has found the tenant's beginning: what it takes to begin is not what is measured."""
    deadline = time.perf_counter() + PATIENCE_S
    while int(consumer.status()["resolved_ts"]) < snapshot_ts():
        assert time.perf_counter() < deadline, consumer.status()
        time.sleep(POLL_S)
