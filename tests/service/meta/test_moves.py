"""Tasks move from sorter to sorter while files come: nothing is lost, nothing is written twice, readers cross it."""

from __future__ import annotations

import contextlib
import io
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import polars as pl
import pytest
from sqlalchemy import create_engine, text

from support.effort import FULL
from support.http_world import SorterProcess, World, running
from support.tiny_tenant import TinyTenant, watermark, whole
from support.waiting import eventually
from tistream.errors import InvalidRequest, Unavailable, UnknownName
from tistream.pool.task_log import TaskLog
from tistream.storage import layout
from tistream.wire.meta import TaskInfo

T = TypeVar("T")
TINY = TinyTenant()
COUNT = 40 if FULL else 24


def begin(world: World) -> None:
    world.objects.put(layout.schema_snap(TINY.tenant), b'{"version":1,"snapshot_ts":100,"databases":[]}')
    world.client.create_tenant(TINY.tenant.cluster_id, TINY.tenant.tenant_id)
    eventually(lambda: world.client.tasks().tasks)
    eventually(lambda: {task.phase for task in world.client.tasks().tasks} == {"running"})


def push(world: World, number: int) -> None:
    """The number-th file of the store: one committed row, and everything up to it."""
    ts, prev_ts = 1_000 + 10 * number, 1_000 + 10 * (number - 1) if number else 0
    rows = [whole(b"k%03d" % number, ts + 1, ts + 2, 5 + number)]
    marks = {"base_ts": 100} if not number else {}
    first = 6 if not number else 5 + number
    file = TINY.file(1, ts, prev_ts, rows, watermark(first, 5 + number, ts + 5, **marks))
    world.objects.put(file.key, file.data)
    world.notify(TINY.tenant, 1, ts)


def pool(world: World) -> Counter[int]:
    """commit_ts of every row in the segments that the manifests name."""
    segments = set[str]()
    for task in world.client.tasks().tasks:
        log = TaskLog(world.objects, TINY.tenant, task.task_id)
        log.refresh()
        segments |= {segment.key for segment in log.segments}
    found = Counter[int]()
    for key in segments:
        found.update(pl.read_parquet(io.BytesIO(world.objects.get(key)))["commit_ts"])
    return found


def holder(world: World) -> str | None:
    (task,) = world.client.tasks().tasks
    return task.sorter_node if task.phase == "running" else None


def test_a_task_that_is_moved_back_and_forth_loses_nothing_and_writes_nothing_twice(tmp_path: Path) -> None:
    with running(tmp_path) as world:
        other = SorterProcess(world, "sorter-2").joined()
        begin(world)
        for number in range(COUNT):
            if number % 8 == 4:
                (task,) = world.client.tasks().tasks
                target = "sorter-2" if task.sorter_node == "sorter-1" else "sorter-1"
                world.client.move(task.task_id, target)
            push(world, number)
            if number % 8 == 7:
                eventually(lambda target=target: holder(world) == target)
        last = 1_000 + 10 * (COUNT - 1) + 2
        eventually(lambda: pool(world).get(last))
        assert world.client.tasks().tasks[0].task_epoch == 1 + COUNT // 8
        assert pool(world) == Counter(1_000 + 10 * number + 2 for number in range(COUNT)), "each row once"
        other.stop()


SECOND = 1_000 << 18


def push_a_second(world: World, number: int) -> None:
    """As push, of a store that pushes once a second of its own time: a merge waits for a ts some seconds ahead."""
    ts, prev_ts = SECOND * (number + 1), SECOND * number
    rows = [whole(b"k%03d" % number, ts + 1, ts + 2, 5 + number)]
    marks = {"base_ts": 100} if not number else {}
    first = 6 if not number else 5 + number
    file = TINY.file(1, ts, prev_ts, rows, watermark(first, 5 + number, ts + 5, **marks))
    world.objects.put(file.key, file.data)
    world.notify(TINY.tenant, 1, ts)


def settled_tasks(world: World) -> list[TaskInfo]:
    found: list[TaskInfo] = []

    def all_run() -> bool:
        found[:] = world.client.tasks().tasks
        return all(task.phase == "running" for task in found)

    eventually(all_run)
    return sorted(found, key=lambda task: task.start_key)


