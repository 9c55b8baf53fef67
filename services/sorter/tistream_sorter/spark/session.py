"""Builds *the* SparkSession of a sorter process; nobody else may. The settings that mattered were measured."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from pyspark import SparkContext
from pyspark.sql import SparkSession

from tistream.service import allocators
from tistream_sorter.spark import class_archive
from tistream_sorter.spark import locks as spark_locks


def build_session(master: str, app_name: str, extra: Mapping[str, str]) -> SparkSession:
    """A session on `master` (`local[*]`, a standalone URL or k8s://…), with Python workers kept and warm.

    `extra` overrides any setting. With a local master nothing listens but on the loopback address; driver and executors
    want a secret of each other, and encrypt.
    """
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    # One thread per Python worker: the parallelism is Spark's. Read before polars starts its pool.
    workers = {"POLARS_MAX_THREADS": "1", **allocators.ENVIRON}
    for name, value in workers.items():
        os.environ.setdefault(name, value)
    if master.startswith("local"):
        os.environ.setdefault("SPARK_LOCAL_IP", spark_locks.LOOPBACK)
    settings = {
        **spark_locks.locked(master),
        "spark.ui.enabled": "false",
        "spark.driver.memory": "512m",
        "spark.python.daemon.module": "tistream_sorter.jobs.daemon",
        "spark.python.worker.reuse": "true",
        "spark.python.unix.domain.socket.enabled": "true",
        **{f"spark.executorEnv.{name}": value for name, value in workers.items()},
        "spark.locality.wait": "0",
        "spark.scheduler.mode": "FAIR",  # between the pools of SparkRunner
        "spark.sql.adaptive.enabled": "false",
        "spark.task.maxFailures": "1",
        "spark.ui.showConsoleProgress": "false",
    }
    if of_classes := class_archive.java_options(class_archive.standard_path()):
        settings["spark.driver.extraJavaOptions"] = of_classes
    builder = SparkSession.builder.master(master).appName(app_name)
    wanted = {**settings, **extra}
    with _kept_off_the_command_line(wanted):
        for name, value in wanted.items():
            builder = builder.config(name, value)
        session = builder.getOrCreate()
    session.sparkContext.setLogLevel("WARN")
    return session


@contextmanager
def _kept_off_the_command_line(settings: dict[str, str]) -> Iterator[None]:
    """PySpark starts its JVM with every setting as an argument, which whoever lists processes can read: a secret goes
    there by a file. To a JVM that runs already it goes by PySpark's own connection."""
    if spark_locks.SECRET not in settings or SparkContext._gateway is not None:
        yield
        return
    secret, before = settings.pop(spark_locks.SECRET), os.environ.get("SPARK_CONF_DIR")
    with TemporaryDirectory(prefix="tistream-spark-") as folder:  # of this user alone
        if before is not None:
            shutil.copytree(before, folder, dirs_exist_ok=True)
        with (Path(folder) / "spark-defaults.conf").open("a") as defaults:
            defaults.write(f"\n{spark_locks.SECRET}={secret}\n")
        os.environ["SPARK_CONF_DIR"] = folder
        try:
            yield
        finally:
            del os.environ["SPARK_CONF_DIR"]
            if before is not None:
                os.environ["SPARK_CONF_DIR"] = before
