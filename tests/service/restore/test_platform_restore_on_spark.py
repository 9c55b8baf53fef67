"""A restore as real Spark jobs, from an object store that speaks S3 into another bucket there."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import polars as pl
import pytest
from pyspark.sql import SparkSession

from support import minio, spark
from support.minio import Minio
from support.restore_runs import ACME, Killed, Process, RestoreRuns
from tistream.wire.bulk.restores import ParquetPlace
from tistream_ingest.jobs.run import SparkRunner
from tistream_ingest.restore.allowed import AllowedTargets
from tistream_ingest.restore.restore_attempt import RestoreAttempt

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Minio]:
    with minio.running(tmp_path_factory.mktemp("minio")) as one, one.credentials():
        yield one


@pytest.fixture(scope="module")
def session(server: Minio) -> Iterator[SparkSession]:
    with spark.local_session(spark.INGEST) as one:  # its executors have the environment that `server` has set
        yield one


def test_executors_write_what_a_process_that_was_killed_has_left(
    server: Minio, session: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tistream_ingest.restore.object_targets import ParquetObjects

    monkeypatch.setattr(ParquetObjects, "chunk_rows", 700)
    runs = RestoreRuns(tmp_path)
    pool, target = server.new_bucket(), server.new_bucket()
    objects = runs.points.world.objects
    for one in objects.list_after("committed/"):
        server.store(pool).put(one.key, objects.get(one.key))
    url = server.url(target, "exports")
    name = runs.queue(ParquetPlace(kind="parquet", url=url), runs.points.world.end_ts, ("shop", "big"))

    def claim(runner: Process | SparkRunner) -> RestoreAttempt:
        one = runs.claim()
        one.objects, one.runner, one.allowed = server.store(pool), runner, AllowedTargets([url], None)
        return one

    with pytest.raises(Killed):
        claim(Process(server.store(pool), at=2)).attempt()
    runs.lease_ends()
    claim(SparkRunner(session, server.url(pool))).attempt()
    info = runs.info(name)
    assert info.state == "done", info
    (table,) = info.tables
    assert table.rows == table.rows_done == 4800
    store = server.store(target, "exports/")
    bodies = [store.get(one.key) for one in store.list_after("shop.big/") if one.key.endswith(".parquet")]
    assert len(bodies) >= 4800 // 700
    assert pl.concat([pl.read_parquet(body) for body in bodies]).height == 4800
    assert runs.book.one(ACME, name).epoch == 2
