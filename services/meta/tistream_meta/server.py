"""The meta server's state and its loops: executes what the pure modules decide.

One lock guards what is in memory (who was heard, and the plan that routes are made of); the database has the rest.
"""

from __future__ import annotations

import logging
from collections import Counter as Tally
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from tistream.clock import Clock
from tistream.concurrency import new_rlock
from tistream.errors import CorruptObject, Fenced, InvalidRequest, NotFoundYet, Superseded, Unavailable, UnknownName
from tistream.model.ids import TenantKey
from tistream.storage import layout
from tistream.storage.object_store import ObjectStore
from tistream.wire.meta import Announcement
from tistream.wire.meta_client import MetaClient
from tistream.wire.route_mark import NOTHING_SEEN, Mark
from tistream_meta import ranges, route_table, snapshot
from tistream_meta.announcements import AnnouncementBoard
from tistream_meta.discoverer import dispatchers
from tistream_meta.liveness import NodeState, Timings, liveness, node_state
from tistream_meta.metrics import MetaMetrics
from tistream_meta.model import Node, Owner, Plan, Task, Tenant
from tistream_meta.placement import Placement, Step, WrongStep
from tistream_meta.policies import DEFAULT_LIMITS, Command, Limits, schedule
from tistream_meta.reports import Holding, Reports
from tistream_meta.repository import Repository
from tistream_meta.starts import Standing, Start, standing
from tistream_meta.store_keeping import StoreKeeping, Told
from tistream_meta.store_policy import Given

log = logging.getLogger(__name__)

FOLLOW_WAIT_MS = 10_000  # long polls of the owner's routes
FOLLOW_PAUSE_MS = 200


@dataclass(frozen=True, slots=True)
class Options:
    """The settings that decide something here; see settings.py."""

    own_url: str
    ranges_per_tenant: int
    lease_ms: int
    timings: Timings
    snapshot_retry_max_ms: int
    announcements_max: int
    moves: Limits = DEFAULT_LIMITS


@dataclass(slots=True)
class _Retry:
    """When to look for a tenant's schema_snap again. Monotonic milliseconds."""

    next_ms: int
    pause_ms: int


