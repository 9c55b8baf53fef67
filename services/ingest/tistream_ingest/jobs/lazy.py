"""Starts Spark only when the first job comes, so that a platform without log backups, backfills and restores has no
second JVM."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from tistream.concurrency import new_lock
from tistream.model.ids import TenantKey
from tistream.storage.object_store import ObjectStore
from tistream_ingest.jobs.work import ReleaseJob, ReleaseShard, Surveyed, WorkFailure, WrittenFile
from tistream_ingest.plan.cuts import FileLimits

if TYPE_CHECKING:
    from tistream_ingest.jobs.run import SparkRunner  # imports pyspark, which takes a fifth of a second


class LazyRunner:
    """A runner that starts Spark, by calling `new`, when the first job comes. If the JVM has died, Spark is not started
    again: `died` is called, which ends the process."""

    def __init__(self, new: Callable[[], SparkRunner], died: Callable[[], None]) -> None:
        self._new, self._died = new, died
        self._lock = new_lock()
        self._runner: SparkRunner | None = None

    @property
    def slots(self) -> int:
        """The number of shards of a release that can run at the same time. Spark is started if needed."""
        return self._begun().slots

    def survey(self, log_url: str, shards: Sequence[ReleaseShard], limits: FileLimits) -> list[Surveyed]:
        """Start Spark if needed, and measure each shard as SparkRunner.survey does."""
        return self._begun().survey(log_url, shards, limits)

    def run(self, log_url: str, job: ReleaseJob) -> list[WrittenFile | WorkFailure]:
        """Start Spark if needed, and execute a release, as SparkRunner.run does."""
        return self._begun().run(log_url, job)

    def context(self) -> Any:
        """The SparkContext, for other kinds of jobs; Spark is started if needed."""
        return self._begun().context

    def each(self, tenant: TenantKey, work: Callable[[ObjectStore, Any], Any], things: Sequence[Any]) -> list[Any]:
        """Start Spark if needed, and run `work` for each item as SparkRunner.each does."""
        return self._begun().each(tenant, work, things)

    def close(self) -> None:
        """Stop Spark, if it was started."""
        with self._lock:
            if self._runner is not None:
                self._runner.close()

    def _begun(self) -> SparkRunner:
        with self._lock:
            if self._runner is None:
                self._runner = self._new()
                self._runner.warm()
            if not self._runner.alive:
                self._died()
            return self._runner
