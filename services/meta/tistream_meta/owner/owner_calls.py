"""The work that only the owner among the meta servers does: it plans tasks and stores, accepts heartbeats, writes, and
publishes routes.

Requests reach this work through `MetaServer.owned`, which checks the ownership. The lease may expire while a call waits
for the lock, so `_locked` checks it again. The methods do not check the ownership otherwise. On another meta server,
loops do nothing and lists are empty.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from tistream.clock import Clock
from tistream.concurrency import Lock
from tistream.errors import AlreadyDiffers, InvalidRequest, Superseded, Unavailable, UnknownName
from tistream.model.ids import TenantKey
from tistream.model.tenant_kind import TenantKind
from tistream.storage.object_store import ObjectStore
from tistream.wire.clients.route_mark import NOTHING_SEEN, RouteMark
from tistream.wire.meta import Announcement
from tistream_meta.database.repository import Repository
from tistream_meta.decide import ranges
from tistream_meta.decide.discoverer import dispatchers
from tistream_meta.decide.incarnations import Start, StartStatus, start_status
from tistream_meta.decide.liveness import NodeState
from tistream_meta.decide.model import Change, Node, Store, Task, Tenant
from tistream_meta.decide.options import Options
from tistream_meta.decide.store_policy import summed_up
from tistream_meta.decide.task_phases import Placement
from tistream_meta.metrics import MetaMetrics
from tistream_meta.owner import route_table
from tistream_meta.owner.announcements import AnnouncementBoard
from tistream_meta.owner.election import Ownership
from tistream_meta.owner.node_liveness import NodeHeartbeats
from tistream_meta.owner.owner_copy import ConcernedItems, OwnerCopy
from tistream_meta.owner.reports import ReportedTask, Reports
from tistream_meta.owner.route_board import RouteBoard
from tistream_meta.owner.scheduler import Scheduler
from tistream_meta.owner.store_keeping import ReportedStore, StoreKeeping
from tistream_meta.tenants import snapshot
from tistream_meta.tenants.pool_frontier import Frontier
from tistream_meta.tenants.tenant_start import TenantStarts
from tistream_meta.territories.territory_policy import Agent

log = logging.getLogger(__name__)

# Pauses of `activate_tenants`: while tenants wait for their schema_snap, and otherwise. A new tenant wakes the loop.
WAITING_MS, REST_MS = 100, 5_000
CALM_LOOK_MS = 1_000  # pause of `look_after_nodes` while nothing changes; a report that says something new ends it
DRAINED = ("sorter", "dispatcher", "changefeed", "agent")  # roles of processes that have something to move


class OwnerCalls:
    """All calls that read or change the owner's copy of the database in memory (OwnerCopy). Thread-safe: `lock` guards
    heartbeats, reports, and the copy. `require_owner` raises Unavailable if this process is not the owner."""

    def __init__(
        self,
        repository: Repository,
        objects: ObjectStore,
        clock: Clock,
        metrics: MetaMetrics,
        options: Options,
        routes: RouteBoard,
        lock: Lock,
        ownership: Ownership,
        require_owner: Callable[[], None],
    ) -> None:
        self._repository, self._clock, self._metrics, self._options = repository, clock, metrics, options
        self._lock, self._ownership, self._require_owner = lock, ownership, require_owner
        self._routes = routes
        self._maker = route_table.RouteMaker()
        self.announcements = AnnouncementBoard(0, options.announcements_max, clock)
        self.heartbeats = NodeHeartbeats(options.timings)
        self._reports = Reports()
        self._stores = StoreKeeping()
        self._scheduler = Scheduler(repository, self._reports, options.rules)
        self._starts = TenantStarts(objects, clock, options.snapshot_retry_max_ms)
        self._book: OwnerCopy | None = None  # None: must be read from the database
        self._touched = ConcernedItems()  # since the last route table
        self.wake_starts: Callable[[], None] = lambda: None  # calls `activate_tenants` now
        self.wake_looks: Callable[[], None] = lambda: None  # calls `look_after_nodes` now
        self._calm = False  # whether the loop of `look_after_nodes` makes a long pause

    @property
    def has_plan(self) -> bool:
        """Whether the owner's copy of the database has been read. After a failed write it must be read again."""
        return self._book is not None

    def begin(self, owner_rev: int) -> None:
        """Start as the owner, after an election or after a time without renewals. The caller holds the lock."""
        if owner_rev != self.announcements.owner_rev:
            before, limit = self.announcements, self._options.announcements_max
            self.announcements = AnnouncementBoard(owner_rev, limit, self._clock)
            before.end()
            self._reports.forget()
            self._stores.forget()
            self._book = None  # another owner may have written meanwhile
        self.heartbeats.forget()

    # -- loops ---------------------------------------------------------------------------------------------------

    def look_after_nodes(self) -> int | None:
        """Loop body: update the states of nodes, run one step of the schedulers of tasks and stores, and publish the
        routes. Does nothing if another meta server is the owner. Returns the ms until the next call; None: the loop's
        usual interval. A call is due sooner after `wake_looks`. Raises Unavailable."""
        since_ms = self._ownership.since_ms  # read once, because another loop may lose the ownership meanwhile
        if since_ms is None:
            return None
        self._calm = False
        with self._rereading() as book:
            version = book.version
            now_ms = self._clock.monotonic_ms()
            turned = self.heartbeats.update_states(book.nodes.values(), since_ms, now_ms)
            self._metrics.count_nodes(self.heartbeats.states.values())
            self._scheduler.touch(book.tasks_at(turned))
            for change in self._scheduler.step(book, self.heartbeats.states, now_ms):
                self._take(change)
            self._give_stores(book, now_ms, turned=bool(turned))
            if self.heartbeats.unrouted:
                self._take(self._repository.raise_version())
            self._publish()
            if book.version != version or book.sealing:
                return None
            self._calm = True
            return min(CALM_LOOK_MS, self.heartbeats.steady_ms(since_ms, now_ms))

    def look_now(self) -> None:
        """Call `look_after_nodes` beside its loop. If that has changed something, a long pause of the loop ends."""
        calm = self._calm
        if self.look_after_nodes() is None and calm:
            self.wake_looks()

    def activate_tenants(self) -> int:
        """Loop body: look for the schema_snap of each tenant that has not started, and start the tenants that have
        one. Returns the ms until the next call. A call is due sooner after `wake_starts`."""
        book = self._book
        if self._ownership.since_ms is None or book is None:
            return WAITING_MS
        with self._lock:
            waiting = route_table.waiting(book.tenants.values())
        self._starts.look(waiting, self._activate, self._cannot)
        return WAITING_MS if waiting else REST_MS

    def _activate(self, key: TenantKey, facts: snapshot.SnapshotFacts, before: Frontier) -> None:
        with self._lock:
            known = None if self._book is None else self._book.tenants.get(key)
        raw = known is not None and known.kind is TenantKind.RAW
        if raw and facts.physical_ids:
            self._cannot(key, "schema_snap has tables, but the tenant is of kind raw: it is that of a TiDB")
            return
        count = self._options.ranges_per_tenant
        spans = before.first_spans(ranges.cut_raw(count) if raw else ranges.cut(facts.physical_ids, count))
        try:
            with self._writing():
                change = self._repository.activate(key, facts.snapshot_ts, spans, before.tasks, before.last_id)
                self._take(change)
        except AlreadyDiffers as error:
            self._cannot(key, str(error))
            return
        if change is not None:
            fields = {"tenant": str(key), "snapshot_ts": facts.snapshot_ts}
            log.info("tenant starts", extra={**fields, "tasks": len(spans)})
            if before.tasks:
                log.warning("tasks continue from their manifests", extra={**fields, "tasks": len(before.tasks)})

    def _cannot(self, key: TenantKey, problem: str) -> None:
        with self._writing() as book:
            known = book.tenants.get(key)
            if known is not None and known.problem != problem:
                log.warning("tenant waits", extra={"tenant": str(key), "problem": problem})
                self._take(self._repository.set_problem(key, problem))

    # -- requests ------------------------------------------------------------------------------------------------

    def ending(self) -> list[Tenant]:
        """The tenants that are being erased, or that will be deleted at a set time, by name; empty if another meta
        server is the owner."""
        with self._lock:
            return self._book.ending() if self._book is not None and self._ownership.held else []

    def retired(self) -> list[Store]:
        """The retired stores whose files are being deleted, by tenant and id; empty if another meta server is the
        owner."""
        with self._lock:
            return self._book.retired() if self._book is not None and self._ownership.held else []

    def write(self, change: Callable[[], Change | None]) -> None:
        """Execute a write as the owner, and publish what it has changed in the routes. Raises Unavailable."""
        with self._writing():
            self._take(change())

    def new_start(self, node_id: str) -> int:
        """Reserve a start_epoch, above all others, for a process that will register."""
        with self._ownership.writing():
            start_epoch = self._repository.new_start()
        log.info("a process starts", extra={"node": node_id, "start_epoch": start_epoch})
        return start_epoch

    def register(self, node_id: str, role: str, url: str, start: Start) -> tuple[Node, int]:
        """Register a process start. Returns (its node, the version of the routes that name it). Raises Superseded."""
        with self._locked():
            with self._writing():
                try:
                    node, change = self._repository.register(node_id, role, url, start)
                except Superseded:
                    self._metrics.refused.labels("start").inc()
                    raise
                self._take(change)
                self.heartbeats.record(node_id, self._clock.monotonic_ms())
            log.info("node registered", extra={"node": node_id, "role": role, "start_epoch": node.start_epoch})
            return node, self._known().version

    def heartbeat(
        self,
        node_id: str,
        start: Start,
        seen: RouteMark = NOTHING_SEEN,
        sequence: int = 0,
        holdings: Sequence[ReportedTask] = (),
        stores: Sequence[ReportedStore] = (),
    ) -> tuple[int, int, int]:
        """Accept a heartbeat. Returns (owner_rev, route version, milliseconds until the next heartbeat).

        Args:
            seen: the newest routes that the node has followed.
            sequence: grows with each heartbeat of this start, so that a late one is recognised and ignored.
            holdings: the tasks that a sorter holds or is prepared for.
            stores: the stores that a dispatcher reads or has found; new ones are assigned before this method returns.

        Raises:
            UnknownName: this start is not registered.
            Superseded: a newer start has registered under the same name.
            Unavailable: this process is not the owner, or cannot read or write the database.
        """
        with self._locked():
            book = self._known()
            self._ownership.check_mark(seen, RouteMark(self._ownership.rev, book.version))
            node = book.nodes.get(node_id)
            match start_status(node, start):
                case StartStatus.UNKNOWN:
                    raise UnknownName(
                        f"there is no node {node_id} with start_epoch {start.start_epoch}: register again"
                    )
                case StartStatus.SUPERSEDED:
                    self._metrics.refused.labels("start").inc()
                    raise Superseded(f"a newer start of {node_id} has registered")
            now_ms = self._clock.monotonic_ms()
            # A process of an older version sends no sequence: its heartbeat counts, but what it holds is not known.
            news = self._reports.take(node_id, start, sequence, holdings, now_ms) if sequence else set()
            if news is None:
                self._metrics.refused.labels("report").inc()
            else:
                self.heartbeats.record(node_id, now_ms)
                self._scheduler.touch(news)
                if news and self._calm:
                    self.wake_looks()
                if node is not None and node.role == "dispatcher" and self._stores.record(book, node_id, stores):
                    self.look_now()
            next_ms = self.heartbeats.next_ms(node.role if node is not None else "")
            return self._ownership.rev, self._known().version, next_ms

    def drain(self, node_id: str, draining: bool) -> None:
        """Drain a node, or stop draining it (`draining` false). Raises UnknownName, and InvalidRequest if the node's
        role has nothing to move."""
        with self._writing() as book:
            node = book.nodes.get(node_id)
            if node is not None and node.role not in DRAINED:
                raise InvalidRequest(
                    f"node {node_id} is of role {node.role}, and only {', '.join(DRAINED)} can be drained: stop it "
                    "instead"
                )
            self._take(self._repository.drain(node_id, draining))
        log.info("node drains" if draining else "node takes work again", extra={"node": node_id})

    def move(self, task_id: int, node_id: str) -> None:
        """Begin to move a task to a sorter, which prepares to take it over. Raises UnknownName, and InvalidRequest if
        the sorter or the task is not in a state for that."""
        with self._writing() as book:
            self._take(self._scheduler.move(book, self.heartbeats.states, task_id, node_id))

    def split(self, task_id: int, key: bytes | None) -> tuple[int, ...]:
        """Order a task to be split at `key`; None: at the key that halves its load. Returns the ids of its children.
        Raises UnknownName, and InvalidRequest if the task cannot be split."""
        return self._order(lambda book, now_ms: self._scheduler.split(book, task_id, key, now_ms))

    def merge(self, task_id: int, neighbour: int) -> tuple[int, ...]:
        """Order two neighbouring tasks to be merged. Returns the id of their child. Raises UnknownName, and
        InvalidRequest if they cannot be merged."""
        return self._order(lambda book, now_ms: self._scheduler.merge(book, task_id, neighbour, now_ms))

    def _order(self, order: Callable[[OwnerCopy, int], tuple[Change | None, tuple[int, ...]]]) -> tuple[int, ...]:
        with self._writing() as book:
            change, children = order(book, self._clock.monotonic_ms())
            self._take(change)
        return children

    def nodes(self) -> list[tuple[Node, NodeState, int, int]]:
        """Returns (node, its state, the number of its tasks, the number of its stores) for every node."""
        with self._locked():
            states = self.heartbeats.states
            return [(node, states[node.node_id], tasks, stores) for node, tasks, stores in self._known().by_node()]

    def agents(self) -> dict[str, Agent]:
        """Every agent by name, with its state. Whether it requests territories is not set; AgentBoard.with_beats adds
        that."""
        with self._locked():
            since_ms, now_ms = self._ownership.since_ms or 0, self._clock.monotonic_ms()
            return {
                node.node_id: Agent(
                    node.instance,
                    self.heartbeats.states.get(node.node_id, NodeState.ALIVE),
                    self.heartbeats.silence_ms(node.node_id, since_ms, now_ms),
                    requests_territories=False,
                )
                for node in self._known().nodes.values()
                if node.role == "agent"
            }

    def tasks(self) -> list[tuple[Task, Placement, float]]:
        """Every task with its placement and its load in bytes per second."""
        with self._locked():
            return self._scheduler.placements(self._known(), self._clock.monotonic_ms())

    def announce(self, announcement: Announcement) -> None:
        """Store the announcement of a change file, for dispatchers to read."""
        self.announcements.add(announcement)
        self._metrics.announced.inc()

    # -- the book ------------------------------------------------------------------------------------------------

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """A context manager that holds the lock, and raises Unavailable if this process is not the owner. The check is
        needed because a database that hangs may have kept the lock for longer than the lease lasts."""
        with self._lock:
            self._require_owner()
            yield

    @contextmanager
    def _writing(self) -> Iterator[OwnerCopy]:
        """A context manager for calls that write to the database. Afterwards the routes are published."""
        with self._locked(), self._rereading() as book:
            yield book
            self.look_now()

    @contextmanager
    def _rereading(self) -> Iterator[OwnerCopy]:
        """A context manager for calls that plan and write with the owner's copy. A write that failed with Unavailable
        may have been committed, so the copy is then read again from the database."""
        with self._ownership.writing(), self._lock:
            began_ms = self._clock.monotonic_ms()
            try:
                yield self._book if self._book is not None else self._read()
            except Unavailable:
                self._book = None
                self.heartbeats.suspend(began_ms)
                raise

    def _read(self) -> OwnerCopy:
        """Read the owner's copy from the database. Every task and tenant then counts as changed."""
        self._book = book = OwnerCopy(self._repository.plan())
        self.heartbeats.resume(self._clock.monotonic_ms())
        self._touched = book.everything()
        self._scheduler.touch(self._touched.tasks)
        return book

    def _take(self, change: Change | None) -> None:
        if change is not None and self._book is not None:
            touched = self._book.take(change)
            self._touched.add(touched)
            self._scheduler.touch(touched.tasks)

    def _known(self) -> OwnerCopy:
        if self._book is None:  # a write has failed; the next loop reads the plan again
            raise Unavailable("the owner reads its plan again: retry")
        return self._book

    def _give_stores(self, book: OwnerCopy, now_ms: int, *, turned: bool) -> None:
        there = dispatchers(book.nodes.values(), self.heartbeats.states)
        given = self._stores.due(book, there, now_ms, turned=turned)
        if given:
            self._take(self._repository.assign_stores([one.store for one in given]))
        for fields in summed_up(given):
            log.info("stores given", extra=fields)

    def _publish(self) -> None:
        book, current = self._known(), self._routes.current()
        mark = RouteMark(self._ownership.rev, book.version)
        if current is not None and mark == RouteMark(current.owner_rev, current.version):
            return
        table = self._maker.make(book, self._touched, mark.owner_rev, self.heartbeats.states, self._options.own_url)
        self._routes.publish(table)
        self.wake_starts()
        self._touched = ConcernedItems()
        self.heartbeats.routed()
        self._metrics.tenants.set(len(book.tenants))
        self._metrics.tasks.set(len(book.tasks))
        self._metrics.count_stores(book.stores.values())
        self._metrics.route_version.set(book.version)
