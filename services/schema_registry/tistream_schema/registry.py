"""The registry of all tenants' schemas. The meta server's route table lists the tenants; a loop for each keeps its
schema up to date."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass

from tistream.clock import Clock
from tistream.concurrency import new_lock
from tistream.errors import KeyUnusable, Unavailable, UnknownName
from tistream.model.ids import TenantKey
from tistream.pool.footers import FooterCache
from tistream.service.observe.metrics import LoopMetrics
from tistream.service.worker import Loop
from tistream.storage.backends.tenant_keys import TenantKeys
from tistream.storage.object_store import ObjectStore
from tistream.wire.clients.meta_client import MetaClient
from tistream.wire.clients.sorter_client import SorterClient
from tistream.wire.meta import RouteTable, TenantRoute
from tistream.wire.sorter import Hold
from tistream_schema import expected_tasks
from tistream_schema.durable_log import SNAPSHOT_BYTES, DurableLog
from tistream_schema.follower import SchemaFollower
from tistream_schema.keeping import LogKeepingRules
from tistream_schema.metrics import SchemaMetrics
from tistream_schema.poll_pace import PollPace
from tistream_schema.sorter_progress import SorterProgress
from tistream_schema.tenant_schema import TenantSchema

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Options:
    """Options of the registry's loops. Durations are in milliseconds."""

    poll_ms: int
    poll_idle_ms: int
    poll_quiet_ms: int
    route_wait_ms: int
    keeping: LogKeepingRules
    snapshot_bytes: int = SNAPSHOT_BYTES


@dataclass(slots=True)
class _Followed:
    route: TenantRoute
    schema: TenantSchema
    follower: SchemaFollower
    pause_ms: int
    loop: Loop | None = None


@dataclass(slots=True)
class _PolledSorter:
    url: str
    pace: PollPace
    loop: Loop | None = None


