"""A store is let go once no slice waits for it and no task needs a file of it; until then the reason is told."""

from __future__ import annotations

import pytest

from support.split_world import SplitWorld
from support.tiny_tenant import TinyTenant, prewrite, watermark, whole
from tistream.errors import InvalidRequest
from tistream_api.status.store_retirement import taken_ts

TINY = TinyTenant()


def taken(world: SplitWorld, store_id: int = 1) -> int:
    return taken_ts(store_id, {task_id: world.task(task_id).needs_of(store_id) for task_id in world.rows})


def world_of() -> SplitWorld:
    """Store 1 has brought region 1's log up to index 6."""
    world = SplitWorld(TINY)
    world.push(TINY.file(1, 200, 0, [], watermark(6, 5, 150, base_ts=100)))
    world.push(TINY.file(1, 210, 200, [whole(b"a", 202, 203, 6)], watermark(6, 6, 205)))
    world.tick()
    return world


def test_it_is_refused_while_a_slice_waits_for_what_it_pushes_next() -> None:
    with pytest.raises(InvalidRequest, match=r"store 1 cannot be retired: task 1 waits for .* region 1 .* 205"):
        taken(world_of())


def test_it_may_go_once_another_store_leads_its_regions() -> None:
    world = world_of()
    world.push(TINY.file(2, 220, 0, [whole(b"b", 211, 212, 7)], watermark(7, 7, 215)))
    world.tick()
    assert taken(world) == 210
    with pytest.raises(InvalidRequest, match="store 2 cannot be retired"):
        taken(world, 2)


def test_it_is_refused_while_keys_wait_for_its_missing_file() -> None:
    """Index 7 was logged under store 1, and has not come; what store 2 brings rests on it."""
    world = world_of()
    world.push(TINY.file(2, 220, 0, [], watermark(8, 8, 215)))
    world.tick()
    with pytest.raises(InvalidRequest, match="task 1 waits for what it pushes next"):
        taken(world)


def test_it_is_refused_while_a_row_of_its_own_waits() -> None:
    world = world_of()
    world.push(TINY.file(2, 220, 0, [], watermark(9, 8, 215)))
    world.tick()
    with pytest.raises(InvalidRequest, match=r"store 2 cannot be retired: region 1 of file 220 waits for"):
        taken(world, 2)


def test_it_is_refused_while_one_of_its_files_is_in_no_manifest() -> None:
    world = world_of()
    world.push(TINY.file(2, 220, 0, [], watermark(7, 6, 215)))
    world.tick()
    world.push(TINY.file(1, 230, 210, [prewrite(b"c", 212, 6)], watermark(7, 6, 206, region_version=0)))
    with pytest.raises(InvalidRequest, match="task 1 has files of it that are in no manifest yet"):
        taken(world)
    world.tick()
    world.clock.advance(20_000)
    world.tick()
    assert taken(world) == 230


def test_it_is_refused_while_one_task_lacks_files_that_another_has() -> None:
    world = SplitWorld(TINY)
    world.split(1, b"t" + bytes(8))
    world.tick()
    last = max(world.rows)
    world.withheld.add((last, 1))
    world.push(TINY.file(1, 200, 0, [], watermark(6, 5, 150, base_ts=100)))
    world.push(TINY.file(2, 220, 0, [], watermark(6, 6, 215, base_ts=100)))
    world.tick()
    world.clock.advance(20_000)
    world.tick()
    with pytest.raises(InvalidRequest, match=f"task {last} has its files up to 0, another one up to 200"):
        taken(world)


def test_of_a_store_of_which_nothing_was_taken_nothing_is_needed() -> None:
    assert taken(world_of(), 9) == 0
