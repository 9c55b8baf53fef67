"""A tenant whose key cannot be used: its tasks are told of it and tried seldom, and the others of the job go on."""

from __future__ import annotations

from support.sorter_world import SorterWorld
from support.tiny_tenant import TinyTenant, key, watermark, whole
from tistream.errors import KeyUnusable
from tistream.storage import layout
from tistream.storage.backends.memory import MemoryObjectStore
from tistream.storage.object_store import Body
from tistream_sorter.node.node import KEY_AGAIN_MS

TINY = TinyTenant()
M = key(b"m")
WHY = "encryption key k of tenant 7/tiny cannot be used: denied"


class Locked(MemoryObjectStore):
    """What begins with `locked` can be neither written nor read."""

    locked: str | None = None
    locks_itself = False  # right after the next conditional put
    refused = 0

    def put(self, key: str, body: Body) -> None:
        self._check(key)
        super().put(key, body)

    def put_new(self, key: str, body: bytes) -> None:
        self._check(key)
        super().put_new(key, body)
        if self.locks_itself:
            self.locked, self.locks_itself = key.partition("manifest/")[0], False

    def get(self, key: str) -> bytes:
        self._check(key)
        return super().get(key)

    def _check(self, key: str) -> None:
        if self.locked is not None and key.startswith(self.locked):
            self.refused += 1
            raise KeyUnusable(WHY)


def world_of(bounds: list[bytes]) -> tuple[SorterWorld, Locked]:
    objects = Locked()
    world = SorterWorld(TINY, bounds, objects=objects)
    world.push(TINY.file(1, 200, 0, [], watermark(6, 5, 150, base_ts=100)))
    world.tick()
    world.push(TINY.file(1, 210, 200, [whole(b"a", 160, 170, 6), whole(b"z", 161, 171, 7)], watermark(6, 7, 205)))
    return world, objects


def holds(world: SorterWorld) -> list[tuple[str, str]]:
    now_ms = world.clock.monotonic_ms()
    return [(hold.stage, hold.reason) for task in world.node.tasks() for hold in task.status(0, now_ms).holds]


def progress(world: SorterWorld) -> list[int]:
    return [task.durable.progress_ts for task in world.node.tasks()]


def test_the_others_of_the_job_go_on_and_it_is_tried_seldom_until_the_key_is_back() -> None:
    world, objects = world_of([M])
    objects.locked = layout.task_prefix(TINY.tenant, 1)
    world.node.tick()
    assert progress(world) == [150, 205]
    assert ("sort", f"task 1: {WHY}") in holds(world)
    tried = objects.refused
    world.clock.advance(KEY_AGAIN_MS - 1)
    for _ in range(20):
        assert not world.node.tick()
    assert objects.refused == tried, "nothing is asked of the store meanwhile"
    world.clock.advance(1)
    world.node.tick()
    assert objects.refused > tried
    objects.locked = None
    world.clock.advance(KEY_AGAIN_MS)
    world.tick()
    assert progress(world) == [205, 205]
    assert world.pool()["key"].to_list() == [key(b"a"), key(b"z")]
    assert WHY not in str(holds(world))


def test_a_key_that_goes_while_a_manifest_is_committed_loses_and_doubles_nothing() -> None:
    world, objects = world_of([])
    objects.locks_itself = True
    world.node.tick()
    assert progress(world) == [150], "that it was written is not known"
    assert WHY in str(holds(world))
    tried = objects.refused
    for _ in range(20):
        world.node.tick()
    assert objects.refused == tried
    objects.locked = None
    world.clock.advance(KEY_AGAIN_MS)
    world.tick()
    assert progress(world) == [205]
    assert world.pool()["key"].to_list() == [key(b"a"), key(b"z")]
    assert not world.stopped()
