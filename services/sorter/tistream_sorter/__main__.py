"""The command `python -m tistream_sorter`: builds the sorter's parts from its settings, and serves. Only this service
has a JVM, and the JVM takes the longest time to start. So a thread starts it first, while the main thread imports the
other modules."""

# ruff: noqa: PLC0415

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING

from tistream.service import java
from tistream.service.http.begin import begin, exit_on_settings_error
from tistream_sorter.settings import SorterSettings

if TYPE_CHECKING:
    from fastapi import FastAPI
    from pyspark.sql import SparkSession


def main() -> None:
    """Start the sorter, and serve until SIGTERM."""
    settings = begin(SorterSettings)
    session = _started(settings)
    from tistream.service.http.serve import serve

    with exit_on_settings_error():
        app = _build(settings, session)
        serve(app, settings)


def _started(settings: SorterSettings) -> Future[SparkSession]:
    """Start Spark in a thread. Returns a future with the session. The modules that this thread needs are imported
    before, so that two threads never import at the same time."""
    java.ensure()
    from tistream_sorter.spark.session import build_session

    executor = ThreadPoolExecutor(1, "spark")
    session = executor.submit(build_session, settings.spark.master, f"tistream-{settings.node}", settings.spark.conf)
    executor.shutdown(wait=False)
    return session


def _build(settings: SorterSettings, session: Future[SparkSession]) -> FastAPI:
    from tistream.clock import SystemClock
    from tistream.storage.backends.tenant_keys import keys_of
    from tistream.storage.open import open_objects
    from tistream_sorter.app import ProcessEnvironment, build_app
    from tistream_sorter.jobs.run import SparkRunner

    objects = open_objects(settings.objects_url)
    keys = keys_of(objects)
    outside = ProcessEnvironment(new_runner=lambda own: SparkRunner(session.result(), own.objects_url, keys))
    return build_app(settings, objects, SystemClock(), outside)


if __name__ == "__main__":
    main()
