"""What becomes of a huge transaction, at the size of a few rows: values stay in their source, rows above the watermark
are written once, parts are left alone, and large ticks hold nobody up (docs/adr/0007)."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from support.change_files import flipped_change_group
from support.pending_rules import EXTREME
from support.sorter_world import InlineRunner, SorterWorld
from support.tiny_tenant import TinyTenant, commit, key, prewrite, watermark, whole
from support.waiting import PATIENCE_S, eventually
from tistream.format.manifest import READY, SEALED, UNMATCHED, PendingPart
from tistream.pool.task_log import TaskLog
from tistream.storage import layout
from tistream.storage.backends.memory import MemoryObjectStore
from tistream.storage.object_store import Body
from tistream_sorter.jobs.index.index_unit import IndexResult, IndexUnit
from tistream_sorter.jobs.rewrite import Rewrite, Rewritten
from tistream_sorter.jobs.shard import Shard, ShardResult, StorageRules
from tistream_sorter.task.task_machine import TickLimits
from tistream_sorter.upkeep.sweep import EVERY_MS

TINY = TinyTenant()
FIRST = TINY.file(1, 200, 0, [], watermark(6, 5, 150, base_ts=100))
LOCKS = TINY.file(
    1, 210, 200, [prewrite(name, 160, at) for at, name in enumerate((b"a", b"b"), 6)], watermark(6, 7, 159)
)


class CountingStore(MemoryObjectStore):
    """Notes which keys are read and written."""

    def __init__(self) -> None:
        super().__init__()
        self.read: list[str] = []
        self.put_keys: list[str] = []

    def get(self, key: str) -> bytes:
        self.read.append(key)
        return super().get(key)

    def get_range(self, key: str, start: int, length: int) -> bytes:
        self.read.append(key)
        return super().get_range(key, start, length)

    def put(self, key: str, body: Body) -> None:
        self.put_keys.append(key)
        super().put(key, body)


def started(store: MemoryObjectStore | None = None) -> SorterWorld:
    world = SorterWorld(TINY, [], cut=EXTREME, objects=store)
    world.push(FIRST)
    world.push(LOCKS)
    world.tick()
    return world


def parts(world: SorterWorld) -> list[PendingPart]:
    return [part for task in world.node.tasks() for part in task.state.pending]


def counted(world: SorterWorld) -> Counter[str]:
    return sum((Counter(task.state.counters) for task in world.node.tasks()), Counter())


def pool(world: SorterWorld) -> list[tuple[bytes, bytes]]:
    frame = world.pool()
    return list(zip(frame["key"], frame["value"], strict=True))


def test_a_waiting_value_stays_in_its_source_until_it_is_flushed() -> None:
    world = started()
    (part,) = parts(world)
    assert (part.kind, part.pointed_bytes) == (UNMATCHED, 2 * len(b"v160"))
    assert [(source.key, [group.index for group in source.groups]) for source in part.sources] == [(LOCKS.key, [0])]
    assert b"v160" not in world.objects.get(part.key)
    world.start()  # the pointers are in the manifest, not in memory
    world.push(TINY.file(1, 220, 210, [commit(b"b", 160, 170, 8)], watermark(8, 8, 159)))
    world.tick()
    left, sealed = sorted(parts(world), key=lambda part: part.kind, reverse=True)
    assert (left.kind, left.rows, left.span.start) == (UNMATCHED, 1, key(b"a"))
    assert (sealed.kind, sealed.rows, sealed.span.start) == (SEALED, 1, key(b"b"))
    world.push(TINY.file(1, 230, 220, [commit(b"a", 160, 170, 9)], watermark(9, 9, 229)))
    world.tick()
    assert parts(world) == []
    assert pool(world) == [(key(b"a"), b"v160"), (key(b"b"), b"v160")]


def test_rows_above_the_watermark_are_written_once_and_become_a_segment() -> None:
    store = CountingStore()
    world = started(store)
    world.push(TINY.file(1, 220, 210, [commit(b"a", 160, 170, 8), commit(b"b", 160, 170, 9)], watermark(8, 9, 169)))
    world.tick()
    (sealed,) = parts(world)
    assert sealed.kind == SEALED
    store.read.clear()
    store.put_keys.clear()
    world.push(TINY.file(1, 230, 220, [], watermark(10, 10, 170)))
    world.tick()
    log = TaskLog(world.objects, TINY.tenant, 1)
    log.refresh()
    assert [segment.key for segment in log.segments] == [sealed.key]
    assert counted(world)["committed_rows"] == 2
    assert sealed.key not in store.read
    assert [name for name in store.put_keys if name.startswith("committed")] == []
    assert pool(world) == [(key(b"a"), b"v160"), (key(b"b"), b"v160")]


def test_a_row_that_comes_again_while_it_waits_as_a_segment_is_there_once() -> None:
    world = started()
    both = [commit(b"a", 160, 170, 8), commit(b"b", 160, 170, 9)]
    world.push(TINY.file(1, 220, 210, both, watermark(8, 9, 169)))
    world.tick()
    again = [prewrite(b"a", 160, 6), *both, whole(b"b", 160, 170, 9)]
    world.push(TINY.file(1, 230, 220, again, watermark(10, 10, 169)))
    world.tick()
    assert [part.kind for part in parts(world)] == [SEALED]
    assert counted(world)["duplicate_rows"] == 2
    world.push(TINY.file(1, 240, 230, [whole(b"a", 160, 170, 9)], watermark(11, 11, 170)))
    world.tick()
    world.push(TINY.file(1, 250, 240, [whole(b"a", 160, 170, 9)], watermark(12, 12, 180)))
    world.tick()
    assert world.stopped() == []
    assert pool(world) == [(key(b"a"), b"v160"), (key(b"b"), b"v160")]


def test_the_last_rows_of_a_row_group_are_copied_so_that_their_source_may_go() -> None:
    """Eight values of 1,000 bytes point; when a quarter of them is left, they are fetched.

    They are all the same, so that the row group's pages hold one of them: it is known for what was seen of it."""
    names = [b"a%d" % at for at in range(8)]
    value = b"v160" * 250
    locks = [
        prewrite(name, 160, 6 + at, value=value, old_value=b"" if at % 2 else None) for at, name in enumerate(names)
    ]
    world = SorterWorld(TINY, [], cut=replace(EXTREME, store=StorageRules(8_000, 1, 1)))
    world.push(FIRST)
    world.push(TINY.file(1, 210, 200, locks, watermark(6, 13, 159)))
    world.tick()
    (part,) = parts(world)
    assert len(part.sources) == 1
    for at, (index, left) in enumerate([(0, 7), (1, 6), (2, 5), (3, 4), (4, 3), (5, 2)]):
        ends = [commit(names[index], 160, 170, 14 + index)]
        world.push(TINY.file(1, 220 + at, 219 + at if at else 210, ends, watermark(14 + index, 14 + index, 159)))
        world.tick()
        (part,) = [part for part in parts(world) if part.kind == UNMATCHED]
        assert (part.rows, len(part.sources), part.pointed_bytes) == (left, left > 2, 1_000 * left * (left > 2))
    world.objects.delete(layout.change_file(TINY.tenant, 1, 210))
    ends = [commit(names[index], 160, 170, 14 + index) for index in (6, 7)]
    world.push(TINY.file(1, 230, 225, ends, watermark(20, 21, 229)))
    world.tick()
    assert world.stopped() == []
    assert world.pool()["old_value"].to_list() == [None, b""] * 4
    assert pool(world) == [(key(name), value) for name in names]


