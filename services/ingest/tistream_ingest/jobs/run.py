"""Runs releases, which are steps of reading a log backup, as Spark jobs, on local[*] or a cluster.

A release is one job with two stages: first each shard (a range of keys) is read and prepared, then the rows are
shuffled to the tasks that write the change files. A file is written only after all shards have sent their rows for it,
even if a shard has none. So a shard that fails cannot leave a gap.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any

from pyspark.sql import SparkSession

from tistream.model.ids import TenantKey
from tistream.storage.backends.tenant_keys import KeyIds, TenantKeys, keys_of
from tistream.storage.object_store import ObjectStore
from tistream.storage.open import open_objects
from tistream_ingest.jobs import shard_io
from tistream_ingest.jobs.old_values import PoolValues
from tistream_ingest.jobs.work import ReleaseJob, ReleaseShard, Surveyed, WorkFailure, WrittenFile
from tistream_ingest.plan.cuts import FileLimits

Part = tuple[int, tuple[int, bytes]]  # index of a piece; number of a shard, and its rows (or a pickled WorkFailure)


@lru_cache(maxsize=8)
def _objects(url: str) -> ObjectStore:
    """An object store, by URL. Each worker process opens each store once."""
    return open_objects(url)


def _with_keys(url: str, keys: KeyIds) -> ObjectStore:
    objects = _objects(url)
    keys_of(objects).update(keys)
    return objects


class SparkRunner:
    """Measures and executes releases by Spark jobs. No row goes to the driver. `keys`: the ids of the tenants'
    encryption keys, which are sent to the executors with each job."""

    def __init__(self, session: SparkSession, objects_url: str, keys: TenantKeys | None = None) -> None:
        self._session, self._url = session, objects_url
        self._keys = TenantKeys() if keys is None else keys
        self._context = session.sparkContext

    @property
    def slots(self) -> int:
        """The number of shards of a release that can run at the same time."""
        return int(self._context.defaultParallelism)

    def survey(self, log_url: str, shards: Sequence[ReleaseShard], limits: FileLimits) -> list[Surveyed]:
        """Measure the sizes of the changes in each shard. Returns the results in the order of `shards`."""
        count = len(shards)

        def surveyed(works: Iterable[bytes]) -> Iterator[tuple[int, Surveyed]]:
            log = _objects(log_url)
            for work in works:
                one: ReleaseShard = pickle.loads(work)
                yield one.number, shard_io.guarded(lambda one=one: shard_io.survey(log, one, limits, count))  # type: ignore[misc]

        works = self._context.parallelize([pickle.dumps(shard) for shard in shards], max(1, count))
        found = dict(self._context.runJob(works, surveyed))
        return [found[shard.number] for shard in shards]

    def run(self, log_url: str, job: ReleaseJob) -> list[WrittenFile | WorkFailure]:
        """Execute a release as one Spark job. Returns its written change files, or the failures."""
        url, keys = self._url, self._keys.ids_of({job.tenant})
        shards, pieces = len(job.shards), len(job.release.files)
        shared = self._context.broadcast(pickle.dumps(replace(job, shards=())))

        def prepared(works: Iterable[bytes]) -> Iterator[Part]:
            rest: ReleaseJob = pickle.loads(shared.value)
            old = PoolValues(_with_keys(url, keys), rest.pool)
            log = _objects(log_url)
            for work in works:
                one: ReleaseShard = pickle.loads(work)
                found = shard_io.guarded(lambda one=one: shard_io.prepare(log, rest, one, old))  # type: ignore[misc]
                if isinstance(found, WorkFailure):
                    yield pieces, (one.number, pickle.dumps(found))
                    continue
                of_piece = dict(found)
                for number in range(pieces):
                    yield number, (one.number, of_piece.get(number, b""))

        def written(number: int, parts: Iterable[Part]) -> Iterator[WrittenFile | WorkFailure]:
            rest: ReleaseJob = pickle.loads(shared.value)
            held = [part for _, part in parts]
            if number == pieces:
                yield from (pickle.loads(failed) for _, failed in held)
            elif sorted(shard for shard, _ in held) != list(range(shards)):
                yield WorkFailure("unavailable", f"not every shard of release {rest.release.number} was prepared")
            else:
                target = _with_keys(url, keys)
                rows = [part for _, part in sorted(held) if part]
                yield shard_io.guarded(lambda: shard_io.write(target, rest, number, rows))

        try:
            works = self._context.parallelize([pickle.dumps(shard) for shard in job.shards], max(1, shards))
            parts = works.mapPartitions(prepared).partitionBy(pieces + 1, int)
            return _failures_first(parts.mapPartitionsWithIndex(written).collect())
        finally:
            shared.unpersist()

    @property
    def context(self) -> Any:
        """The SparkContext of this runner."""
        return self._context

    def each(self, tenant: TenantKey, work: Callable[[ObjectStore, Any], Any], things: Sequence[Any]) -> list[Any]:
        """Run `work` for each item on an executor. Returns the results in the order of the items. `work` gets the
        platform's object store, and must not raise."""
        url, keys = self._url, self._keys.ids_of({tenant})

        def done(bodies: Iterable[bytes]) -> Iterator[Any]:
            objects = _with_keys(url, keys)
            for body in bodies:
                yield work(objects, pickle.loads(body))

        works = self._context.parallelize([pickle.dumps(one) for one in things], max(1, len(things)))
        return list(self._context.runJob(works, done))

    def warm(self) -> None:
        """Start the Python workers and let them import the kernels, before the first job comes."""
        slots = self.slots
        self._context.runJob(self._context.parallelize(range(slots), slots), lambda numbers: [sum(1 for _ in numbers)])

    @property
    def alive(self) -> bool:
        """Whether the JVM of the Spark driver still runs."""
        process = getattr(self._context._gateway, "proc", None)  # None if another process started the JVM
        return process is None or process.poll() is None

    def close(self) -> None:
        """Stop Spark and its JVM."""
        self._session.stop()


def _failures_first(found: list[WrittenFile | WorkFailure]) -> list[WrittenFile | WorkFailure]:
    """Sort results so that failures of other kinds than `unavailable` come first. They are the cause if other files
    could not be written."""
    return sorted(found, key=lambda one: not isinstance(one, WorkFailure) or one.kind == "unavailable")
