"""Builds *the* SparkSession of a sorter process; nobody else may. The settings that mattered were measured."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping

from pyspark.sql import SparkSession

from tistream.service import allocators
from tistream_sorter import spark_locks
from tistream_sorter.jobs import class_archive


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
    for name, value in {**settings, **extra}.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("WARN")
    return session
