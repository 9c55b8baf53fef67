"""Builds the one SparkSession of a process. The values of the important settings were measured (docs/benchmarks.md)."""

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

from tistream.errors import FatalError
from tistream.service import allocators
from tistream.spark import class_archive, spark_auth


def build_session(
    master: str, app_name: str, extra: Mapping[str, str], daemon: str, java_options: str = ""
) -> SparkSession:
    """Build a session on `master` (`local[*]`, a standalone URL or k8s://…). Its Python workers are reused.

    `extra` overrides any setting. `daemon`: the module that Spark runs in place of `pyspark.daemon`; it imports what
    the jobs need before it forks the workers. `java_options`: options of the driver's JVM. With a local master, Spark
    listens on the loopback address only. Driver and executors authenticate each other with a secret, and encrypt.
    Raises FatalError if this process has a session already, because PySpark would return the existing session and
    ignore these settings. The JVM of a stopped session stays and is used again: it keeps its environment, and each
    setting that is not set here.
    """
    if SparkContext._active_spark_context is not None:
        raise FatalError(f"this process has a Spark session: stop it before you build {app_name!r} on {master}")
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    # One thread per Python worker, because Spark runs workers in parallel. It must be set before polars starts its
    # thread pool.
    workers = {"POLARS_MAX_THREADS": "1", **allocators.ENVIRON}
    for name, value in workers.items():
        os.environ.setdefault(name, value)
    if master.startswith("local"):
        os.environ.setdefault("SPARK_LOCAL_IP", spark_auth.LOOPBACK)
    settings = {
        **spark_auth.auth_settings(master),
        "spark.ui.enabled": "false",
        "spark.driver.memory": "512m",
        "spark.python.daemon.module": daemon,
        "spark.python.worker.reuse": "true",
        "spark.python.unix.domain.socket.enabled": "true",
        **{f"spark.executorEnv.{name}": value for name, value in workers.items()},
        "spark.locality.wait": "0",
        "spark.scheduler.mode": "FAIR",  # between the pools of SparkRunner
        "spark.sql.adaptive.enabled": "false",
        "spark.task.maxFailures": "1",
        "spark.ui.showConsoleProgress": "false",
    }
    of_classes = class_archive.java_options(class_archive.standard_path())
    if options := " ".join(filter(None, (of_classes, java_options))):
        settings["spark.driver.extraJavaOptions"] = options
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
    """Pass Spark's secret to a new JVM in a file, for a `with` block that starts it. PySpark passes settings as
    arguments, which every user of the machine can list. A running JVM gets the secret over PySpark's own connection."""
    if spark_auth.SECRET not in settings or SparkContext._gateway is not None:
        yield
        return
    secret, before = settings.pop(spark_auth.SECRET), os.environ.get("SPARK_CONF_DIR")
    with TemporaryDirectory(prefix="tistream-spark-") as folder:  # readable by this user only
        if before is not None:
            shutil.copytree(before, folder, dirs_exist_ok=True)
        with (Path(folder) / "spark-defaults.conf").open("a") as defaults:
            defaults.write(f"\n{spark_auth.SECRET}={secret}\n")
        os.environ["SPARK_CONF_DIR"] = folder
        try:
            yield
        finally:
            del os.environ["SPARK_CONF_DIR"]
            if before is not None:
                os.environ["SPARK_CONF_DIR"] = before
