"""A task takes every file of a chain once and in order, and knows after a restart how far it has come."""

from __future__ import annotations

from dataclasses import replace

from support.sorter_world import SorterWorld
from support.tiny_tenant import TinyTenant, key, watermark, whole
from tistream.format.manifest import ChainPosition
from tistream.wire.file_batch import FileRef
from tistream_sorter.state.positions import follows, moved

TINY = TinyTenant()
FIRST = TINY.file(1, 200, 0, [], watermark(6, 5, 150, base_ts=100))
SECOND = TINY.file(1, 210, 200, [whole(b"a", 160, 170, 6)], watermark(6, 7, 205))
THIRD = TINY.file(1, 220, 210, [whole(b"b", 206, 207, 8)], watermark(8, 9, 215))


def received(world: SorterWorld) -> dict[int, tuple[ChainPosition, ...]]:
    (task,) = world.node.tasks()
    return task.received()


def test_a_restarted_task_asks_for_what_its_manifest_lacks_only() -> None:
    world = SorterWorld(TINY, [])
    world.push(FIRST)
    world.push(SECOND)
    world.tick()
    world.push(THIRD)  # queued, and lost with the process
    world.start()
    assert received(world) == {1: (ChainPosition(200, 210),)}
    world.send(world.sent[-1:])
    world.tick()
    assert world.pool()["key"].to_list() == [key(b"a"), key(b"b")]


def test_a_file_ahead_of_its_chain_is_left_to_come_again() -> None:
    world = SorterWorld(TINY, [])
    for file in (FIRST, SECOND, THIRD):
        world.objects.put(file.key, file.data)
    first, second, third = (world.route(file.key)[0] for file in (FIRST, SECOND, THIRD))
    world.send([first, third])
    assert received(world) == {1: (ChainPosition(200, 200),)}
    world.tick()
    assert world.progress_ts() == 150
    world.send([second, third])
    world.tick()
    assert received(world) == {1: (ChainPosition(200, 220),)}
    assert world.progress_ts() == 215


def test_a_file_that_comes_again_is_not_taken_again() -> None:
    world = SorterWorld(TINY, [])
    for file in (FIRST, SECOND, THIRD):
        world.push(file)
    world.tick()
    world.send(world.sent)
    assert received(world) == {1: (ChainPosition(200, 220),)}
    world.tick()
    (task,) = world.node.tasks()
    assert task.state.counters["repeated_rows"] == 0
    assert world.pool()["key"].to_list() == [key(b"a"), key(b"b")]


def test_no_file_leads_back_in_its_chain() -> None:
    first = FileRef("7", "acme", 1, 200, 0, 200, "first", 1, 0, 0, (), {})
    positions = moved({}, first)
    assert follows(positions, replace(first, ts=210, prev_ts=200))
    assert not follows(positions, replace(first, ts=190, prev_ts=200))
