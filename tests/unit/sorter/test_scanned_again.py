"""A pipelined lock that a scan repeats: the scan is as of the entry before its first index, and does not end it."""

from __future__ import annotations

from typing import Any

import pytest

from support.split_world import PoolReader, SplitWorld
from support.tiny_tenant import Row, TinyTenant, commit, key, prewrite, watermark

TINY = TinyTenant()
SCAN = watermark(13, 12, 200, base_ts=150)
# A row that meets one slice alone is taken with others on arrays; one of several is taken by itself.
WAYS = {"alone": [SCAN], "one by one": [SCAN, watermark(13, 14, 210)]}


def lock(name: bytes, index: int, **more: Any) -> Row:
    return prewrite(name, 120, index, generation=1, **more)


@pytest.mark.parametrize("ticks", [True, False], ids=["a tick each", "one tick"])
@pytest.mark.parametrize("rows", WAYS.values(), ids=WAYS)
def test_a_lock_that_the_scan_repeats_is_committed(rows: list[Row], ticks: bool) -> None:
    world = SplitWorld(TINY)
    files = [
        TINY.file(1, 200, 0, [], watermark(6, 5, 110, base_ts=100)),
        TINY.file(1, 210, 200, [lock(b"a", 7)], watermark(6, 8, 150)),
        TINY.file(1, 220, 210, [lock(b"a", 12)], *rows),
        TINY.file(1, 230, 220, [commit(b"a", 120, 260, 15)], watermark(13, 16, 300)),
    ]
    for file in files:
        world.push(file)
        if ticks:
            world.tick()
    world.tick()
    assert world.stopped() == []
    assert world.progress_ts() == 300
    reader = PoolReader(world, world.route())
    reader.refresh()
    assert reader.rows().select("key", "start_ts", "commit_ts").rows() == [(key(b"a"), 120, 260)]


@pytest.mark.parametrize("rows", WAYS.values(), ids=WAYS)
def test_a_lock_that_the_scan_does_not_repeat_has_ended(rows: list[Row]) -> None:
    world = SplitWorld(TINY)
    world.push(TINY.file(1, 200, 0, [], watermark(6, 5, 110, base_ts=100)))
    world.push(TINY.file(1, 210, 200, [lock(b"a", 7), lock(b"b", 11)], watermark(6, 11, 150)))
    world.tick()
    assert sum(part.rows for part in world.task(1).state.pending) == 2
    world.push(TINY.file(1, 220, 210, [lock(b"b", 12)], *rows))
    world.tick()
    world.clock.advance(60_000)
    world.tick()
    assert sum(part.rows for part in world.task(1).state.pending) == 1