def test_small_rows_of_many_transactions_wait_in_one_part() -> None:
    world = SorterWorld(TINY, [])
    world.push(FIRST)
    world.push(TINY.file(1, 210, 200, [whole(b"a", 160, 171, 6), whole(b"b", 161, 172, 7)], watermark(6, 7, 159)))
    world.tick()
    assert [(part.kind, part.rows) for part in parts(world)] == [(READY, 2)]


def test_a_part_that_nothing_concerns_is_not_read() -> None:
    store = CountingStore()
    world = started(store)
    (part,) = parts(world)
    for number, change in enumerate([whole(b"c", 160, 161, 8), whole(b"a", 150, 162, 8), prewrite(b"b", 163, 8)]):
        store.read.clear()
        world.push(
            TINY.file(
                1, 220 + number, 210 + number * 10 if number == 0 else 219 + number, [change], watermark(8, 8, 159)
            )
        )
        world.tick()
        assert part.key not in store.read
        assert part in parts(world)
    assert LOCKS.key not in store.read
    world.push(TINY.file(1, 230, 222, [commit(b"a", 160, 170, 9), commit(b"b", 160, 170, 10)], watermark(9, 10, 160)))
    world.tick()
    assert part.key in store.read
    assert part not in parts(world)


def test_a_source_that_was_damaged_or_is_another_stops_the_task_and_names_it() -> None:
    swapped = [prewrite(b"b", 160, 6), prewrite(b"a", 160, 7)]
    gone = TINY.file(1, 210, 200, swapped, watermark(6, 7, 159)).data
    for data in (flipped_change_group(LOCKS.data), gone, None):
        world = started()
        if data is None:
            world.objects.delete(LOCKS.key)
        else:
            world.objects.put(LOCKS.key, data)
        world.push(TINY.file(1, 220, 210, [commit(b"a", 160, 170, 8)], watermark(8, 8, 215)))
        world.tick()
        (reason,) = world.stopped()
        assert LOCKS.key in reason
        world.objects.put(LOCKS.key, LOCKS.data)
        world.start()
        world.send(world.sent[-1:])
        world.tick()
        assert pool(world) == [(key(b"a"), b"v160")]


