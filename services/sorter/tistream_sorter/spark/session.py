"""Builds the sorter's Spark session, whose Python workers start with the sorter's matching code imported."""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql import SparkSession

from tistream.spark import session

DAEMON = "tistream_sorter.jobs.daemon"


def build_session(master: str, app_name: str, extra: Mapping[str, str]) -> SparkSession:
    """Build a session on `master`, under the name `app_name`, with the Spark options `extra`."""
    return session.build_session(master, app_name, extra, DAEMON)
