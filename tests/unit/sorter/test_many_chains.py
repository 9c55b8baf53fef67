"""A store whose agent begins chain after chain while a file of an older one is late: none that is open is forgotten."""

from __future__ import annotations

import pytest

from support.split_world import SplitWorld
from support.tiny_tenant import TinyTenant, key, watermark
from tistream.storage import layout
from tistream_sorter.state import positions
from tistream_sorter.state.positions import CHAINS_KEPT

TINY = TinyTenant()
M = key(b"m")
BOTH = ({"end_key": M}, {"key": M, "region_id": 2})


def world_of(restarts: int, resolved_ts: int = 301) -> SplitWorld:
    """Store 1's log of region 1 is there through 5, a file with 6 to 9 is late, and store 2's 10 to 12 waits for it.
    Meanwhile store 1's agent begins so many chains that say something of region 2 alone."""
    world = SplitWorld(TINY)
    below, above = BOTH
    later = {"resolved_ts": resolved_ts, "base_ts": 150, **above}
    world.push(TINY.file(1, 200, 0, [], *(watermark(6, 5, 150, base_ts=100, **one) for one in BOTH)))
    world.push(TINY.file(2, 260, 0, [], watermark(10, 12, 300, **below)))
    world.tick()
    for number in range(restarts):
        world.push(TINY.file(1, 400 + number, 0, [], watermark(6 + number, 5 + number, **later)))
        world.tick()
    assert world.progress_ts() == 150
    return world


def the_late_file_comes(world: SplitWorld) -> None:
    world.push(TINY.file(1, 210, 200, [], watermark(6, 9, 205, **BOTH[0])))
    world.tick()


@pytest.mark.parametrize("restarts", [7, 8, 9, 40])
def test_the_late_file_is_taken_however_many_chains_began_meanwhile(restarts: int) -> None:
    world = world_of(restarts)
    the_late_file_comes(world)
    assert world.stopped() == []
    assert world.progress_ts() == 300


@pytest.mark.parametrize("restarts", [7, 8, 40])
def test_nothing_is_written_while_nothing_arrives(restarts: int) -> None:
    world = world_of(restarts)
    world.clock.advance(60_000)
    world.tick()
    before = world.task(1).durable.number
    for _ in range(30):
        world.clock.advance(10_000)
        world.tick()
    assert world.task(1).durable.number == before


@pytest.mark.parametrize("restarts", [8, 40])
def test_nor_do_heirs_forget_one(restarts: int) -> None:
    world = world_of(restarts, resolved_ts=150)
    world.split(1, M)
    world.tick()
    world.merge(2, 3)
    world.tick()
    assert sorted(world.rows) == [4]
    the_late_file_comes(world)
    newest = 399 + restarts
    world.push(TINY.file(1, 500, newest, [], watermark(5 + restarts, 5 + restarts, 301, **BOTH[1])))
    world.tick()
    assert world.stopped() == []
    assert world.progress_ts() == 300


def test_a_new_process_knows_them_all() -> None:
    world = world_of(40)
    world.crash()
    the_late_file_comes(world)
    assert world.stopped() == []
    assert world.progress_ts() == 300


def test_those_that_are_closed_are_let_go_and_not_taken_again() -> None:
    world = world_of(40)
    the_late_file_comes(world)
    for number in range(5):
        prev_ts = 500 + number - 1 if number else 0
        rows = [watermark(100 + number, 99 + number, 490 + number, base_ts=290, **one) for one in BOTH]
        world.push(TINY.file(1, 500 + number, prev_ts, [], *rows))
        world.tick()
        world.clock.advance(10_000)
    world.push(TINY.file(1, 600, 504, [], *(watermark(105, 104, 599, base_ts=290, **one) for one in BOTH)))
    for _ in range(3):
        world.clock.advance(10_000)
        world.tick()
    task = world.task(1)
    assert task.durable.flushed_ts == 599
    assert len(task.durable.positions[1]) == len(task.received()[1]) == CHAINS_KEPT
    before = task.durable.number
    for _ in range(5):
        world.send()  # a dispatcher that has just begun hands the first files of all chains on again
        world.clock.advance(10_000)
        world.tick()
    assert task.durable.number == before
    world.crash()
    world.tick()
    assert world.progress_ts() == 599


def test_one_chain_too_many_is_refused_by_name_and_begins_once_an_older_one_is_closed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(positions, "CHAINS_MAX", 12)
    world = world_of(20)
    (hold,) = [one for one in world.task(1).status(0, 0).holds if "cannot begin" in one.reason]
    assert hold.store_id == "1"
    assert hold.object == layout.change_file(TINY.tenant, 1, 419)
    assert "12 of its chains are open, the oldest since 200" in hold.reason
    number = world.task(1).durable.number
    for _ in range(5):
        world.clock.advance(10_000)
        world.tick()
    assert world.task(1).durable.number <= number + 1, "nothing is written while nothing arrives"
    the_late_file_comes(world)
    world.push(TINY.file(2, 700, 260, [], watermark(13, 12, 699, **BOTH[0])))
    world.push(TINY.file(3, 700, 0, [], watermark(6, 6, 699, base_ts=150, **BOTH[1])))
    for _ in range(5):
        world.clock.advance(10_000)
        world.tick()
    assert [one for one in world.task(1).status(0, 0).holds if "cannot begin" in one.reason] == []
    assert world.stopped() == []
