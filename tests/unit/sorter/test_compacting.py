"""Jobs that put segments together and fail: what comes of it, and when they are tried again."""

from __future__ import annotations

from collections.abc import Sequence

from support.sorter_world import InlineRunner
from support.split_world import SplitWorld
from support.tiny_tenant import TinyTenant, key, watermark, whole
from tistream.errors import Unavailable
from tistream.storage import layout
from tistream.storage.backends.memory import MemoryObjectStore
from tistream.storage.manifest_follow import TaskObjects
from tistream.storage.object_store import ObjectStore
from tistream_sorter.jobs.rewrite import Rewrite, Rewritten
from tistream_sorter.upkeep.compaction_plan import CompactRules
from tistream_sorter.upkeep.gc_plan import CollectRules

TINY = TinyTenant()


class Deadly(InlineRunner):
    """A job with segments of task `kills` dies, with all that is in it, after it has written them."""

    kills = 0

    def __init__(self, objects: ObjectStore) -> None:
        super().__init__(objects)
        self.jobs: list[list[int]] = []

    def rewrite(self, units: Sequence[Rewrite]) -> list[Rewritten]:
        self.jobs.append([unit.task_id for unit in units])
        done = super().rewrite(units)
        if any(unit.task_id == self.kills for unit in units):
            raise RuntimeError("the worker ran out of memory")
        return done


class Slow(MemoryObjectStore):
    """Does not answer who reads segments, for a while."""

    slow = False
    asked = 0

    def get_tail(self, key: str, length: int) -> tuple[bytes, int]:
        if self.slow:
            self.asked += 1
            raise Unavailable(f"{key}: slow down")
        return super().get_tail(key, length)


class World:
    """Two tasks, each with four segments of its own."""

    def __init__(self, objects: MemoryObjectStore | None = None) -> None:
        self.split = SplitWorld(
            TINY,
            objects=objects,
            collect=CollectRules(0, every_ms=0),
            compact=CompactRules(fan_in=4),
            new_runner=self._new_runner,
        )
        self.split.push(TINY.file(1, 200, 0, [], watermark(6, 5, 150, base_ts=100)))
        self.split.tick()
        self.split.split(1, key(b"m"))
        self.split.tick()
        for at in range(4):
            ts, index = 210 + 10 * at, 6 + 2 * at
            rows = [whole(b"a", ts - 8, ts - 7, index), whole(b"z", ts - 6, ts - 5, index + 1)]
            self.split.push(TINY.file(1, ts, ts - 10, rows, watermark(index, index + 1, ts - 3)))
            self.split.tick()

    def _new_runner(self, objects: ObjectStore) -> Deadly:
        self.runner = Deadly(objects)
        return self.runner

    def segments(self, task_id: int) -> list[int]:
        """Rows of each."""
        view = TaskObjects(self.split.objects, TINY.tenant, task_id).follow()
        return [segment.rows for segment in view.segments]

    def turns(self, seconds: int) -> None:
        """As the loops do: at once again where there was something to do, else a second later."""
        for _ in range(seconds):
            for _ in range(20):
                if not self.split.node.compact():
                    break
                self.split.tick()
            else:
                raise AssertionError("never comes to rest")
            self.split.clock.advance(1_000)


def test_a_job_that_dies_for_one_tasks_sake_is_done_for_the_others() -> None:
    world = World()
    world.runner.kills = 2
    world.turns(1)
    assert (world.segments(2), world.segments(3)) == ([1, 1, 1, 1], [4])
    world.runner.kills = 0
    world.turns(6)
    assert world.segments(2) == [4]


def test_what_fails_is_tried_again_ever_less_often() -> None:
    world = World()
    world.runner.kills = 2
    world.turns(3_600)
    assert 5 <= len(world.runner.jobs) <= 20
    slow = Slow()
    world = World(slow)
    slow.slow = True
    world.turns(3_600)
    assert 2 * 5 <= slow.asked <= 2 * 20
    slow.slow = False
    world.turns(700)
    assert (world.segments(2), world.segments(3)) == ([4], [4])


def test_what_a_job_that_died_has_written_is_deleted() -> None:
    world = World()
    world.runner.kills = 2
    world.turns(60)
    world.split.tick()
    world.split.node.collect()
    for task_id in (2, 3):
        view = TaskObjects(world.split.objects, TINY.tenant, task_id).follow()
        prefix = layout.data_prefixes(TINY.tenant, task_id)[0]
        there = {info.key for info in world.split.objects.list_after(prefix)}
        assert there == {segment.key for segment in view.segments}