class Registry:
    """Holds the schema of every tenant. Many threads read it; only `follow_routes` adds and removes tenants."""

    def __init__(
        self,
        objects: ObjectStore,
        meta: MetaClient,
        sorters: SorterClient,
        options: Options,
        clock: Clock,
        *,
        new_nonce: Callable[[], str],
        sleep: Callable[[float], None],
        metrics: SchemaMetrics,
        loop_metrics: LoopMetrics,
        keys: TenantKeys | None = None,
    ) -> None:
        self._objects = objects
        self._keys = TenantKeys() if keys is None else keys
        self._meta = meta
        self._progress = SorterProgress(sorters, metrics)
        self._options = options
        self._clock = clock
        self._new_nonce = new_nonce
        self._sleep = sleep
        self._metrics = metrics
        self._loop_metrics = loop_metrics
        self._lock = new_lock()
        self._tenants: dict[TenantKey, _Followed] = {}
        self._route_version = -1
        self._footers = FooterCache()
        # each has a loop of its own, so that one that hangs does not delay the others
        self._sorters: dict[str, _PolledSorter] = {}

    def tenant(self, key: TenantKey) -> TenantSchema:
        """A tenant's schema. Raises UnknownName, and Unavailable before the first route table."""
        with self._lock:
            if key not in self._tenants:
                if self._route_version < 0:
                    raise Unavailable("the meta server has not sent the routes yet")
                raise UnknownName(f"no tenant {key}")
            return self._tenants[key].schema

    def not_ready(self) -> str | None:
        """The reason why the registry cannot answer yet; None if it can."""
        return "the meta server has not sent the routes yet" if self._route_version < 0 else None

    def follow_routes(self) -> None:
        """Loop body: fetch the next route table by one long poll, and apply it. Raises Unavailable."""
        wait_ms = self._options.route_wait_ms if self._route_version >= 0 else 0
        self.apply_routes(self._meta.routes(self._route_version, wait_ms))

    def apply_routes(self, table: RouteTable) -> None:
        """Start and stop loops, so that every tenant of the table that is not being erased has a loop, and every sorter
        that serves a task with schema keys. A tenant whose route has changed is woken."""
        self._keys.update(table.kms_key_ids())
        routes = {TenantKey(route.cluster_id, route.tenant_id): route for route in table.tenants if not route.erasing}
        with self._lock:
            gone = [self._tenants.pop(key) for key in list(self._tenants) if key not in routes]
            for key, route in routes.items():
                known = self._tenants.get(key)
                if known is not None:
                    if known.route != route:
                        known.route = route
                        self._wake(known)
                else:
                    self._tenants[key] = self._start(key, route)
            self._metrics.tenants.set(len(self._tenants))
            tasks = (task for route in table.tenants for task in expected_tasks.schema_tasks(route))
            urls = {task.sorter_url for task in tasks if task.sorter_url is not None}
            left = [self._sorters.pop(url) for url in self._sorters.keys() - urls]
            for url in sorted(urls - self._sorters.keys()):
                self._sorters[url] = self._begin_polling(url)
        for followed in gone:
            if followed.loop is not None:
                followed.loop.stop()
        for polled in left:
            if polled.loop is not None:
                polled.loop.stop(0)
            self._progress.forget(polled.url)
        self._route_version = table.version

    def _begin_polling(self, url: str) -> _PolledSorter:
        pace = PollPace(self._options.poll_ms, self._options.poll_idle_ms, self._clock.monotonic_ms())
        polled = _PolledSorter(url, pace)
        polled.loop = Loop(
            "sorter", lambda: self._poll(polled), interval_ms=self._options.poll_ms, metrics=self._loop_metrics
        ).start()
        return polled

    def _poll(self, polled: _PolledSorter) -> int:
        """Request the progress of a sorter's tasks once, and wake the tenants whose tasks have advanced. Returns the
        milliseconds until the next request."""
        asked_ms = self._clock.monotonic_ms()
        moved = self._progress.poll(polled.url)
        with self._lock:
            for key in moved & self._tenants.keys():
                self._wake(self._tenants[key])
        return polled.pace.answered(asked_ms, self._clock.monotonic_ms(), moved=bool(moved))

    def stop(self) -> None:
        """Stop every loop. A tenant's step that is running may finish; requests to sorters are abandoned."""
        with self._lock:
            polling = [polled.loop for polled in self._sorters.values() if polled.loop is not None]
            stepping = [followed.loop for followed in self._tenants.values() if followed.loop is not None]
        for loop in [*polling, *stepping]:
            loop.stop(0)
        for loop in stepping:
            loop.stop(0.5)

    def _start(self, key: TenantKey, route: TenantRoute) -> _Followed:
        schema = TenantSchema(key)
        durable = DurableLog(self._objects, key, self._new_nonce(), self._sleep, self._options.snapshot_bytes)
        follower = SchemaFollower(
            self._objects, schema, durable, self._footers, self._options.keeping, self._clock.monotonic_ms
        )
        followed = _Followed(route, schema, follower, self._options.poll_ms)
        followed.loop = Loop(
            "tenant",
            lambda: self._step(followed),
            interval_ms=self._options.poll_ms,
            backoff_max_ms=2_000,
            metrics=self._loop_metrics,
        ).start()
        return followed

    def _wake(self, followed: _Followed) -> None:
        if followed.loop is not None:
            followed.loop.wake()

    def _step(self, followed: _Followed) -> int:
        """Run one step of a tenant's loop. Returns the pause in milliseconds. New progress of a sorter wakes the tenant
        earlier; without progress the pauses grow."""
        records = followed.schema.sizes.records_ever
        reported = self._progress.of(expected_tasks.schema_tasks(followed.route))
        try:
            moved = followed.follower.step(followed.route, reported)
        except KeyUnusable as error:
            followed.schema.set_holds([Hold(stage="schema", reason=str(error))])
            raise
        self._metrics.records.inc(followed.schema.sizes.records_ever - records)
        longer_ms = min(followed.pause_ms * 2, self._options.poll_quiet_ms)
        followed.pause_ms = self._options.poll_ms if moved else longer_ms
        return followed.pause_ms
