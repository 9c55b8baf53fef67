"""`python -m tistream_ingest`: builds the ingest service from the settings in the environment, and runs it."""

from __future__ import annotations

import logging
import os
from typing import TYPE_CHECKING

from fastapi import FastAPI

from tistream.clock import SystemClock
from tistream.service import java
from tistream.service.http.serve import run_service
from tistream.storage.backends.tenant_keys import keys_of
from tistream.storage.open import open_objects
from tistream_ingest.app import ProcessEnvironment, build_app
from tistream_ingest.backfill.spark_writer import SparkChunkWriter
from tistream_ingest.jobs.lazy import LazyRunner
from tistream_ingest.settings import IngestSettings

if TYPE_CHECKING:
    from tistream_ingest.jobs.run import SparkRunner

log = logging.getLogger(__name__)

EXIT_NO_JVM = 70


def main() -> None:
    """Start the ingest service, and serve until SIGTERM."""
    run_service(IngestSettings, _build)


def _build(settings: IngestSettings) -> FastAPI:
    objects = open_objects(settings.objects_url)

    def new_runner() -> SparkRunner:
        # pyspark takes a fifth of a second
        from tistream_ingest.jobs.run import SparkRunner  # noqa: PLC0415
        from tistream_ingest.jobs.session import build_session  # noqa: PLC0415

        java.ensure()
        session = build_session(settings.spark.master, f"tistream-{settings.node}", settings.spark.conf)
        return SparkRunner(session, settings.objects_url, keys_of(objects))

    runner = LazyRunner(new_runner, _no_jvm)
    chunks = SparkChunkWriter(runner.context, settings.objects_url, keys_of(objects))
    return build_app(settings, objects, SystemClock(), ProcessEnvironment(runner, chunks, runner.close))


def _no_jvm() -> None:
    # Only a new process gets a new JVM. All state of sources and backfills is in objects.
    log.critical("the JVM of Spark has died: the process ends")
    os._exit(EXIT_NO_JVM)


if __name__ == "__main__":
    main()
