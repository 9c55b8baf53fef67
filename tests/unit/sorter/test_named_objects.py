"""What a manifest names is there, whole: a put that failed names nothing, and a part that was damaged is no answer."""

from __future__ import annotations

import io

import pyarrow.parquet as pq

from support.sorter_world import SorterWorld
from support.tiny_tenant import TinyTenant, commit, key, prewrite, watermark, whole
from tistream.errors import Unavailable
from tistream.storage.backends.memory import MemoryObjectStore
from tistream.storage.object_store import Body

TINY = TinyTenant()
FIRST = TINY.file(1, 200, 0, [], watermark(6, 5, 150, base_ts=100))


class RefusingStore(MemoryObjectStore):
    """Refuses plain puts of keys that contain `refused`, as a store that is told to slow down does."""

    refused: str | None = None

    def put(self, key: str, body: Body) -> None:
        if self.refused is not None and self.refused in key:
            raise Unavailable(f"slow down: {key}")
        super().put(key, body)


def pools(world: SorterWorld) -> list[bytes]:
    keys: list[bytes] = world.pool()["key"].to_list()
    return keys


def test_a_segment_or_part_that_could_not_be_put_is_not_named() -> None:
    """The tick fails and is told; once the store takes puts again, all goes on."""
    store = RefusingStore()
    world = SorterWorld(TINY, [], objects=store)
    world.push(FIRST)
    world.tick()
    changes = [whole(b"a", 160, 170, 6), prewrite(b"b", 161, 7)]
    world.push(TINY.file(1, 210, 200, changes, watermark(6, 7, 205)))
    for refused in ("/segment/", "/pending/"):
        store.refused = refused
        assert not world.node.tick()
        assert (world.stopped(), world.progress_ts()) == ([], 150)
    store.refused = None
    world.tick()
    assert pools(world) == [key(b"a")]
    world.push(TINY.file(1, 220, 210, [commit(b"b", 161, 208, 8)], watermark(8, 8, 215)))
    world.tick()
    assert pools(world) == [key(b"a"), key(b"b")]


def test_a_pending_part_that_lost_rows_stops_the_task_and_loses_none() -> None:
    """It is a sound file, but not the one that the manifest names: two of its three rows are gone."""
    world = SorterWorld(TINY, [])
    world.push(FIRST)
    locks = [prewrite(name, 160, index) for index, name in enumerate((b"a", b"b", b"c"), 6)]
    world.push(TINY.file(1, 210, 200, locks, watermark(6, 8, 155)))
    world.tick()
    (task,) = world.node.tasks()
    (part,) = task.state.pending
    whole_body = world.objects.get(part.key)
    sink = io.BytesIO()
    pq.write_table(pq.read_table(io.BytesIO(whole_body)).slice(0, 1), sink)
    world.objects.put(part.key, sink.getvalue())
    world.push(TINY.file(1, 220, 210, [commit(b"a", 160, 170, 9)], watermark(9, 9, 215)))
    world.tick()
    (reason,) = world.stopped()
    assert part.key in reason
    world.objects.put(part.key, whole_body)
    world.start()
    world.send(world.sent[-1:])
    world.tick()
    assert pools(world) == [key(b"a")]


def test_a_pending_part_that_is_gone_is_named_and_waited_for() -> None:
    """A sorter that has lost the task finds it gone, too: that is no broken invariant."""
    world = SorterWorld(TINY, [])
    world.push(FIRST)
    world.push(TINY.file(1, 210, 200, [prewrite(b"a", 160, 6)], watermark(6, 6, 155)))
    world.tick()
    (task,) = world.node.tasks()
    (part,) = task.state.pending
    body = world.objects.get(part.key)
    world.objects.delete(part.key)
    world.push(TINY.file(1, 220, 210, [commit(b"a", 160, 170, 7)], watermark(7, 7, 215)))
    for _ in range(2):
        assert not world.node.tick()
    assert task.trouble == f"pending part {part.key} does not exist: unless another sorter has the task now, restore it"
    assert world.stopped() == []
    world.objects.put(part.key, body)
    world.tick()
    assert pools(world) == [key(b"a")]
