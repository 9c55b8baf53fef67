"""Late files of chains in whose place others have come: their dispatcher deletes them, read or not."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from support.sorter_world import InlineRunner
from support.split_world import SplitWorld
from support.tiny_tenant import TinyTenant, prewrite, watermark, whole
from tistream.format.manifest import ChainPosition
from tistream_sorter.jobs.shard import Shard, ShardResult

TINY = TinyTenant()


def world_of() -> SplitWorld:
    """A chain that ended at 210, and a new one from 300 on, which the task has flushed through."""
    world = SplitWorld(TINY)
    world.push(TINY.file(1, 200, 0, [], watermark(6, 5, 150, base_ts=100)))
    world.push(TINY.file(1, 210, 200, [whole(b"a", 202, 203, 6)], watermark(6, 6, 205)))
    world.tick()
    world.push(TINY.file(1, 300, 0, [whole(b"b", 250, 251, 20)], watermark(21, 20, 290, base_ts=205)))
    world.push(TINY.file(1, 400, 300, [whole(b"c", 310, 311, 21)], watermark(21, 21, 390)))
    world.tick()
    assert world.task(1).durable.flushed_ts >= 300
    return world


def test_of_a_late_file_of_a_closed_chain_nothing_is_read() -> None:
    world = world_of()
    late = TINY.file(1, 220, 210, [prewrite(b"x", 212, 7)], watermark(7, 7, 213))
    world.push(late)
    world.objects.delete(late.key)
    world.tick()
    world.clock.advance(60_000)
    world.tick()
    task = world.task(1)
    assert world.stopped() == []
    assert [hold for hold in task.status(0, world.clock.monotonic_ms()).holds if hold.stage == "damaged"] == []
    assert task.received()[1] == (ChainPosition(200, 220), ChainPosition(300, 400)), "its place is taken all the same"
    assert task.durable.pending == ()


def test_one_of_a_chain_that_slices_may_rest_on_is_taken() -> None:
    world = SplitWorld(TINY)
    world.push(TINY.file(1, 200, 0, [], watermark(6, 5, 150, base_ts=100)))
    world.push(TINY.file(1, 300, 0, [], watermark(21, 20, 290, base_ts=205)))  # does not connect: 205 is not reached
    world.tick()
    world.push(TINY.file(1, 210, 200, [whole(b"a", 202, 203, 6)], watermark(6, 6, 205)))
    world.tick()
    assert world.task(1).durable.counters["committed_rows"] == 1
    assert world.task(1).state.progress_ts >= 290


class BusyRunner(InlineRunner):
    """While its first job runs, something else happens."""

    meanwhile: Callable[[], None] | None = None

    def run(self, shards: Sequence[Shard], *, beside: bool = False) -> list[ShardResult]:
        if (happens := BusyRunner.meanwhile) is not None:
            BusyRunner.meanwhile = None
            happens()
        return super().run(shards, beside=beside)


def test_the_first_file_of_a_chain_that_is_closed_while_it_waits_is_taken_once() -> None:
    world = SplitWorld(TINY, new_runner=BusyRunner)
    world.push(TINY.file(1, 200, 0, [], watermark(6, 5, 150, base_ts=100)))
    world.tick()
    world.push(TINY.file(1, 300, 0, [whole(b"b", 250, 251, 20)], watermark(21, 20, 290, base_ts=150)))
    world.push(TINY.file(1, 400, 300, [whole(b"c", 310, 311, 21)], watermark(21, 21, 390)))
    between = TINY.file(1, 250, 0, [], watermark(7, 7, 149, base_ts=140))
    BusyRunner.meanwhile = lambda: world.push(between)
    world.tick()  # its manifest closes the chain of 250, of which it has no file
    assert world.task(1).durable.flushed_ts >= 300
    assert BusyRunner.meanwhile is None
    world.push(TINY.file(1, 500, 400, [whole(b"d", 410, 411, 22)], watermark(22, 22, 490)))
    world.tick()  # its manifest has a position in that chain
    for _ in range(2):
        world.send()  # a dispatcher that has just begun sends the first files of all chains again
        world.tick()
    assert world.stopped() == []
    assert world.task(1).received()[1] == (ChainPosition(200, 200), ChainPosition(250, 250), ChainPosition(300, 500))
