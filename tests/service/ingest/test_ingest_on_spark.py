"""Releases as real Spark jobs: the same bytes as in one process, and the same errors."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from support import spark
from support.log_backup import SMALL, Adapted
from tistream.logbackup.release import Release
from tistream.storage import layout
from tistream.storage.object_store import ObjectStore
from tistream.storage.open import open_objects
from tistream.storage.release_log import ReleaseLog
from tistream_ingest.jobs.local import LocalRunner
from tistream_ingest.jobs.run import SparkRunner
from tistream_ingest.source.bucket import Bucket
from tistream_ingest.source.source import SourceIdentity, SourceRunner
from tistream_ingest.source.stopped import SourceHeld, SourceStopped

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def session() -> Iterator[SparkSession]:
    with spark.local_session(spark.INGEST) as one:
        yield one


@functools.cache
def replayed() -> Adapted:
    """The set `large`, adapted in this process to its end; nothing changes it any more."""
    made = Adapted("large", SMALL)
    local = made.adapter()
    for _ in made.replay():
        made.run(local)
    return made


class OnDisk:
    """The set `large`, adapted in this process, with the bucket and the platform's objects in directories too."""

    def __init__(self, session: SparkSession, folder: Path, one_machine: bool) -> None:
        self.adapted = replayed()
        self.log_url, self.url = f"file://{folder}/log", f"file://{folder}/objects"
        self.log, self.objects = open_objects(self.log_url), open_objects(self.url)
        for key, body in self.adapted.set.puts:
            self.log.put(key, body)
        for info in self.adapted.objects.list_after("committed/"):
            self.objects.put(info.key, self.adapted.objects.get(info.key))
        runner = SparkRunner(session, self.url, one_machine=one_machine)
        identity = SourceIdentity("log", self.adapted.tenant, self.log_url, self.adapted.set.start_ts, False)
        bucket, clock = Bucket(self.log), self.adapted.clock
        self.source = SourceRunner(
            identity, bucket, self.objects, self.adapted.pool, runner, clock, lambda *_: None, SMALL
        )

    def releases(self) -> list[Release]:
        log = ReleaseLog(self.adapted.objects, self.adapted.tenant)
        newest = log.newest()
        assert newest is not None
        return [replace(log.read(number), url=self.log_url) for number in range(1, newest.number + 1)]

    def files(self, objects: ObjectStore) -> dict[str, bytes]:
        below = layout.change_file_prefix(self.adapted.tenant, 0)
        return {info.key: objects.get(info.key) for info in objects.list_after(below)}


@pytest.mark.parametrize("one_machine", [True, False])
def test_spark_writes_the_same_bytes_and_a_shard_that_fails_leaves_no_gap(
    session: SparkSession, tmp_path: Path, one_machine: bool
) -> None:
    world = OnDisk(session, tmp_path, one_machine)
    releases = world.releases()
    widest = max(releases, key=lambda one: len(one.files))
    assert len(widest.files) > 1
    for release in [releases[0], releases[1], widest]:
        world.source.execute(release)
    written = {one.ts for release in (releases[0], releases[1], widest) for one in release.files}
    wanted = {key: body for key, body in world.files(world.adapted.objects).items() if int(key[-20:]) in written}
    assert world.files(world.objects) == wanted
    shards = world.source._shards(world.source._taking_of(widest))
    here = LocalRunner(lambda _: world.log, world.objects)
    assert len(shards) > 1
    assert world.source.runner.survey(world.log_url, shards, SMALL.limits) == here.survey("", shards, SMALL.limits)

    data = sorted({one.path for one in world.source._taking_of(widest).writes})[0]
    whole = world.log.get(data)
    for key in wanted:
        world.objects.delete(key)
    world.log.put(data, whole[:-1] + bytes([whole[-1] ^ 1]))
    with pytest.raises(SourceHeld) as held:
        world.source.execute(widest)
    assert (held.value.stage, data in str(held.value.object)) == ("damaged", True)
    world.log.delete(data)
    with pytest.raises(SourceStopped, match="is gone"):
        world.source.execute(widest)
    assert world.files(world.objects) == {}
    world.log.put(data, whole)
    world.source.execute(widest)
    assert world.files(world.objects).keys() == {
        key for key in wanted if int(key[-20:]) in {one.ts for one in widest.files}
    }