def test_tasks_that_are_split_moved_and_merged_lose_nothing_and_write_nothing_twice(tmp_path: Path) -> None:
    with running(tmp_path) as world:
        other = SorterProcess(world, "sorter-2").joined()
        begin(world)
        seen, done, merging = set[int](), Counter[str](), 0
        for number in range(COUNT):
            if number % 10 == 0 and merging:  # by now the files have gone past its stop
                eventually(lambda fewer=merging: len(world.client.tasks().tasks) == fewer)
            tasks = settled_tasks(world)
            seen |= {task.task_id for task in tasks}
            with contextlib.suppress(InvalidRequest):  # a merge is under way
                if number % 10 == 1:
                    world.client.split(tasks[0].task_id, (b"k0%d5" % (number // 10)).hex())
                    more = len(tasks) + 1
                    eventually(lambda more=more: len(world.client.tasks().tasks) == more)
                    done["split"] += 1
                elif number % 10 == 3:
                    target = "sorter-2" if tasks[-1].sorter_node == "sorter-1" else "sorter-1"
                    world.client.move(tasks[-1].task_id, target)
                    done["move"] += 1
                elif number % 10 == 5 and len(tasks) > 1:
                    world.client.merge(tasks[0].task_id, tasks[1].task_id)
                    done["merge"] += 1
                    merging = len(tasks) - 1
            push_a_second(world, number)
        wanted = Counter(SECOND * (number + 1) + 2 for number in range(COUNT))
        eventually(lambda: pool(world) == wanted)
        assert min(done[what] for what in ("split", "move", "merge")) >= 2
        assert len(seen) >= 6, "tasks came and went"
        other.stop()


def test_a_sorter_that_is_drained_ends_with_nothing_and_gets_nothing(tmp_path: Path) -> None:
    with running(tmp_path, ranges=4) as world:
        other = SorterProcess(world, "sorter-2").joined()
        begin(world)
        world.client.drain("sorter-1")
        eventually(lambda: {task.sorter_node for task in world.client.tasks().tasks} == {"sorter-2"})
        (drained,) = [node for node in world.client.nodes().nodes if node.node_id == "sorter-1"]
        assert (drained.state, drained.tasks) == ("draining", 0)
        world.client.drain("sorter-1", draining=False)
        eventually(lambda: len({task.sorter_node for task in world.client.tasks().tasks}) == 2)
        other.stop()


def test_what_cannot_be_moved_is_told(tmp_path: Path) -> None:
    with running(tmp_path) as world:
        begin(world)
        (task,) = world.client.tasks().tasks
        with pytest.raises(UnknownName, match="no task 99"):
            world.client.move(99, "sorter-1")
        with pytest.raises(InvalidRequest, match="nobody is not a sorter that is alive"):
            world.client.move(task.task_id, "nobody")
        with pytest.raises(InvalidRequest, match="is at sorter-1 already: there is nothing to move"):
            world.client.move(task.task_id, "sorter-1")
        with pytest.raises(UnknownName, match="no node nobody"):
            world.client.drain("nobody")


def test_a_task_that_has_nothing_to_do_is_split_only_where_it_is_said(tmp_path: Path) -> None:
    with running(tmp_path) as world:
        begin(world)
        (task,) = world.client.tasks().tasks
        with pytest.raises(InvalidRequest, match="knows no key that halves its load; give one"):
            world.client.split(task.task_id)
        assert len(world.client.split(task.task_id, "6d").children) == 2


def test_epochs_that_a_restored_database_has_forgotten_are_found_in_the_manifests(tmp_path: Path) -> None:
    with running(tmp_path) as world:
        begin(world)
        for number in range(3):
            push(world, number)
        for _ in range(3):
            world.restart_sorter()
            eventually(lambda: holder(world) == "sorter-1")

        def restored() -> None:
            with create_engine(f"sqlite:///{tmp_path}/meta.db").begin() as connection:
                connection.execute(text("UPDATE tasks SET task_epoch = 1"))
                connection.execute(text("UPDATE owner SET owner_rev = 0, lease_until_ms = 0"))
                connection.execute(text("UPDATE counters SET value = 1 WHERE name = 'route_version'"))

        world.restart_meta(restored)
        for number in range(3, 6):
            push(world, number)
        wanted = Counter(1_000 + 10 * number + 2 for number in range(6))
        eventually(lambda: while_elected(lambda: pool(world)) == wanted)
        eventually(lambda: while_elected(lambda: holder(world)) == "sorter-1")


def while_elected(ask: Callable[[], T]) -> T | None:
    """The answer; None while there is no owner: one that hears of routes that it does not know is elected anew."""
    try:
        return ask()
    except Unavailable:
        return None


def test_asked_again_is_asked_once(tmp_path: Path) -> None:
    """An answer may be lost: the same question to the next meta server is no error."""
    with running(tmp_path, ranges=2) as world:
        begin(world)
        left, right = world.client.tasks().tasks
        merged = [world.client.merge(left.task_id, right.task_id).children for _ in range(2)]
        assert merged[0] == merged[1]
        with pytest.raises(InvalidRequest, match="already"):
            world.client.split(left.task_id, "66")
