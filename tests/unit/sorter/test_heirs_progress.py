"""An heir whose keys were ahead of others that its parent had: rows wait below its watermark before it ever ran."""

from __future__ import annotations

from support.split_world import SplitWorld
from support.tiny_tenant import TinyTenant, key, watermark, whole
from tistream.storage.manifest_follow import TaskObjects
from tistream_sorter.node.progress import ProgressFeed

TINY = TinyTenant()
M = key(b"m")
COMMITTED_TS, AHEAD_TS = 260, 290


def split_while_one_region_is_silent() -> tuple[SplitWorld, int]:
    """Region 1, below M, is silent at 150, so that its task is; region 2 has a row and comes to 290. The task is about
    to be split at M: which of the heirs gets region 2."""
    world = SplitWorld(TINY)
    below = {"end_key": M}
    above = {"key": M, "region_id": 2}
    begin = [watermark(6, 5, 150, base_ts=100, **one) for one in (below, above)]
    world.push(TINY.file(1, 200, 0, [], *begin))
    row = {**whole(b"z", 250, COMMITTED_TS, 6), "region_id": 2}
    world.push(TINY.file(1, 300, 200, [row], watermark(6, 6, AHEAD_TS, **above)))
    world.tick()
    assert world.task(1).state.progress_ts == 150
    world.split(1, M)
    return world, 3


def test_it_tells_no_progress_above_a_row_that_is_in_no_manifest() -> None:
    world, heir = split_while_one_region_is_silent()
    feed, told = ProgressFeed("boot", world.node.tasks, world.clock), []
    for _ in range(12):
        world.node.tick()
        world.meta()
        for task in feed.wait("", 0, 0).tasks:
            if task.task_id == heir:
                written = sum(one.rows for one in TaskObjects(world.objects, TINY.tenant, heir).follow().segments)
                told.append((task.progress_ts, written))
    assert told
    assert [one for one in told if one[0] >= COMMITTED_TS and one[1] == 0] == []


def test_it_flushes_the_row_though_nothing_comes_any_more() -> None:
    world, heir = split_while_one_region_is_silent()
    world.tick()
    view = TaskObjects(world.objects, TINY.tenant, heir).follow()
    assert sum(one.rows for one in view.segments) == 1
    assert world.task(heir).state.reported_ts == AHEAD_TS
    assert world.stopped() == []
