"""What a task tells as its progress is in the pool by then: every row at or below it."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from support.sorter_world import InlineRunner, SorterWorld
from support.tiny_tenant import TinyTenant, key, watermark, whole
from tistream_sorter.jobs.index.index_unit import IndexResult, IndexUnit
from tistream_sorter.jobs.rewrite import Rewrite, Rewritten
from tistream_sorter.jobs.shard import Shard, ShardResult

TINY = TinyTenant()
FIRST = TINY.file(1, 200, 0, [], watermark(6, 5, 150, base_ts=100))


class Watched:
    """Runs shards, and notes what is told meanwhile. `failed`: the store's answer to all of them."""

    def __init__(self, world: SorterWorld) -> None:
        self._inner, self._world = InlineRunner(world.objects), world
        self.failed: str | None = None
        self.told: list[int] = []

    def run(self, shards: Sequence[Shard], *, beside: bool = False) -> list[ShardResult]:
        self.told.append(self._world.progress_ts())
        if self.failed is not None:
            return [ShardResult(shard.task_id, shard.number, failed=self.failed) for shard in shards]
        return self._inner.run(shards)

    def rewrite(self, units: Sequence[Rewrite]) -> list[Rewritten]:
        return self._inner.rewrite(units)

    def merge_index(self, units: Sequence[IndexUnit]) -> list[IndexResult]:
        return self._inner.merge_index(units)


def test_nothing_is_told_before_it_is_committed() -> None:
    world = SorterWorld(TINY, [])
    runner = Watched(world)
    world.runner = runner
    world.start()
    world.push(FIRST)
    world.tick()
    world.push(TINY.file(1, 210, 200, [whole(b"a", 160, 170, 6)], watermark(6, 7, 205)))
    runner.failed = "no answer"
    world.node.tick()
    assert world.progress_ts() == 150
    runner.failed = None
    world.node.tick()
    assert runner.told == [150, 150]
    assert world.progress_ts() == 205
    assert world.pool()["commit_ts"].to_list() == [170]


@pytest.mark.parametrize("resolved_ts", [300, 301])
def test_a_watermark_that_passes_pending_rows_flushes_them(resolved_ts: int) -> None:
    """The row came in a file whose watermark lay below it; the next file has no entries at all."""
    world = SorterWorld(TINY, [])
    world.push(FIRST)
    world.push(TINY.file(1, 210, 200, [whole(b"a", 160, 300, 6)], watermark(6, 7, 205)))
    world.tick()
    world.push(TINY.file(1, 220, 210, [], watermark(8, 7, resolved_ts)))
    world.tick()
    assert world.progress_ts() == resolved_ts
    assert world.pool()["key"].to_list() == [key(b"a")]
