"""Runs the jobs that convert base chunks of backfills to base runs of this process's tasks. A task's next manifest
commits the results, not this module."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

from tistream import trace
from tistream.clock import Clock
from tistream.concurrency import new_lock
from tistream.errors import CommitConflict, CorruptObject, NotFoundYet, TiStreamError
from tistream.format.backfill import refused_chunk
from tistream.format.backfill.base_chunk import ChunkId
from tistream.model.ids import TenantKey
from tistream.storage import layout
from tistream.storage.chunk_reader import open_chunk, read_plan
from tistream.storage.measured import MeasuredObjectStore
from tistream_sorter.jobs.index.base_unit import BaseResult, BaseUnit
from tistream_sorter.metrics import SorterMetrics
from tistream_sorter.task.mailbox import GarbageNote, OpenBackfillsNote
from tistream_sorter.task.task import Task
from tistream_sorter.upkeep.base_plan import NewNonce, OpenBackfill, kept_above, next_chunks, refusal, units
from tistream_sorter.upkeep.compaction_plan import TaskBackoff

log = logging.getLogger(__name__)

UNITS_MAX = 8  # units of one job; the results are committed before the next job of the same task begins


class BaseRunner(Protocol):
    """Converts base chunks to base runs as one job. Production uses SparkRunner."""

    def bases(self, units: Sequence[BaseUnit]) -> list[BaseResult]: ...


@dataclass(frozen=True, slots=True, order=True)
class ListedBackfill:
    """An open backfill, as the meta server lists it. old_values: whether a change without an old value had no row
    before."""

    tenant: TenantKey
    backfill_id: str
    old_values: bool = True


class BaseConverter:
    """Converts base chunks to base runs. One thread calls `convert` repeatedly; another one may call
    `set_backfills`."""

    def __init__(
        self,
        objects: MeasuredObjectStore,
        runner: BaseRunner,
        clock: Clock,
        new_nonce: NewNonce,
        metrics: SorterMetrics,
    ) -> None:
        self._objects, self._runner = objects, runner
        self._clock, self._new_nonce, self._metrics = clock, new_nonce, metrics
        self._lock = new_lock()
        self._wanted: frozenset[ListedBackfill] | None = None
        self._known: dict[ListedBackfill, OpenBackfill] = {}
        self._pauses = TaskBackoff()

    def set_backfills(self, backfills: Iterable[ListedBackfill]) -> None:
        """Replace the list of open backfills, whose chunks will be converted."""
        with self._lock:
            self._wanted = frozenset(backfills)

    def convert(self, tasks: Sequence[Task]) -> bool:
        """Look for new chunks, and convert some of them as one job. Passes the results to the tasks, whose next
        manifests commit them. Also passes to each task the ts above which open backfills need its rows. Returns whether
        a job was run. Does nothing before the first `set_backfills`."""
        with self._lock:
            wanted = self._wanted
        if wanted is None:
            return False
        self._known = {key: one for key, one in self._known.items() if key in wanted}
        tenants = {task.durable.identity.tenant for task in tasks}
        for listed in sorted(wanted):
            if listed.tenant in tenants:
                self._look(listed, [task for task in tasks if task.durable.identity.tenant == listed.tenant])
        for tenant in tenants:
            plans = (self._known.get(listed) for listed in wanted if listed.tenant == tenant)
            above_ts = kept_above(None if one is None else one.plan for one in plans)
            for task in tasks:
                if task.durable.identity.tenant == tenant:
                    task.leave(OpenBackfillsNote(above_ts))
        self._pauses.keep_only({task.task_id for task in tasks})
        found: list[tuple[Task, BaseUnit]] = []
        for task in tasks:
            if len(found) < UNITS_MAX and self._pauses.over(task.task_id, self._clock.monotonic_ms()):
                found += [(task, unit) for unit in self._units(task, UNITS_MAX - len(found))]
        if found:
            self._job(found)
        return bool(found)

    def _look(self, listed: ListedBackfill, tasks: Sequence[Task]) -> None:
        """Read the plan of a backfill, and the footers of its new chunks. After an error, the next call of `convert`
        tries again."""
        try:
            backfill = self._known.get(listed)
            if backfill is None:
                plan = read_plan(self._objects, listed.tenant, listed.backfill_id)
                backfill = OpenBackfill(listed.tenant, listed.backfill_id, plan, listed.old_values)
                self._known[listed] = backfill
            for number in next_chunks(backfill, self._numbers(backfill), [task.durable for task in tasks]):
                self._open(backfill, number)
        except NotFoundYet:
            return  # no plan yet
        except TiStreamError as error:
            fields = {"tenant": str(listed.tenant), "backfill": listed.backfill_id, "error": str(error)}
            log.warning("cannot read a backfill", extra=fields)
            return
        for number in list(backfill.base_ts):
            reasons = [refusal(task.durable, backfill, number) for task in tasks]
            if number not in backfill.refused and (reason := next(filter(None, reasons), None)) is not None:
                self._refuse(backfill, number, reason)

    def _numbers(self, backfill: OpenBackfill) -> list[int]:
        """The numbers of the chunks that exist, beginning at the first chunk that was not known to exist."""
        if backfill.complete:
            return []
        tenant, backfill_id = backfill.tenant, backfill.backfill_id
        first = layout.base_chunk(tenant, backfill_id, backfill.first_unknown)
        after = first[:-1] + chr(ord(first[-1]) - 1) + "~"  # just below `first`
        keys = (info.key for info in self._objects.list_after(layout.chunk_prefix(tenant, backfill_id), after))
        found = (layout.parse_base_chunk(tenant, backfill_id, key) for key in keys)
        return [number for number in found if number is not None]

    def _open(self, backfill: OpenBackfill, number: int) -> None:
        identity = ChunkId(backfill.tenant, backfill.backfill_id, number)
        try:
            backfill.base_ts[number] = open_chunk(self._objects, identity).base_ts
        except CorruptObject as error:
            self._refuse(backfill, number, error.reason)

    def _units(self, task: Task, count_max: int) -> list[BaseUnit]:
        """The chunks that a task can use now. All are of one backfill, because another backfill may have the same
        keys."""
        state = task.durable
        if task.to_settle or state.inherited:
            return []  # the last job is not committed yet
        for listed, backfill in sorted(self._known.items()):
            if listed.tenant == state.identity.tenant and (found := units(state, backfill, self._new_nonce, count_max)):
                return found
        return []

    def _job(self, found: Sequence[tuple[Task, BaseUnit]]) -> None:
        tasks = {task.task_id: task for task, _ in found}
        try:
            with trace.root("base chunks", attributes={"tistream.chunks": len(found)}):
                results = self._runner.bases([unit for _, unit in found])
        except Exception as error:  # Spark may raise any exception; no manifest will name the output
            log.error("job that converts base chunks failed", exc_info=error, extra={"chunks": len(found)})
            self._metrics.base_failures.inc()
            for task, unit in found:
                task.leave(GarbageNote(unit.key(0)))
                self._pauses.failed(task.task_id, self._clock.monotonic_ms())
            return
        for made in results:
            self._objects.add_all(made.traffic, made.chunk.tenant)
            self._handle(tasks[made.task_id], made)

    def _handle(self, task: Task, made: BaseResult) -> None:
        if made.failed is None:
            self._pauses.worked(task.task_id)
            self._metrics.bases.inc()
            task.leave(made)
            return
        self._metrics.base_failures.inc()
        chunk = made.chunk
        fields = {"tenant": str(chunk.tenant), "backfill": chunk.backfill_id, "chunk": chunk.number}
        log.warning("base chunk not converted", extra={**fields, "reason": made.failed})
        known = (
            one for one in self._known.values() if (one.tenant, one.backfill_id) == (chunk.tenant, chunk.backfill_id)
        )
        if made.lasting and (backfill := next(known, None)) is not None:
            self._refuse(backfill, chunk.number, made.failed)
        else:
            self._pauses.failed(task.task_id, self._clock.monotonic_ms())

    def _refuse(self, backfill: OpenBackfill, number: int, reason: str) -> None:
        """Write an object beside the chunk which says that it is refused for ever, and why. The progress of the
        backfill counts refused chunks."""
        key = layout.refused_chunk(backfill.tenant, backfill.backfill_id, number)
        try:
            self._objects.put_new(key, refused_chunk.encode(reason))
        except CommitConflict:
            pass  # a refusal exists already; the first reason stays
        except TiStreamError as error:  # repeated at the next turn
            log.warning("cannot record a refused chunk", extra={"object": key, "error": str(error)})
            return
        backfill.refused[number] = reason
