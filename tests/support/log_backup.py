"""The golden log backups, replayed put by put into the adapter, and from there into the sorter's own ticks."""

from __future__ import annotations

import functools
import itertools
import json
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import polars as pl

from support import golden
from support.effort import FULL
from support.golden import Delivery, GoldenSet
from support.pull_world import history_of, world_of
from support.simulation import Simulation, many_shards
from tistream.clock import ManualClock
from tistream.decode.keys import table_ids
from tistream.format.change_file import COMMITTED
from tistream.model.ids import TenantKey
from tistream.model.span import WHOLE, KeySpan
from tistream.pool.versions.plan import IndexShard
from tistream.read.cursor import Position
from tistream.storage import layout
from tistream.storage.backends.memory import MemoryObjectStore
from tistream.storage.change_reader import open_change_file, read_changes, read_watermarks
from tistream.storage.object_store import ObjectStore
from tistream_ingest.jobs.local import LocalRunner
from tistream_ingest.jobs.work import PoolShards
from tistream_ingest.plan.cuts import FileLimits
from tistream_ingest.plan.rules import SourceRules
from tistream_ingest.source.bucket import Bucket
from tistream_ingest.source.source import ReleaseRunner, SourceIdentity, SourceRunner
from tistream_ingest.source.stopped import SourceHeld
from tistream_sorter.upkeep.shards import CutRules

ROOT = golden.ROOT / "logbackup"
NAMES = ("everything", "everything-6.5", "large")
HOLDS_MAX = 20  # the sorter takes what there is before each step, so a source that is held on and on hangs
SMALL = SourceRules(FileLimits(2_000, 1 << 20), shard_bytes_min=1 << 16)  # many files and shards


@dataclass(frozen=True, slots=True)
class LogSet:
    """A log backup: its puts in order, and the push set of the same changes."""

    name: str
    puts: tuple[tuple[str, bytes], ...]
    start_ts: int
    end_ts: int

    @property
    def pushed(self) -> GoldenSet:
        """The same changes as stores push them: schema and expectation are those of this set."""
        return golden.load(self.name.partition("-")[0])


@functools.cache
def load(name: str) -> LogSet:
    """A golden log backup."""
    root = ROOT / name
    stated = json.loads((root / "layout.json").read_text())
    puts = tuple(_put(root, json.loads(line)) for line in (root / "arrival.jsonl").read_text().splitlines())
    return LogSet(name, puts, int(stated["base_ts"]), int(stated["end_ts"]))


def _put(root: Path, line: dict[str, Any]) -> tuple[str, bytes]:
    key = line["key"]
    return key, bytes.fromhex(line["hex"]) if "hex" in line else (root / "objects" / key).read_bytes()


@functools.cache
def truth(name: str) -> pl.DataFrame:
    """Every committed change up to the last checkpoint, without index entries, as oracle.COLUMNS.

    The log has no row from before its start, so the first change of a key has no old value."""
    rows = golden.committed_rows(load(name).pushed.name).filter(pl.col("commit_ts") <= load(name).end_ts)
    before = pl.col("value").shift(1).over("key", order_by="commit_ts")
    return rows.with_columns(old_value=before).sort("commit_ts", "start_ts", "key")


class SorterPool:
    """The pool that the sorter's ticks have written in this process."""

    def __init__(self, simulation: Simulation) -> None:
        self._simulation = simulation

    def reached_ts(self) -> int:
        return self._simulation.progress_ts

    def current(self) -> PoolShards:
        tasks = sorted(self._simulation.tasks, key=lambda task: task.identity.span.start)
        shards = tuple(
            IndexShard(
                task.identity.span,
                tuple(segment for manifest in task.committed for segment in manifest.segments),
            )
            for task in tasks
        )
        return PoolShards(shards, self._simulation.loaded.snapshot_ts)


def few_shards(rng: random.Random) -> CutRules:
    """The sorter's ticks with two shards at most: tens of them are tried in support.any_order, and here in the soak."""
    return many_shards(rng) if FULL else CutRules(2, 1 << 16)


