"""The input of sorter-job through the whole platform: from the moment files are there until they may be pulled."""

from __future__ import annotations

import os
import shutil
import statistics
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from bench.cases.sorter_job import TRANSACTIONS
from bench.inputs.changes import CLUSTER, Load, Written, snapshot_ts, write
from bench.measure import Bench
from bench.up import Up, put_snapshot
from tistream.model.ids import TenantKey
from tistream.pool.task_log import TaskLog
from tistream.storage import layout
from tistream.storage.open import open_objects

WHAT = (
    "2 M transactions (4 M entries, 20 files) become visible at once in the bucket of a running `tistream up` with its "
    "defaults, and are announced; measured until the tenant's resolved_ts is above all of them, which is when a pull "
    "may answer with them. Then the rows that the pool names are counted"
)
ROUNDS = 3
USUAL = 4
PATIENCE_S = 300
AIM = 2_000_000  # entries a second


def run(bench: Bench) -> None:
    """See WHAT. Each round has a tenant of its own, the first of them a small one to warm up with."""
    for scale in bench.scales:
        _measure(bench, bench.sized(TRANSACTIONS, scale), scale)


def _measure(bench: Bench, transactions: int, scale: int) -> None:
    loads = [Load(TRANSACTIONS // 100, 2), *[Load(transactions, 10)] * ROUNDS]
    folder = bench.tmp / str(scale)
    with Up(folder / "platform") as up:
        rounds = _rounds(folder, up, loads)
        next(rounds)()
        prepared = list(rounds)
        turns = iter(prepared)

        def turn() -> None:
            next(turns)()

        name, own = "files visible to pullable", {"tistream": turn}
        bench.compare(name, own, ROUNDS, 2 * transactions, "entries", scale, warm=False)
        bench.agree({"pushed": [transactions] * ROUNDS, "pool": [one.rows() for one in prepared]})
    rate = 2 * transactions / statistics.median(sample.wall_s for sample in bench.samples if sample.scale == scale)
    bench.figure("entries a second, the median round", rate, "entries/s", AIM, "more", scale=scale)
    shutil.rmtree(folder)


class _Round:
    """A tenant that is registered and waits for its files."""

    def __init__(self, up: Up, tenant: TenantKey, source: Path, written: Written) -> None:
        self._up, self._tenant, self._source, self._written = up, tenant, source, written

    def __call__(self) -> None:
        """Show the files, second by second as they were pushed, and wait."""
        for second in self._written.keys:
            for key in second:
                target = self._up.objects / key
                target.parent.mkdir(parents=True, exist_ok=True)
                os.link(self._source / key, target)
                named = layout.parse_change_file(key)
                assert named is not None
                self._up.notify(*named)
        self._up.wait_resolved(self._tenant, self._written.end_ts, PATIENCE_S)

    def rows(self) -> int:
        """Rows of the segments that the manifests name, which must be there with the size that is stated."""
        objects = open_objects(f"file://{self._up.objects}")
        rows = 0
        for task_id in self._up.tasks(self._tenant):
            log = TaskLog(objects, self._tenant, task_id)
            log.refresh()
            for segment in log.segments:
                assert objects.head(segment.key).size == segment.size, segment.key
                rows += segment.rows
        return rows


def _rounds(folder: Path, up: Up, loads: list[Load]) -> Iterator[_Round]:
    for number, load in enumerate(loads):
        tenant = TenantKey(CLUSTER, f"bench-{number}")
        source = folder / f"input-{number}"
        written = write(replace(load, tenant=tenant), source)
        put_snapshot(up.objects, tenant, snapshot_ts())
        up.create(tenant)
        up.wait_resolved(tenant, snapshot_ts(), PATIENCE_S)  # what it takes to begin is not what is measured
        yield _Round(up, tenant, source, written)
