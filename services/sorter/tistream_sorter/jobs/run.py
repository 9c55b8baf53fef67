"""Runs the sorter's work as Spark jobs: shards of ticks, compactions, merges of the version index, and base chunks."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Protocol, TypeVar

from pyspark.sql import SparkSession

from tistream.model.ids import TenantKey
from tistream.storage.backends.tenant_keys import KeyIds, TenantKeys
from tistream_sorter.jobs import shard_io
from tistream_sorter.jobs.bundles import bundles
from tistream_sorter.jobs.index.base_unit import BaseResult, BaseUnit
from tistream_sorter.jobs.index.index_unit import IndexResult, IndexUnit
from tistream_sorter.jobs.rewrite import Rewrite, Rewritten
from tistream_sorter.jobs.shard import Shard, ShardResult

CLOSURE_BYTES_MAX = 256 << 10
POOL, LARGE_POOL = "default", "large"  # Spark serves pools of equal weight in the order of their names


class _OfTenant(Protocol):
    """Work that belongs to one tenant."""

    @property
    def tenant(self) -> TenantKey: ...


Unit = TypeVar("Unit", bound=_OfTenant)
Result = TypeVar("Result")


class SparkRunner:
    """Runs the sorter's work as Spark jobs. One job has the shards of all tasks of the node whose ticks are due.
    Executors read, match, sort and write; the driver handles only the names and counts of objects. `keys`: the
    encryption key ids of the tenants, which are sent to the executors with each job."""

    def __init__(self, session: SparkSession, objects_url: str, keys: TenantKeys | None = None) -> None:
        self._session = session
        self._keys = TenantKeys() if keys is None else keys
        self._context = session.sparkContext
        self._url = objects_url
        # One partition per slot, which holds its own number. Small work is sent in the closure, because a new RDD for
        # each job costs more than the transfer of much work in each tick. Large work is not, because each Spark task
        # would receive the work of all.
        self._slots = self._context.parallelize(range(self.slots), self.slots)

    @property
    def slots(self) -> int:
        """The number of shards that run at the same time."""
        return int(self._context.defaultParallelism)

    @property
    def alive(self) -> bool:
        """Whether the driver's JVM still runs; True in any case if another process started the JVM."""
        gateway: Any = self._context._gateway
        process = getattr(gateway, "proc", None)  # None if another process started the JVM
        return process is None or process.poll() is None

    def run(self, shards: Sequence[Shard], *, beside: bool = False) -> list[ShardResult]:
        """Run shards as one job. Returns the results in the order of `shards`. Raises Spark's exception if a Spark task
        died. Thread-safe.

        With `beside`, the job runs in the Spark pool LARGE_POOL with one Spark task per shard. So a slot becomes free
        after each shard, and jobs of ordinary ticks get it first.
        """
        url = self._url
        count = len(shards) if beside else self.slots
        keys = self._keys.ids_of({shard.tenant for shard in shards})
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
        """Merge segments in the Spark pool LARGE_POOL, which yields to ticks. Each unit is a Spark task of its own.
        Returns the results in the order of `units`. Raises Spark's exception if a Spark task died."""
        return self._each(units, shard_io.rewrite)

    def merge_index(self, units: Sequence[IndexUnit]) -> list[IndexResult]:
        """Run merges of the version index in the Spark pool LARGE_POOL, which yields to ticks. Each unit is a Spark
        task of its own. Returns the results in the order of `units`. Raises Spark's exception if a Spark task died."""
        return self._each(units, shard_io.merge_index)

    def _each(self, units: Sequence[Unit], work: Callable[[str, KeyIds, Unit], Result]) -> list[Result]:
        url = self._url

        def given(bundle: Iterable[bytes]) -> Iterator[Result]:
            for part in bundle:
                yield work(url, *pickle.loads(part))

        keys = self._keys.ids_of({unit.tenant for unit in units})
        packed = [pickle.dumps((keys, unit), pickle.HIGHEST_PROTOCOL) for unit in units]
        self._context.setLocalProperty("spark.scheduler.pool", LARGE_POOL)
        return list(self._context.runJob(self._context.parallelize(packed, len(packed)), given))

    def bases(self, units: Sequence[BaseUnit]) -> list[BaseResult]:
        """Convert base chunks to base runs in the Spark pool LARGE_POOL, which yields to ticks. Each unit is a Spark
        task of its own. Returns the results in the order of `units`. Raises Spark's exception if a Spark task died."""
        url = self._url

        def given(bundle: Iterable[bytes]) -> Iterator[BaseResult]:
            for part in bundle:
                yield shard_io.base(url, *pickle.loads(part))

        keys = self._keys.ids_of({unit.tenant for unit in units})
        work = [pickle.dumps((keys, unit), pickle.HIGHEST_PROTOCOL) for unit in units]
        self._context.setLocalProperty("spark.scheduler.pool", LARGE_POOL)
        return list(self._context.runJob(self._context.parallelize(work, len(work)), given))

    def close(self) -> None:
        """Stop Spark and its JVM."""
        self._session.stop()

    def warm(self) -> None:
        """Start the Python workers, and import the sorter's matching code in them. Otherwise the first job of a session
        needs seconds."""
        url = self._url

        def imports(numbers: Iterable[int]) -> Iterator[int]:
            shard_io.process(url, {}, [])
            yield sum(1 for _ in numbers)

        self._context.runJob(self._slots, imports)
