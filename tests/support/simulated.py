"""A simulated upstream run to its end in a moment: its files as deliveries, its truth, and coverage from its own files.

Coverage is answered by the sorter's slices over what has been pushed so far, in order of pushing: the most that any
platform could tell.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace

import pyarrow as pa

from support.golden import Delivery
from tistream.model.ids import TenantKey
from tistream.model.span import WHOLE, KeySpan
from tistream.storage import layout
from tistream.storage.backends.memory import MemoryObjectStore
from tistream.storage.change_reader import open_change_file, read_watermarks
from tistream.wire.file_batch import WATERMARKS
from tistream_sorter.watermark.slice_history import SliceHistory
from tistream_sorter.watermark.slices import SliceMap
from tistream_upstream.cluster import Cluster
from tistream_upstream.config import Churn, ClusterConfig, TxnMix
from tistream_upstream.effects import AskCoverage, Effect, Push, WriteTruth

# Small and wild: everything happens within seconds of the cluster's time.
WILD = ClusterConfig(
    tenant=TenantKey("7", "random"),
    stores=3,
    regions=4,
    databases=2,
    tables=3,
    columns=3,
    rows_per_s=60,
    txns_per_s=30,
    rows_max=12,
    indexed=0.5,
    push_ms=300,
    truth_ms=500,
    history_ms=10_000,
    warm_ms=500,
    mix=TxnMix(
        abandoned=0.08,
        lock_only=0.04,
        long=0.08,
        long_ms=(200, 3_000),
        bulk=0.06,
        bulk_rows=4,
        huge_every_ms=4_000,
        huge_rows=30,
        late_secondaries=0.1,
        late_ms=(200, 3_000),
        orphaned=0.4,
        rewritten=0.4,
        row_locks=0.2,
        sourced=0.1,
    ),
    churn=Churn(
        per_s=5.0,
        batch_split=0.4,
        gone=0.15,
        late_upload=0.5,
        repeated_file=0.15,
        idle_untold=0.3,
        slow_store=0.1,
        slow_ms=(200, 1_500),
    ),
    keep_truth=True,
)

# Bulk transactions that flush again and again while regions move: flushes come after the commit, or are lost and only
# a scan has them.
FLUSHING = replace(WILD, mix=replace(WILD.mix, bulk=0.5), churn=replace(WILD.churn, move=6.0, restart=2.0))
# Agents that lose what they had, while locks come and go: scans bring back what was settled.
LOSING = replace(
    WILD, mix=replace(WILD.mix, long=0.3, abandoned=0.2), churn=replace(WILD.churn, restart=6.0, lost_push=1.0)
)

Answer = Callable[[AskCoverage], Sequence[tuple[KeySpan, int]]]


@dataclass
class Run:
    """What a cluster pushed until its end, in order of arrival. Everything must be known through `end_ts`.

    `refused`: what a platform that saw each file as it came would not have taken.
    """

    cluster: Cluster
    files: list[Delivery] = field(default_factory=list)
    chain_starts: set[tuple[int, int]] = field(default_factory=set)
    refused: list[Delivery] = field(default_factory=list)
    lines: list[WriteTruth] = field(default_factory=list)
    end_ts: int = 0

    @property
    def tenant(self) -> TenantKey:
        return self.cluster.config.tenant

    @property
    def snapshot_ts(self) -> int:
        return self.cluster.snapshot_ts

    @property
    def schema_snap(self) -> Delivery:
        return Delivery(0.0, layout.schema_snap(self.tenant), self.cluster.schema_snap)


def run(
    config: ClusterConfig, seed: int, ms: int, step_ms: int = 50, watch: Callable[[int, int], None] | None = None
) -> Run:
    """`ms` of a cluster's time, and what it takes to end all that is under way.

    `watch` is told after each step what the cluster says that its files promise, and what they cover.
    """
    driver = _Driver(Run(Cluster(config, seed)), random.Random(seed))
    cluster = driver.run.cluster
    begin_ms = cluster.now_ms
    while cluster.now_ms < begin_ms + ms:
        driver.take(cluster.advance(cluster.now_ms + step_ms))
        if watch is not None:
            watch(cluster.promised_ts, driver.watermark())
    cluster.stop()
    while not cluster.quiet:
        driver.take(cluster.advance(cluster.now_ms + step_ms))
        assert cluster.now_ms < begin_ms + ms + 120_000, "the cluster does not come to rest"
    driver.run.end_ts, effects = cluster.finish()
    driver.take(effects)
    return driver.run


class _Driver:
    """Files go to memory; coverage is asked a little later, of the slices."""

    def __init__(self, run_: Run, rng: random.Random) -> None:
        self.run = run_
        self._objects = MemoryObjectStore()
        self._slices = SliceMap(WHOLE, run_.cluster.snapshot_ts)
        self._read_files = 0
        self._asked: list[AskCoverage] = []
        self._rng = rng
        self._chains: dict[int, tuple[int, int]] = {}  # store -> its chain's first file and last
        self._broken: set[int] = set()

    def take(self, effects: Iterable[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, Push):
                self._push(effect)
            elif isinstance(effect, AskCoverage):
                self._asked.append(effect)
            elif isinstance(effect, WriteTruth):
                self.run.lines.append(effect)
        for asked in list(self._asked):
            if self._rng.random() < 0.3:
                self._read()
                states = self._slices.states(asked.span)
                told = [(KeySpan(state.start, state.end), state.resolved_ts) for state in states]
                if self.run.cluster.coverage(asked.request, told):
                    self._asked.remove(asked)

    def _push(self, push: Push) -> None:
        file = Delivery(float(self.run.cluster.now_ms), push.key, push.body)
        if not self._taken(push):
            self.run.refused.append(file)
            return
        self.run.files.append(file)
        if not push.prev_ts:
            self.run.chain_starts.add((push.store_id, push.ts))

    def _taken(self, push: Push) -> bool:
        """Whether the file goes on where its store's chain ends, or begins a new one (design.md 2)."""
        store_id = push.store_id
        first_ts, at_ts = self._chains.get(store_id, (0, 0))
        if not push.prev_ts and push.ts > at_ts:
            self._broken.discard(store_id)
            self._chains[store_id] = push.ts, push.ts
            return True
        if push.ts < first_ts or store_id in self._broken:
            return False
        if push.prev_ts != at_ts:
            assert push.prev_ts < at_ts, "a file is missing"
            self._broken.add(store_id)
            return False
        self._chains[store_id] = first_ts, push.ts
        return True

    def _read(self) -> None:
        for file in self.run.files[self._read_files :]:
            store_id, ts = file.store_and_ts
            self._objects.put(file.key, file.data)
            rows = read_watermarks(self._objects, open_change_file(self._objects, file.key)).to_pylist()
            table = pa.Table.from_pylist([{**row, "file": 0, "task_id": 1} for row in rows], schema=WATERMARKS)
            deque(self._slices.applying(table, store_id, ts, 0, SliceHistory()), 0)
        self._read_files = len(self.run.files)

    def watermark(self) -> int:
        """What all files so far cover."""
        self._read()
        return self._slices.watermark()


def covered(run_: Run) -> int:
    """Up to where a task of the whole key space would count the watermarks of a run's files."""
    return _Driver(run_, random.Random(0)).watermark()


def arrival(files: Run, rng: random.Random) -> list[Delivery]:
    """Some order that keeps every chain's."""
    chains: dict[tuple[int, int], list[Delivery]] = {}
    begun: dict[int, int] = {}
    for file in files.files:
        store, ts = file.store_and_ts
        begun[store] = ts if (store, ts) in files.chain_starts else begun[store]
        chains.setdefault((store, begun[store]), []).append(file)
    order: list[Delivery] = []
    while chains:
        # Mostly the one that was pushed first.
        chain = min(chains, key=lambda c: chains[c][0].at_ms) if rng.random() < 0.5 else rng.choice(sorted(chains))
        order.append(chains[chain].pop(0))
        if not chains[chain]:
            del chains[chain]
    return order
