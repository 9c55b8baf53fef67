"""Runs a loop for each source (log backup of a tenant) of this process. The meta server lists all sources, and the
running ingest processes divide them."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import get_args

from tistream.concurrency import new_lock
from tistream.errors import TiStreamError, Unavailable
from tistream.model.ids import TenantKey
from tistream.service.observe.metrics import LoopMetrics
from tistream.service.worker import Loop
from tistream.storage.backends.tenant_keys import TenantKeys
from tistream.wire.bulk.sources import SourceInfo, SourceRow, SourceStatus, State
from tistream.wire.clients.meta_client import MetaClient
from tistream.wire.meta import RouteTable, TenantRoute
from tistream.wire.sorter import Hold
from tistream_ingest.metrics import IngestMetrics
from tistream_ingest.plan.checkpoint_state import runs_here
from tistream_ingest.source.worker import SourceWorker

log = logging.getLogger(__name__)

ROUTES_WAIT_MS = 10_000
STATES: tuple[State, ...] = get_args(State)
Key = tuple[str, str, str]  # cluster, tenant, source


class SourceDriver:
    """Starts and stops the loops of sources. Background loops call `follow_routes` and `follow_sources`. `new_worker`
    raises TiStreamError if the source's bucket cannot be opened."""

    def __init__(
        self,
        own_url: str,
        meta: MetaClient,
        new_worker: Callable[[SourceRow], SourceWorker],
        metrics: IngestMetrics,
        loop_metrics: LoopMetrics,
        keys: TenantKeys,
    ) -> None:
        self._own_url, self._meta, self._new_worker = own_url, meta, new_worker
        self._metrics, self._loop_metrics, self._keys = metrics, loop_metrics, keys
        self._lock = new_lock()
        self._table: RouteTable | None = None
        self.on_routes: Callable[[], None] = lambda: None  # called when there is a new route table
        self._running: dict[Key, tuple[SourceWorker, Loop]] = {}
        self._unopened: dict[Key, SourceStatus] = {}  # sources of this process whose bucket cannot be opened
        self._looked = False

    def not_ready(self) -> str | None:
        """The reason why no source can run yet; None if sources can run."""
        if self._table is None:
            return "the routes were not read yet"
        return None if self._looked else "the sources were not read yet"

    def follow_routes(self) -> None:
        """Loop body: fetch the next route table by one long poll, and call `on_routes` if it is a new one. Raises
        Unavailable."""
        known = -1 if self._table is None else self._table.version
        table = self._meta.routes(known, wait_ms=ROUTES_WAIT_MS if known >= 0 else 0)
        self._keys.update(table.kms_key_ids())
        with self._lock:
            self._table = table
        if table.version != known:
            self.on_routes()

    def route(self, tenant: TenantKey) -> TenantRoute:
        """The newest route of a tenant. Raises Unavailable if no route of it is known."""
        with self._lock:
            table = self._table
        for one in [] if table is None else table.tenants:
            if (one.cluster_id, one.tenant_id) == (tenant.cluster_id, tenant.tenant_id):
                return one
        raise Unavailable(f"no route of tenant {tenant} is known yet")

    def peers(self) -> list[str]:
        """The URLs of the ingest processes, from the newest route table. Raises Unavailable before the first route
        table."""
        with self._lock:
            table = self._table
        if table is None:
            raise Unavailable("the routes were not read yet")
        return table.services.get("ingest", [])

    def registry(self) -> str:
        """The URL of a schema registry. Raises Unavailable."""
        urls = [] if self._table is None else self._table.services.get("schema", [])
        if not urls:
            raise Unavailable("no schema registry is known")
        return urls[0]

    def follow_sources(self) -> None:
        """Loop body: fetch the list of sources, and start and stop loops so that this process runs its share. A source
        whose entry has changed is started anew. One whose bucket cannot be opened is tried again at the next call.
        Does nothing before the first route table. Raises Unavailable."""
        table = self._table
        if table is None:
            return
        urls = table.services.get("ingest", [])
        wanted = {
            (row.cluster_id, row.tenant_id, row.source_id): row
            for row in self._meta.sources().sources
            if row.snapshot_ts is not None and not row.paused
        }
        wanted = {key: row for key, row in wanted.items() if runs_here(key, self._own_url, urls)}
        for key in [key for key, (worker, _) in self._running.items() if wanted.get(key) != worker.row]:
            self._end(key)
        with self._lock:
            self._unopened = {key: status for key, status in self._unopened.items() if key in wanted}
        for key, row in wanted.items():
            if key not in self._running:
                self._begin(key, row)
        self._looked = True
        self._count()

    def _begin(self, key: Key, row: SourceRow) -> None:
        try:
            worker = self._new_worker(row)
        except TiStreamError as error:  # the sources after it begin all the same
            self._wait_for_bucket(key, row, str(error))
            return
        loop = Loop("source", worker.step, interval_ms=1_000, backoff_max_ms=30_000, metrics=self._loop_metrics)
        with self._lock:
            self._unopened.pop(key, None)
            self._running[key] = worker, loop
        loop.start()
        log.info("source runs in this process", extra={"tenant": str(worker.tenant), "source": row.source_id})

    def _wait_for_bucket(self, key: Key, row: SourceRow, reason: str) -> None:
        """Record that a source waits, because its bucket cannot be opened now for this reason."""
        before = self._unopened.get(key)
        if before is None or before.info.reason != reason:
            tenant = TenantKey(row.cluster_id, row.tenant_id)
            extra = {"tenant": str(tenant), "source": row.source_id, "reason": reason}
            log.error("source cannot be opened, and is tried again", extra=extra)
        info = SourceInfo(source_id=row.source_id, kind=row.kind, state="waiting", reason=reason)
        hold = Hold(stage="push", object=row.url, reason=reason)
        status = SourceStatus(cluster_id=row.cluster_id, tenant_id=row.tenant_id, info=info, hold=hold)
        with self._lock:
            self._unopened[key] = status

    def _end(self, key: Key) -> None:
        """Stop a source's loop. A release that is under way continues, even if another process has begun to run the
        source, which does no harm."""
        with self._lock:
            worker, loop = self._running.pop(key)
        loop.stop(timeout_s=0)
        log.info(
            "source no longer runs in this process",
            extra={"tenant": str(worker.tenant), "source": worker.row.source_id},
        )

    def statuses(self, cluster_id: str | None, tenant_id: str | None) -> list[SourceStatus]:
        """The status of each source that this process runs, or would run if its bucket could be opened. `cluster_id`,
        `tenant_id`: only those of this cluster or tenant; None: of any."""
        return [
            status
            for status in self._statuses()
            if cluster_id in (None, status.cluster_id) and tenant_id in (None, status.tenant_id)
        ]

    def _statuses(self) -> list[SourceStatus]:
        with self._lock:
            workers, unopened = {key: worker for key, (worker, _) in self._running.items()}, dict(self._unopened)
        found = {key: worker.status() for key, worker in workers.items()} | unopened
        return [found[key] for key in sorted(found)]

    def _workers(self) -> list[SourceWorker]:
        with self._lock:
            return [worker for _, (worker, _) in sorted(self._running.items(), key=lambda one: one[0])]

    def _count(self) -> None:
        workers = self._workers()
        states = [status.info.state for status in self._statuses()]
        self._metrics.sources.set(len(states))
        for state in STATES:
            self._metrics.states.labels(state).set(states.count(state))
        self._metrics.lag.set(max((worker.lag_ms for worker in workers), default=0) / 1000)

    def stop(self) -> None:
        """Stop every source's loop."""
        with self._lock:
            loops = [loop for _, loop in self._running.values()]
        for loop in loops:
            loop.stop(timeout_s=0.5)
