"""What a task holds is bounded, and what is idle writes nothing."""

from __future__ import annotations

from dataclasses import replace

from support.sorter_world import SorterWorld
from support.tiny_tenant import TinyTenant, commit, prewrite, watermark, whole
from tistream.model.span import WHOLE
from tistream_sorter.task.inbox import Inbox, bytes_of

TINY = TinyTenant()
FIRST = TINY.file(1, 200, 0, [whole(b"a", 120, 130, 5)], watermark(6, 5, 150, base_ts=100))


def number(world: SorterWorld) -> int:
    (task,) = world.node.tasks()
    return task.state.number


def test_a_tenant_for_which_no_file_arrives_writes_nothing() -> None:
    world = SorterWorld(TINY, [])
    world.push(FIRST)
    world.tick()
    names = [info.key for info in world.objects.list_after("")]
    for _ in range(6):
        world.clock.advance(600_000)
        assert not world.node.tick()
    assert [info.key for info in world.objects.list_after("")] == names


def test_files_without_changes_cost_a_manifest_in_ten_seconds() -> None:
    world = SorterWorld(TINY, [])
    world.push(FIRST)
    world.tick()
    before, at = number(world), 200
    for second in range(1, 31):
        world.clock.advance(1_000)
        world.push(TINY.file(1, 200 + second, at, [], watermark(6, 5, 150 + second)))
        at = 200 + second
        world.node.tick()
        assert world.progress_ts() == 150 + second
    assert number(world) - before == 3


def test_coverage_is_told_of_what_is_durable() -> None:
    """What a scan is told to begin at must be known to the next holder too, whatever became of the files since."""
    world = SorterWorld(TINY, [])
    world.push(FIRST)
    world.tick()
    (task,) = world.node.tasks()

    def covered() -> set[str]:
        return {piece.resolved_ts for piece in task.coverage(WHOLE).slices}

    assert covered() == {"150"}
    world.push(TINY.file(1, 210, 200, [], watermark(6, 5, 170)))
    world.node.tick()
    assert world.progress_ts() == 170
    assert covered() == {"150"}, "no manifest has it yet"
    world.clock.advance(20_000)
    world.node.tick()
    assert covered() == {"170"}


def test_a_task_without_room_takes_nothing_and_says_so() -> None:
    world = SorterWorld(TINY, [])
    world.limits = replace(world.limits, inbox_files_max=2)
    world.start()
    files = [FIRST, *(TINY.file(1, at + 10, at, [], watermark(6, 5, at + 5)) for at in (200, 210))]
    for file in files:
        world.objects.put(file.key, file.data)
    first, second, third = (world.route(file.key)[0] for file in files)
    (task,) = world.node.tasks()
    assert task.offer([first, second], 0)
    assert not task.offer([third], 0)
    assert task.received()[1][0].at_ts == 210
    world.tick()
    assert task.offer([third], 0)


def test_one_tick_takes_no_more_bytes_than_the_limit() -> None:
    world = SorterWorld(TINY, [])
    files = [FIRST]
    files += [TINY.file(1, at + 10, at, [whole(b"b", at - 5, at - 4, at)], watermark(6, at, at)) for at in (200, 210)]
    for file in files:
        world.objects.put(file.key, file.data)
    routed = [world.route(file.key)[0] for file in files]
    world.limits = replace(world.limits, bytes_max=bytes_of(routed[0], 1) + bytes_of(routed[1], 1))
    world.start()
    world.send(routed)
    world.node.tick()
    (task,) = world.node.tasks()
    assert [chain.at_ts for chain in task.state.positions[1]] == [210]
    world.node.tick()
    assert [chain.at_ts for chain in task.state.positions[1]] == [220]


def test_the_oldest_files_are_taken_first_whichever_store_came_first_but_each_stores_own_in_their_order() -> None:
    """What is taken of one store while another is behind would wait for it in pending parts. Of a store's chains the
    order is kept in which they came: which of them are still open depends on it."""
    world = SorterWorld(TINY, [])
    chains = {1: [(210, 0), (230, 210), (205, 0)], 2: [(211, 0), (221, 211), (231, 221)]}
    inbox = Inbox({})
    for store, files in chains.items():
        for ts, prev_ts in files:
            delivery = TINY.file(store, ts, prev_ts, [whole(b"a", 100, 101, 5)], watermark(1, 5, 102, base_ts=100))
            world.objects.put(delivery.key, delivery.data)
            assert inbox.offer(world.route(delivery.key)[0])
    order = [(1, 210), (2, 211), (2, 221), (1, 230), (1, 205), (2, 231)]
    assert [(file.ref.store_id, file.ref.ts) for file in inbox.peek(1 << 30, 1)] == order
    first = inbox.peek(0, 1)
    inbox.remove(len(first))
    assert [(file.ref.store_id, file.ref.ts) for file in inbox.peek(1 << 30, 1)] == order[1:]


def test_what_has_found_its_other_half_is_pending_no_more() -> None:
    world = SorterWorld(TINY, [])
    world.push(FIRST)
    world.push(TINY.file(1, 210, 200, [prewrite(b"b", 160, 6), whole(b"c", 161, 300, 7)], watermark(6, 7, 205)))
    world.tick()
    (task,) = world.node.tasks()
    assert sorted(part.kind for part in task.state.pending) == ["ready", "unmatched"]
    world.push(TINY.file(1, 220, 210, [commit(b"b", 160, 210, 8)], watermark(8, 8, 301)))
    world.tick()
    assert task.state.pending == ()
    assert world.pool()["commit_ts"].to_list() == [130, 210, 300]
