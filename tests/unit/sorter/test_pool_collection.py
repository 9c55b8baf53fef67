"""Objects that nobody needs any more are deleted, and no others."""

from __future__ import annotations

import threading
from collections.abc import Iterable

from support.pending_rules import EXTREME
from support.split_world import PoolReader, SplitWorld
from support.tiny_tenant import TinyTenant, commit, key, prewrite, watermark, whole
from support.waiting import PATIENCE_S
from tistream.errors import Unavailable
from tistream.format.manifest import SEALED, Manifest
from tistream.storage import layout
from tistream.storage.backends.memory import MemoryObjectStore
from tistream.storage.manifest_follow import TaskObjects
from tistream.storage.measured import MeasuredObjectStore
from tistream.storage.object_store import ObjectStore
from tistream_sorter.upkeep.compaction_plan import CompactRules
from tistream_sorter.upkeep.gc_plan import CollectRules

TINY = TinyTenant()
GRACE_MS, EVERY_MS = 5_000, 60_000
M = key(b"m")


class Together(MemoryObjectStore):
    """Deletes nothing before two callers have been there at once."""

    def __init__(self) -> None:
        super().__init__()
        self._callers = threading.Semaphore(1)
        self.two = threading.Event()

    def delete(self, key: str) -> None:
        if not self._callers.acquire(blocking=False):
            self.two.set()
        if not self.two.wait(PATIENCE_S):
            raise Unavailable(f"{key}: nobody came")
        super().delete(key)


class Unwilling(MemoryObjectStore):
    """Deletes nothing for a while."""

    unwilling = False

    def delete(self, key: str) -> None:
        if self.unwilling:
            raise Unavailable(f"{key}: slow down")
        super().delete(key)


def world_of(
    grace_ms: int = GRACE_MS, objects: ObjectStore | None = None, fan_in: int = 16, every_ms: int = 0
) -> SplitWorld:
    world = SplitWorld(
        TINY, objects=objects, collect=CollectRules(grace_ms, every_ms), compact=CompactRules(fan_in=fan_in)
    )
    world.push(TINY.file(1, 200, 0, [], watermark(6, 5, 150, base_ts=100)))
    world.tick()
    return world


def push(world: SplitWorld, count: int, first: int = 0) -> None:
    """Files from 210, 220 … on, each with a row of key a and one of key z."""
    for at in range(first, first + count):
        ts, index = 210 + 10 * at, 6 + 2 * at
        rows = [whole(b"a", ts - 8, ts - 7, index), whole(b"z", ts - 6, ts - 5, index + 1)]
        world.push(TINY.file(1, ts, ts - 10, rows, watermark(index, index + 1, ts - 3)))
        world.tick()


def keys(world: SplitWorld, *prefixes: str) -> set[str]:
    return {info.key for prefix in prefixes for info in world.objects.list_after(prefix)}


def data(world: SplitWorld, task_id: int) -> set[str]:
    return keys(world, *layout.data_prefixes(TINY.tenant, task_id))


def manifests(world: SplitWorld, task_id: int) -> list[int]:
    return sorted(int(name.rsplit("/", 1)[1]) for name in keys(world, layout.manifests(TINY.tenant, task_id)))


def named(world: SplitWorld, task_ids: Iterable[int]) -> set[str]:
    out = set()
    for task_id in task_ids:
        view = TaskObjects(world.objects, TINY.tenant, task_id).follow()
        assert view.state is not None
        out |= {one.key for one in view.segments} | {one.key for one in view.state.pending}
    return out


def state_of(world: SplitWorld, task_id: int) -> Manifest:
    found = TaskObjects(world.objects, TINY.tenant, task_id).follow().state
    assert found is not None
    return found


def rows(world: SplitWorld) -> list[tuple[bytes, int]]:
    reader = PoolReader(world, world.route())
    reader.refresh()
    return list(zip(*(reader.rows()[name].to_list() for name in ("key", "commit_ts")), strict=True))


def test_what_a_manifest_ceases_to_name_goes_after_the_pause() -> None:
    world = world_of()
    world.node.collect()
    world.push(TINY.file(1, 210, 200, [prewrite(b"a", 205, 6)], watermark(6, 6, 204)))
    world.tick()
    lock = data(world, 1)
    assert len(lock) == 1
    world.push(TINY.file(1, 220, 210, [commit(b"a", 205, 212, 7)], watermark(7, 7, 215)))
    world.tick()
    world.node.collect()
    assert data(world, 1) > lock, "somebody may still read it"
    world.clock.advance(GRACE_MS)
    world.node.collect()
    assert data(world, 1) == named(world, [1])
    assert rows(world) == [(key(b"a"), 212)]


