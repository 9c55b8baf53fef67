"""Every tenant that this process serves, as the meta server's route table has them."""

from __future__ import annotations

import logging
from concurrent.futures import Executor

from prometheus_client import CollectorRegistry

from tistream.clock import Clock
from tistream.concurrency import Event, new_lock
from tistream.errors import InvalidRequest, UnknownName
from tistream.model.ids import TenantKey
from tistream.model.ts import physical_ms
from tistream.storage.object_store import ObjectStore
from tistream.wire.client import HttpClient
from tistream.wire.meta import RouteTable, TenantRoute
from tistream.wire.meta_client import MetaClient
from tistream.wire.schema_client import SchemaClient, SchemaReplica
from tistream.wire.sorter_client import SorterClient
from tistream_api.group_cache import GroupCache
from tistream_api.metrics import ApiMetrics
from tistream_api.tenant_view import TenantView

log = logging.getLogger(__name__)

ROUTES_WAIT_MS = 10_000
ACTIVE_MS = 10_000  # a tenant is active that long after somebody asked for it
ACTIVE_EVERY_MS = 100
IDLE_EVERY_MS = 2_000
IDLE_TURN_MS = 100  # of many idle tenants, one after the other: somebody who asks is waited for anyway


class Tenants:
    """Follows the route table and keeps a view of each tenant fresh: run `follow` and `refresh_due` in loops."""

    def __init__(
        self,
        http: HttpClient,
        meta: MetaClient,
        objects: ObjectStore,
        cache: GroupCache,
        clock: Clock,
        executor: Executor,
        stopping: Event,
        registry: CollectorRegistry,
    ) -> None:
        self._http = http
        self._meta = meta
        self._objects = objects
        self._cache = cache
        self._clock = clock
        self._executor = executor
        self._stopping = stopping
        self.metrics = ApiMetrics(registry, self._lag_seconds)
        self._lock = new_lock()
        self._routes: RouteTable | None = None
        self._views: dict[TenantKey, TenantView] = {}
        self._busy: set[TenantKey] = set()

    def routes(self) -> RouteTable | None:
        """The newest route table; None before the first one came."""
        return self._routes

    def services(self, role: str) -> list[str]:
        """Base URLs of the live services of a role."""
        routes = self._routes
        return routes.services.get(role, []) if routes else []

    def view(self, cluster_id: str, tenant_id: str) -> TenantView:
        """A tenant's view. Raises UnknownName; Unavailable if the meta server has never answered."""
        try:
            key = TenantKey.parse(cluster_id, tenant_id)
        except InvalidRequest as error:
            raise UnknownName(str(error)) from error
        found = self._views.get(key)
        if found is None:  # it may have been registered a moment ago
            self._take(self._meta.routes(), unless_newer_than=None)
            found = self._views.get(key)
        if found is None:
            raise UnknownName(f"no tenant {key}")
        return found

    # ---- loops

    def follow(self) -> int:
        """Wait for a newer route table, and take it."""
        before = self._routes
        known = before.version if before else -1
        routes = self._meta.routes(known, ROUTES_WAIT_MS if before else 0)
        if not self._stopping.is_set():
            self._take(routes, unless_newer_than=before)
        return 0 if routes.version != known else 50

    def refresh_due(self) -> None:
        """Start a refresh of every view that is due: often for those somebody asks for, seldom for the others."""
        views = list(self._views.items())
        idle_every_ms = max(IDLE_EVERY_MS, IDLE_TURN_MS * len(views))
        for key, view in views:
            if view.age_ms() < (ACTIVE_EVERY_MS if view.idle_ms() < ACTIVE_MS else idle_every_ms):
                continue
            with self._lock:
                due = key not in self._busy
                if due:
                    self._busy.add(key)
            if due:
                self._executor.submit(self._refresh, key, view)

    def _refresh(self, key: TenantKey, view: TenantView) -> None:
        try:
            view.refresh()
        except Exception as error:
            log.error("refresh failed", exc_info=error, extra={"tenant": str(key)})
        finally:
            with self._lock:
                self._busy.discard(key)

    def _take(self, routes: RouteTable, unless_newer_than: RouteTable | None) -> None:
        """Take a table that was asked for while the newest was `unless_newer_than`.

        Two threads ask: the answer of the slower one may be older than what the other has taken, and would drop the
        view of a tenant that is read already. Only who knew the newest table may go back (a restored meta database).
        """
        with self._lock:
            newest = self._routes
            if newest is not None and newest is not unless_newer_than and routes.version < newest.version:
                return
            self._routes = routes
            seen = set()
            for route in routes.tenants:
                key = TenantKey(route.cluster_id, route.tenant_id)
                seen.add(key)
                if key in self._views:
                    self._views[key].use(route)
                else:
                    self._views[key] = self._new_view(route, key)
            for key in set(self._views) - seen:
                del self._views[key]

    def _new_view(self, route: TenantRoute, key: TenantKey) -> TenantView:
        def new_replica() -> SchemaReplica | None:
            urls = self.services("schema")  # the registry may come later than the tenant
            return SchemaReplica(SchemaClient(self._http, urls[0]), key) if urls else None

        sorters = SorterClient(self._http)
        return TenantView(
            route,
            self._objects,
            self._cache,
            sorters,
            new_replica,
            self._clock,
            self._stopping,
            self.metrics.undecodable,
        )

    def _lag_seconds(self) -> float:
        """Of the tenant that is furthest behind, as of the last look at each."""
        views = [view for view in list(self._views.values()) if view.route.snapshot_ts is not None]
        now_ms = self._clock.now_ms()
        return max([0.0, *((now_ms - view.seen_ago_ms() - physical_ms(view.resolved_ts())) / 1000 for view in views)])
