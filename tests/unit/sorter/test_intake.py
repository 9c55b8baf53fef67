"""What manifests say of the files that a tenant has sent: each counts once, whatever happens to its tasks."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from support.effort import cases
from support.simulated import FLUSHING, LOSING, WILD
from support.split_histories import History
from support.split_world import SplitWorld
from support.tiny_tenant import TinyTenant, key, watermark, whole
from tistream.format import manifest
from tistream.format.manifest import NOTHING_TAKEN, IntakeCount
from tistream.storage import layout
from tistream.storage.manifest_follow import TaskObjects
from tistream.wire.usage import HOUR_MS, hour_of
from tistream_sorter.node.pool_usage import PoolUsage, stored_bytes
from tistream_sorter.state.intake import counts_intake
from tistream_sorter.state.task_state import TaskState
from tistream_upstream.config import ClusterConfig

TINY = TinyTenant()
M = key(b"m")


def push(world: SplitWorld, ts: int, prev_ts: int, row_at: int | None = None, at: int = 6) -> int:
    """A file, with a row at a log index or without; `at` is the first index that it covers. Its size."""
    rows = [] if row_at is None else [whole(b"a", ts - 59, ts - 55, row_at)]
    mark = watermark(at, at + len(rows) - 1, ts - 50, base_ts=None if prev_ts else 100)
    file = TINY.file(1, ts, prev_ts, rows, mark)
    world.push(file)
    return len(file.data)


def states(world: SplitWorld) -> list[TaskState]:
    return [task.durable for task in world.node.tasks()]


def most_of(several: Iterable[TaskState]) -> int:
    """What the meta server makes of what is told of stored bytes."""
    most: dict[int, int] = {}
    for state in several:
        for task, size in stored_bytes(state).items():
            most[task] = max(size, most.get(task, 0))
    return sum(most.values())


def sizes(world: SplitWorld, names: Iterable[str]) -> int:
    """Bytes of objects, each once, as the store has them."""
    return sum(world.objects.head(name).size for name in set(names))


def intake(world: SplitWorld) -> IntakeCount:
    (first,) = [state for state in states(world) if counts_intake(state.identity)]
    return first.intake


def settle(world: SplitWorld) -> None:
    """Whatever was taken is in a manifest."""
    world.tick()
    world.clock.advance(11_000)
    world.tick()


def test_a_file_counts_in_the_hour_of_the_manifest_that_first_tells_of_it() -> None:
    world = SplitWorld(TINY)
    sizes = [push(world, 200, 0)]
    settle(world)
    hours = [hour_of(world.clock.now_ms())]
    world.clock.advance(HOUR_MS)
    sizes.append(push(world, 210, 200, 6) + push(world, 220, 210, at=7))
    settle(world)
    hours.append(hour_of(world.clock.now_ms()))
    assert intake(world).hours == dict(zip(hours, sizes, strict=True))
    world.crash()
    assert intake(world).hours == dict(zip(hours, sizes, strict=True))


def test_only_the_task_with_the_first_keys_counts() -> None:
    world = SplitWorld(TINY)
    push(world, 200, 0)
    settle(world)
    world.split(1, M)
    settle(world)
    push(world, 210, 200)
    settle(world)
    assert [bool(state.intake.hours) for state in states(world)] == [
        counts_intake(state.identity) for state in states(world)
    ]


def test_what_a_merge_takes_back_counts_once() -> None:
    world = SplitWorld(TINY)
    size = push(world, 200, 0)
    settle(world)
    world.split(1, M)
    settle(world)
    world.withheld = {(3, 1)}  # the second one falls behind: the heir begins where it is
    size += push(world, 210, 200, 6)
    settle(world)
    world.merge(2, 3)
    for _ in range(20):
        world.node.tick()
        world.meta()
    world.withheld.clear()
    settle(world)
    assert len(world.rows) == 1
    size += push(world, 220, 210, at=7)
    settle(world)
    found = intake(world)
    assert sum(found.hours.values()) == size
    assert found.through == {}


@pytest.mark.parametrize(
    ("config", "seed"),
    cases(
        [pytest.param(FLUSHING, 13, id="flushing")],
        [
            pytest.param(WILD, 11, id="wild"),
            pytest.param(WILD, 12, id="wild too"),
            pytest.param(LOSING, 14, id="losing"),
        ],
    ),
)
def test_sums_are_the_store_s_own_after_splits_merges_and_crashes(config: ClusterConfig, seed: int) -> None:
    history = History(config, seed)
    history.run()
    world, objects = history.world, history.world.objects
    settle(world)
    pushed = [info.size for info in objects.list_after("data_change_buffer/") if layout.parse_change_file(info.key)]
    assert sum(intake(world).hours.values()) == sum(pushed)
    named = [one.key for state in states(world) for one in (*state.live_segments, *state.pending)]
    owned = [name for name in named if layout.task_of(name) in world.rows]
    # Of an object that only some heirs name it is not known that it is another one than those that all of them do.
    assert sizes(world, owned) <= most_of(states(world)) <= sizes(world, named)
    assert sum(stored_bytes(state).get(state.identity.task_id, 0) for state in states(world)) == sizes(world, owned)


def test_the_newest_hours_are_restated(monkeypatch: pytest.MonkeyPatch) -> None:
    hours_max = 12  # in place of three days
    monkeypatch.setattr("tistream_sorter.state.intake.HOURS_MAX", hours_max)
    world = SplitWorld(TINY)
    push(world, 200, 0)
    settle(world)
    for number in range(hours_max + 3):
        world.clock.advance(HOUR_MS)
        push(world, 210 + 10 * number, 200 + 10 * number, 6 + number, 6 + number)
        settle(world)
    found = intake(world).hours
    assert len(found) == hours_max
    assert max(found) == hour_of(world.clock.now_ms())


def test_a_manifest_of_before_there_was_metering_has_taken_nothing() -> None:
    world = SplitWorld(TINY)
    push(world, 200, 0)
    settle(world)
    last = TaskObjects(world.objects, TINY.tenant, 1).follow().last
    assert last is not None
    assert last.intake.hours
    assert manifest.decode("a", manifest.encode(last)).intake == last.intake
    old = manifest.encode(last).replace(b"TSMF\x05", b"TSMF\x03")
    assert manifest.decode("a", old).number == last.number
    assert IntakeCount.from_json(NOTHING_TAKEN.to_json()) == NOTHING_TAKEN


def test_hours_in_which_nobody_told_are_told_later() -> None:
    world = SplitWorld(TINY)
    world.clock.advance(HOUR_MS)
    push(world, 200, 0)
    push(world, 210, 200, 6)
    settle(world)
    usage = PoolUsage(lambda: states(world))
    hour = hour_of(world.clock.now_ms())
    told, stored = usage.due(world.clock.now_ms())
    assert [one.hour_ms for one in told] == [one.hour_ms for one in stored] == [hour]
    assert sum(stored[0].bytes_of.values()) > 0
    assert usage.due(world.clock.now_ms()) == (told, stored), "nobody has taken it"
    usage.acknowledged(told, stored)
    assert usage.due(world.clock.now_ms()) == ([], [])
    world.clock.advance(3 * HOUR_MS)
    _, stored = usage.due(world.clock.now_ms())
    assert [one.hour_ms for one in stored] == [hour + number * HOUR_MS for number in (1, 2, 3)]
    another = PoolUsage(lambda: states(world))  # the task has come to another sorter
    assert [one.hour_ms for one in another.due(world.clock.now_ms())[1]] == [
        hour + number * HOUR_MS for number in range(4)
    ]