def test_a_part_that_became_a_segment_stays() -> None:
    """Rows settled above the watermark, written once as the segment that they will be."""
    world = SplitWorld(TINY, collect=CollectRules(0, every_ms=0), cut=EXTREME)
    world.push(TINY.file(1, 200, 0, [], watermark(6, 5, 150, base_ts=100)))
    world.tick()
    world.node.collect()
    world.push(TINY.file(1, 210, 200, [whole(b"a", 206, 300, 6)], watermark(6, 6, 205)))
    world.tick()
    (part,) = data(world, 1)
    assert [one.kind for one in state_of(world, 1).pending] == [SEALED]
    world.push(TINY.file(1, 220, 210, [], watermark(7, 7, 310)))
    world.tick()
    world.clock.advance(20_000)
    world.tick()
    world.node.collect()
    assert data(world, 1) == named(world, [1]) == {part}
    assert rows(world) == [(key(b"a"), 300)]


def test_manifests_below_the_floor_go_and_the_others_stay() -> None:
    world = world_of(grace_ms=0)
    world.node.collect()
    push(world, 23)
    floor = TaskObjects(world.objects, TINY.tenant, 1).floor()
    assert floor > 15
    world.node.collect()
    newest = TaskObjects(world.objects, TINY.tenant, 1).follow().number
    assert manifests(world, 1) == list(range(floor, newest + 1))


def test_what_an_earlier_epoch_has_left_goes_and_nothing_of_this_one() -> None:
    """Of ticks that were never committed."""
    world = world_of(grace_ms=0)
    push(world, 2)
    orphan = layout.segment(TINY.tenant, 1, 1, "ab", 0)
    part = layout.pending_part(TINY.tenant, 1, 1, "ab", 0)
    for name in (orphan, part):
        world.objects.put(name, b"x")
    world.node.collect()
    assert {orphan, part} <= data(world, 1), "it may be about to be committed"
    world.crash()
    mine = layout.segment(TINY.tenant, 1, 2, "cd", 0)
    strange = f"{layout.data_prefixes(TINY.tenant, 1)[0]}notes.txt"
    for name in (mine, strange):
        world.objects.put(name, b"x")
    world.node.collect()
    assert data(world, 1) == named(world, [1]) | {mine, strange}


def test_a_store_that_does_not_answer_is_asked_again() -> None:
    store = Unwilling()
    world = world_of(grace_ms=0, objects=store)
    world.node.collect()
    push(world, 8)
    below = manifests(world, 1)
    store.unwilling = True
    world.node.collect()
    assert manifests(world, 1) == below
    store.unwilling = False
    world.node.collect()
    assert len(manifests(world, 1)) < len(below)


def test_a_late_holder_deletes_nothing_that_a_newer_one_needs() -> None:
    world = world_of(grace_ms=0)
    world.node.collect()
    push(world, 7)
    world.crash(late=True)
    push(world, 3, first=7)
    before = rows(world)
    world.late[0].collect()
    assert named(world, [1]) <= data(world, 1)
    assert rows(world) == before


def test_what_is_too_much_for_one_turn_goes_in_the_next_which_comes_at_once() -> None:
    world = world_of(grace_ms=0)
    left = [layout.segment(TINY.tenant, 1, 1, f"{number:08x}", 0) for number in range(1_500)]
    for name in left:
        world.objects.put(name, b"x")
    world.crash()
    assert world.node.collect()
    assert not world.node.collect()
    assert not data(world, 1) & set(left)


def test_objects_are_deleted_side_by_side() -> None:
    """One after the other, a store that takes its time would never come to the end of what ticks leave."""
    store = Together()
    world = world_of(grace_ms=0, objects=store)
    push(world, 12)
    world.node.collect()
    assert store.two.is_set()
    assert manifests(world, 1)[0] == TaskObjects(world.objects, TINY.tenant, 1).floor()


def test_a_task_that_stopped_keeps_everything() -> None:
    world = world_of(grace_ms=0)
    world.node.collect()
    push(world, 8)
    before = set(keys(world, ""))
    stray = whole(b"a", 210, 220, 30)  # at or below what was flushed, and never there
    world.push(TINY.file(1, 1_000, 280, [stray], watermark(22, 30, 990)))
    world.tick()
    assert world.stopped()
    world.node.collect()
    assert before <= set(keys(world, ""))


# -- sealed tasks -----------------------------------------------------------------------------------------------------


def test_what_heirs_share_stays_until_none_of_them_names_it() -> None:
    world = world_of(grace_ms=0)
    world.push(TINY.file(1, 210, 200, [prewrite(b"a", 205, 6), prewrite(b"z", 206, 7)], watermark(6, 7, 204)))
    world.tick()
    world.split(1, M)
    world.tick()
    (lock,) = data(world, 1)
    world.push(TINY.file(1, 220, 210, [commit(b"a", 205, 212, 8)], watermark(8, 8, 205)))
    world.tick()
    world.node.collect()
    assert data(world, 1) == {lock}
    world.push(TINY.file(1, 230, 220, [commit(b"z", 206, 222, 9)], watermark(9, 9, 225)))
    world.tick()
    world.node.collect()
    assert lock not in data(world, 1)
    assert rows(world) == [(key(b"a"), 212), (key(b"z"), 222)]


