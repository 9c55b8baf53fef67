"""Spark sessions of tests: each has a JVM of its own, which ends with it.

PySpark keeps one JVM for all sessions of a process. It keeps the environment and the settings of the first of them.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pyspark import SparkContext
from pyspark.sql import SparkSession

from support.waiting import PATIENCE_S
from tistream.service import java
from tistream.spark.session import build_session

SORTER, INGEST = "tistream_sorter.jobs.daemon", "tistream_ingest.jobs.daemon"
CLIENT = "support.client_daemon"
_TESTS = Path(__file__).parents[1]
_PATH = (str(_TESTS / "support/worker_path"), str(_TESTS))  # of Spark's Python processes


@contextmanager
def own_jvm() -> Iterator[None]:
    """A JVM for the sessions in between, begun by the first of them. What sessions set in `os.environ` goes too."""
    assert SparkContext._gateway is None, "an earlier test has left a JVM: use support.spark.own_jvm"
    before = dict(os.environ)
    try:
        yield
    finally:
        _end_jvm()
        for name in os.environ.keys() - before.keys():
            del os.environ[name]
        os.environ.update(before)


@contextmanager
def local_session(daemon: str) -> Iterator[SparkSession]:
    """A session with two executor threads in a JVM of its own. `daemon`: SORTER, INGEST or CLIENT."""
    with own_jvm():
        java.ensure()
        given = filter(None, [os.environ.get("PYTHONPATH")])
        os.environ["PYTHONPATH"] = os.pathsep.join((*_PATH, *given))
        session = build_session("local[2]", "tests", {}, daemon)
        try:
            yield session
        finally:
            session.stop()


def _end_jvm() -> None:
    gateway = SparkContext._gateway
    if gateway is None:
        return
    gateway.shutdown()
    gateway.proc.stdin.close()  # it ends with this
    gateway.proc.wait(PATIENCE_S)
    SparkContext._gateway = SparkContext._jvm = None
