"""Runs one loop for each tenant whose stores this dispatcher reads. It passes route tables and announcements to these
loops."""

from __future__ import annotations

import logging
from collections.abc import Callable

from tistream.concurrency import new_lock
from tistream.errors import TiStreamError
from tistream.model.ids import TenantKey
from tistream.service.observe.metrics import LoopMetrics
from tistream.service.worker import Loop
from tistream.storage.backends.tenant_keys import TenantKeys
from tistream.wire.clients.meta_client import MetaClient
from tistream.wire.dispatcher import StoreList, StoreStatus
from tistream.wire.meta import Announcements, RouteTable, StoreReport, TenantRoute
from tistream.wire.sorter import Hold
from tistream_dispatcher.metrics import DispatcherMetrics
from tistream_dispatcher.stores.chain import ReadFiles
from tistream_dispatcher.tenant.share import Share
from tistream_dispatcher.tenant.tenant_feed import TenantFeed

log = logging.getLogger(__name__)

WAIT_MS = 10_000  # timeout of long polls
CALM_LOAD = 1_000.0  # bytes per second; a store with less does not make its dispatcher report each second


class TenantDriver:
    """Starts and stops the tenants' loops. Background loops call `follow_routes` and `follow_announcements`."""

    def __init__(
        self,
        node_id: str,
        meta: MetaClient,
        new_feed: Callable[[TenantKey], TenantFeed],
        metrics: DispatcherMetrics,
        loop_metrics: LoopMetrics,
        keys: TenantKeys | None = None,
    ) -> None:
        self._keys = TenantKeys() if keys is None else keys
        self._node_id = node_id
        self._meta = meta
        self._new_feed = new_feed
        self._metrics = metrics
        self._loop_metrics = loop_metrics
        self._lock = new_lock()
        self._feeds: dict[TenantKey, tuple[TenantFeed, Loop]] = {}
        self._shares: dict[TenantKey, Share] = {}
        self._routes: dict[TenantKey, TenantRoute] = {}
        self._version = -1
        self._after = 0
        self._without_announcements = False
        self._reported: dict[tuple[str, str, int], bool] | None = None  # the stores last reported, and which are calm

    def not_ready(self) -> str | None:
        """The reason why no file can be dispatched yet; None if files can be dispatched."""
        return None if self._version >= 0 else "the routes were not read yet"

    def follow_routes(self) -> None:
        """Loop body: fetch the next route table, start and stop tenants' loops, and pass the routes to the running
        ones."""
        table = self._meta.routes(self._version, wait_ms=WAIT_MS if self._version >= 0 else 0)
        if table.version != self._version:
            self._apply(table)
            self._version = table.version

    def _apply(self, table: RouteTable) -> None:
        self._keys.update(table.kms_key_ids())
        named = {TenantKey(one.cluster_id, one.tenant_id) for one in table.tenants}
        for key in self._routes.keys() - named:  # the tenant was deleted
            del self._routes[key]
            with self._lock:
                del self._shares[key]
                read = key in self._feeds
            if read:
                self._end(key)
        for tenant_route in table.tenants:
            key = TenantKey(tenant_route.cluster_id, tenant_route.tenant_id)
            rests = tenant_route.paused or tenant_route.erasing
            if not (tenant_route.tasks or rests) or self._routes.get(key) == tenant_route:
                continue
            self._routes[key] = tenant_route
            share = Share() if rests else Share.of(tenant_route, self._node_id)
            with self._lock:
                self._shares[key] = share
                known = self._feeds.get(key)
            if share.is_empty:
                if known is not None:
                    self._end(key)
                continue
            feed, loop = known or self._begin(key)
            feed.set_route(table.version, tenant_route, share)
            if known is None:
                loop.start()
            loop.wake()

    def _begin(self, key: TenantKey) -> tuple[TenantFeed, Loop]:
        feed = self._new_feed(key)
        # All tenants share one label value, because names of tenants are not labels.
        loop = Loop("tenant", feed.step, interval_ms=100, metrics=self._loop_metrics)
        with self._lock:
            self._feeds[key] = (feed, loop)
        log.info("tenant begins", extra={"tenant": str(key)})
        return feed, loop

    def _end(self, key: TenantKey) -> None:
        """Stop a tenant's loop. A step that is running may continue while another dispatcher already reads the tenant's
        stores, which is harmless."""
        with self._lock:
            feed, loop = self._feeds.pop(key)
        loop.stop(timeout_s=0)
        feed.room.close()
        log.info("tenant ends", extra={"tenant": str(key)})

    def follow_announcements(self) -> None:
        """Loop body: pass announced files to their tenants at once. Announcements for stores that other dispatchers
        read are skipped."""
        try:
            answer = self._meta.announcements(self._after, wait_ms=WAIT_MS)
        except TiStreamError:
            self._lose_announcements()
            raise
        self._without_announcements = False
        self._hand_on(answer)
        self._after = answer.next_after

    def _lose_announcements(self) -> None:
        """Make every tenant find its files by LIST only, until the meta server answers again."""
        if self._without_announcements:
            return
        self._without_announcements = True
        with self._lock:
            feeds = list(self._feeds.values())
        for feed, loop in feeds:
            feed.announcements_lost()
            loop.wake()

    def _hand_on(self, answer: Announcements) -> None:
        with self._lock:
            feeds, shares = dict(self._feeds), dict(self._shares)
        touched = set(feeds) if answer.lost else set()
        for key in touched:
            feeds[key][0].list_now()
        for announcement in answer.announcements:
            key = TenantKey(announcement.cluster_id, announcement.tenant_id)
            if key not in feeds:
                continue
            feed, _ = feeds[key]
            if shares[key].concerns(announcement.store_id):
                feed.announce(announcement.store_id, announcement.ts)
                touched.add(key)
            elif feed.announced_for_other():
                touched.add(key)
        for key in touched:
            feeds[key][1].wake()

    def stores(self, cluster_id: str | None, tenant_id: str | None) -> StoreList:
        """The status of every store that this dispatcher reads or will read. `cluster_id`, `tenant_id`: only those of
        this cluster or tenant; None: of any."""
        with self._lock:
            feeds = sorted(self._feeds.items(), key=lambda one: one[0])
        stores: list[StoreStatus] = []
        holds: list[Hold] = []
        for key, (feed, loop) in feeds:
            if cluster_id not in (None, key.cluster_id) or tenant_id not in (None, key.tenant_id):
                continue
            found, held = feed.status()
            stores.extend(found)
            holds.extend(held)
            if loop.last_error is not None:
                holds.append(Hold(stage="dispatch", reason=f"tenant {key}: {loop.last_error}"))
        return StoreList(node_id=self._node_id, stores=stores, holds=holds)

    def reports(self) -> list[StoreReport]:
        """The stores in the heartbeat: those that this dispatcher reads, and those that it found and that have no
        dispatcher."""
        with self._lock:
            feeds = sorted(self._feeds.items(), key=lambda one: one[0])
        return [
            StoreReport(cluster_id=key.cluster_id, tenant_id=key.tenant_id, store_id=store_id, load=load)
            for key, (feed, _) in feeds
            for store_id, load in sorted(feed.loads().items())
        ]

    def reports_nothing_new(self) -> bool:
        """Whether the reports name the same stores as at the last call of this method, each with a load that is known
        and below CALM_LOAD at both calls."""
        before = self._reported
        self._reported = now = {
            (one.cluster_id, one.tenant_id, one.store_id): one.load is not None and one.load < CALM_LOAD
            for one in self.reports()
        }
        return now == before and all(now.values())

    def consumed(self) -> dict[TenantKey, dict[int, ReadFiles]]:
        """The change files that may be deleted, by tenant and store: every task has them in a manifest, and no pending
        part uses their values."""
        with self._lock:
            feeds = sorted(self._feeds.items(), key=lambda one: one[0])
        return {key: feed.consumed.files() for key, (feed, _) in feeds}

    def count(self) -> None:
        """Loop body: set the gauges of the metrics."""
        listed = self.stores(None, None)
        held = [store.hold for store in listed.stores if store.hold is not None] + listed.holds
        self._metrics.stores.set(sum(store.read for store in listed.stores))
        self._metrics.quarantined.set(sum(store.quarantined for store in listed.stores))
        for stage in ("push", "damaged", "dispatch", "sort", "node"):
            self._metrics.holds.labels(stage).set(sum(hold.stage == stage for hold in held))

    def stop(self) -> None:
        """Stop every tenant's loop."""
        with self._lock:
            loops = [loop for _, loop in self._feeds.values()]
        for loop in loops:
            loop.stop(timeout_s=0.5)
