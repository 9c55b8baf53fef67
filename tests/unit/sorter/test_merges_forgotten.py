"""A merge that the meta database has forgotten: what is in storage decides whether there is a way back."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from support.split_world import PoolReader, SplitWorld, child_task
from support.tiny_tenant import TinyTenant, key, watermark, whole
from tistream.errors import Unavailable
from tistream.format.manifest import KIND_SEAL, Manifest, Merging
from tistream.model.span import WHOLE
from tistream.storage.manifest_follow import TaskObjects
from tistream.wire.meta import SealOrder

TINY = TinyTenant()
M = key(b"m")
STOP = 305


def last(world: SplitWorld, task_id: int) -> Manifest:
    found = TaskObjects(world.objects, TINY.tenant, task_id).follow().last
    assert found is not None
    return found


def ordered(world: SplitWorld, stop_at: int | None, *, final: bool = False, parents: Sequence[int] = (2, 3)) -> None:
    """What the database has for both tasks."""
    children = [child_task(9, WHOLE)]
    order = (
        None if stop_at is None else SealOrder(children=children, stop_at=stop_at, final=final, parents=list(parents))
    )
    for task_id in (2, 3):
        if task_id in world.rows:
            world.rows[task_id].order = order
    world.assign()


def at_rest(parents: Sequence[int] = (2, 3)) -> SplitWorld:
    """Tasks 2 and 3 have come to rest at STOP; what has come since lies above it."""
    world = SplitWorld(TINY)
    world.push(TINY.file(1, 200, 0, [], watermark(6, 5, 150, base_ts=100)))
    world.push(TINY.file(1, 210, 200, [whole(b"a", 160, 170, 6), whole(b"z", 160, 171, 7)], watermark(6, 9, 205)))
    world.tick()
    world.split(1, M)
    world.tick()
    ordered(world, STOP, parents=parents)
    world.node.tick()
    rows = [whole(b"a", 306, 307, 10), whole(b"z", 306, 308, 11)]
    world.push(TINY.file(1, 400, 210, rows, watermark(10, 12, 390)))
    world.node.tick()
    return world


def committed(world: SplitWorld) -> list[int]:
    reader = PoolReader(world, world.route())
    reader.refresh()
    return reader.rows()["commit_ts"].to_list()


def one_half_sealed() -> SplitWorld:
    world = at_rest()
    ordered(world, STOP, final=True)
    world.task(3).stop("hangs")
    world.node.tick()
    assert [last(world, one).kind == KIND_SEAL for one in (2, 3)] == [True, False]
    with world.task(3).turn() as turn:
        turn.stopped = None
    return world


def test_the_manifest_that_takes_a_stop_names_what_for() -> None:
    world = at_rest()
    for task_id in (2, 3):
        assert (last(world, task_id).stop_at, last(world, task_id).merge) == (STOP, Merging(9, WHOLE, (2, 3)))


@pytest.mark.parametrize("dies", [False, True], ids=["the same holder", "a new one"])
def test_a_merge_of_which_one_half_is_sealed_is_completed_though_the_order_is_forgotten(dies: bool) -> None:
    world = one_half_sealed()
    ordered(world, None)
    if dies:
        world.crash()
    for _ in range(3):
        world.node.tick()
    assert (last(world, 3).kind, last(world, 3).flushed_ts) == (KIND_SEAL, STOP)
    world._replace([2, 3], [child_task(9, WHOLE)])  # as the owner does once it has heard of both
    world.assign()
    world.tick()
    assert world.stopped() == []
    assert world.progress_ts() == 390
    assert committed(world) == [170, 171, 307, 308]


def test_a_stop_that_names_no_other_task_is_lifted_without_reading_a_log() -> None:
    """As a meta server orders that does not name the parents yet."""
    world = at_rest(parents=[])
    assert last(world, 2).merge == Merging(9, WHOLE, ())
    ordered(world, None)
    world.tick()
    assert [task.stop_at for task in world.node.tasks()] == [None, None]
    assert committed(world) == [170, 171, 307, 308]


def test_nor_does_another_order_take_it_back() -> None:
    """A restored database may have other plans for the other half."""
    world = one_half_sealed()
    world.rows[3].order = None
    world.split(3, key(b"p"))
    for _ in range(3):
        world.node.tick()
    assert last(world, 3).children == ((9, WHOLE),)


def test_an_order_that_nobody_has_acted_upon_can_be_taken_back() -> None:
    world = at_rest()
    ordered(world, None)
    world.tick()
    assert [task.stop_at for task in world.node.tasks()] == [None, None]
    assert world.progress_ts() == 390
    assert committed(world) == [170, 171, 307, 308]


def test_the_one_that_does_not_lead_neither_goes_on_nor_ends_before_it_has_read_what_the_other_did() -> None:
    """The holder of the first task has not heard that the order is forgotten: it may seal at any moment."""
    world = at_rest()
    held = world.node.find(2)
    assert held is not None
    held.stop("paused")
    ordered(world, None)
    for _ in range(5):
        world.node.tick()
    assert world.task(3).stop_at == STOP
    ordered(world, STOP, final=True)
    for _ in range(5):
        world.node.tick()
    assert last(world, 3).kind != KIND_SEAL
    with held.turn() as turn:
        turn.stopped = None
    for _ in range(3):
        world.clock.advance(1_000)
        world.node.tick()
    assert [last(world, one).kind for one in (2, 3)] == [KIND_SEAL] * 2


def test_what_cannot_be_read_is_not_taken_for_an_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    world = one_half_sealed()
    ordered(world, None)
    with monkeypatch.context() as patch:
        patch.setattr(TaskObjects, "follow", _refused)
        for _ in range(3):
            world.node.tick()
        assert world.task(3).stop_at == STOP
        assert "refused" in (world.task(3).trouble or "")
    world.clock.advance(10_000)
    world.node.tick()
    assert last(world, 3).kind == KIND_SEAL


def _refused(*_: object) -> None:
    raise Unavailable("refused")
