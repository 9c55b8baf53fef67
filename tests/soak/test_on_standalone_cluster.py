"""The same job on a Spark standalone cluster: master and worker as processes, on the loopback address."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark import SparkContext

from support import golden as golden_sets
from support.sorter_world import SorterWorld
from support.spark import own_jvm
from support.spark_cluster import CLIENT_SETTINGS, TOLD, standalone
from tistream.storage.open import open_objects
from tistream_sorter.jobs.run import SparkRunner
from tistream_sorter.spark.session import build_session

pytestmark = pytest.mark.spark


@pytest.fixture
def master(tmp_path: Path) -> Iterator[str]:
    with own_jvm(), standalone(tmp_path, workers=1, cores=2) as url:
        yield url


def test_a_cluster_commits_the_oracles_rows(master: str, tmp_path: Path) -> None:
    golden = golden_sets.load("large")
    truth = golden_sets.committed_rows(golden.name)
    url = f"file://{tmp_path}/objects"
    session = build_session(master, "tests", CLIENT_SETTINGS)
    try:
        assert TOLD.encode() not in Path(f"/proc/{SparkContext._gateway.proc.pid}/cmdline").read_bytes()
        middle = sorted(truth["key"].to_list())[len(truth) // 2]
        world = SorterWorld(golden, [middle], objects=open_objects(url), runner=SparkRunner(session, url))
        for number, file in enumerate(golden.files):
            world.push(file)
            if number % 15 == 14:
                world.tick()
        world.tick()
    finally:
        session.stop()
    assert world.stopped() == []
    columns = ["key", "start_ts", "commit_ts", "op", "value", "old_value"]
    assert world.pool().select(columns).equals(truth.sort("commit_ts", "start_ts", "key").select(columns))
