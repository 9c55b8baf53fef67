"""What must never be stops the task, and is kept: a commit that has no prewrite, a row that came too late."""

from __future__ import annotations

import pytest

from support.faulty_store import Fault, FaultyObjectStore
from support.sorter_world import SorterWorld
from support.tiny_tenant import TinyTenant, commit, key, prewrite, watermark, whole
from tistream.storage import manifest_log
from tistream.storage.backends.memory import MemoryObjectStore

TINY = TinyTenant()
FIRST = TINY.file(1, 200, 0, [whole(b"a", 120, 130, 5)], watermark(6, 5, 150, base_ts=100))


def begun() -> SorterWorld:
    """The row of key a at 130 is in the pool; flushed_ts is 150."""
    world = SorterWorld(TINY, [])
    world.push(FIRST)
    world.tick()
    assert world.pool()["commit_ts"].to_list() == [130]
    return world


def test_a_commit_below_the_watermark_whose_prewrite_never_came_stops_its_task() -> None:
    world = begun()
    world.push(TINY.file(1, 210, 200, [commit(b"b", 160, 170, 6)], watermark(6, 6, 205)))
    world.tick()
    (reason,) = world.stopped()
    assert key(b"b").hex() in reason
    assert world.progress_ts() == 150


@pytest.mark.parametrize("late", [whole(b"b", 120, 140, 6), whole(b"a", 125, 140, 6), whole(b"a", 120, 150, 6)])
def test_a_row_below_flushed_ts_that_the_pool_lacks_stops_its_task(late: dict[str, object]) -> None:
    """Another key; the same key of another transaction; the same transaction at another ts, the flushed one itself."""
    world = begun()
    world.push(TINY.file(1, 210, 200, [late], watermark(6, 6, 205)))
    world.tick()
    (reason,) = world.stopped()
    assert f"commit_ts {late['commit_ts']}" in reason
    assert world.progress_ts() == 150
    assert world.pool()["commit_ts"].to_list() == [130]


def test_a_late_row_is_not_taken_for_another_of_its_key_that_comes_again_with_it() -> None:
    world = begun()
    late = [whole(b"a", 120, 130, 6), whole(b"a", 125, 140, 7)]  # the pool has the first
    world.push(TINY.file(1, 210, 200, late, watermark(6, 7, 205)))
    world.tick()
    (reason,) = world.stopped()
    assert "commit_ts 140" in reason


def test_a_row_that_the_pool_holds_is_dropped_and_counted() -> None:
    world = begun()
    world.push(TINY.file(1, 210, 200, [whole(b"a", 120, 130, 6)], watermark(6, 6, 205)))
    world.tick()
    (task,) = world.node.tasks()
    assert world.stopped() == []
    assert (world.progress_ts(), task.state.counters["repeated_rows"]) == (205, 1)
    assert world.pool()["commit_ts"].to_list() == [130]


@pytest.mark.parametrize("fault", [Fault.DELAYED, Fault.LOST, Fault.UNANSWERED])
def test_a_commit_whose_answer_never_came_is_settled_and_work_goes_on(
    monkeypatch: pytest.MonkeyPatch, fault: Fault
) -> None:
    monkeypatch.setattr(manifest_log, "BACKOFF_SECONDS", (0.0,))
    store = FaultyObjectStore(MemoryObjectStore())
    world = SorterWorld(TINY, [], objects=store)
    world.push(FIRST)
    store.plan.extend([fault] * manifest_log.ATTEMPTS)
    world.node.tick()
    store.deliver()
    world.push(TINY.file(1, 210, 200, [prewrite(b"b", 160, 6), commit(b"b", 160, 170, 7)], watermark(6, 7, 205)))
    world.tick()
    assert world.stopped() == []
    assert world.progress_ts() == 205
    assert world.pool()["commit_ts"].to_list() == [130, 170]


def test_a_process_that_wakes_with_an_old_epoch_lets_go_of_its_tasks() -> None:
    world = begun()
    old = world.node
    world.push(TINY.file(1, 210, 200, [whole(b"b", 160, 170, 6)], watermark(6, 6, 205)))
    world.start()  # a new process has the tasks now
    assert not old.tick()
    assert old.tasks() == []
    world.send(world.sent[-1:])
    world.tick()
    assert world.pool()["commit_ts"].to_list() == [130, 170]


def test_a_task_that_is_given_a_new_epoch_goes_on_under_it() -> None:
    world = begun()
    world.epoch += 1
    again = [type(one)(one.tenant, one.task_id, one.span, one.snapshot_ts, world.epoch) for one in world.identities]
    assert world.node.assign(again)
    assert [task.state.identity.task_epoch for task in world.node.tasks()] == [world.epoch]
