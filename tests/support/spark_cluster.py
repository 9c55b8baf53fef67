"""A Spark standalone cluster of this machine: master and workers as processes, on the loopback address."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pyspark

from support.platform import free_port
from support.waiting import PATIENCE_S
from tistream.service import java
from tistream.spark.spark_auth import AUTH_SETTINGS, SECRET

DEPLOY = "org.apache.spark.deploy"
TOLD = "of-the-cluster"
_LOCKS = {**AUTH_SETTINGS, SECRET: TOLD}
CLIENT_SETTINGS = {"spark.driver.host": "127.0.0.1", "spark.executor.memory": "512m", **_LOCKS}


@contextmanager
def standalone(folder: Path, workers: int, cores: int) -> Iterator[str]:
    """The master's URL; `workers` of `cores` each are registered with it. Logs and working files go into `folder`."""
    java.ensure()
    port = free_port()
    url = f"spark://127.0.0.1:{port}"
    where = ("--host", "127.0.0.1", "--webui-port", "0")
    with ExitStack() as running:
        log = folder / "master.log"
        running.enter_context(_process(log, f"{DEPLOY}.master.Master", *where, "--port", str(port)))
        _wait_for(log, "New state: ALIVE")
        for number in range(workers):
            log, work = folder / f"worker-{number}.log", folder / f"work-{number}"
            size = ("--cores", str(cores), "--memory", "1g", "--work-dir", str(work))
            running.enter_context(_process(log, f"{DEPLOY}.worker.Worker", *where, *size, url))
            _wait_for(log, "Successfully registered with master")
        yield url


@contextmanager
def _process(log: Path, *arguments: str) -> Iterator[None]:
    home = Path(pyspark.__file__).parent
    environment = {**os.environ, "SPARK_LOCAL_IP": "127.0.0.1", "SPARK_HOME": str(home)}
    environment["PYSPARK_PYTHON"] = sys.executable
    environment["SPARK_MASTER_OPTS"] = environment["SPARK_WORKER_OPTS"] = " ".join(
        f"-D{name}={value}" for name, value in _LOCKS.items()
    )
    with log.open("w") as out:
        running = subprocess.Popen(
            [home / "bin" / "spark-class", *arguments], env=environment, stdout=out, stderr=subprocess.STDOUT
        )
        try:
            yield
        finally:
            running.terminate()
            running.wait(PATIENCE_S)


def _wait_for(log: Path, text: str) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while text not in log.read_text():
        assert time.monotonic() < deadline, log.read_text()[-2000:]
        time.sleep(0.2)
