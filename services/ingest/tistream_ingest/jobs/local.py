"""Runs releases (steps of reading a log backup) in the calling process instead of Spark: for tests and simulations."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from tistream.model.ids import TenantKey
from tistream.storage.object_store import ObjectStore
from tistream_ingest.jobs import shard_io
from tistream_ingest.jobs.old_values import OldValues, PoolValues
from tistream_ingest.jobs.work import PoolShards, ReleaseJob, ReleaseShard, Surveyed, WorkFailure, WrittenFile
from tistream_ingest.plan.cuts import FileLimits


@dataclass(slots=True)
class LocalRunner:
    """Runs releases in the calling process. open_log: opens the log's object store by its URL. objects: the platform's
    object store. old_values: reads old values from the tenant's pool."""

    open_log: Callable[[str], ObjectStore]
    objects: ObjectStore
    old_values: Callable[[ObjectStore, PoolShards], OldValues] = PoolValues
    slots: int = 1

    def survey(self, log_url: str, shards: Sequence[ReleaseShard], limits: FileLimits) -> list[Surveyed]:
        """Measure the sizes of the changes in each shard, one shard after the other. Returns for each a Survey, or a
        WorkFailure."""
        log = self.open_log(log_url)
        return [
            shard_io.guarded(lambda one=shard: shard_io.survey(log, one, limits, len(shards)))  # type: ignore[misc]
            for shard in shards
        ]

    def each(self, tenant: TenantKey, work: Callable[[ObjectStore, Any], Any], things: Sequence[Any]) -> list[Any]:  # noqa: ARG002
        """Run `work` for each item, as SparkRunner.each does."""
        return [work(self.objects, one) for one in things]

    def run(self, log_url: str, job: ReleaseJob) -> list[WrittenFile | WorkFailure]:
        """Execute a release. Returns a WrittenFile or a WorkFailure for each of its change files; if a shard cannot be
        prepared, only that failure."""
        log, old = self.open_log(log_url), self.old_values(self.objects, job.pool)
        prepared = []
        for shard in job.shards:
            one = shard_io.guarded(lambda shard=shard: shard_io.prepare(log, job, shard, old))  # type: ignore[misc]
            if isinstance(one, WorkFailure):
                return [one]
            prepared.append(one)
        parts = shard_io.by_piece(prepared, len(job.release.files))
        return [
            shard_io.guarded(lambda n=number: shard_io.write(self.objects, job, n, parts[n]))  # type: ignore[misc]
            for number in range(len(parts))
        ]
