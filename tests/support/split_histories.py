"""Random histories of change files through tasks that are split and merged at random moments, while the sorter dies, an
older one wakes, orders are taken back and readers read."""

from __future__ import annotations

import random
from collections.abc import Callable

import polars as pl
from polars.testing import assert_frame_equal

from support import simulated
from support.pending_rules import any_rules
from support.sim.audit import ObservedStore
from support.simulated import arrival
from support.sorter_world import InlineRunner
from support.split_world import PoolReader, SplitWorld
from tistream.storage.object_store import ObjectStore
from tistream_sorter.node.tick_jobs import Runner
from tistream_sorter.upkeep.compaction_plan import CompactRules
from tistream_sorter.upkeep.gc_plan import CollectRules
from tistream_sorter.upkeep.index_plan import IndexRules
from tistream_upstream.config import ClusterConfig

SECOND = 1_000 << 18


def any_index_rules(rng: random.Random) -> IndexRules:
    """Rules by which runs are made and merged within seconds."""
    return IndexRules(
        age_ms=rng.choice([0, 50, 1_000]),
        run_bytes=rng.choice([1, 1 << 10]),
        rows_max=rng.choice([10, 1 << 20]),
        unpacked_max=rng.choice([1 << 12, 128 << 20]),
        factor=rng.choice([2, 4]),
    )


class History:
    """One cluster's files, and what happens to tasks and sorters while they arrive."""

    def __init__(
        self,
        config: ClusterConfig,
        seed: int,
        ms: int = 4_000,
        keep_ms: int | None = None,
        new_runner: Callable[[ObjectStore], Runner] = InlineRunner,
    ) -> None:
        """`keep_ms`: how long tasks keep rows; then readers do not compare rows, and only the audit looks."""
        self.upstream = simulated.run(config, seed, ms)
        self.truth = self.upstream.cluster.truth.rows
        self.keys = sorted(set(self.truth["key"]))
        self.rng = random.Random(seed + 1)
        cut = any_rules(random.Random(seed + 2), self.rng.choice([1, 3]), 1 << 9)
        few = random.Random(seed + 3)
        self.fate = random.Random(seed + 4)
        self.loss = random.Random(seed + 6)
        self.given_back = 0  # how often the meta server had no task any more
        self.objects = ObservedStore()
        self.world = SplitWorld(
            self.upstream,
            cut=cut,
            objects=self.objects,
            collect=CollectRules(few.choice([0, 20, 20_000]), 10),
            compact=CompactRules(fan_in=few.choice([2, 3, 16]), small_bytes=few.choice([1 << 14, 8 << 20])),
            index=any_index_rules(random.Random(seed + 5)),
            new_runner=new_runner,
        )
        self.world.keep_ms = keep_ms
        self.world.assign()
        self.readers = [PoolReader(self.world, self.world.route())]

    def run(self) -> None:
        tick_share = self.rng.choice([0.3, 0.7, 1.0])
        for file in arrival(self.upstream, self.rng):
            self.world.push(file)
            if self.rng.random() < tick_share:
                self.world.clock.advance(self.rng.choice([1, 11_000]))
                self.world.node.tick()
            self.something()
            assert self.world.stopped() == []
        self.world.withheld.clear()
        for _ in range(3):
            self.world.tick()
            self.world.clock.advance(11_000)
        self.world.tick()
        self.world.node.collect()
        assert self.objects.audit.problems == []
        assert self.world.stopped() == []
        assert self.world.progress_ts() >= self.upstream.end_ts
        self.readers.append(PoolReader(self.world, self.world.route()))
        for reader in self.readers:
            self._read(reader)
            assert reader.resolved_ts >= self.upstream.end_ts

    def something(self) -> None:
        """What may happen between two files."""
        world, rng = self.world, self.rng
        if rng.random() < 0.7:
            world.meta()
        if rng.random() < 0.2:  # tasks come to stand apart
            world.withheld.add((rng.choice(sorted(world.rows)), rng.choice([1, 2, 3])))
        if rng.random() < 0.1:
            world.withheld.clear()
        if rng.random() < 0.3:
            self._order()
        if rng.random() < 0.02:
            self._withdraw()
        if self.fate.random() < 0.03:
            world.forget()
        if self.loss.random() < 0.03:
            world.give_back()
            self.given_back += 1
        if rng.random() < 0.02:
            world.crash(late=rng.random() < 0.5)
        if world.late and rng.random() < 0.1:
            rng.choice(world.late).tick()
        if rng.random() < 0.2:
            rng.choice([world.node, *world.late]).collect()
        if rng.random() < 0.2:
            rng.choice([world.node, *world.late]).compact()
        if rng.random() < 0.05:
            self.readers.append(PoolReader(world, world.route()))
            self.readers[1:] = self.readers[-3:]
        if rng.random() < 0.1:
            self._read(rng.choice(self.readers))

    def _order(self) -> None:
        world, rng = self.world, self.rng
        free = [row for row in world._ordered() if row.task_id not in world.busy()]
        if not free:
            return
        row = rng.choice(free)
        after = [other for other in free if row.span.end and other.span.start == row.span.end]
        inside = [key for key in self.keys if key in row.span and key > row.span.start]
        if after and rng.random() < 0.5:
            world.merge(row.task_id, after[0].task_id, ahead=rng.choice([0, SECOND // 100, SECOND // 10]))
        elif len(world.rows) < 6:
            picked = rng.sample(inside, min(len(inside), rng.choice([1, 2])))
            cuts = {key[: rng.choice([11, len(key)])] for key in picked}
            if cuts := {key for key in cuts if key in row.span and key > row.span.start}:
                world.split(row.task_id, *cuts)

    def _withdraw(self) -> None:
        final = {parent for merge in self.world.merges if merge.final for parent in merge.parents}
        ordered = sorted(self.world.busy() - final)
        if ordered:
            self.world.withdraw(self.rng.choice(ordered))

    def _read(self, reader: PoolReader) -> None:
        reader.refresh()
        if self.world.keep_ms is None:
            assert_frame_equal(reader.rows(), self.truth.filter(pl.col("commit_ts") <= reader.resolved_ts))
