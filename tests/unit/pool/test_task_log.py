from __future__ import annotations

import pytest

from support.manifest_holder import TASK, TENANT, Holder, manifest_key
from tistream.errors import UnknownName
from tistream.format.manifest import KIND_CHECKPOINT, KIND_SEAL
from tistream.model.span import WHOLE
from tistream.model.ts import Window
from tistream.pool.task_log import TaskLog
from tistream.storage.backends.memory import MemoryObjectStore


@pytest.fixture
def objects() -> MemoryObjectStore:
    return MemoryObjectStore()


def names(log: TaskLog) -> list[str]:
    return [found.key.removeprefix("segment/") for found in log.segments]


def test_a_task_without_manifests(objects: MemoryObjectStore) -> None:
    log = TaskLog(objects, TENANT, TASK)
    assert not log.refresh()
    assert (log.number, log.epoch, log.flushed_ts, log.segments) == (0, 0, 0, ())
    assert log.segments_overlapping(Window(0, 100)) == []
    with pytest.raises(UnknownName):
        _ = log.span


def test_follows_what_is_committed(objects: MemoryObjectStore) -> None:
    log = TaskLog(objects, TENANT, TASK)
    holder = Holder(objects, "a", 4).claim()
    assert log.refresh()
    assert (log.number, log.epoch, log.flushed_ts, log.span) == (1, 4, 0, WHOLE)
    holder.commit("one")
    holder.commit("two")
    assert log.refresh()
    assert names(log) == ["one", "two"]
    assert log.flushed_ts == 20
    assert not log.refresh()


def test_survives_collection_behind_its_back(objects: MemoryObjectStore) -> None:
    log = TaskLog(objects, TENANT, TASK)
    holder = Holder(objects, "a", 1).claim()
    holder.commit("one")
    log.refresh()
    checkpoint = holder.commit("two", KIND_CHECKPOINT).number
    holder.log.raise_floor(checkpoint)
    for number in range(1, checkpoint):
        objects.delete(manifest_key(number))
    holder.commit("three")
    assert log.refresh()
    assert names(log) == ["one", "two", "three"]
    fresh = TaskLog(objects, TENANT, TASK)
    fresh.refresh()
    assert fresh.view == log.view


def test_segments_are_found_by_window(objects: MemoryObjectStore) -> None:
    log = TaskLog(objects, TENANT, TASK)
    holder = Holder(objects, "a", 1).claim()
    holder.commit("one")  # its row's commit_ts is 10
    log.refresh()
    assert [len(log.segments_overlapping(Window(*bounds))) for bounds in ((0, 9), (0, 10), (9, 20), (10, 20))] == [
        0,
        1,
        1,
        0,
    ]
    holder.commit("two")
    log.refresh()
    assert len(log.segments_overlapping(Window(0, 10))) == 2


def test_a_seal_names_the_children(objects: MemoryObjectStore) -> None:
    log = TaskLog(objects, TENANT, TASK)
    holder = Holder(objects, "a", 1).claim()
    assert not log.sealed
    holder.commit("last", KIND_SEAL)
    log.refresh()
    assert log.sealed
    assert log.children == ()
