"""The tenants that this process serves. The meta server's route table says which tenants there are."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from contextlib import suppress

from prometheus_client import Counter

from tistream.clock import Clock
from tistream.concurrency import Event, new_lock
from tistream.errors import InvalidRequest, Unavailable, UnknownName
from tistream.follow.moved_tenants import MovedTenants
from tistream.follow.tenant_view import TenantView
from tistream.model.ids import TenantKey
from tistream.model.ts import physical_ms
from tistream.read.group_cache import GroupCache
from tistream.storage.backends.tenant_keys import TenantKeys
from tistream.storage.object_store import ObjectStore
from tistream.wire.clients.client import HttpClient
from tistream.wire.clients.meta_client import MetaClient, StaleRoutes
from tistream.wire.clients.schema_client import SchemaClient, SchemaReplica
from tistream.wire.clients.sorter_client import SorterClient
from tistream.wire.limits import NO_LIMITS, Limits
from tistream.wire.meta import RouteTable, TenantRoute

log = logging.getLogger(__name__)

ROUTES_WAIT_MS = 10_000
ACTIVE_EVERY_MS = 100
IDLE_EVERY_MS = 2_000
# Interval between refreshes of idle tenants, which take turns; a request for an idle tenant waits for a refresh anyway.
IDLE_TURN_MS = 100
# The same for idle tenants whose tasks do not move, as their sorters say. It only bounds an oversight. Tenants that are
# due at the same time are refreshed within RESTING_SPREAD_MS, but at most one in IDLE_TURN_MS.
RESTING_EVERY_MS = 60_000
RESTING_SPREAD_MS = 15_000
LOOK_MS = 20  # the shortest pause between two looks at which refreshes are due


class Tenants:
    """Follows the route table, and keeps the state of each tenant fresh. Background loops must call `follow` and
    `refresh_due`."""

    def __init__(
        self,
        http: HttpClient,
        meta: MetaClient,
        objects: ObjectStore,
        cache: GroupCache,
        clock: Clock,
        executor: Executor,
        stopping: Event,
        undecodable: Counter,
        keys: TenantKeys | None = None,
    ) -> None:
        """`undecodable` is a metric that counts the rows that no schema can decode, each row once."""
        self.wake: Callable[[], None] = lambda: None  # calls `refresh_due` now
        self._keys = TenantKeys() if keys is None else keys
        self._http = http
        self._meta = meta
        self._objects = objects
        self._cache = cache
        self._clock = clock
        self._executor = executor
        self._stopping = stopping
        self._undecodable = undecodable
        self._lock = new_lock()
        self._routes: RouteTable | None = None
        self._views: dict[TenantKey, TenantView] = {}
        self._busy: set[TenantKey] = set()
        self._begun_ms: dict[TenantKey, int] = {}  # when the last refresh of each tenant began
        self._turn_ms = self._resting_turn_ms = 0  # when the next refresh of an idle, of a resting tenant is due
        self._moved = MovedTenants(SorterClient(http), clock)

    def routes(self) -> RouteTable | None:
        """The newest route table; None before the first one arrived."""
        return self._routes

    def services(self, role: str) -> list[str]:
        """The base URLs of the running services with this role."""
        routes = self._routes
        return routes.services.get(role, []) if routes else []

    def _registry(self) -> str:
        urls = self.services("schema")
        if not urls:
            raise Unavailable("no schema registry is known")
        return urls[0]

    def view(self, cluster_id: str, tenant_id: str) -> TenantView:
        """The view of one tenant. Raises UnknownName; Unavailable if the tenant is not known here and no meta server
        answers."""
        try:
            key = TenantKey.parse(cluster_id, tenant_id)
        except InvalidRequest as error:
            raise UnknownName(str(error)) from error
        found = self._views.get(key)
        if found is None:  # it may have just been registered
            self._store_now()
            found = self._views.get(key)
        if found is None:
            raise UnknownName(f"no tenant {key}")
        return found

    def views(self) -> dict[TenantKey, TenantView]:
        """The views of all tenants."""
        with self._lock:
            return dict(self._views)

    def refresh_pause_ms(self, view: TenantView) -> int:
        """The part of a view's `seen_ago_ms` that is due to the pause between refreshes, which is no lag, in ms. At
        most one refresh interval, so that an overdue refresh counts as lag."""
        idle_every_ms = max(IDLE_EVERY_MS, IDLE_TURN_MS * len(self._views))
        return min(view.seen_ago_ms(), idle_every_ms if view.idle else ACTIVE_EVERY_MS)

    def limits(self, key: TenantKey) -> Limits:
        """The rate limits of a tenant, as the newest route table states them."""
        found = self._views.get(key)
        return NO_LIMITS if found is None else found.route.limits

    # ---- loops

    def follow(self) -> int:
        """Body of a loop: wait for a newer route table, and use it. Returns the milliseconds until the next call."""
        before = self._routes
        known = before.version if before else -1
        routes = self._meta.routes(known, ROUTES_WAIT_MS if before else 0)
        if not self._stopping.is_set():
            self._store(routes)
        return 0 if routes.version != known else 50

    def refresh_due(self) -> int:
        """Body of a loop: submit a refresh of every view that is due, and a request to every sorter that must be asked
        for progress. Active tenants are due every ACTIVE_EVERY_MS, and new ones at once. Of the idle tenants that are
        due, one is refreshed at a time, the least recently refreshed first. Idle tenants whose tasks make no progress
        are due every RESTING_EVERY_MS only. Returns the milliseconds until the next call, which comes sooner if `wake`
        is called."""
        for url in self._moved.take_due():
            self._executor.submit(self._ask, url)
        moved = self._moved.current()
        with self._lock:
            views = [(key, view) for key, view in self._views.items() if key not in self._busy]
            pause_ms = LOOK_MS if self._busy else self._moved.pause_ms()
        idle: list[tuple[TenantKey, TenantView]] = []
        resting: list[tuple[TenantKey, TenantView]] = []
        rests_in_all = 0
        for key, view in views:
            active, age_ms = not view.idle or not view.refreshed, view.age_ms()
            rests = not active and view.settled and key not in moved
            rests_in_all += rests
            every_ms = ACTIVE_EVERY_MS if active else RESTING_EVERY_MS if rests else IDLE_EVERY_MS
            if age_ms < every_ms:
                pause_ms = min(pause_ms, every_ms - age_ms)
            elif active:
                self._begin(key, view)
                pause_ms = LOOK_MS
            else:
                (resting if rests else idle).append((key, view))
        now_ms = self._clock.monotonic_ms()
        if idle and now_ms >= self._turn_ms:
            self._turn_ms = max(self._turn_ms, now_ms - IDLE_TURN_MS) + IDLE_TURN_MS
            self._begin(*self._least_recent(idle))
            pause_ms = LOOK_MS
        if resting and now_ms >= self._resting_turn_ms:
            turn_ms = max(IDLE_TURN_MS, RESTING_SPREAD_MS // rests_in_all)
            self._resting_turn_ms = max(self._resting_turn_ms, now_ms - turn_ms) + turn_ms
            self._begin(*self._least_recent(resting))
            pause_ms = LOOK_MS
        if idle:
            pause_ms = min(pause_ms, self._turn_ms - now_ms)
        if resting:
            pause_ms = min(pause_ms, self._resting_turn_ms - now_ms)
        return max(pause_ms, LOOK_MS)

    def _least_recent(self, views: Sequence[tuple[TenantKey, TenantView]]) -> tuple[TenantKey, TenantView]:
        return min(views, key=lambda one: self._begun_ms.get(one[0], 0))

    def _ask(self, url: str) -> None:
        if self._moved.ask(url):
            self.wake()

    def _begin(self, key: TenantKey, view: TenantView) -> None:
        with self._lock:
            self._busy.add(key)
            self._begun_ms[key] = self._clock.monotonic_ms()
        self._moved.discard(key)
        self._executor.submit(self._refresh, key, view)

    def _refresh(self, key: TenantKey, view: TenantView) -> None:
        try:
            view.refresh()
            view.record_served()
        except Exception as error:
            log.error("refresh failed", exc_info=error, extra={"tenant": str(key)})
            self._moved.add(key)
        finally:
            with self._lock:
                self._busy.discard(key)

    def _store_now(self) -> None:
        with suppress(StaleRoutes):  # another thread has stored a newer table in the meantime
            self._store(self._meta.routes(fresh=True))

    def _store(self, routes: RouteTable) -> None:
        """Store a route table, unless the stored one is newer, and refresh the tenants that are new in it. Two threads
        request tables, so the slower answer may be older; it would drop the view of a tenant that is served already."""
        with self._lock:
            newest = self._routes
            if newest is not None and (routes.owner_rev, routes.version) < (newest.owner_rev, newest.version):
                return
            self._routes = routes
            self._keys.update(routes.kms_key_ids())
            seen = set()
            for route in routes.tenants:
                key = TenantKey(route.cluster_id, route.tenant_id)
                if route.erasing:
                    continue
                seen.add(key)
                if key in self._views:
                    known = self._views[key]
                    if known.route is not route and known.route != route:
                        self._moved.add(key)
                    known.replace_route(route)
                else:
                    self._views[key] = self._new_view(route, key)
            for key in set(self._views) - seen:
                del self._views[key]
                self._begun_ms.pop(key, None)
                self._moved.discard(key)
            self._moved.follow(route for route in routes.tenants if not route.erasing)
        self.wake()

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
            self._undecodable,
            lambda: self.wake(),  # noqa: PLW0108  # set after this
        )

    def lag_seconds(self) -> float:
        """The lag in seconds of the tenant that is furthest behind, as of each tenant's last refresh. An overdue
        refresh counts as lag. Paused tenants are left out."""
        now_ms = self._clock.now_ms()
        lags_ms = [
            now_ms - self.refresh_pause_ms(view) - physical_ms(view.resolved_ts())
            for view in self.views().values()
            if view.route.snapshot_ts is not None and not view.route.paused
        ]
        return max([0, *lags_ms]) / 1000
