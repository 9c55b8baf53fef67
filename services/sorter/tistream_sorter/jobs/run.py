"""The edge to Spark: shards in, one job, results out. Decides nothing."""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from pyspark.sql import SparkSession

from tistream.storage.tenant_keys import TenantKeys
from tistream_sorter.jobs import shard_io
from tistream_sorter.jobs.bundles import bundles
from tistream_sorter.jobs.rewrite import Rewrite, Rewritten
from tistream_sorter.jobs.shard import Shard, ShardResult

CLOSURE_BYTES_MAX = 256 << 10
POOL, LARGE_POOL = "default", "large"  # of equals the first by name goes first


class SparkRunner:
    """Runs the shards of a tick, of all due tasks of the node, as one Spark job.

    Executors read, match, sort and write; the driver sees object names and counts only. `keys` is what it knows of
    tenants' keys: it goes to the executors with the work.
    """

    def __init__(self, session: SparkSession, objects_url: str, keys: TenantKeys | None = None) -> None:
        self._session = session
        self._keys = TenantKeys() if keys is None else keys
        self._context = session.sparkContext
        self._url = objects_url
        # One partition per slot, each holding its own number: little work travels in the closure, since a new RDD for
        # every job costs more than many a tick. Much work does not, or every task would get that of all.
        self._slots = self._context.parallelize(range(self.slots), self.slots)

    @property
    def slots(self) -> int:
        """How many shards run at the same time."""
        return int(self._context.defaultParallelism)

    @property
    def alive(self) -> bool:
        """Whether the driver's JVM still runs."""
        gateway: Any = self._context._gateway
        process = getattr(gateway, "proc", None)  # none if the JVM was started by others
        return process is None or process.poll() is None

    def run(self, shards: Sequence[Shard], *, beside: bool = False) -> list[ShardResult]:
        """One job; results in the order of `shards`. Raises what Spark raises if a task died.

        `beside`: in another scheduler pool, one Spark task a shard, so that a slot is free again after each: a job of
        the other pool gets the next one. Several threads may call this.
        """
        url = self._url
        count = len(shards) if beside else self.slots
        keys = self._keys.told({shard.tenant for shard in shards})
        work = [pickle.dumps((keys, bundle), pickle.HIGHEST_PROTOCOL) for bundle in bundles(shards, count)]
        self._context.setLocalProperty("spark.scheduler.pool", LARGE_POOL if beside else POOL)
        if not beside and sum(map(len, work)) <= CLOSURE_BYTES_MAX:

            def numbered(numbers: Iterable[int]) -> Iterator[ShardResult]:
                for number in numbers:
                    yield from shard_io.process(url, *pickle.loads(work[number]))

            results = self._context.runJob(self._slots, numbered, range(len(work)))
        else:

            def given(bundle: Iterable[bytes]) -> Iterator[ShardResult]:
                for part in bundle:
                    yield from shard_io.process(url, *pickle.loads(part))

            results = self._context.runJob(self._context.parallelize(work, len(work)), given)
        order = {(shard.task_id, shard.number): at for at, shard in enumerate(shards)}
        return sorted(results, key=lambda result: order[result.task_id, result.number])

    def rewrite(self, units: Sequence[Rewrite]) -> list[Rewritten]:
        """Small segments written as one, each in a Spark task of its own, in the pool that makes room for ticks."""
        url = self._url

        def given(bundle: Iterable[bytes]) -> Iterator[Rewritten]:
            for part in bundle:
                yield shard_io.rewrite(url, *pickle.loads(part))

        keys = self._keys.told({unit.tenant for unit in units})
        work = [pickle.dumps((keys, unit), pickle.HIGHEST_PROTOCOL) for unit in units]
        self._context.setLocalProperty("spark.scheduler.pool", LARGE_POOL)
        return list(self._context.runJob(self._context.parallelize(work, len(work)), given))

    def close(self) -> None:
        """Stop Spark; its JVM ends with it."""
        self._session.stop()

    def warm(self) -> None:
        """Start the Python workers and let them import the kernel: the first job of a cold session takes seconds."""
        url = self._url

        def imports(numbers: Iterable[int]) -> Iterator[int]:
            shard_io.process(url, {}, [])
            yield sum(1 for _ in numbers)

        self._context.runJob(self._slots, imports)
