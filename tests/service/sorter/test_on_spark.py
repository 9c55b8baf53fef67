"""The same ticks as real Spark jobs: executors read and write, the pool is the oracle's."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from support import golden as golden_sets
from support import spark
from support.sorter_world import SorterWorld
from tistream.errors import FatalError
from tistream.storage.open import open_objects
from tistream_sorter.jobs.run import SparkRunner
from tistream_sorter.spark.session import build_session

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def session() -> Iterator[SparkSession]:
    with spark.local_session(spark.SORTER) as one:
        yield one


@pytest.mark.parametrize(("tasks", "shards"), [(3, 1), (1, 4)])
def test_spark_commits_the_oracles_rows(session: SparkSession, tmp_path: Path, tasks: int, shards: int) -> None:
    golden = golden_sets.load("large")
    truth = golden_sets.committed_rows(golden.name)
    bounds = sorted(truth["key"].to_list())[1 :: len(truth) // tasks][: tasks - 1]
    url = f"file://{tmp_path}"
    world = SorterWorld(
        golden,
        bounds,
        shards=shards,
        shard_bytes_min=1 << 14,
        objects=open_objects(url),
        runner=SparkRunner(session, url),
    )
    for number, file in enumerate(golden.files):
        world.push(file)
        if number % 15 == 14:
            world.tick()
    world.tick()
    assert world.stopped() == []
    columns = ["key", "start_ts", "commit_ts", "op", "value", "old_value"]
    expected = truth.sort("commit_ts", "start_ts", "key").select(columns)
    assert world.pool().select(columns).equals(expected)


def test_a_tasks_trouble_stays_its_own(session: SparkSession, tmp_path: Path) -> None:
    """A damaged pending part stops its task, loudly; the other tasks of the same job go on."""
    golden = golden_sets.load("large")
    truth = golden_sets.committed_rows(golden.name)
    middle = sorted(truth["key"].to_list())[len(truth) // 2]
    url = f"file://{tmp_path}"
    objects = open_objects(url)
    world = SorterWorld(golden, [middle], objects=objects, runner=SparkRunner(session, url))
    damaged = None
    for file in golden.files:
        world.push(file)
        world.tick()
        if damaged is None:
            parts = [(task.task_id, part) for task in world.node.tasks() for part in task.state.pending]
            for task_id, part in parts[:1]:
                body = bytearray(objects.get(part.key))
                body[len(body) // 2] ^= 1
                objects.put(part.key, bytes(body))
                damaged = task_id, part.key
    assert damaged is not None
    (reason,) = world.stopped()
    assert damaged[1] in reason
    other = next(task for task in world.node.tasks() if task.task_id != damaged[0])
    assert other.state.progress_ts >= golden.end_ts


@pytest.mark.usefixtures("session")
def test_a_second_session_is_refused() -> None:
    with pytest.raises(FatalError, match="this process has a Spark session"):
        build_session("local[1]", "another", {})
