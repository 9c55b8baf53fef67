"""Locks whose fate is told by watermark rows of later files: those that died, and those that a scan brings back."""

from __future__ import annotations

from support.sorter_world import SorterWorld
from support.tiny_tenant import TinyTenant, commit, key, prewrite, watermark

TINY = TinyTenant()
FIRST = TINY.file(1, 200, 0, [], watermark(6, 5, 150, base_ts=100))


def test_a_lock_that_died_is_pending_no_more() -> None:
    """Its client crashed; the region's resolved_ts passes it in files without entries."""
    world = SorterWorld(TINY, [])
    world.push(FIRST)
    world.push(TINY.file(1, 210, 200, [prewrite(b"b", 160, 6)], watermark(6, 7, 159)))
    world.tick()
    (task,) = world.node.tasks()
    assert sum(part.rows for part in task.state.pending) == 1
    world.push(TINY.file(1, 220, 210, [], watermark(8, 8, 301)))
    world.tick()
    world.clock.advance(11_000)
    world.push(TINY.file(1, 230, 220, [], watermark(9, 9, 302)))
    world.tick()
    assert task.state.pending == ()
    assert task.state.counters["dead_locks"] == 1


def test_a_lock_that_a_scan_brings_at_a_covered_place_can_still_be_committed() -> None:
    """The region's log is covered through index 5; a scan as of 5 has a lock that is alive there."""
    world = SorterWorld(TINY, [])
    world.push(FIRST)
    world.tick()
    world.push(TINY.file(1, 210, 200, [prewrite(b"b", 140, 5)], watermark(6, 5, 155, base_ts=150)))
    world.tick()
    world.push(TINY.file(1, 220, 210, [commit(b"b", 140, 170, 6)], watermark(6, 6, 180)))
    world.tick()
    assert world.stopped() == []
    assert world.pool()["key"].to_list() == [key(b"b")]
