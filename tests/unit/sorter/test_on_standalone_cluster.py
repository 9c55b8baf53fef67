"""The same job on a Spark standalone cluster: master and worker as processes, on the loopback address."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyspark
import pytest

from support import golden as golden_sets
from support import oracle
from support.sorter_world import SorterWorld
from tistream.service import java
from tistream.storage.open import open_objects
from tistream_sorter.jobs.run import SparkRunner
from tistream_sorter.jobs.session import build_session

pytestmark = pytest.mark.spark


def free_port() -> int:
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        return int(listening.getsockname()[1])


@contextmanager
def process(log: Path, *arguments: str) -> Iterator[None]:
    home = Path(pyspark.__file__).parent
    environment = {**os.environ, "SPARK_LOCAL_IP": "127.0.0.1", "SPARK_HOME": str(home)}
    environment["PYSPARK_PYTHON"] = sys.executable
    with log.open("w") as out:
        running = subprocess.Popen(
            [home / "bin" / "spark-class", *arguments], env=environment, stdout=out, stderr=subprocess.STDOUT
        )
        try:
            yield
        finally:
            running.terminate()
            running.wait(20)


def wait_for(log: Path, text: str) -> None:
    deadline = time.monotonic() + 60
    while text not in log.read_text():
        assert time.monotonic() < deadline, log.read_text()[-2000:]
        time.sleep(0.2)


@pytest.fixture
def master(tmp_path: Path) -> Iterator[str]:
    java.ensure()
    port = free_port()
    url = f"spark://127.0.0.1:{port}"
    deploy = "org.apache.spark.deploy"
    where = ("--host", "127.0.0.1", "--webui-port", "0")
    with process(tmp_path / "master.log", f"{deploy}.master.Master", *where, "--port", str(port)):
        wait_for(tmp_path / "master.log", "New state: ALIVE")
        size = ("--cores", "2", "--memory", "1g", "--work-dir", str(tmp_path / "work"))
        with process(tmp_path / "worker.log", f"{deploy}.worker.Worker", *where, *size, url):
            wait_for(tmp_path / "worker.log", "Successfully registered with master")
            yield url


def test_a_cluster_commits_the_oracles_rows(master: str, tmp_path: Path) -> None:
    golden = golden_sets.load("large")
    truth = oracle.committed_rows([file.data for file in golden.files], golden.snapshot_ts)
    url = f"file://{tmp_path}/objects"
    session = build_session(master, "tests", {"spark.driver.host": "127.0.0.1", "spark.executor.memory": "512m"})
    try:
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