def test_a_dead_lock_in_a_large_part_goes_when_it_is_its_turn() -> None:
    store = CountingStore()
    world = started(store)
    (part,) = parts(world)
    index, prev = 8, 210
    for ts in (220, 230):
        world.push(TINY.file(1, ts, prev, [whole(b"z", ts - 20, ts - 10, index)], watermark(index, index, ts - 9)))
        index, prev = index + 1, ts
        store.read.clear()
        world.tick()
        assert part in parts(world)
        assert part.key not in store.read
    world.clock.advance(EVERY_MS)
    world.push(TINY.file(1, 240, 230, [whole(b"z", 220, 231, index)], watermark(index, index, 232)))
    world.tick()
    assert parts(world) == []
    assert world.stopped() == []


def pipelined_halves() -> SorterWorld:
    """The prewrite of a pipelined change and its commit, which the watermark has not reached, in a part each."""
    world = SorterWorld(TINY, [], cut=EXTREME)
    world.push(FIRST)
    world.push(TINY.file(1, 210, 200, [prewrite(b"a", 160, 6, generation=1)], watermark(6, 6, 159)))
    world.tick()
    world.push(TINY.file(1, 220, 210, [commit(b"a", 160, 300, 7)], watermark(7, 7, 219)))
    world.tick()
    assert [(part.kind, part.rows) for part in parts(world)] == [(UNMATCHED, 1), (UNMATCHED, 1)]
    return world


def test_pipelined_halves_in_parts_of_their_own_meet_when_the_window_reaches_the_commit() -> None:
    world = pipelined_halves()
    world.push(TINY.file(1, 230, 220, [], watermark(8, 8, 300)))
    world.tick()
    assert world.stopped() == []
    assert pool(world) == [(key(b"a"), b"v160")]
    assert parts(world) == []


def test_a_scan_ends_no_pipelined_lock_whose_commit_waits_in_another_part() -> None:
    world = pipelined_halves()
    world.clock.advance(EVERY_MS)
    world.push(TINY.file(1, 230, 220, [whole(b"z", 220, 225, 8)], watermark(9, 9, 229, base_ts=219)))
    world.tick()
    world.push(TINY.file(1, 240, 230, [], watermark(10, 10, 300)))
    world.tick()
    assert world.stopped() == []
    assert pool(world) == [(key(b"z"), b"v220"), (key(b"a"), b"v160")]


