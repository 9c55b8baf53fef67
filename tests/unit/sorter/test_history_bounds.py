"""The history of slices is bounded in memory and in what a shard gets, however many files wait."""
# Attack: a long backlog of files with watermarks alone, while a lock is pending

from __future__ import annotations

from collections.abc import Sequence

import pytest

from support.sorter_world import InlineRunner, SorterWorld
from support.tiny_tenant import Row, TinyTenant, key, prewrite, watermark, whole
from tistream import arrow_ipc
from tistream.storage.backends.memory import MemoryObjectStore
from tistream_sorter.jobs.shard import Shard, ShardResult
from tistream_sorter.task import task_machine, tick

TINY = TinyTenant()
MIDDLE = key(b"m")


class Watched(InlineRunner):
    """Remembers the shards that it has run."""

    seen: tuple[Shard, ...] = ()

    def run(self, shards: Sequence[Shard], *, beside: bool = False) -> list[ShardResult]:
        self.seen = tuple(shards)
        return super().run(shards)


def begun(world: SorterWorld, *changes: Row) -> SorterWorld:
    world.push(TINY.file(1, 200, 0, changes, watermark(6, 5, 150, base_ts=100)))
    world.tick()
    return world


def test_files_whose_rows_are_applied_as_arrays_are_taken_a_few_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tick, "HISTORY_AT_ONCE", 5)
    world = begun(SorterWorld(TINY, []))
    for number in range(12):
        world.push(TINY.file(1, 210 + number, 209 + number if number else 200, [], watermark(6, 5, 300 + number)))
    seen = []
    for _ in range(4):
        world.node.tick()
        seen.append(world.progress_ts())
    assert seen == [305, 311, 311, 311]
    assert world.stopped() == []


def test_a_history_that_is_full_ends_with_a_manifest_while_a_lock_is_pending(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tick, "HISTORY_AT_ONCE", 5)
    monkeypatch.setattr(task_machine, "HISTORY_AT_ONCE", 5)
    world = begun(SorterWorld(TINY, []), prewrite(b"a", 160, 5))
    counts = []
    for number in range(30):
        world.push(TINY.file(1, 210 + number, 209 + number if number else 200, [], watermark(6, 5, 155)))
        world.node.tick()
        (task,) = world.node.tasks()
        counts.append(task.state.history.count)
        assert len(task.state.pending) == 1
    assert max(counts) == 6
    assert world.stopped() == []


@pytest.mark.parametrize(("many", "starts"), [(1 << 16, {b"", MIDDLE}), (0, {MIDDLE})])
def test_of_many_changes_a_shard_gets_those_of_its_keys(
    monkeypatch: pytest.MonkeyPatch, many: int, starts: set[bytes]
) -> None:
    monkeypatch.setattr(tick, "CLIP_CHANGES", many)
    objects = MemoryObjectStore()
    runner = Watched(objects)
    world = SorterWorld(TINY, [], objects=objects, runner=runner)
    halves = [
        watermark(6, 5, 150, base_ts=100, region_id=1, end_key=MIDDLE),
        watermark(6, 5, 150, base_ts=100, region_id=2, key=MIDDLE),
    ]
    world.push(TINY.file(1, 200, 0, [], *halves))
    world.tick()
    later = [watermark(6, 6, 180, region_id=1, end_key=MIDDLE), watermark(6, 6, 180, region_id=2, key=MIDDLE)]
    world.push(TINY.file(1, 210, 200, [{**whole(b"x", 160, 170, 6), "region_id": 2}], *later))
    world.tick()
    (shard,) = runner.seen
    assert set(arrow_ipc.from_bytes(shard.history)["start_key"].to_pylist()) == starts
    assert world.pool()["commit_ts"].to_list() == [170]