class MetaServer:
    """Everything behind the routes. `stopping` says that the process is to end."""

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
        self._objects = objects
        self._clock = clock
        self._metrics = metrics
        self._options = options
        self._stopping = stopping
        self._lock = new_rlock()
        self._routes = route_table.RouteBoard(stopping)
        self._announcements: AnnouncementBoard | None = None
        self._new_client = new_client
        self._prepared = False
        self._owner_since_ms: int | None = None  # None: this process is not the owner
        self._owner_rev = 0
        self._renewed_ms = 0  # when the last renewal of the lease that succeeded was begun
        self._lapsed = False  # no renewal came through for as long as the lease lasts
        self._owner: tuple[Owner, MetaClient] | None = None  # another, as the database told
        self._seen = NOTHING_SEEN  # the newest routes that any node has followed
        self._heard: dict[str, int] = {}  # node -> monotonic ms
        self._heard_since_renewal: set[str] = set()
        self._states: dict[str, NodeState] = {}
        self._routed_states: dict[str, NodeState] = {}  # that the newest routes were made with
        self._reports = Reports()
        self._stores = StoreKeeping()
        self._plan: Plan | None = None
        self._retries: dict[TenantKey, _Retry] = {}

    def not_ready(self) -> str | None:
        """Why requests cannot be served, or None."""
        if not self._prepared:
            return "the meta database was not opened yet"
        if not self.is_owner():
            if self._owner is None:
                return "no meta server is the owner"
            return None if self._routes.current() is not None else "the owner has not told the routes yet"
        return None if self._plan is not None else "the plan was not read yet"

    def is_owner(self) -> bool:
        """Whether this process is the owner, as far as it can know: it holds the lease, by its own clock since it asked
        for the last renewal that came through."""
        return self._owner_since_ms is not None and not self._lapsed and not self._overdue()

    def _overdue(self) -> bool:
        return self._clock.monotonic_ms() - self._renewed_ms >= self._options.lease_ms

    def owner(self) -> MetaClient:
        """The other meta server that is the owner. Raises Unavailable if none is known."""
        found = self._owner
        if found is None:
            raise Unavailable("no meta server is the owner")
        return found[1]

    # -- loops ---------------------------------------------------------------------------------------------------

    def hold_lease(self) -> None:
        """Loop body: become the owner, then stay it."""
        if not self._prepared:
            version = self._repository.prepare()
            self._prepared = True
            log.info("database ready", extra={"schema_version": version})
        if self._owner_since_ms is None:
            self._take()
            return
        if self._seen > Mark(self._owner_rev, self._plan.version if self._plan else -1):
            # The database was restored: it has forgotten routes that nodes have followed, and they obey no older ones.
            log.warning(
                "nodes have seen newer routes than the database has: elected anew", extra={"seen": str(self._seen)}
            )
            self._take()
            return
        began_ms = self._clock.monotonic_ms()
        if self._overdue() and not self._lapsed:
            log.error("the lease was not renewed in time", extra={"owner_rev": self._owner_rev})
            self._lapsed = True
        with self._lock:
            heard, self._heard_since_renewal = self._heard_since_renewal, set()
        with self._owning():
            self._repository.renew(self._options.lease_ms, heard)
        with self._lock:
            self._renewed_ms = began_ms
            if self._lapsed:  # nobody took over; but meanwhile no node was heard: each has its time again
                self._lapsed = False
                self._heard.clear()
                self._owner_since_ms = self._clock.monotonic_ms()
                log.info("owner again", extra={"owner_rev": self._owner_rev})

    def follow_owner(self) -> int:
        """Loop body: while another is the owner, have its routes here too."""
        found = self._owner
        if found is None or self.is_owner():
            return FOLLOW_PAUSE_MS
        current = self._routes.current()
        known = -1 if current is None else current.version
        self._routes.publish(found[1].routes(known, 0 if current is None else FOLLOW_WAIT_MS))
        return 0

    @contextmanager
    def _owning(self) -> Iterator[None]:
        """Writes as the owner. One that the database refuses ends the ownership: another has it.

        Raises:
            Unavailable: it was refused.
        """
        try:
            yield
        except Fenced as error:
            if self._owner_since_ms is not None:
                log.error("lost the ownership", extra={"owner_rev": self._owner_rev, "reason": str(error)})
            self._owner_since_ms = None
            raise Unavailable("another meta server is the owner") from error

    def _take(self) -> None:
        began_ms = self._clock.monotonic_ms()
        taken = self._repository.take_ownership(self._options.lease_ms, self._options.own_url, self._seen)
        if taken.owner_rev != self._repository.owner_rev:
            self._note_owner(taken)
            return
        with self._lock:
            self._owner_rev = taken.owner_rev
            self._announcements = AnnouncementBoard(taken.owner_rev, self._options.announcements_max, self._stopping)
            self._heard.clear()
            self._reports.forget()
            self._stores.forget()
            self._owner = None
            self._lapsed = False
            self._renewed_ms = began_ms
            self._owner_since_ms = self._clock.monotonic_ms()
        self._metrics.owner_rev.set(taken.owner_rev)
        log.info("owner now", extra={"owner_rev": taken.owner_rev})
        self.look_after_nodes(always=True)

    def _note_owner(self, found: Owner) -> None:
        """Another has the lease: whatever is asked here is asked there."""
        known = self._owner
        if known is None or known[0].owner_rev != found.owner_rev or known[0].url != found.url:
            log.info("another is the owner", extra={"node": found.node_id, "owner_rev": found.owner_rev})
            self._owner = (found, self._new_client(found.url)) if found.url else None
        elif known is not None:
            self._owner = (found, known[1])

    def look_after_nodes(self, *, always: bool = False) -> None:
        """Loop body: who is there, and does every task have a sorter, every store a dispatcher?"""
        with self._owning(), self._lock:
            since_ms = self._owner_since_ms  # once: another loop may lose the ownership meanwhile
            if since_ms is None or self._lapsed:
                return
            plan = self._repository.plan() if always or self._plan is None else self._plan
            states = self._judge(plan, since_ms)
            commands = self._due(plan, states)
            given = self._stores.due(plan, dispatchers(plan.nodes, states), self._clock.monotonic_ms())
            changed = {node for node in states if (states[node] is NodeState.LOST) != self._was_lost(node)}
            self._note_states(states)
            if commands:
                self._repository.take(commands)
                self._tell(commands)
            if given:
                self._repository.give([one.store for one in given])
                self._tell_stores(given)
            if changed and not (commands or given):
                self._repository.raise_version()
            if commands or given or changed or always or self._plan is None:
                self._publish()

    def _due(self, plan: Plan, states: Mapping[str, NodeState]) -> list[Command]:
        sorters = {node.node_id: states[node.node_id] for node in plan.nodes if node.role == "sorter"}
        loads = ((task.task_id, self._reports.load(task)) for task in plan.tasks)
        return schedule(
            [self._reports.placement(task) for task in plan.tasks],
            sorters,
            {task_id: load for task_id, load in loads if load is not None},
            self._options.moves,
        )

    @staticmethod
    def _tell(commands: Sequence[Command]) -> None:
        for step in Step:
            of_step = [command for command in commands if command.step is step]
            if of_step:
                nodes = sorted({command.node for command in of_step if command.node})
                why = sorted({command.why for command in of_step})[:3]
                log.info("tasks", extra={"step": step.value, "tasks": len(of_step), "nodes": nodes, "why": why})

    @staticmethod
    def _tell_stores(given: Sequence[Given]) -> None:
        for why in sorted({one.why for one in given}):
            of_why = [one.store for one in given if one.why == why]
            nodes = sorted({store.dispatcher_node for store in of_why if store.dispatcher_node})
            named = [f"{store.tenant} {store.store_id}" for store in of_why[:3]]
            log.info("stores given", extra={"stores": len(of_why), "named": named, "nodes": nodes, "why": why})

    def _was_lost(self, node_id: str) -> bool:
        """In the newest routes: a change that could not be written is one until it is."""
        return self._routed_states.get(node_id) is NodeState.LOST

    def _judge(self, plan: Plan, since_ms: int) -> dict[str, NodeState]:
        now_ms, timings = self._clock.monotonic_ms(), self._options.timings
        return {
            node.node_id: node_state(liveness(self._heard.get(node.node_id), since_ms, now_ms, timings), node.draining)
            for node in plan.nodes
        }

    def _note_states(self, states: dict[str, NodeState]) -> None:
        for node_id, state in states.items():
            before = self._states.get(node_id)
            if before is not state and (before is not None or state is not NodeState.ALIVE):
                log.warning("node", extra={"node": node_id, "from": before and before.value, "to": state.value})
        self._states = states
        self._metrics.count_nodes(states.values())

    def _publish(self) -> None:
        plan = self._repository.plan()
        self._plan = plan
        self._routes.publish(route_table.build(plan, self._owner_rev, self._states, self._options.own_url))
        self._routed_states = self._states
        self._metrics.tenants.set(len(plan.tenants))
        self._metrics.tasks.set(len(plan.tasks))
        self._metrics.count_stores(plan.stores)
        self._metrics.route_version.set(plan.version)

    def activate_tenants(self) -> None:
        """Loop body: look for the schema_snap of tenants that have none yet, each at its own growing pauses."""
        plan = self._plan
        if self._owner_since_ms is None or plan is None:
            return
        keys = route_table.waiting(plan)
        self._retries = {key: retry for key, retry in self._retries.items() if key in keys}
        for key in keys:
            retry = self._retries.setdefault(key, _Retry(0, 100))
            if self._clock.monotonic_ms() < retry.next_ms:
                continue
            # Before the attempt: one that fails for a reason that nobody foresaw must not keep the others waiting.
            retry.next_ms = self._clock.monotonic_ms() + retry.pause_ms
            retry.pause_ms = min(retry.pause_ms * 2, self._options.snapshot_retry_max_ms)
            self._activate(key)

    def _activate(self, key: TenantKey) -> None:
        name = layout.schema_snap(key)
        try:
            facts = snapshot.parse(name, self._objects.get(name))
        except NotFoundYet:
            problem = f"schema_snap has not come: {name}"
        except CorruptObject as error:
            problem = f"schema_snap is damaged: {error}"
        except InvalidRequest as error:  # a link that leads out of the store
            problem = f"schema_snap cannot be read: {error}"
        except Unavailable as error:
            problem = f"object storage does not answer: {error}"
        else:
            spans = ranges.cut(facts.physical_ids, self._options.ranges_per_tenant)
            with self._owning():
                activated = self._repository.activate(key, facts.snapshot_ts, spans)
            if activated:
                fields = {"tenant": str(key), "snapshot_ts": facts.snapshot_ts, "tasks": len(spans)}
                log.info("tenant starts", extra=fields)
            self.look_after_nodes(always=True)
            return
        self._cannot(key, problem)

    def _cannot(self, key: TenantKey, problem: str) -> None:
        plan = self._plan
        known = {tenant.key: tenant.problem for tenant in plan.tenants} if plan else {}
        if known.get(key) != problem:
            log.warning("tenant waits", extra={"tenant": str(key), "problem": problem})
            with self._owning():
                self._repository.set_problem(key, problem)
            with self._lock:
                self._publish()

    # -- requests ------------------------------------------------------------------------------------------------

    def create_tenant(self, key: TenantKey) -> Tenant:
        """Register a tenant; it is served once its schema_snap was read."""
        self._require_owner()
        with self._owning():
            tenant = self._repository.create_tenant(key)
        with self._lock:
            self._publish()
        return tenant

    def tenants(self, cluster_id: str) -> tuple[Tenant, ...]:
        """A cluster's tenants by name. Raises UnknownName."""
        return self._repository.tenants_of(cluster_id)

    def new_start(self, node_id: str) -> int:
        """A start_epoch for a process that will register: above all others."""
        self._require_owner()
        with self._owning():
            start_epoch = self._repository.new_start()
        log.info("a process starts", extra={"node": node_id, "start_epoch": start_epoch})
        return start_epoch

    def register(self, node_id: str, role: str, url: str, start: Start) -> tuple[Node, int]:
        """A process has started; its node and the version of the routes that know of it. Raises Superseded."""
        self._require_owner()
        with self._owning(), self._lock:
            node = self._repository.register(node_id, role, url, start)
            self._hear(node_id)
            log.info("node registered", extra={"node": node_id, "role": role, "start_epoch": node.start_epoch})
            self.look_after_nodes(always=True)
            assert self._plan is not None
            return node, self._plan.version

    def heartbeat(
        self,
        node_id: str,
        start: Start,
        seen: Mark = NOTHING_SEEN,
        sequence: int = 0,
        holdings: Sequence[Holding] = (),
        stores: Sequence[Told] = (),
    ) -> tuple[int, int]:
        """(owner_rev, route version); `seen` are the newest routes that the node has followed, `holdings` the tasks
        that it holds or is prepared for, `stores` those that it reads or has found: new ones are given out before this
        returns. Raises UnknownName if nothing is known of this start; Superseded if a newer one has registered."""
        self._require_owner()
        with self._lock:
            self._seen = max(self._seen, seen)
            plan = self._plan
            assert plan is not None
            node = next((node for node in plan.nodes if node.node_id == node_id), None)
            match standing(node, start):
                case Standing.UNKNOWN:
                    raise UnknownName(f"no node {node_id} with start_epoch {start.start_epoch}")
                case Standing.SUPERSEDED:
                    raise Superseded(f"a newer start of {node_id} has registered")
            # A process of a version that tells no sequence is heard all the same; what it holds is not known.
            if not sequence or self._reports.take(node_id, start, sequence, holdings):
                self._hear(node_id)
                if node is not None and node.role == "dispatcher" and self._stores.hear(plan, node_id, stores):
                    self.look_after_nodes()
            assert self._plan is not None
            return self._owner_rev, self._plan.version

    def drain(self, node_id: str, draining: bool) -> None:
        """Move everything off a node, and give it nothing more; or take that back. Raises UnknownName."""
        self._require_owner()
        with self._owning():
            self._repository.drain(node_id, draining)
        log.info("node drains" if draining else "node takes work again", extra={"node": node_id})
        self.look_after_nodes(always=True)

    def move(self, task_id: int, node_id: str) -> None:
        """Let a sorter prepare to take a task over. Raises UnknownName; InvalidRequest where it cannot."""
        self._require_owner()
        with self._lock:
            plan = self._plan
            assert plan is not None
            task = next((task for task in plan.tasks if task.task_id == task_id), None)
            if task is None:
                raise UnknownName(f"no task {task_id}")
            if self._states.get(node_id) is not NodeState.ALIVE or node_id not in self._sorters(plan):
                raise InvalidRequest(f"{node_id} is no sorter that is alive", {"parameter": "node_id"})
            try:
                self._reports.placement(task).after(Step.PREPARE, node_id)
            except WrongStep as error:
                raise InvalidRequest(str(error)) from error
        with self._owning():
            self._repository.take([Command(task_id, Step.PREPARE, node_id, "asked for")])
        self.look_after_nodes(always=True)

    def nodes(self) -> list[tuple[Node, NodeState, int, int]]:
        """Every node, what is known of it, and how many tasks and stores it has."""
        self._require_owner()
        with self._lock:
            plan = self._plan
            assert plan is not None
            tasks = Tally(task.sorter_node for task in plan.tasks)
            stores = Tally(store.dispatcher_node for store in plan.stores)
            return [
                (node, self._states[node.node_id], tasks[node.node_id], stores[node.node_id]) for node in plan.nodes
            ]

    def tasks(self) -> list[tuple[Task, Placement, float | None]]:
        """Every task, where it is, and its load if that is known."""
        self._require_owner()
        with self._lock:
            plan = self._plan
            assert plan is not None
            return [(task, self._reports.placement(task), self._reports.load(task)) for task in plan.tasks]

    def who_owns(self) -> Owner:
        """The owner as the database has it."""
        return self._repository.owner()

    @staticmethod
    def _sorters(plan: Plan) -> set[str]:
        return {node.node_id for node in plan.nodes if node.role == "sorter"}

    def _hear(self, node_id: str) -> None:
        self._heard[node_id] = self._clock.monotonic_ms()
        self._heard_since_renewal.add(node_id)

    def routes(self) -> route_table.RouteBoard:
        """The board that readers wait on: the owner's routes, also where another is the owner, or nobody just now."""
        return self._routes

    def announce(self, announcement: Announcement) -> None:
        """Keep it for the dispatchers."""
        self.announcements().add(announcement)
        self._metrics.announced.inc()

    def announcements(self) -> AnnouncementBoard:
        """The board of announced files."""
        self._require_owner()
        assert self._announcements is not None
        return self._announcements

    def _require_owner(self) -> None:
        reason = self.not_ready()
        if reason is None and not self.is_owner():
            reason = "another meta server is the owner"
        if reason is not None:
            raise Unavailable(reason)