class Gate:
    """Runs shards; those of a large tick when they may."""

    def __init__(self, world: SorterWorld) -> None:
        self._inner = InlineRunner(world.objects)
        self.open, self.entered = threading.Event(), threading.Event()

    def run(self, shards: Sequence[Shard], *, beside: bool = False) -> list[ShardResult]:
        if beside:
            self.entered.set()
            assert self.open.wait(PATIENCE_S)
        return self._inner.run(shards)

    def rewrite(self, units: Sequence[Rewrite]) -> list[Rewritten]:
        return self._inner.rewrite(units)

    def merge_index(self, units: Sequence[IndexUnit]) -> list[IndexResult]:
        return self._inner.merge_index(units)


def large_and_small() -> tuple[SorterWorld, Gate]:
    """Two tasks, cut at key m; a tick of the first is large as soon as it has a row."""
    world = SorterWorld(TINY, [key(b"m")])
    gate = Gate(world)
    world.runner = gate
    world.limits = TickLimits(1 << 30, 10_000, 10_000, EXTREME, large_work=3_000)
    world.start()
    return world, gate


def until_committed(world: SorterWorld) -> None:
    eventually(world.node.tick)


def ticks_timed(world: SorterWorld) -> tuple[float, float]:
    """How many, and their seconds."""
    (found,) = world.node._metrics.tick_seconds.collect()
    told = {sample.name: sample.value for sample in found.samples if "le" not in sample.labels}
    return told["tistream_sorter_tick_seconds_count"], told["tistream_sorter_tick_seconds_sum"]


def test_a_large_tick_holds_nobody_up_and_is_committed_when_it_has_ended() -> None:
    world, gate = large_and_small()
    large = [prewrite(b"a%d" % at, 160, 6 + at) for at in range(20)]
    world.push(TINY.file(1, 200, 0, large, watermark(6, 25, 159, base_ts=100)))
    first, second = world.node.tasks()
    world.node.tick()
    assert gate.entered.wait(PATIENCE_S)
    world.push(TINY.file(1, 210, 200, [whole(b"z", 161, 170, 26)], watermark(26, 26, 159)))
    assert world.node.tick()
    assert first.state.positions == {}
    assert [chain.at_ts for chain in second.state.positions[1]] == [210]
    before = ticks_timed(world)
    world.clock.advance(7_000)
    gate.open.set()
    until_committed(world)
    assert ticks_timed(world) == (before[0] + 1, before[1] + 7)
    assert [chain.at_ts for chain in first.state.positions[1]] == [200]
    ends = [commit(b"a%d" % at, 160, 210, 27 + at) for at in range(20)]
    world.push(TINY.file(1, 220, 210, ends, watermark(27, 46, 215)))
    until_committed(world)
    until_committed(world)
    assert world.stopped() == []
    assert [name for name, _ in pool(world)] == [key(b"z"), *sorted(key(b"a%d" % at) for at in range(20))]


def test_a_large_tick_of_a_task_that_is_lost_meanwhile_commits_nothing() -> None:
    world, gate = large_and_small()
    old = world.node
    large = [whole(b"a%d" % at, 160, 170, 6 + at) for at in range(20)]
    world.push(TINY.file(1, 200, 0, large, watermark(6, 25, 205, base_ts=100)))
    old.tick()
    assert gate.entered.wait(PATIENCE_S)
    world.start()
    world.send(world.sent)
    gate.open.set()
    eventually(lambda: old.tick() or len(old.tasks()) < 2)
    assert [task.task_id for task in old.tasks()] in ([2], [])
    until_committed(world)
    for _ in range(5):
        world.node.tick()
        threading.Event().wait(0.05)
    assert [name for name, _ in pool(world)] == sorted(key(b"a%d" % at) for at in range(20))
