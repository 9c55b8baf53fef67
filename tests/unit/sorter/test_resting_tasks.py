"""A sorter whose tasks have nothing to do: it leaves them alone until something comes for them."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

from support.change_files import flipped_change_group
from support.sorter_world import SorterWorld
from support.tiny_tenant import TinyTenant, key, watermark, whole
from support.waiting import PATIENCE_S
from tistream.clock import SystemClock
from tistream.wire.meta import ChildTask, SealOrder
from tistream_sorter.node.node import REST_MS
from tistream_sorter.node.progress import ProgressFeed
from tistream_sorter.state.damage import GRACE_MS
from tistream_sorter.task.mailbox import FlushedByAllNote, RetentionNote
from tistream_sorter.task.status import LATE_MS
from tistream_sorter.task.task import Task

TINY = TinyTenant()
FIRST = TINY.file(1, 200, 0, [], watermark(6, 5, 150, base_ts=100))
SECOND = TINY.file(1, 210, 200, [whole(b"a", 160, 170, 6)], watermark(6, 7, 205))
WAIT_MS = int(PATIENCE_S * 1000)


def the_task(world: SorterWorld) -> Task:
    [task] = world.node.tasks()
    return task


def resting() -> SorterWorld:
    world = SorterWorld(TINY, [])
    world.push(FIRST)
    world.tick()
    while not world.node.rests:
        world.clock.advance(1_000)
        world.node.tick()
    return world


def test_a_task_with_a_file_or_an_unwritten_watermark_does_not_rest() -> None:
    world = SorterWorld(TINY, [])
    world.push(FIRST)
    world.node.tick()
    assert not world.node.rests  # progress without a manifest, which is due later
    world.clock.advance(world.limits.idle_manifest_ms)
    world.tick()
    assert world.node.rests
    manifest = the_task(world).state.number
    world.push(SECOND)
    world.node.tick()
    assert the_task(world).state.number == manifest + 1
    assert world.progress_ts() == 205


def test_a_note_ends_the_rest_and_its_repetition_does_not() -> None:
    world = resting()
    task = the_task(world)
    for _ in range(2):
        task.leave(RetentionNote(None))
        assert not task.has_unread
    for note in (RetentionNote(1_000), FlushedByAllNote(150)):
        task.leave(note)
        assert task.has_unread
        world.node.tick()
        assert not task.has_unread
    retention = task.state.retention
    assert retention is not None
    assert retention.keep_ms == 1_000


def test_an_order_to_split_ends_the_rest() -> None:
    world = resting()
    task, half = the_task(world), key(b"m").hex()
    children = [ChildTask(task_id=8, start_key="", end_key=half), ChildTask(task_id=9, start_key=half, end_key="")]
    assert task.order(SealOrder(children=children)) is None
    world.node.tick()
    sealed = world.node.known(1)
    assert sealed is task
    assert world.node.find(1) is None


def test_a_resting_task_gets_a_turn_now_and_then_though_nothing_comes() -> None:
    world = resting()
    world.clock.advance(REST_MS)
    before = [held.rest_until_ms for held in world.node._held.values()]
    world.node.tick()
    assert [held.rest_until_ms - until for held, until in zip(world.node._held.values(), before, strict=True)] >= [1]


def test_a_reader_of_progress_waits_for_a_task_that_moves() -> None:
    world = resting()
    feed = ProgressFeed("boot", world.node.tasks, SystemClock())
    world.node.on_tick = feed.look
    assert feed.look()
    first = feed.wait("", 0, WAIT_MS)
    assert [one.progress_ts for one in first.tasks] == [150]
    assert feed.wait("boot", first.version, 0).tasks == []
    with ThreadPoolExecutor(1) as beside:
        waiting = beside.submit(feed.wait, "boot", first.version, WAIT_MS)
        assert not feed.look()
        world.push(SECOND)
        world.tick()
        assert [one.progress_ts for one in waiting.result().tasks] == [205]
        ending = threading.Thread(target=feed.end)
        waiting = beside.submit(feed.wait, "boot", 1 << 40, WAIT_MS)
        ending.start()
        assert waiting.result().tasks == []


def damaged(world: SorterWorld) -> None:
    world.push(replace(SECOND, data=flipped_change_group(SECOND.data)))
    world.node.tick()
    world.clock.advance(GRACE_MS)


def queued_in_vain(world: SorterWorld) -> None:
    the_task(world).fail("the key is disabled")
    world.push(SECOND)


@pytest.mark.parametrize(
    "trouble",
    [
        lambda world: the_task(world).fail("the key is disabled"),
        lambda world: the_task(world).stop("an invariant is broken"),
        damaged,
        queued_in_vain,
    ],
    ids=["failed", "stopped", "damaged", "queued"],
)
def test_readers_of_progress_learn_that_a_task_cannot_advance(trouble: Callable[[SorterWorld], None]) -> None:
    world = resting()
    feed = ProgressFeed("boot", world.node.tasks, world.clock)
    assert feed.look()
    version = feed.wait("", 0, 0).version
    state = the_task(world).state
    trouble(world)
    assert the_task(world).state is state
    assert feed.look()
    page = feed.wait("boot", version, 0)
    assert [one.progress_ts for one in page.tasks] == [150]
    assert not feed.look()
    assert feed.wait("boot", page.version, 0).tasks == []


def test_readers_of_progress_learn_that_a_task_has_become_late() -> None:
    world = SorterWorld(TINY, [])
    feed = ProgressFeed("boot", world.node.tasks, world.clock)
    world.clock.advance(LATE_MS)
    assert feed.look()
    version = feed.wait("", 0, 0).version
    assert not feed.look()
    world.clock.advance(1)
    assert feed.look()
    assert len(feed.wait("boot", version, 0).tasks) == 1
    world.clock.advance(60_000)
    assert not feed.look()
