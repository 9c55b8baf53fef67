"""The state behind the meta server's routes, and its loops: executes what the pure modules decide.

One lock guards what is in memory (heartbeats, reports, and the plan that routes are made from). The database has the
rest.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from tistream.clock import Clock
from tistream.concurrency import new_rlock
from tistream.errors import InvalidRequest, Superseded, Unavailable, UnknownName
from tistream.model.ids import TenantKey
from tistream.storage.object_store import ObjectStore
from tistream.wire.clients.meta_client import MetaClient
from tistream.wire.clients.route_mark import NOTHING_SEEN, Mark
from tistream.wire.meta import Announcement
from tistream_meta.database.repository import Repository
from tistream_meta.decide import ranges
from tistream_meta.decide.discoverer import dispatchers
from tistream_meta.decide.incarnations import Standing, Start, standing
from tistream_meta.decide.liveness import NodeState
from tistream_meta.decide.model import Change, Node, Owner, Store, Task, Tenant
from tistream_meta.decide.options import Options
from tistream_meta.decide.placement import Placement
from tistream_meta.decide.store_policy import summed_up
from tistream_meta.metrics import MetaMetrics
from tistream_meta.owner import route_table
from tistream_meta.owner.announcements import AnnouncementBoard
from tistream_meta.owner.catalog import Book, Touched
from tistream_meta.owner.election import Ownership
from tistream_meta.owner.node_liveness import HeardNodes
from tistream_meta.owner.reports import Holding, Reports
from tistream_meta.owner.route_board import RouteBoard
from tistream_meta.owner.scheduler import Scheduler
from tistream_meta.owner.store_keeping import StoreKeeping, Told
from tistream_meta.owner.store_rules import StoreRules
from tistream_meta.tenants import snapshot
from tistream_meta.tenants.tenant_rules import TenantRules
from tistream_meta.tenants.tenant_start import TenantStarts

log = logging.getLogger(__name__)

FOLLOW_WAIT_MS = 10_000  # long polls of the owner's routes
FOLLOW_PAUSE_MS = 200


class MetaServer:
    """The meta server. Thread-safe. `stopping` returns whether the process is to end."""

    def __init__(
        self,
        repository: Repository,
        objects: ObjectStore,
        clock: Clock,
        metrics: MetaMetrics,
        options: Options,
        stopping: Callable[[], bool],
        new_client: Callable[[str], MetaClient],
    ) -> None:
        self._repository = repository
        self._clock = clock
        self._metrics = metrics
        self._options = options
        self._stopping = stopping
        self._lock = new_rlock()
        self._routes = RouteBoard(stopping)
        self._maker = route_table.RouteMaker()
        self._announcements = AnnouncementBoard(0, options.announcements_max, stopping)
        self._prepared = False
        self._heard = HeardNodes(options.timings)
        self._reports = Reports()
        self._stores = StoreKeeping()
        self._scheduler = Scheduler(repository, self._reports, options.rules)
        self._starts = TenantStarts(objects, clock, options.snapshot_retry_max_ms)
        self._ownership = Ownership(
            repository, clock, self._lock, options.lease_ms, options.own_url, new_client, self._begin, metrics
        )
        self.tenant_rules = TenantRules(repository, options, self.write)
        self.store_rules = StoreRules(repository, objects, self.write)
        self._book: Book | None = None  # None: must be read from the database
        self._touched = Touched()  # since the last route table

    def not_ready(self) -> str | None:
        """Why requests cannot be served, or None."""
        if not self._prepared:
            return "the meta database was not opened yet"
        if not self.is_owner():
            if self._ownership.other is None:
                return "no meta server is the owner"
            return None if self._routes.current() is not None else "the owner has not sent the routes yet"
        return None if self._book is not None else "the plan was not read yet"

    def is_owner(self) -> bool:
        """Whether this process is the owner, as far as it knows."""
        return self._ownership.held

    def owner(self) -> MetaClient:
        """A client of the other meta server that is the owner. Raises Unavailable if none is known."""
        found = self._ownership.other
        if found is None:
            raise Unavailable("no meta server is the owner")
        return found

    # -- loops ---------------------------------------------------------------------------------------------------

    def hold_lease(self) -> None:
        """Loop body: become the owner, then renew the lease."""
        if not self._prepared:
            log.info("database ready", extra={"schema_version": self._repository.prepare()})
            self._prepared = True
        if self._ownership.hold(self._heard.lately):
            self._metrics.owner_rev.set(self._ownership.rev)
            self.look_after_nodes()

    def _begin(self, owner_rev: int) -> None:
        if owner_rev != self._announcements.owner_rev:
            self._announcements = AnnouncementBoard(owner_rev, self._options.announcements_max, self._stopping)
            self._reports.forget()
            self._stores.forget()
            self._book = None  # another owner may have written meanwhile
        self._heard.forget()

    def follow_owner(self) -> int:
        """Loop body: while another meta server is the owner, copy its routes. Returns the pause until the next call, in
        ms.
        """
        found = self._ownership.other
        if found is None or self.is_owner():
            return FOLLOW_PAUSE_MS
        current = self._routes.current()
        known, wait_ms = (-1, 0) if current is None else (current.version, FOLLOW_WAIT_MS)
        self._routes.publish(self._ownership.followed(found.routes(known, wait_ms)))
        return 0

    def look_after_nodes(self) -> None:
        """Loop body: update the states of the nodes, run one step of the schedulers of tasks and stores, and publish
        the routes.
        """
        since_ms = self._ownership.since_ms  # read once, because another loop may lose the ownership meanwhile
        if since_ms is None:
            return
        with self._rereading() as book:
            now_ms = self._clock.monotonic_ms()
            turned = self._heard.judge(book.nodes.values(), since_ms, now_ms)
            self._metrics.count_nodes(self._heard.states.values())
            self._scheduler.touch(book.tasks_at(turned))
            for change in self._scheduler.step(book, self._heard.states, now_ms):
                self._take(change)
            self._give_stores(book, now_ms, turned=bool(turned))
            if self._heard.unrouted:
                self._take(self._repository.raise_version())
            self._publish()

    def _give_stores(self, book: Book, now_ms: int, *, turned: bool) -> None:
        there = dispatchers(book.nodes.values(), self._heard.states)
        given = self._stores.due(book, there, now_ms, turned=turned)
        if given:
            self._take(self._repository.give([one.store for one in given]))
        for fields in summed_up(given):
            log.info("stores given", extra=fields)

    def _read(self) -> Book:
        """Read the plan from the database; every task and tenant counts as touched."""
        self._book = book = Book(self._repository.plan())
        self._heard.hears_again(self._clock.monotonic_ms())
        self._touched = book.everything()
        self._scheduler.touch(self._touched.tasks)
        return book

    def _take(self, change: Change | None) -> None:
        if change is not None and self._book is not None:
            touched = self._book.take(change)
            self._touched.add(touched)
            self._scheduler.touch(touched.tasks)

    @contextmanager
    def _writing(self) -> Iterator[Book]:
        """A write as the owner; the routes are published afterwards."""
        with self._lock:
            self._require_owner()  # a database that hangs may have kept the lock for longer than the lease lasts
            with self._rereading() as book:
                yield book
                self.look_after_nodes()

    @contextmanager
    def _rereading(self) -> Iterator[Book]:
        """The book, for a write. A failed write may have been committed all the same, so the book is read again after
        Unavailable.
        """
        with self._ownership.writing(), self._lock:
            began_ms = self._clock.monotonic_ms()
            try:
                yield self._book if self._book is not None else self._read()
            except Unavailable:
                self._book = None
                self._heard.deaf(began_ms)
                raise

    def _publish(self) -> None:
        book, current = self._known(), self._routes.current()
        mark = Mark(self._ownership.rev, book.version)
        if current is not None and mark == Mark(current.owner_rev, current.version):
            return
        table = self._maker.make(book, self._touched, mark.owner_rev, self._heard.states, self._options.own_url)
        self._routes.publish(table)
        self._touched = Touched()
        self._heard.routed()
        self._metrics.tenants.set(len(book.tenants))
        self._metrics.tasks.set(len(book.tasks))
        self._metrics.count_stores(book.stores.values())
        self._metrics.route_version.set(book.version)

    def activate_tenants(self) -> None:
        """Loop body: look for the schema_snap of tenants that have none yet."""
        book = self._book
        if self._ownership.since_ms is not None and book is not None:
            with self._lock:
                waiting = route_table.waiting(book.tenants.values())
            self._starts.look(waiting, self._activate, self._cannot)

    def _activate(self, key: TenantKey, facts: snapshot.SnapshotFacts) -> None:
        spans = ranges.cut(facts.physical_ids, self._options.ranges_per_tenant)
        with self._writing():
            self._take(change := self._repository.activate(key, facts.snapshot_ts, spans))
        if change is not None:
            log.info("tenant starts", extra={"tenant": str(key), "snapshot_ts": facts.snapshot_ts, "tasks": len(spans)})

    def _cannot(self, key: TenantKey, problem: str) -> None:
        with self._writing() as book:
            known = book.tenants.get(key)
            if known is not None and known.problem != problem:
                log.warning("tenant waits", extra={"tenant": str(key), "problem": problem})
                self._take(self._repository.set_problem(key, problem))

    # -- requests ------------------------------------------------------------------------------------------------

    def ending(self) -> list[Tenant]:
        """Tenants that are being erased or have a deletion date, by name; empty if another meta server is the owner."""
        with self._lock:
            return self._book.ending() if self._book is not None and self.is_owner() else []

    def retired(self) -> list[Store]:
        """Stores that are being retired, by tenant and id; empty if another meta server is the owner."""
        with self._lock:
            return self._book.retired() if self._book is not None and self.is_owner() else []

    def write(self, change: Callable[[], Change | None]) -> None:
        """Write as the owner, and publish the change in the routes. Raises Unavailable, Fenced."""
        self._require_owner()
        with self._writing():
            self._take(change())

    def tenants(self, cluster_id: str) -> tuple[Tenant, ...]:
        """The tenants of a cluster, by name. Raises UnknownName."""
        return self._repository.tenants_of(cluster_id)

    def new_start(self, node_id: str) -> int:
        """A new start_epoch, above all others, for a process that will register."""
        self._require_owner()
        with self._ownership.writing():
            start_epoch = self._repository.new_start()
        log.info("a process starts", extra={"node": node_id, "start_epoch": start_epoch})
        return start_epoch

    def register(self, node_id: str, role: str, url: str, start: Start) -> tuple[Node, int]:
        """Register a process start; returns its node and the version of the routes that name it. Raises Superseded."""
        self._require_owner()
        with self._lock:
            with self._writing():
                try:
                    node, change = self._repository.register(node_id, role, url, start)
                except Superseded:
                    self._metrics.refused.labels("start").inc()
                    raise
                self._take(change)
                self._heard.hear(node_id, self._clock.monotonic_ms())
            log.info("node registered", extra={"node": node_id, "role": role, "start_epoch": node.start_epoch})
            return node, self._known().version

    def heartbeat(
        self,
        node_id: str,
        start: Start,
        seen: Mark = NOTHING_SEEN,
        sequence: int = 0,
        holdings: Sequence[Holding] = (),
        stores: Sequence[Told] = (),
    ) -> tuple[int, int, int]:
        """Take a heartbeat; returns (owner_rev, route version, milliseconds until the next heartbeat).

        seen: the newest routes that the node has followed.
        holdings: the tasks that it holds or is prepared for.
        stores: those that it reads or has found; new ones are assigned before this returns.

        Raises:
            UnknownName: this start is not registered.
            Superseded: a newer start has registered under the same name.
        """
        self._require_owner()
        with self._lock:
            self._require_owner()  # the lease may have run out while this call waited for the lock
            book = self._known()
            self._ownership.saw(seen, Mark(self._ownership.rev, book.version))
            node = book.nodes.get(node_id)
            match standing(node, start):
                case Standing.UNKNOWN:
                    raise UnknownName(f"no node {node_id} with start_epoch {start.start_epoch}")
                case Standing.SUPERSEDED:
                    self._metrics.refused.labels("start").inc()
                    raise Superseded(f"a newer start of {node_id} has registered")
            now_ms = self._clock.monotonic_ms()
            # A process of an older version sends no sequence: its heartbeat counts, but what it holds is not known.
            news = self._reports.take(node_id, start, sequence, holdings, now_ms) if sequence else set()
            if news is None:
                self._metrics.refused.labels("report").inc()
            else:
                self._heard.hear(node_id, now_ms)
                self._scheduler.touch(news)
                if node is not None and node.role == "dispatcher" and self._stores.hear(book, node_id, stores):
                    self.look_after_nodes()
            return self._ownership.rev, self._known().version, self._heard.next_ms()

    def drain(self, node_id: str, draining: bool) -> None:
        """Drain a node, or (`draining` false) take that back. Raises UnknownName, and InvalidRequest if the node's role
        has nothing to move.
        """
        self._require_owner()
        with self._writing() as book:
            node = book.nodes.get(node_id)
            if node is not None and node.role not in ("sorter", "dispatcher"):
                raise InvalidRequest(f"{node_id} is of role {node.role}: only sorters and dispatchers are drained")
            self._take(self._repository.drain(node_id, draining))
        log.info("node drains" if draining else "node takes work again", extra={"node": node_id})

    def move(self, task_id: int, node_id: str) -> None:
        """Let a sorter prepare to take a task over. Raises UnknownName, and InvalidRequest if it cannot."""
        self._require_owner()
        with self._writing() as book:
            self._take(self._scheduler.move(book, self._heard.states, task_id, node_id))

    def split(self, task_id: int, key: bytes | None) -> tuple[int, ...]:
        """Order a task to be split at a key, or (None) where that halves its load; returns the ids of its children.
        Raises UnknownName, and InvalidRequest if it cannot be split.
        """
        return self._order(lambda book, now_ms: self._scheduler.split(book, task_id, key, now_ms))

    def merge(self, task_id: int, neighbour: int) -> tuple[int, ...]:
        """Order two neighbours to be merged; returns the id of their child. Raises UnknownName, and InvalidRequest if
        they cannot be merged.
        """
        return self._order(lambda book, now_ms: self._scheduler.merge(book, task_id, neighbour, now_ms))

    def _order(self, order: Callable[[Book, int], tuple[Change | None, tuple[int, ...]]]) -> tuple[int, ...]:
        self._require_owner()
        with self._writing() as book:
            change, children = order(book, self._clock.monotonic_ms())
            self._take(change)
        return children

    def nodes(self) -> list[tuple[Node, NodeState, int, int]]:
        """Every node with its state and its numbers of tasks and stores."""
        self._require_owner()
        with self._lock:
            states = self._heard.states
            return [(node, states[node.node_id], tasks, stores) for node, tasks, stores in self._known().by_node()]

    def tasks(self) -> list[tuple[Task, Placement, float]]:
        """Every task with its placement and its load in bytes per second."""
        self._require_owner()
        with self._lock:
            return self._scheduler.placements(self._known(), self._clock.monotonic_ms())

    def who_owns(self) -> Owner:
        """The owner as the database has it."""
        return self._repository.owner()

    def routes(self) -> RouteBoard:
        """The board of routes that readers wait on. It has the owner's routes also while another meta server is the
        owner, and keeps them while no owner is known.
        """
        return self._routes

    def announce(self, announcement: Announcement) -> None:
        """Keep an announcement for the dispatchers."""
        self.announcements().add(announcement)
        self._metrics.announced.inc()

    def announcements(self) -> AnnouncementBoard:
        """The board of announced files. Raises Unavailable if this process is not the owner."""
        self._require_owner()
        return self._announcements

    def _known(self) -> Book:
        if self._book is None:  # a write has failed; the next loop reads the plan again
            raise Unavailable("the plan is being read again")
        return self._book

    def _require_owner(self) -> None:
        reason = self.not_ready() or (None if self.is_owner() else "another meta server is the owner")
        if reason is not None:
            raise Unavailable(reason)
