"""Builds the ingest service: sources, backfills, restores, routes and background loops."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Protocol

from fastapi import APIRouter, FastAPI, Query, Request

from tistream.clock import Clock
from tistream.errors import TiStreamError
from tistream.model.base_cover import Cover
from tistream.model.ids import TenantKey
from tistream.pool.base_covers import cover_of
from tistream.pool.versions.plan import IndexShard
from tistream.schema.history import History
from tistream.service.http.app import new_app
from tistream.service.http.peer_clients import PeerClients
from tistream.service.ids import random_id
from tistream.service.lifetime import end_in_order
from tistream.service.observe.metrics import LoopMetrics, new_registry, stale_routes
from tistream.service.observe.store_metrics import measured
from tistream.service.observe.usage import UsageMeter
from tistream.service.worker import Loop
from tistream.storage.backends.tenant_keys import keys_of
from tistream.storage.deleting import Deleter
from tistream.storage.object_store import ObjectStore
from tistream.storage.open import open_existing
from tistream.wire.bulk.restores import CheckTarget, RestoreReport, RestoreWork
from tistream.wire.bulk.sources import SourceRow, SourceStatuses
from tistream.wire.clients.client import HttpClient
from tistream.wire.clients.membership import Membership
from tistream.wire.clients.meta_client import MetaClient
from tistream.wire.clients.schema_client import SchemaClient, SchemaReplica
from tistream.wire.clients.sorter_client import SorterClient
from tistream.wire.meta import Accepted, Notification
from tistream_ingest.backfill.backfill_runner import BackfillRunner, ChunkWriter
from tistream_ingest.backfill.chunk_collector import ChunkCollector
from tistream_ingest.backfill.routed_backfills import RoutedBackfills
from tistream_ingest.metrics import IngestMetrics
from tistream_ingest.plan.cuts import FileLimits
from tistream_ingest.plan.rules import SourceRules
from tistream_ingest.restore import restore_attempt
from tistream_ingest.restore.allowed import AllowedTargets
from tistream_ingest.restore.claims import BEAT_MS as BEAT_RESTORE_MS
from tistream_ingest.restore.claims import Claims
from tistream_ingest.restore.plan_collector import PlanCollector
from tistream_ingest.restore.restore_attempt import RestoreAttempt
from tistream_ingest.restore.tenants import TenantReads
from tistream_ingest.settings import IngestSettings
from tistream_ingest.source.bucket import Bucket
from tistream_ingest.source.driver import SourceDriver
from tistream_ingest.source.pool import RoutedPool, RouteTask
from tistream_ingest.source.source import WAIT_MS, ReleaseRunner, SourceIdentity, SourceRunner
from tistream_ingest.source.worker import SourceWorker
from tistream_ingest.sqlread.dsn_files import DsnFiles
from tistream_ingest.sqlread.sql_backfills import SqlBackfills

log = logging.getLogger(__name__)

BEAT_MS = 1_000
COLLECT_MS = 3_600_000
# Pause between looks at lists of the meta server that have not changed. It bounds how late a process takes over what
# another one has left.
REST_MS = 10_000

router = APIRouter()


@router.get("/v1/sources", operation_id="ListSources")
def list_sources(
    request: Request,
    cluster_id: Annotated[str | None, Query()] = None,
    tenant_id: Annotated[str | None, Query()] = None,
) -> SourceStatuses:
    """The status of every source that this process runs, of one tenant or of all."""
    driver: SourceDriver = request.app.state.driver
    return SourceStatuses(node_id=request.app.state.node_id, sources=driver.statuses(cluster_id, tenant_id))


@router.post("/v1/restores/checks", operation_id="CheckRestoreTarget")
def check_restore_target(request: Request, body: CheckTarget) -> Accepted:
    """Check that this process may write into the target of a restore. The answer is 422 if its settings do not allow
    it."""
    allowed: AllowedTargets = request.app.state.allowed
    allowed.check(body.target)
    return Accepted()


class BothRunner(ReleaseRunner, restore_attempt.Runner, Protocol):
    """A runner that can execute both releases of log backups and restores."""


@dataclass(frozen=True, slots=True)
class ProcessEnvironment:
    """The parts that a process uses besides an object store and a clock: runners of jobs, HTTP clients, and the end of
    the process. A simulation passes substitutes. `open_log` opens the bucket of a source, by its URL. `new_instance`
    makes a random id of this start of the process."""

    runner: BothRunner
    chunk_writer: ChunkWriter
    close_runner: Callable[[], None] = lambda: None
    open_log: Callable[[str], ObjectStore] = open_existing
    new_http: Callable[[], HttpClient] | None = None
    new_instance: Callable[[], str] = random_id
    end: Callable[[], None] = end_in_order


def _histories(http: HttpClient, registry: Callable[[], str]) -> Callable[[TenantKey], History]:
    """Create the function that returns a tenant's schema history, as the schema registry has it now. `registry` returns
    the URL of a schema registry."""
    return lambda tenant: SchemaReplica(SchemaClient(http, registry), tenant).refresh()


def _reads(pool: RoutedPool, http: HttpClient, registry: Callable[[], str]) -> TenantReads:
    """Create the object through which restores read tenants: the schema history from the registry, and the committed
    rows in the pool."""

    def pool_now(_: TenantKey) -> tuple[int, Sequence[IndexShard]]:
        return pool.reached_ts(), pool.current().shards

    return TenantReads(_histories(http, registry), pool_now)


def _announcer(meta: MetaClient) -> Callable[[TenantKey, int, int], None]:
    """Create the function that announces a file to the meta servers by tenant, store and ts. If an announcement fails,
    that is only logged."""

    def announce(tenant: TenantKey, store_id: int, ts: int) -> None:
        notification = Notification(
            cluster_id=tenant.cluster_id, tenant_id=tenant.tenant_id, store_id=str(store_id), ts=str(ts)
        )
        try:
            meta.notify(notification)
        except TiStreamError as error:  # dispatchers LIST too
            log.warning("a file was not announced", extra={"tenant": str(tenant), "ts": ts, "error": str(error)})

    return announce


def build_app(settings: IngestSettings, objects: ObjectStore, clock: Clock, outside: ProcessEnvironment) -> FastAPI:
    """Build the ASGI app. Its background loops run while it serves. `outside` has what the process uses besides
    `objects` and `clock`."""
    peers, registry = PeerClients(settings, clock), new_registry()
    metrics, loop_metrics = IngestMetrics(registry), LoopMetrics(registry)
    counted, keys = measured(objects, registry), keys_of(objects)
    http = (outside.new_http or peers.new_http)()
    meta, sorters = MetaClient(http, settings.meta_url, on_stale=stale_routes(registry).inc), SorterClient(http)
    announce = _announcer(meta)
    rules = SourceRules(FileLimits(settings.file_rows, settings.file_bytes), settings.horizon_ms)

    def new_worker(row: SourceRow) -> SourceWorker:
        tenant = TenantKey(row.cluster_id, row.tenant_id)
        keep = settings.keep_index_keys if row.index_keys is None else row.index_keys
        identity = SourceIdentity(row.source_id, tenant, row.url, row.snapshot_ts or 0, keep)
        bucket = Bucket(outside.open_log(row.url))
        pool = RoutedPool(counted, tenant, sorters, lambda: driver.route(tenant))
        source = SourceRunner(identity, bucket, counted, pool, outside.runner, clock, announce, rules, outside.open_log)
        return SourceWorker(row, source, clock, settings.poll_ms, WAIT_MS, metrics.releases.inc)

    def cover(tenant: TenantKey) -> Cover:
        return cover_of(counted, tenant, [RouteTask.of(task) for task in driver.route(tenant).tasks])

    allowed = AllowedTargets(settings.restore_prefixes, settings.restore_dsn_dir)

    def new_attempt(work: RestoreWork, report: Callable[[RestoreReport], object]) -> RestoreAttempt:
        tenant = TenantKey(work.cluster_id, work.tenant_id)
        pool = RoutedPool(counted, tenant, sorters, lambda: driver.route(tenant))
        reads = _reads(pool, http, driver.registry)
        return RestoreAttempt(work, counted, reads, outside.runner, allowed, report, partial(meter.served, tenant, 0))

    claims = Claims(meta, settings.node, settings.restores_ms, new_attempt)
    driver = SourceDriver(settings.url, meta, new_worker, metrics, loop_metrics, keys)
    shared = RoutedBackfills(settings.url, meta, driver.peers)
    by_sql = SqlBackfills(_histories(http, driver.registry), DsnFiles(settings.backfill_dsn_dir).server)
    backfills = BackfillRunner(
        counted, shared, outside.chunk_writer, outside.open_log, cover, by_sql, metrics, clock, settings.plan_wait_ms
    )
    collector = ChunkCollector(counted, shared.ended, Deleter(counted), clock, metrics)
    instance = outside.new_instance()
    meter = UsageMeter(settings.node, instance, clock, counted.requests_of_tenants, meta.usage)
    membership = Membership(meta, settings.node, "ingest", settings.url, instance=instance, end=outside.end)

    @contextmanager
    def running() -> Iterator[None]:
        lists = _list_loops(settings, membership, driver, backfills, claims, loop_metrics)
        loops = [
            *lists,
            Loop("beat", membership.beat, interval_ms=BEAT_MS, backoff_max_ms=BEAT_MS, metrics=loop_metrics),
            Loop("routes", driver.follow_routes, interval_ms=0, backoff_max_ms=1_000, metrics=loop_metrics),
            Loop("collect", collector.step, interval_ms=COLLECT_MS, metrics=loop_metrics),
            Loop(
                "collect-plans",
                PlanCollector(counted, meta, metrics).step,
                interval_ms=COLLECT_MS,
                metrics=loop_metrics,
            ),
            Loop("restore-beat", claims.beat, interval_ms=BEAT_RESTORE_MS, metrics=loop_metrics),
            Loop("usage", meter.report, interval_ms=settings.usage_ms, metrics=loop_metrics),
        ]
        for loop in loops:
            loop.start()
        try:
            yield
        finally:
            driver.stop()
            for loop in loops:
                loop.stop(timeout_s=0.2)  # a long poll that hangs dies with the process
            meter.last_report()
            http.close()
            collector.deleter.close()
            outside.close_runner()

    app = new_app(
        "tistream-ingest", ready=driver.not_ready, registry=registry, running=running, clock=clock, peers=peers
    )
    app.state.allowed, app.state.driver, app.state.node_id = allowed, driver, settings.node
    app.include_router(router)
    return app


def _list_loops(
    settings: IngestSettings,
    membership: Membership,
    driver: SourceDriver,
    backfills: BackfillRunner,
    claims: Claims,
    metrics: LoopMetrics,
) -> list[Loop]:
    """Create the loops that look at lists of the meta server. All of them are woken when a heartbeat's answer says that
    the meta server has written something, and when there is a new route table."""

    def follow_sources() -> int:
        driver.follow_sources()
        return settings.sources_ms if driver.not_ready() else membership.rest_ms(settings.sources_ms, REST_MS)

    def run_backfills() -> int:
        if backfills.step():
            return 0
        return membership.rest_ms(settings.backfills_ms, REST_MS) if backfills.idle else settings.backfills_ms

    def run_restores() -> int:
        pause_ms = claims.step()
        return membership.rest_ms(pause_ms, REST_MS) if pause_ms else 0

    loops = [
        Loop("sources", follow_sources, interval_ms=settings.sources_ms, metrics=metrics),
        Loop("backfills", run_backfills, interval_ms=settings.backfills_ms, backoff_max_ms=30_000, metrics=metrics),
        Loop("restores", run_restores, interval_ms=settings.restores_ms, metrics=metrics),
    ]

    def wake() -> None:
        for loop in loops:
            loop.wake()

    driver.on_routes = membership.on_writes = wake
    return loops