@dataclass
class Adapted:
    """One tenant whose only source is a log backup: the bucket, adapters, and the pipeline behind them."""

    name: str
    rules: SourceRules = field(default_factory=SourceRules)
    spans: Sequence[KeySpan] = (WHOLE,)
    seed: int = 0

    def __post_init__(self) -> None:
        self.set = load(self.name)
        pushed = self.set.pushed
        self.tenant = TenantKey(pushed.tenant.cluster_id, pushed.tenant.tenant_id)
        self.bucket = MemoryObjectStore()
        loaded = replace(pushed, files=(), snapshot_ts=self.set.start_ts, end_ts=self.set.end_ts)
        self.simulation = Simulation(loaded, self.spans, self.seed, few_shards)
        self.objects = self.simulation.objects
        self.pool = SorterPool(self.simulation)
        self.clock = ManualClock()
        self.taken: list[str] = []  # change files that the sorter has
        self.announced: list[int] = []

    def adapter(self, objects: ObjectStore | None = None, log: ObjectStore | None = None) -> SourceRunner:
        """A process that adapts, with nothing in memory."""
        target, bucket = objects or self.objects, log or self.bucket
        runner: ReleaseRunner = LocalRunner(lambda url: bucket, target)
        identity = SourceIdentity("log", self.tenant, "memory:", self.set.start_ts, False)
        return SourceRunner(
            identity, Bucket(bucket), target, self.pool, runner, self.clock, self._announced, self.rules
        )

    def _announced(self, tenant: TenantKey, store_id: int, ts: int) -> None:
        assert (tenant, store_id) == (self.tenant, 0)
        self.announced.append(ts)

    def replay(self) -> Iterator[str]:
        """Put the objects one by one; yields each key after its put."""
        for key, body in self.set.puts:
            self.bucket.put(key, body)
            yield key

    def run(self, source: SourceRunner) -> int:
        """Let an adapter release what it can, and the sorter take it. Returns the number of releases."""
        made = holds = 0
        while True:
            self.settle()
            try:
                if not source.step():
                    return made
            except SourceHeld as held:
                holds += 1
                if held.stage != "sort" or holds > HOLDS_MAX:
                    raise
                continue
            made += 1
            holds = 0

    def settle(self) -> None:
        """The sorter takes every new change file, and flushes."""
        prefix = layout.change_file_prefix(self.tenant, 0)
        for info in self.objects.list_after(prefix, self.taken[-1] if self.taken else ""):
            if not self.taken:
                self.simulation.begin_chain(0, Delivery(0, info.key, b"").store_and_ts[1])
            self.simulation.arrive(Delivery(0.0, info.key, self.objects.get(info.key)))
            self.taken.append(info.key)
        for task in self.simulation.tasks:
            while task.queue:
                self.simulation.tick(task, len(task.queue))

    def files(self, known: int) -> list[pl.DataFrame]:
        """The changes of each change file but the first `known`, in the chain's order."""
        found = []
        infos = self.objects.list_after(layout.change_file_prefix(self.tenant, 0))
        for info in itertools.islice(infos, known, None):
            file = open_change_file(self.objects, info.key)
            rows = pl.from_arrow(read_changes(self.objects, file, range(len(file.change_groups))))
            assert isinstance(rows, pl.DataFrame)
            assert rows.filter(pl.col("type") != COMMITTED).is_empty()
            found.append(rows)
        return found

    def watermarks(self) -> list[int]:
        """The resolved_ts of the files, in the chain's order."""
        infos = self.objects.list_after(layout.change_file_prefix(self.tenant, 0))
        return [ts for info in infos for ts in self._watermarks_of(info.key)]

    def last_watermark(self) -> int | None:
        """The last of `watermarks`, of which only that one is read. None if there is none yet."""
        infos = list(self.objects.list_after(layout.change_file_prefix(self.tenant, 0)))
        found = (self._watermarks_of(info.key) for info in reversed(infos))
        return next((stamps[-1] for stamps in found if stamps), None)

    def _watermarks_of(self, key: str) -> list[int]:
        file = open_change_file(self.objects, key)
        stamps: list[int] = (
            read_watermarks(self.objects, file)["resolved_ts"].to_pylist() if file.watermark_groups else []
        )
        return stamps

    def events(self) -> list[dict[str, Any]]:
        """What a pull of the tenant from its snapshot to its last release answers: decoded by the API's own reader."""
        rows = self.simulation.pool()
        rows = rows.with_columns(pl.Series("table_id", table_ids(rows["key"].to_arrow()), pl.Int64))
        history = history_of(self.simulation.loaded, rows)
        world = world_of(self.simulation.loaded, rows, history)
        return [json.loads(line) for line in world.pull(start=Position(self.set.start_ts)).splitlines()]
