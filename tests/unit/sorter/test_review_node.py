"""What goes wrong around a tick: it stays with its task, is told, and ends when its cause does."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from support.change_files import flipped_change_group
from support.faulty_store import Fault, FaultyObjectStore
from support.sorter_world import InlineRunner, SorterWorld
from support.tiny_tenant import TinyTenant, commit, key, prewrite, watermark, whole
from tistream.clock import ManualClock
from tistream.format import manifest as manifests
from tistream.format.manifest import KIND_TICK, Manifest
from tistream.storage import layout, manifest_log
from tistream.storage.backends.memory import MemoryObjectStore
from tistream_sorter.jobs.index.index_unit import IndexResult, IndexUnit
from tistream_sorter.jobs.rewrite import Rewrite, Rewritten
from tistream_sorter.jobs.shard import Shard, ShardResult
from tistream_sorter.task.tick import lookup_needed

TINY = TinyTenant()
FIRST = TINY.file(1, 200, 0, [], watermark(6, 5, 150, base_ts=100))
SECOND = TINY.file(1, 210, 200, [prewrite(b"a", 160, 6), commit(b"a", 160, 170, 7)], watermark(6, 7, 205))


class JumpingClock(ManualClock):
    """Its wall time can be set back."""

    jump_ms = 0

    def now_ms(self) -> int:
        return super().now_ms() + self.jump_ms


class BrokenRunner:
    """Runs shards, or fails as the store or Spark do."""

    def __init__(self, world: SorterWorld) -> None:
        self._inner = InlineRunner(world.objects)
        self.failed: str | None = None
        self.error: Exception | None = None

    def run(self, shards: Sequence[Shard], *, beside: bool = False) -> list[ShardResult]:
        if self.error is not None:
            raise self.error
        if self.failed is not None:
            return [ShardResult(shard.task_id, shard.number, failed=self.failed) for shard in shards]
        return self._inner.run(shards)

    def rewrite(self, units: Sequence[Rewrite]) -> list[Rewritten]:
        return self._inner.rewrite(units)

    def merge_index(self, units: Sequence[IndexUnit]) -> list[IndexResult]:
        return self._inner.merge_index(units)


def holds(world: SorterWorld) -> list[tuple[str, str]]:
    now_ms = world.clock.monotonic_ms()
    return [(hold.stage, hold.reason) for task in world.node.tasks() for hold in task.status(0, now_ms).holds]


def test_a_new_chain_goes_on_beside_one_with_a_damaged_row_group() -> None:
    world = SorterWorld(TINY, [])
    world.push(FIRST)
    world.push(replace(SECOND, data=flipped_change_group(SECOND.data)))
    world.push(TINY.file(1, 300, 0, [whole(b"a", 160, 170, 7)], watermark(8, 7, 290, base_ts=150)))
    for _ in range(3):
        world.node.tick()
    assert world.progress_ts() == 290
    assert world.pool()["key"].to_list() == [key(b"a")]
    world.clock.advance(60_000)
    assert [stage for stage, _ in holds(world) if stage == "damaged"] == []


def test_a_damaged_file_is_taken_once_it_is_sound_though_the_wall_clock_went_back() -> None:
    world = SorterWorld(TINY, [])
    clock = JumpingClock(1_000_000_000)
    world.clock = clock
    world.start()
    world.push(FIRST)
    world.push(replace(SECOND, data=flipped_change_group(SECOND.data)))
    world.node.tick()
    clock.jump_ms = -3_600_000
    clock.advance(3_000)
    assert [stage for stage, _ in holds(world) if stage == "damaged"] == ["damaged"]
    world.objects.put(SECOND.key, SECOND.data)
    world.send(world.sent[-1:])
    world.tick()
    assert world.progress_ts() == 205
    assert [stage for stage, _ in holds(world) if stage == "damaged"] == []


def test_progress_without_changes_is_written_though_the_wall_clock_went_back() -> None:
    world = SorterWorld(TINY, [])
    clock = JumpingClock(1_000_000_000)
    world.clock = clock
    world.start()
    world.push(FIRST)
    world.tick()
    clock.jump_ms = -3_600_000
    world.push(TINY.file(1, 220, 200, [], watermark(6, 5, 215)))
    clock.advance(11_000)
    world.tick()
    assert [task.state.flushed_ts for task in world.node.tasks()] == [215]


def test_a_store_that_does_not_answer_is_told_and_does_not_make_the_node_spin() -> None:
    world = SorterWorld(TINY, [])
    runner = BrokenRunner(world)
    world.runner = runner
    world.start()
    world.push(FIRST)
    world.push(SECOND)
    runner.failed = "cannot read some/object"
    assert not world.node.tick()
    assert ("sort", "task 1: cannot read some/object") in holds(world)
    runner.failed, runner.error = None, RuntimeError("Job aborted\n at a.long.trace")
    assert not world.node.tick()
    assert ("sort", "task 1: RuntimeError: Job aborted") in holds(world)
    runner.error = None
    world.tick()
    assert world.progress_ts() == 205
    assert [stage for stage, _ in holds(world) if stage == "sort"] == []


def test_a_store_that_cannot_be_written_is_named_and_not_the_upstream(caplog: pytest.LogCaptureFixture) -> None:
    """What has come but cannot be taken makes the slices late: that is not a silent region. One tick after the other
    fails, each over an object of its own; the log says so when it begins and every ten seconds."""
    world = SorterWorld(TINY, [])
    runner = BrokenRunner(world)
    world.runner = runner
    world.push(FIRST)
    world.tick()
    world.start()
    world.push(SECOND)
    for number in range(40):
        runner.failed = f"cannot write segment/{number:04}.parquet: [Errno 28] No space left on device"
        world.node.tick()
        world.clock.advance(500)
    late_ms = world.clock.now_ms() + 60_000
    told = [hold for task in world.node.tasks() for hold in task.status(late_ms, 0).holds]
    assert [(hold.stage, hold.reason) for hold in told] == [("sort", f"task 1: {runner.failed}")]
    assert len([record for record in caplog.records if record.message == "tick failed"]) == 2


def test_what_nobody_foresaw_stops_its_own_task_only() -> None:
    world = SorterWorld(TINY, [key(b"m")])
    world.push(FIRST)
    strange = world.sent[0]
    world.push(SECOND)
    ref = replace(strange.ref, ts=215, prev_ts=210, row_groups={1: (99,)})
    world.send([replace(strange, ref=ref)])
    world.tick()
    assert [task.stopped is not None for task in world.node.tasks()] == [True, False]
    assert world.node.tasks()[1].state.progress_ts == 205


def test_repeats_are_not_looked_up_while_another_shard_has_not_answered() -> None:
    """It may have repeats too: with no segments to look into, they would seem to be lost, and the task would stop."""
    results = [ShardResult(1, 0, lookup_window=(5, 9)), ShardResult(1, 1, failed="no answer")]
    assert lookup_needed(None, results) is None  # type: ignore[arg-type]


def test_a_number_taken_by_nobodys_right_stops_the_task_visibly() -> None:
    world = SorterWorld(TINY, [])
    world.push(FIRST)
    world.tick()
    (task,) = world.node.tasks()
    number, identity = task.state.number + 1, task.state.identity
    foreign = Manifest(
        TINY.tenant, 1, number, identity.task_epoch, "ff", KIND_TICK, identity.span, 150, 150, slices=None
    )
    world.objects.put_new(layout.manifest(TINY.tenant, 1, number), manifests.encode(foreign))
    world.push(SECOND)
    world.node.tick()
    world.node.tick()
    (stopped,) = world.stopped()
    assert layout.manifest(TINY.tenant, 1, number) in stopped


def test_a_claim_whose_answer_never_came_is_found_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(manifest_log, "BACKOFF_SECONDS", (0.0,))
    store = FaultyObjectStore(MemoryObjectStore())
    world = SorterWorld(TINY, [], objects=store)
    again = [replace(identity, task_epoch=2) for identity in world.identities]
    store.plan.extend([Fault.DELAYED] + [Fault.LOST] * (manifest_log.ATTEMPTS - 1))
    assert not world.node.assign(again)
    store.deliver()
    assert world.node.assign(again)
    assert [task.task_id for task in world.node.tasks()] == [1]
