"""Every tenant that this process serves, as the meta server's route table has them."""

from __future__ import annotations

import logging
from concurrent.futures import Executor
from contextlib import suppress

from prometheus_client import CollectorRegistry

from tistream.clock import Clock
from tistream.concurrency import Event, new_lock
from tistream.errors import InvalidRequest, Unavailable, UnknownName
from tistream.model.ids import TenantKey
from tistream.model.ts import physical_ms
from tistream.storage.object_store import ObjectStore
from tistream.storage.tenant_keys import TenantKeys
from tistream.wire.client import HttpClient
from tistream.wire.limits import NO_LIMITS, Limits
from tistream.wire.meta import RouteTable, TenantRoute
from tistream.wire.meta_client import MetaClient, StaleRoutes
from tistream.wire.schema_client import SchemaClient, SchemaReplica
from tistream.wire.sorter_client import SorterClient
from tistream_api.metrics import ApiMetrics
from tistream_api.read.group_cache import GroupCache
from tistream_api.tenant.tenant_view import TenantView

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
        keys: TenantKeys | None = None,
    ) -> None:
        self._keys = TenantKeys() if keys is None else keys
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
        self._begun_ms: dict[TenantKey, int] = {}  # when a refresh was last begun
        self._turn_ms = 0  # when the next idle tenant is looked at

    def routes(self) -> RouteTable | None:
        """The newest route table; None before the first one came."""
        return self._routes

    def services(self, role: str) -> list[str]:
        """Base URLs of the live services of a role."""
        routes = self._routes
        return routes.services.get(role, []) if routes else []

    def _registry(self) -> str:
        urls = self.services("schema")
        if not urls:
            raise Unavailable("no schema registry is known")
        return urls[0]

    def view(self, cluster_id: str, tenant_id: str) -> TenantView:
        """A tenant's view. Raises UnknownName; Unavailable if the meta server has never answered."""
        try:
            key = TenantKey.parse(cluster_id, tenant_id)
        except InvalidRequest as error:
            raise UnknownName(str(error)) from error
        found = self._views.get(key)
        if found is None:  # it may have been registered a moment ago
            self._take_now()
            found = self._views.get(key)
        if found is None:
            raise UnknownName(f"no tenant {key}")
        return found

    def views(self) -> dict[TenantKey, TenantView]:
        """Every tenant's view."""
        with self._lock:
            return dict(self._views)

    def excused_ms(self, view: TenantView) -> int:
        """How long ago a view was looked at; one that is overdue is excused for no longer than its turn takes."""
        idle_every_ms = max(IDLE_EVERY_MS, IDLE_TURN_MS * len(self._views))
        return min(view.seen_ago_ms(), ACTIVE_EVERY_MS if view.idle_ms() < ACTIVE_MS else idle_every_ms)

    def limits(self, key: TenantKey) -> Limits:
        """What a tenant may use, as the newest routes have it."""
        found = self._views.get(key)
        return NO_LIMITS if found is None else found.route.limits

    # ---- loops

    def follow(self) -> int:
        """Wait for a newer route table, and take it."""
        before = self._routes
        known = before.version if before else -1
        routes = self._meta.routes(known, ROUTES_WAIT_MS if before else 0)
        if not self._stopping.is_set():
            self._take(routes)
        return 0 if routes.version != known else 50

    def refresh_due(self) -> None:
        """Start a refresh of every view that is due: often for those somebody asks for; of the others those that are
        new, and one at a time, the one that was begun longest ago."""
        with self._lock:
            views = [(key, view) for key, view in self._views.items() if key not in self._busy]
        idle: list[tuple[TenantKey, TenantView]] = []
        for key, view in views:
            if view.idle_ms() < ACTIVE_MS or not view.looked_at:
                if view.age_ms() >= ACTIVE_EVERY_MS:
                    self._begin(key, view)
            elif view.age_ms() >= IDLE_EVERY_MS:
                idle.append((key, view))
        now_ms = self._clock.monotonic_ms()
        if idle and now_ms >= self._turn_ms:
            self._turn_ms = max(self._turn_ms, now_ms - IDLE_TURN_MS) + IDLE_TURN_MS
            self._begin(*min(idle, key=lambda one: self._begun_ms.get(one[0], 0)))

    def _begin(self, key: TenantKey, view: TenantView) -> None:
        with self._lock:
            self._busy.add(key)
            self._begun_ms[key] = self._clock.monotonic_ms()
        self._executor.submit(self._refresh, key, view)

    def _refresh(self, key: TenantKey, view: TenantView) -> None:
        try:
            view.refresh()
        except Exception as error:
            log.error("refresh failed", exc_info=error, extra={"tenant": str(key)})
        finally:
            with self._lock:
                self._busy.discard(key)

    def _take_now(self) -> None:
        with suppress(StaleRoutes):  # another thread has taken newer ones meanwhile
            self._take(self._meta.routes(fresh=True))

    def _take(self, routes: RouteTable) -> None:
        """Take a table. Two threads ask: the answer of the slower one may be older than what the other has taken, and
        would drop the view of a tenant that is read already."""
        with self._lock:
            newest = self._routes
            if newest is not None and (routes.owner_rev, routes.version) < (newest.owner_rev, newest.version):
                return
            self._routes = routes
            self._keys.tell(routes.kms_key_ids())
            seen = set()
            for route in routes.tenants:
                key = TenantKey(route.cluster_id, route.tenant_id)
                if route.erasing:
                    continue
                seen.add(key)
                if key in self._views:
                    self._views[key].use(route)
                else:
                    self._views[key] = self._new_view(route, key)
            for key in set(self._views) - seen:
                del self._views[key]
                self._begun_ms.pop(key, None)

    def _new_view(self, route: TenantRoute, key: TenantKey) -> TenantView:
        sorters = SorterClient(self._http)
        return TenantView(
            route,
            self._objects,
            self._cache,
            sorters,
            SchemaReplica(SchemaClient(self._http, self._registry), key),
            self._clock,
            self._stopping,
            self.metrics.undecodable,
        )

    def _lag_seconds(self) -> float:
        """Of the tenant that is furthest behind, as of the last look at each; one that is overdue excuses nothing. One
        that is paused is meant to be behind."""
        now_ms = self._clock.now_ms()
        lags_ms = [
            now_ms - self.excused_ms(view) - physical_ms(view.resolved_ts())
            for view in self.views().values()
            if view.route.snapshot_ts is not None and not view.route.paused
        ]
        return max([0, *lags_ms]) / 1000
