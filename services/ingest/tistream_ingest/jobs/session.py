"""Builds the ingest service's Spark session, whose Python workers start with the kernels of releases imported."""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql import SparkSession

from tistream.spark import session

DAEMON = "tistream_ingest.jobs.daemon"
# No row goes through a local JVM, so the time that the optimising compiler takes is never won back.
LOCAL_JAVA_OPTIONS = "-XX:TieredStopAtLevel=1"


def build_session(master: str, app_name: str, extra: Mapping[str, str]) -> SparkSession:
    """Build a session on `master`, under the name `app_name`, with the Spark options `extra`."""
    options = LOCAL_JAVA_OPTIONS if master.startswith("local") else ""
    return session.build_session(master, app_name, extra, DAEMON, options)
