"""Feeds one tenant's tasks from the tenant's stores that this dispatcher reads, in one thread.

    announcements, LIST -> StoreFeed (chain order) -> Router -> FileWindow -> POST /v1/files -> Receivers

Nothing is kept on disk. After a restart, or when a store comes from another dispatcher, reading continues at the tasks'
own positions. A failure of one store or one sorter does not affect the others.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial

from tistream.clock import Clock
from tistream.concurrency import new_lock
from tistream.errors import InvalidRequest, RetryableError
from tistream.model.ids import TenantKey
from tistream.model.span import KeySpan
from tistream.storage.object_store import ObjectStore
from tistream.wire.clients.sorter_client import SorterClient
from tistream.wire.dispatcher import StoreStatus
from tistream.wire.meta import TenantRoute
from tistream.wire.sorter import Hold
from tistream_dispatcher.delivery.delivery import Delivery, ResyncPauses
from tistream_dispatcher.delivery.receivers import Receivers
from tistream_dispatcher.delivery.router import Router, TaskSpan
from tistream_dispatcher.delivery.window import FileWindow, WindowLimits
from tistream_dispatcher.metrics import DispatcherMetrics
from tistream_dispatcher.stores.announced import AnnouncedFiles
from tistream_dispatcher.stores.change_source import route
from tistream_dispatcher.stores.load import StoreLoad
from tistream_dispatcher.stores.pacing import ListSchedule, PollSettings
from tistream_dispatcher.stores.read_ahead import TENANT_BYTES, ByteBudget
from tistream_dispatcher.stores.store_feed import StoreFeed, unread
from tistream_dispatcher.tenant.collection import ConsumedFiles
from tistream_dispatcher.tenant.discovery import Discovery
from tistream_dispatcher.tenant.share import Share

log = logging.getLogger(__name__)

IDLE_MS = 2_000  # the longest pause between two steps
CALM_MS = 60_000  # the longest pause while the feed only waits for new files
MIN_WAIT_MS = 5
FILL_FILES = 256  # files routed before they are sent
OTHER_ANNOUNCED_MS = 1_000  # minimum pause between wake-ups by announcements of other stores
# How long to wait for tasks whose positions are not known yet; then the others continue without them.
WAIT_FOR_ALL_MS = 5_000


class TenantFeed:
    """Reads a tenant's stores and sends their files. The tenant's loop calls `step`; any thread may call the other
    methods."""

    def __init__(
        self,
        tenant: TenantKey,
        objects: ObjectStore,
        sorters: SorterClient,
        clock: Clock,
        metrics: DispatcherMetrics,
        limits: WindowLimits,
        polling: PollSettings,
        resync: ResyncPauses,
        report_now: Callable[[], None],
        collect_ms: int | None = None,
        room: ByteBudget | None = None,
    ) -> None:
        """`report_now` is called when a store was found that no route names. `collect_ms`: pause between two
        computations of the files that no task needs; None: never. `room`: the memory for files that were read before
        their turn, shared by all tenants."""
        self.tenant = tenant
        self.room = ByteBudget(TENANT_BYTES, within=room)
        self.consumed = ConsumedFiles(clock, collect_ms)
        self._objects = objects
        self._clock = clock
        self._metrics = metrics
        self._window = FileWindow(limits)
        self._receivers = Receivers()
        self._delivery = Delivery(tenant, sorters, self._receivers, self._window, clock, resync)
        self._pace = ListSchedule(polling, clock.monotonic_ms())
        self._share = Share()
        self._discovery = Discovery(tenant, objects, report_now)
        self._stores: dict[int, StoreFeed] = {}
        self._loads: dict[int, StoreLoad] = {}
        self._store_problems: dict[tuple[int, str], str] = {}  # (store, attempted action) -> reason of its failure
        self._router: Router | None = None
        self._spans: tuple[TaskSpan, ...] = ()
        self._known_since_ms: int | None = None
        self._calm = False
        self._lock = new_lock()  # guards the input from other threads, and the results that they read
        self._new_route: tuple[int, TenantRoute, Share] | None = None
        self._announced = AnnouncedFiles()
        self._list_at_once = self._announcements_lost = self._other_announced = False
        self._other_announced_ms = 0
        self._newest_ts = 0  # the newest file of all stores, as reported by the sorters
        self._status: tuple[StoreStatus, ...] = ()
        self._reported_loads: dict[int, StoreLoad] = {}
        self._holds: tuple[Hold, ...] = ()

    # -- for other threads -----------------------------------------------------------------------------------------

    def set_route(self, version: int, tenant_route: TenantRoute, share: Share) -> None:
        """Set the tenant's entry in a new route table, and this dispatcher's share of its stores. The next step uses
        them."""
        with self._lock:
            self._new_route = (version, tenant_route, share)

    def announce(self, store_id: int, ts: int) -> None:
        """Add the announcement of a file. The next step reads the file; if there are too many announcements, it LISTs
        instead."""
        with self._lock:
            self._list_at_once |= not self._announced.add(store_id, ts)

    def announced_for_other(self) -> bool:
        """Record that a file was announced for a store that another dispatcher reads, so that the tenant does not count
        as silent. Returns whether the caller must wake the tenant's loop."""
        now_ms = self._clock.monotonic_ms()
        with self._lock:
            if now_ms - self._other_announced_ms < OTHER_ANNOUNCED_MS:
                return False
            self._other_announced, self._other_announced_ms = True, now_ms
        return True

    def list_now(self) -> None:
        """Make all LISTs due at the next step, because announcements were lost."""
        with self._lock:
            self._list_at_once = True

    def announcements_lost(self) -> None:
        """Record that announcements cannot be received: LISTs are due at the next step, and later as often as without
        announcements."""
        with self._lock:
            self._announcements_lost = True

    def status(self) -> tuple[tuple[StoreStatus, ...], tuple[Hold, ...]]:
        """The status of each store, with its own hold, and all other holds, as of the last step: for sorters that fail,
        for stores that no dispatcher reads yet, and for failed actions on stores."""
        with self._lock:
            return self._status, self._holds

    def loads(self) -> dict[int, float | None]:
        """The load in bytes per second of each store that is read; None if it is not known yet. Stores that were found
        and have no dispatcher are included, with None."""
        now_ms = self._clock.monotonic_ms()
        with self._lock:
            reported = {store_id: load.per_second(now_ms) for store_id, load in self._reported_loads.items()}
        return dict.fromkeys(self._discovery.found()) | reported

    # -- for the tenant's thread -----------------------------------------------------------------------------------

    def step(self) -> int:
        """Do all work that is due now. Returns the milliseconds until the next step."""
        self._apply_route()
        self._delivery.sync()
        self._rewind_the_behind()
        moved = False
        if self._router is not None and self._may_begin():
            self._close_chains()
            self._find()
            moved = self._fill(self._router)
            moved |= self._delivery.send()
            self._rewind_the_behind()
            self._window.trim(self._receivers)
        self._note_status()
        if self.consumed.due():
            tasks = [span.task_id for span in self._spans]
            self.consumed.note({one: store.chains for one, store in self._stores.items()}, self._receivers.needs(tasks))
        return 0 if moved else self._wait_ms()

    def _apply_route(self) -> None:
        with self._lock:
            new, self._new_route = self._new_route, None
        if new is None:
            return
        version, tenant_route, share = new
        spans = tuple(
            TaskSpan(task.task_id, KeySpan(bytes.fromhex(task.start_key), bytes.fromhex(task.end_key)))
            for task in tenant_route.tasks
        )
        self._delivery.set_tasks(version, {t.task_id: (t.sorter_url, t.task_epoch) for t in tenant_route.tasks})
        if spans != self._spans:
            self._spans = spans
            self._router = Router(spans) if spans else None
            self._known_since_ms = None
            # The files in the window were routed to other tasks.
            for store in self._stores.values():
                self._rewind(store)
        self._apply_share(share)

    def _apply_share(self, share: Share) -> None:
        """Use a new share: stop reading the stores that another dispatcher has now. If this dispatcher gets new stores,
        the positions of all tasks are requested first. If it must look for new stores from now on, LISTs are due at
        once."""
        before, self._share = self._share, share
        for store_id in [store_id for store_id in self._stores if not share.reads(store_id)]:
            self._leave(store_id)
        if share.stores - self._stores.keys():
            self._delivery.request_all()
        if share.discovers and not before.discovers:
            self._pace.list_now()
        self._discovery.apply(share)

    def _leave(self, store_id: int) -> None:
        self._stores.pop(store_id).close()
        del self._loads[store_id]
        self._window.drop_store(store_id)
        self._delivery.leave(store_id)
        self._store_problems = {tried: why for tried, why in self._store_problems.items() if tried[0] != store_id}
        log.info("store is another dispatcher's", extra={"tenant": str(self.tenant), "store": store_id})

    def _may_begin(self) -> bool:
        """Whether files may be read now: the positions of all tasks are known, or those of some tasks are, and a store
        is read already or WAIT_FOR_ALL_MS have passed."""
        if not self._receivers.received:
            return False
        now_ms = self._clock.monotonic_ms()
        if self._known_since_ms is None:
            self._known_since_ms = now_ms
        return self._everyone_known() or bool(self._stores) or now_ms - self._known_since_ms >= WAIT_FOR_ALL_MS

    def _everyone_known(self) -> bool:
        return len(self._receivers.received) == len(self._spans)

    def _close_chains(self) -> None:
        for store in self._stores.values():
            store.chains.held_open(self._receivers.open_chains(store.store_id))
            several = len(before := store.chains.positions()) > 1
            if self._everyone_known() and (several or store.chains.may_begin_older()):
                store.chains.close(self._receivers.flushed_ts())
                after = store.chains.positions()
                if len(after) < len(before):
                    self._window.drop_closed(store.store_id, after)

    def _rewind_the_behind(self) -> None:
        for store_id, store in self._stores.items():
            if self._window.must_reread(self._receivers, store_id, store.chains.positions()) or self._passed(store):
                self._rewind(store)
                self._metrics.rewinds.inc()
                log.info("store is read again", extra={"tenant": str(self.tenant), "store": store_id})

    def _passed(self, store: StoreFeed) -> bool:
        """Whether another dispatcher has read this store further: it waits here for files that all tasks have received
        already, and that may be deleted."""
        waits = store.chains.hold() is not None and self._everyone_known()
        return waits and store.chains.passed_by(self._receivers.lowest_positions(store.store_id))

    def _rewind(self, store: StoreFeed) -> None:
        self._window.drop_store(store.store_id)
        store.rewind(self._receivers.lowest_positions(store.store_id))
        self._pace.list_now()

    # -- finding and reading files ---------------------------------------------------------------------------------

    def _find(self) -> None:
        now_ms = self._clock.monotonic_ms()
        with self._lock:
            announced = self._announced.pop_all()
            hurried, deafened, stirred = self._list_at_once, self._announcements_lost, self._other_announced
            self._list_at_once = self._announcements_lost = self._other_announced = False
        if hurried:
            self._pace.list_now()
        if stirred or self._receivers.newest_ts > self._newest_ts:
            self._newest_ts = self._receivers.newest_ts
            self._pace.announced_for_other(now_ms)
        for store_id in sorted(self._share.stores - self._stores.keys()):
            self._store(store_id)
        if self._pace.take_discovery(now_ms) and self._share.discovers:
            # Only LISTed stores count. Tasks may have received files of a retired store, which has none any more.
            self._found(self._discovery.listed())
        for store_id, stamps in announced.items():
            self._look_for(now_ms, store_id, stamps)
        if deafened:  # only now, after the announcements that were received before
            self._pace.announcements_lost()
        if self._pace.poll_due(now_ms):
            found = [self._try(store, "find", StoreFeed.poll) for store in self._stores.values()]
            failed = any((store_id, "find") in self._store_problems for store_id in self._stores)
            took_ms = self._clock.monotonic_ms() - now_ms
            self._pace.polled(now_ms, found=any(found), failed=failed, took_ms=took_ms)
        for store in self._stores.values():
            self._try(store, "retry", StoreFeed.retry)

    def _look_for(self, now_ms: int, store_id: int, stamps: set[int]) -> None:
        """Read announced files of a store. If the object store did not answer for a file, the file is read at a later
        step. If a file does not exist yet, the next LIST is soon, because the file is not announced again."""
        if store_id not in self._stores:
            if not self._share.concerns(store_id):
                return
            is_there = self._discovery.file_exists(store_id, max(stamps))
            if is_there is False:
                self._pace.announced_early(now_ms)
            if not is_there:
                return  # if the store exists, LIST finds it
            self._found({store_id})
        store = self._stores.get(store_id)
        if store is None:
            return  # the store's dispatcher LISTs it once it has the route
        if self._try(store, "find", partial(StoreFeed.announced, stamps=stamps)):
            self._pace.announced(now_ms)
        if (store_id, "find") in self._store_problems:
            with self._lock:
                self._announced.again(store_id, stamps)
        elif store.lacks(stamps):
            self._pace.announced_early(now_ms)

    def _found(self, store_ids: set[int]) -> None:
        """Handle new stores. If the meta server assigns stores, it must assign those that no dispatcher reads yet, so
        they are reported to it. Otherwise this dispatcher begins to read them."""
        if self._share.whole:
            for store_id in sorted(store_ids):
                self._store(store_id)
        else:
            self._discovery.note(store_ids - self._share.named)

    def _store(self, store_id: int) -> None:
        """Begin to read a store at the lowest position of its tasks, unless it is read already. LISTs are then due at
        once."""
        if store_id not in self._stores:
            positions = self._receivers.lowest_positions(store_id)
            feed = StoreFeed(self.tenant, store_id, positions, self._objects, self._clock, self._metrics, self.room)
            self._stores[store_id] = feed
            self._loads[store_id] = StoreLoad.begun(self._clock.monotonic_ms())
            self._pace.list_now()
            log.info("store is read", extra={"tenant": str(self.tenant), "store": store_id})

    def _fill(self, router: Router) -> bool:
        """Move the files that are next into the window, store by store in turn, until the window is full or a batch is
        worth sending. Returns whether any file was moved."""
        added = 0
        going = list(self._stores.values())
        while going and added < FILL_FILES:
            for store in list(going):
                if self._window.full or not self._try(store, "take", partial(self._route_next, router)):
                    going.remove(store)
                else:
                    added += 1
        return added > 0

    def _route_next(self, router: Router, store: StoreFeed) -> bool:
        found = store.next_file()
        if found is None:
            return False
        ready, file = found
        routed = route(file, ready.chain_ts, router)
        self._window.add(routed)
        store.advance(ready)
        self._loads[store.store_id] = self._loads[store.store_id].added(self._clock.monotonic_ms(), routed.bytes)
        self._metrics.files.inc()
        self._metrics.routed_bytes.inc(file.change_bytes)
        return True

    def _try(self, store: StoreFeed, what: str, action: Callable[[StoreFeed], bool]) -> bool:
        """Run `action` on a store, and return its result; False after an error. An error of one store's objects does
        not affect the others. It stays in the status until the same action succeeds, because another action may not
        have used the object store."""
        tried = (store.store_id, what)
        try:
            done = action(store)
        except (RetryableError, InvalidRequest) as error:  # InvalidRequest: a link leads out of the store's directory
            if tried not in self._store_problems:
                fields = {"tenant": str(self.tenant), "store": store.store_id, "reason": str(error)}
                log.warning("an action on a store failed: it is tried again", extra=fields)
            self._store_problems[tried] = str(error)
            return False
        self._store_problems.pop(tried, None)
        return done

    # -- reporting -------------------------------------------------------------------------------------------------

    def _note_status(self) -> None:
        stores = tuple(store.status() for _, store in sorted(self._stores.items()))
        coming = sorted(self._share.stores - self._stores.keys())
        holds = [*self._delivery.holds(), *self._discovery.holds()]
        problems = {store_id: problem for (store_id, _), problem in sorted(self._store_problems.items())}
        holds += [Hold(stage="dispatch", store_id=str(store_id), reason=why) for store_id, why in problems.items()]
        expecting = any(store.hold is not None for store in stores)
        expecting |= bool(self._store_problems) or self._discovery.incomplete
        self._pace.set_expecting(self._clock.monotonic_ms(), expecting=expecting)
        self._calm = not (expecting or holds or len(self._window)) and self._everyone_known()
        with self._lock:
            self._status = stores + tuple(unread(self.tenant, store_id) for store_id in coming)
            self._holds, self._reported_loads = tuple(holds), dict(self._loads)

    def _wait_ms(self) -> int:
        now_ms = self._clock.monotonic_ms()
        due = [self._pace.next_ms(), now_ms + (CALM_MS if self._calm else IDLE_MS)]
        others = [self._delivery.next_ms(), *(store.next_retry_ms() for store in self._stores.values())]
        due += [ms for ms in others if ms is not None]
        return max(MIN_WAIT_MS, min(due) - now_ms)