def test_a_sealed_task_leaves_its_seal_and_what_its_heirs_name() -> None:
    world = world_of(grace_ms=0)
    push(world, 7)
    before = rows(world)
    world.split(1, M)
    world.tick()
    world.node.collect()
    seal = TaskObjects(world.objects, TINY.tenant, 1).follow()
    assert seal.sealed
    assert manifests(world, 1) == [seal.number]
    assert data(world, 1) == named(world, [2, 3]), "all segments"
    assert rows(world) == before
    old = PoolReader(world, world.route())
    old.refresh()


def test_a_task_is_forgotten_once_nothing_of_it_is_left() -> None:
    world = world_of(grace_ms=0)
    world.split(1, M)
    world.tick()
    world.node.collect()  # its manifests
    world.node.collect()  # nothing is left but the seal
    assert [world.task(one).ancestors for one in (2, 3)] == [[], []], "no LIST any more, before any manifest says so"
    push(world, 5)
    assert [state_of(world, one).heritage for one in (2, 3)] == [(), ()]


def test_what_heirs_share_for_ever_is_looked_at_ever_less_often() -> None:
    store = MeasuredObjectStore(MemoryObjectStore())
    world = world_of(objects=store, every_ms=EVERY_MS)
    push(world, 7)
    world.split(1, M)
    world.tick()

    def lists(turns: int) -> int:
        before = store.traffic()["list"].requests
        for _ in range(turns):
            world.clock.advance(EVERY_MS)
            world.node.collect()
        return store.traffic()["list"].requests - before

    lists(20)  # its manifests have gone by now
    assert lists(64) <= 2 * 2 * 4, "each heir looks once an hour, at four prefixes"


def test_a_child_that_has_not_begun_is_spoken_for_by_the_seal() -> None:
    world = world_of(grace_ms=0)
    push(world, 3)
    world.split(1, M)
    world.node.tick()  # the seal
    world.meta()
    for identity in list(world.rows):
        if identity == 3:
            del world.rows[identity]  # nobody begins it for now
    world.assign()
    world.node.tick()
    before = data(world, 1)
    world.node.collect()
    assert data(world, 1) == before


# -- put together -----------------------------------------------------------------------------------------------------


def test_small_segments_become_one_with_the_same_rows() -> None:
    world = world_of(grace_ms=0, fan_in=4)
    world.node.collect()
    push(world, 9)
    before = rows(world)
    assert world.node.compact()
    world.tick()
    view = TaskObjects(world.objects, TINY.tenant, 1).follow()
    assert [one.rows for one in view.segments] == [18]
    assert rows(world) == before
    world.node.collect()
    assert data(world, 1) == named(world, [1])
    assert not world.node.compact(), "one is not put together with itself"


def test_what_waits_for_a_manifest_is_not_put_together_again() -> None:
    world = world_of(fan_in=2)
    push(world, 4)
    assert world.node.compact()
    assert not world.node.compact()
    world.tick()
    assert len(named(world, [1])) == 1


def test_segments_that_heirs_share_stay_as_they_are() -> None:
    world = world_of(fan_in=2)
    push(world, 4)
    world.split(1, M)
    world.tick()
    before = named(world, [2, 3])
    assert not world.node.compact()
    push(world, 4, first=4)
    assert world.node.compact()
    world.tick()
    assert before <= named(world, [2])
    assert len(named(world, [2])) == len(before) + 1
    assert len(rows(world)) == 16


def test_a_seal_in_the_meantime_makes_it_come_to_nothing() -> None:
    world = world_of(grace_ms=0, fan_in=2)
    push(world, 4)
    before = rows(world)
    task = world.task(1)
    world.split(1, M)
    world.node.tick()
    world.node._compactor.compact([task])
    world.tick()
    assert rows(world) == before
    written = data(world, 1) - named(world, [2, 3])
    assert len(written) == 1
    world.node.collect()
    assert data(world, 1) == named(world, [2, 3])


def test_a_damaged_segment_is_left_alone_and_told() -> None:
    world = world_of(fan_in=2)
    push(world, 4)
    victim = TaskObjects(world.objects, TINY.tenant, 1).follow().segments[1].key
    body = world.objects.get(victim)
    world.objects.put(victim, body[:-20] + b"\0" * 20)
    assert world.node.compact()
    assert world.node.compact(), "those behind it"
    world.tick()
    assert [one.rows for one in TaskObjects(world.objects, TINY.tenant, 1).follow().segments] == [2, 2, 4]
    assert victim in named(world, [1])
    assert not world.node.compact()
    assert world.stopped() == []
