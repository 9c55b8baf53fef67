"""Rows at commit timestamps of a golden set, read as ListRows reads them, while its tasks are split, its version index
is merged and folded, and retention drops what is old."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

from support import golden
from support.golden_index import GoldenIndex
from support.points_world import PointWorld, commits
from support.pull_world import golden_world
from support.split_world import SplitWorld
from tistream.pool.footers import FooterCache
from tistream.pool.versions.plan import IndexShard, shards_of
from tistream.pool.versions.pool_reads import PoolReads
from tistream.read.group_cache import GroupCache
from tistream_api.points.cached_reader import CachedReader

NAME = "everything"


@dataclass
class RowsWhileSplit:
    """`each`: how many commits are compared after each turn. `compared`: how many were, meanwhile."""

    tasks: int
    keep_ms: int | None
    each: int
    compared: int = 0
    shards: list[IndexShard] = field(default_factory=list)

    def run(self) -> tuple[GoldenIndex, PointWorld]:
        """Play the set; return its index, and reads of it."""
        self._rng = random.Random(self.tasks)
        self._commits = list(commits(NAME))
        self.index = GoldenIndex(golden.load(NAME), self.tasks, self.keep_ms, watch=self._watch)
        objects = self.index.objects
        reader = CachedReader(objects, GroupCache(objects, 64 << 20), FooterCache())
        self.reads = PointWorld(golden_world(NAME), PoolReads(reader, lambda: self.shards, lambda: None))
        self.index.run()
        self.shards = shards_of(self.index.covers)
        return self.index, self.reads

    def _watch(self, world: SplitWorld) -> None:
        self.shards = shards_of(self.index.covers_of(world))
        high = world.progress_ts()
        low = max([self.index.golden.snapshot_ts, self._floor()])
        readable = [one for one in self._commits if low < one[0] <= high]
        for ts, tables in self._rng.sample(readable, min(self.each, len(readable))):
            self.reads.check_commit(NAME, ts, tables)
            self.compared += 1

    def _floor(self) -> int:
        """At and below it, rows may be gone."""
        return max(max(shard.base_ts, shard.begins_ts) for shard in self.shards)

    def check_all(self) -> int:
        """Compare every commit that can still be read; return how many."""
        found = [one for one in self._commits if one[0] > self._floor()]
        for ts, tables in found:
            self.reads.check_commit(NAME, ts, tables)
        return len(found)
