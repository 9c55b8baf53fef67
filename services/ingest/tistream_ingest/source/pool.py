"""Finds and reads the tenant's committed rows (its pool), by the tenant's route and its sorters' reports."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tistream.errors import Unavailable
from tistream.model.ids import TenantKey
from tistream.model.span import KeySpan
from tistream.pool.lineage import Lineage, reached
from tistream.pool.versions.plan import shards_of
from tistream.storage.object_store import ObjectStore
from tistream.wire.clients.sorter_client import SorterClient
from tistream.wire.meta import TaskRoute, TenantRoute
from tistream.wire.sorter import TaskStatus
from tistream_ingest.jobs.work import PoolShards


@dataclass(frozen=True, slots=True)
class RouteTask:
    """A task of a route, in the form that Lineage needs."""

    task_id: int
    span: KeySpan
    parents: Sequence[int]

    @classmethod
    def of(cls, task: TaskRoute) -> RouteTask:
        span = KeySpan(bytes.fromhex(task.start_key), bytes.fromhex(task.end_key))
        return cls(task.task_id, span, task.parents)


class RoutedPool:
    """Reads the pool of a tenant task by task, as the tenant's route names them; implements source.TenantPool. `route`
    returns the tenant's newest route, or raises Unavailable. Not thread-safe."""

    def __init__(
        self, objects: ObjectStore, tenant: TenantKey, sorters: SorterClient, route: Callable[[], TenantRoute]
    ) -> None:
        self._tenant, self._sorters, self._route = tenant, sorters, route
        self._lineage = Lineage(objects, tenant)
        self._pool = PoolShards((), 0)

    def reached_ts(self) -> int:
        """Read the tasks' manifests. Returns the ts up to which every committed row is in the pool. Raises Unavailable
        if a task cannot be read, CorruptObject or InvariantBroken if manifests are damaged or contradict each other."""
        route = self._route()
        if route.snapshot_ts is None or not route.tasks:
            raise Unavailable(f"tenant {self._tenant} has no tasks yet: {route.problem or 'its schema was not read'}")
        statuses = self._statuses(route)
        covers = [
            self._lineage.covers(
                RouteTask.of(task), statuses[task.task_id].manifest if task.task_id in statuses else None
            )
            for task in route.tasks
        ]
        self._lineage.forget_others()
        states = (cover.log.view.state for found in covers for cover in found)
        retained_ts = max((state.retained_ts for state in states if state is not None), default=0)
        shards = shards_of(cover for found in covers for cover in found)
        self._pool = PoolShards(tuple(shards), max(route.snapshot_ts, retained_ts))
        return min(reached(found, statuses) for found in covers)

    def current(self) -> PoolShards:
        """The pool as of the last call of `reached_ts`."""
        return self._pool

    def _statuses(self, route: TenantRoute) -> dict[int, TaskStatus]:
        """The sorters' reports, by task id. The tasks of a sorter that does not answer are left out."""
        found: dict[int, TaskStatus] = {}
        epochs = {task.task_id: task.task_epoch for task in route.tasks}
        for url in sorted({task.sorter_url for task in route.tasks if task.sorter_url is not None}):
            try:
                answer = self._sorters.tasks(url, self._tenant.cluster_id, self._tenant.tenant_id)
            except Unavailable:
                continue  # only its manifests show how far it is
            for status in answer.tasks:
                if status.task_epoch >= epochs.get(status.task_id, 1 << 62):
                    found[status.task_id] = status
        return found
