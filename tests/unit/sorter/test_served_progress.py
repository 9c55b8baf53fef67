"""Progress that readers were told and that no manifest holds: who holds the task next keeps to it."""

from __future__ import annotations

import pytest

from support.sorter_world import SorterWorld
from support.tiny_tenant import TinyTenant, commit, prewrite, watermark, whole
from tistream.errors import CorruptObject
from tistream.format.served import Served, decode, encode
from tistream.model.ts import MAX_TS
from tistream.storage import layout

TINY = TinyTenant()
KEY = layout.served(TINY.tenant)
FLUSHED_TS, TOLD_TS = 150, 205


def begun() -> SorterWorld:
    """The row of key a at 130 is in the pool. A file without changes has raised the progress to 205, in memory."""
    world = SorterWorld(TINY, [])
    world.push(TINY.file(1, 200, 0, [whole(b"a", 120, 130, 5)], watermark(6, 5, FLUSHED_TS, base_ts=100)))
    world.tick()
    world.push(TINY.file(1, 210, 200, [], watermark(6, 5, TOLD_TS)))
    world.tick()
    assert world.progress_ts() == TOLD_TS
    return world


def restarted(body: bytes | None) -> SorterWorld:
    """A new process holds the task."""
    world = begun()
    if body is not None:
        world.objects.put_new(KEY, body)
    world.start()
    (task,) = world.node.tasks()
    assert (task.state.flushed_ts, task.state.progress_ts) == (FLUSHED_TS, FLUSHED_TS)
    return world


def told(snapshot_ts: int = TINY.snapshot_ts) -> bytes:
    return encode(Served(snapshot_ts, TOLD_TS, 0))


LATE = {
    "whole": [whole(b"b", 160, 170, 6)],
    "in two halves": [prewrite(b"b", 160, 6), commit(b"b", 160, 170, 7)],
    "without its prewrite": [commit(b"b", 160, 170, 6)],
    "at what was told itself": [whole(b"b", 160, TOLD_TS, 6)],
}


@pytest.mark.parametrize("late", LATE.values(), ids=LATE)
@pytest.mark.parametrize("ticks", [1, 2], ids=["in one tick", "a tick later"])
def test_a_row_that_readers_may_have_passed_stops_its_task(late: list[dict[str, object]], ticks: int) -> None:
    """It comes with the file that raises the progress again, or after it."""
    world = restarted(told())
    world.send(world.sent[-1:])
    if ticks == 2:
        world.tick()
    world.push(TINY.file(1, 220, 210, late, watermark(6, 7, 210)))
    world.tick()
    (reason,) = world.stopped()
    assert "that the pool does not hold: 1 rows" in reason
    assert world.pool()["commit_ts"].to_list() == [130]


def test_a_row_stops_its_task_in_the_process_that_has_told_it_too() -> None:
    world = begun()
    world.push(TINY.file(1, 220, 210, [whole(b"b", 160, 170, 6)], watermark(6, 6, 210)))
    world.tick()
    (reason,) = world.stopped()
    assert "205, a resolved_ts that readers have received" in reason
    assert world.pool()["commit_ts"].to_list() == [130]


def test_rows_above_it_and_repeats_below_it_are_taken() -> None:
    world = restarted(told())
    rows = [whole(b"a", 120, 130, 6), whole(b"b", 160, TOLD_TS + 1, 7)]
    world.send(world.sent[-1:])
    world.push(TINY.file(1, 220, 210, rows, watermark(6, 7, 215)))
    world.tick()
    assert world.stopped() == []
    assert world.pool()["commit_ts"].to_list() == [130, TOLD_TS + 1]


@pytest.mark.parametrize("body", [None, told(snapshot_ts=90), b"{}", b"\xff"])
def test_what_is_missing_damaged_or_of_an_earlier_tenant_stops_nothing(body: bytes | None) -> None:
    world = restarted(body)
    world.send(world.sent[-1:])
    world.push(TINY.file(1, 220, 210, [whole(b"b", 160, 206, 6)], watermark(6, 6, 215)))
    world.tick()
    assert world.stopped() == []
    assert world.pool()["commit_ts"].to_list() == [130, 206]


def test_the_object_is_what_was_written() -> None:
    served = Served(TINY.snapshot_ts, TOLD_TS, 1_700_000_000_000)
    assert decode(KEY, encode(served)) == served
    assert layout.tenant_of(KEY) == TINY.tenant
    assert any(KEY.startswith(prefix) for prefix in layout.prefixes_of(TINY.tenant))


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[]",
        b"{}",
        encode(Served(5, 6, 7)).replace(b'"version": 1', b'"version": 2'),
        encode(Served(5, 4, 7)),
        encode(Served(5, MAX_TS + 1, 7)),
        encode(Served(-1, 4, 7)),
    ],
)
def test_another_object_is_refused_by_name(body: bytes) -> None:
    with pytest.raises(CorruptObject, match="progress"):
        decode(KEY, body)
