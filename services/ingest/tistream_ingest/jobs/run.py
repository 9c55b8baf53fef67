"""Runs releases, which are steps of reading a log backup, as Spark jobs, on local[*] or a cluster.

In a release, first each shard (a range of keys) is read and prepared, then its rows go to the tasks that write the
change files: through files if all tasks run on this machine, and else through Spark's shuffle. A file is written only
after all shards have sent their rows for it, even if a shard has none. So a shard that fails cannot leave a gap.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import lru_cache, partial
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession

from tistream.model.ids import TenantKey
from tistream.storage.backends.tenant_keys import KeyIds, TenantKeys, keys_of
from tistream.storage.object_store import ObjectStore
from tistream.storage.open import open_objects
from tistream_ingest.jobs import shard_io
from tistream_ingest.jobs.joining import ROWS
from tistream_ingest.jobs.old_values import PoolValues
from tistream_ingest.jobs.part_files import part, put_parts
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
    encryption keys, which are sent to the executors with each job. one_machine: whether all tasks run on this machine;
    None: if the master is local."""

    def __init__(
        self,
        session: SparkSession,
        objects_url: str,
        keys: TenantKeys | None = None,
        one_machine: bool | None = None,
    ) -> None:
        self._session, self._url = session, objects_url
        self._keys = TenantKeys() if keys is None else keys
        self._context = session.sparkContext
        self._one_machine = str(self._context.master).startswith("local") if one_machine is None else one_machine

    @property
    def slots(self) -> int:
        """The number of shards of a release that can run at the same time."""
        return int(self._context.defaultParallelism)

    def survey(self, log_url: str, shards: Sequence[ReleaseShard], limits: FileLimits) -> list[Surveyed]:
        """Measure the sizes of the changes in each shard. Returns for each a Survey, or a WorkFailure, in the order of
        `shards`."""
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
        """Execute a release. Returns a WrittenFile for each of its change files. If something failed, the result has
        the failures, those of other kinds than `unavailable` first, and perhaps files that were written."""
        if not self._one_machine:
            return self._run_with_shuffle(log_url, job)
        with TemporaryDirectory(prefix="tistream-release-") as folder:
            return self._run_with_files(log_url, job, folder)

    def _run_with_files(self, log_url: str, job: ReleaseJob, folder: str) -> list[WrittenFile | WorkFailure]:
        url, keys, context = self._url, self._keys.ids_of({job.tenant}), self._context
        shared = context.broadcast(pickle.dumps(replace(job, shards=())))

        def prepared(works: Iterable[bytes]) -> Iterator[tuple[int, tuple[int, ...] | WorkFailure]]:
            rest: ReleaseJob = pickle.loads(shared.value)
            log, old = _objects(log_url), PoolValues(_with_keys(url, keys), rest.pool)

            def rows_of(shard: ReleaseShard) -> tuple[int, ...]:
                return put_parts(folder, shard.number, shard_io.prepare(log, rest, shard, old))

            for work in works:
                one: ReleaseShard = pickle.loads(work)
                yield one.number, shard_io.guarded(partial(rows_of, one))

        def written(files: Iterable[tuple[int, list[tuple[int, int]]]]) -> Iterator[WrittenFile | WorkFailure]:
            rest: ReleaseJob = pickle.loads(shared.value)
            target = _with_keys(url, keys)

            def file_of(number: int, places: list[tuple[int, int]]) -> WrittenFile:
                return shard_io.write(target, rest, number, [part(folder, *place) for place in places])

            for number, places in files:
                yield shard_io.guarded(partial(file_of, number, places))

        try:
            works = [pickle.dumps(shard) for shard in job.shards]
            places: list[list[tuple[int, int]]] = [[] for _ in job.release.files]
            failures = []
            for shard, found in sorted(context.runJob(context.parallelize(works, max(1, len(works))), prepared)):
                if isinstance(found, WorkFailure):
                    failures.append(found)
                else:
                    for batch, number in enumerate(found):
                        places[number].append((shard, batch))
            if failures:
                return _failures_first([*failures])
            files = context.parallelize(list(enumerate(places)), len(places))
            return _failures_first(list(context.runJob(files, written)))
        finally:
            shared.unpersist()

    def _run_with_shuffle(self, log_url: str, job: ReleaseJob) -> list[WrittenFile | WorkFailure]:
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
                of_piece = {number: packed(rows) for number, rows in found}
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
                rows = [pa.ipc.open_stream(part).read_all() for _, part in sorted(held) if part]
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


def packed(rows: pa.Table) -> bytes:
    """Encode rows as a compressed Arrow IPC stream."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, ROWS, options=pa.ipc.IpcWriteOptions(compression="lz4")) as writer:
        writer.write_table(rows)
    return bytes(sink.getvalue())


def _failures_first(found: list[WrittenFile | WorkFailure]) -> list[WrittenFile | WorkFailure]:
    """Sort results so that failures of other kinds than `unavailable` come first. They are the cause if other files
    could not be written."""
    return sorted(found, key=lambda one: not isinstance(one, WorkFailure) or one.kind == "unavailable")
