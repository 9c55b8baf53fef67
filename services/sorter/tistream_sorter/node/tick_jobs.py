"""Runs the plans of ticks as jobs, and returns the manifests that can be committed. task/tick.py decides; this module
does the I/O."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Protocol

from tistream import trace
from tistream.clock import Clock
from tistream.format.manifest import Manifest
from tistream.storage.measured import MeasuredObjectStore
from tistream_sorter.jobs.index.base_unit import BaseResult, BaseUnit
from tistream_sorter.jobs.index.index_unit import IndexResult, IndexUnit
from tistream_sorter.jobs.rewrite import Rewrite, Rewritten
from tistream_sorter.jobs.shard import Shard, ShardResult
from tistream_sorter.metrics import SorterMetrics
from tistream_sorter.node.claims import HeldTask
from tistream_sorter.state.task_state import TaskState
from tistream_sorter.task.task import Task
from tistream_sorter.task.tick import TickPlan, conclude, lookup_needed

log = logging.getLogger(__name__)


class Runner(Protocol):
    """Runs the work of tasks as jobs. Production uses SparkRunner."""

    def run(self, shards: Sequence[Shard], *, beside: bool = False) -> list[ShardResult]:
        """Run shards as one job. Returns the results in the order of `shards`. beside: the job is long and has a thread
        of its own; shards of other jobs run between its shards."""

    def rewrite(self, units: Sequence[Rewrite]) -> list[Rewritten]:
        """Merge the segments of each unit into one segment. Ticks run at the same time, and come first."""

    def merge_index(self, units: Sequence[IndexUnit]) -> list[IndexResult]:
        """Run merges of the version index. Returns the results in the order of `units`. Ticks run at the same time, and
        come first."""

    def bases(self, units: Sequence[BaseUnit]) -> list[BaseResult]:
        """Convert base chunks to base runs. Ticks run at the same time, and come first."""


class OnTickFailed(Protocol):
    """A function that is called with the reason why a tick failed. key_unusable: whether the cause is the tenant's
    encryption key."""

    def __call__(self, held: HeldTask, reason: str, /, *, key_unusable: bool = False) -> None: ...


class TickJobs:
    """Runs the plans of ticks. `trouble` is called with the reason of a failed tick that will be repeated, `stop` with
    the error that stops a task for good."""

    def __init__(
        self,
        objects: MeasuredObjectStore,
        runner: Runner,
        clock: Clock,
        metrics: SorterMetrics,
        trouble: OnTickFailed,
        stop: Callable[[HeldTask, Exception], None],
    ) -> None:
        self._objects, self._runner, self._clock, self._metrics = objects, runner, clock, metrics
        self._trouble, self._stop = trouble, stop
        self._one_by_one = False

    def run(
        self, plans: list[tuple[HeldTask, TickPlan]], *, beside: bool = False
    ) -> list[tuple[HeldTask, Manifest, TaskState, int]]:
        """Run the plans of ticks as one job. `beside`: the job is long, and shards of other jobs run between its
        shards. Plans that must look up repeated rows are run a second time. Returns the manifests that can be
        committed, each with its task, the state after it, and the number of its files."""
        if not plans:
            return []
        results = self._job(plans, beside=beside)
        again = [
            (held, more)
            for held, done in plans
            if (more := lookup_needed(done, results.get(held.task.task_id, ()))) is not None
        ]
        if again:
            for held, _ in again:
                del results[held.task.task_id]
            results |= self._job(again, beside=beside)
        final = {held.task.task_id: done for held, done in [*plans, *again]}
        out = []
        for held, _ in plans:
            done = self._concluded(held, final[held.task.task_id], results.get(held.task.task_id))
            if done is not None:
                out.append(done)
        return out

    def _job(self, plans: list[tuple[HeldTask, TickPlan]], *, beside: bool) -> dict[int, list[ShardResult]]:
        """Run one job. Returns its results by task. If the job fails as a whole, each task runs again in a job of its
        own, so that a failing task does not affect the others."""
        groups = [[entry] for entry in plans] if self._one_by_one else [plans]
        out: dict[int, list[ShardResult]] = {}
        failed = False
        for group in groups:
            began_ns = trace.now_ns()
            try:
                results = self._runner.run([shard for _, done in group for shard in done.shards], beside=beside)
            except Exception as error:  # any error of Spark: nothing was committed
                failed = True
                self._note_failure(error, [held.task for held, _ in group])
                _trace_job(group, began_ns, [], type(error).__name__)
                continue
            _trace_job(group, began_ns, results)
            tenants = {held.task.task_id: held.task.state.identity.tenant for held, _ in group}
            for result in results:
                out.setdefault(result.task_id, []).append(result)
                self._objects.add_all(result.traffic, tenants[result.task_id])
        if not beside:  # a large tick always runs alone
            self._one_by_one = failed
        return out

    def _note_failure(self, error: Exception, tasks: list[Task]) -> None:
        reason = f"{type(error).__name__}: {error}".split("\n", 1)[0][:500]
        if len({task.state.identity.tenant for task in tasks}) > 1:  # the error may name objects of another tenant
            reason = f"{type(error).__name__} in a job of several tenants' tasks; the sorter's log has the details"
        if any(task.trouble != reason for task in tasks):
            log.error("job failed", exc_info=error, extra={"tasks": [task.task_id for task in tasks]})
        for task in tasks:
            task.fail(reason)

    def _concluded(
        self, held: HeldTask, done: TickPlan, results: list[ShardResult] | None
    ) -> tuple[HeldTask, Manifest, TaskState, int] | None:
        if results is None:
            return None
        task = held.task
        if any(result.bad_files for result in results):
            self._metrics.damaged.inc()
            for reason in {reason for result in results for reason in result.bad_files.values()}:
                log.warning("change file cannot be read", extra={"task_id": task.task_id, "reason": reason})
            with task.turn() as turn:
                turn.refused(done, results, self._clock.monotonic_ms())
            return None
        if reasons := [(result.key_unusable, str(result.failed)) for result in results if result.failed]:
            key_unusable, reason = max(reasons)
            self._trouble(held, reason, key_unusable=key_unusable)
            return None
        try:
            manifest, after = conclude(done, results, self._clock.now_ms())
        except Exception as error:  # a broken invariant or an unexpected fault: the other tasks continue
            self._stop(held, error)
            return None
        return held, manifest, after, len(done.files)


def _trace_job(
    group: Sequence[tuple[HeldTask, TickPlan]], began_ns: int, results: Sequence[ShardResult], failed: str | None = None
) -> None:
    """Add a job that has ended to the traces of its tasks. `failed`: the name of the error if the job has no results.
    `began_ns`: Unix ns."""
    for held, _ in group:
        if held.trace is not None:
            mine = [result for result in results if result.task_id == held.task.task_id]
            held.trace.job(began_ns, len(group), mine, failed)


def give_up(planned: Sequence[HeldTask], concluded: Sequence[tuple[HeldTask, Manifest, TaskState, int]]) -> None:
    """End the traces of planned ticks that have no manifest to commit."""
    going_on = [held for held, *_ in concluded]
    for held in planned:
        if held.trace is not None and held not in going_on:
            held.trace.given_up("tick")
            held.trace = None
