"""Everything behind the meta server's routes, and its loops: executes what the pure modules decide.

One lock guards what is in memory (who was heard, and the plan that routes are made of); the database has the rest.
"""

from __future__ import annotations

import logging
from collections import Counter as Tally
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from tistream.clock import Clock
from tistream.concurrency import new_rlock
from tistream.errors import Superseded, Unavailable, UnknownName
from tistream.model.ids import TenantKey
from tistream.storage.object_store import ObjectStore
from tistream.wire.meta import Announcement
from tistream.wire.meta_client import MetaClient
from tistream.wire.route_mark import NOTHING_SEEN, Mark
from tistream_meta import ranges, route_table, snapshot
from tistream_meta.announcements import AnnouncementBoard
from tistream_meta.heard import HeardNodes
from tistream_meta.liveness import NodeState, Timings
from tistream_meta.metrics import MetaMetrics
from tistream_meta.model import Node, Owner, Plan, Task, Tenant
from tistream_meta.ownership import Ownership
from tistream_meta.placement import Placement
from tistream_meta.reports import Holding, Reports
from tistream_meta.repository import Repository
from tistream_meta.scheduler import Rules, Scheduler
from tistream_meta.starts import Standing, Start, standing
from tistream_meta.tenant_start import TenantStarts

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
    rules: Rules = field(default_factory=Rules)


class MetaServer:
    """`stopping` says that the process is to end."""

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
        self._routes = route_table.RouteBoard(stopping)
        self._announcements = AnnouncementBoard(0, options.announcements_max, stopping)
        self._prepared = False
        self._heard = HeardNodes(options.timings)
        self._reports = Reports()
        self._scheduler = Scheduler(repository, self._reports, options.rules)
        self._starts = TenantStarts(objects, clock, options.snapshot_retry_max_ms)
        self._ownership = Ownership(
            repository, clock, self._lock, options.lease_ms, options.own_url, new_client, self._begin
        )
        self._plan: Plan | None = None

    def not_ready(self) -> str | None:
        """Why requests cannot be served, or None."""
        if not self._prepared:
            return "the meta database was not opened yet"
        if not self.is_owner():
            if self._ownership.other is None:
                return "no meta server is the owner"
            return None if self._routes.current() is not None else "the owner has not told the routes yet"
        return None if self._plan is not None else "the plan was not read yet"

    def is_owner(self) -> bool:
        """Whether this process is the owner, as far as it can know."""
        return self._ownership.held

    def owner(self) -> MetaClient:
        """The other meta server that is the owner. Raises Unavailable if none is known."""
        found = self._ownership.other
        if found is None:
            raise Unavailable("no meta server is the owner")
        return found

    # -- loops ---------------------------------------------------------------------------------------------------

    def hold_lease(self) -> None:
        """Loop body: become the owner, then stay it."""
        if not self._prepared:
            version = self._repository.prepare()
            self._prepared = True
            log.info("database ready", extra={"schema_version": version})
        newest = Mark(self._ownership.rev, self._plan.version if self._plan else -1)
        if self._ownership.hold(newest, self._heard_lately):
            self._metrics.owner_rev.set(self._ownership.rev)
            self.look_after_nodes(always=True)

    def _heard_lately(self) -> set[str]:
        with self._lock:
            return self._heard.lately()

    def _begin(self, owner_rev: int) -> None:
        if owner_rev != self._announcements.owner_rev:
            self._announcements = AnnouncementBoard(owner_rev, self._options.announcements_max, self._stopping)
            self._reports.forget()
        self._heard.forget()

    def follow_owner(self) -> int:
        """Loop body: while another is the owner, have its routes here too."""
        found = self._ownership.other
        if found is None or self.is_owner():
            return FOLLOW_PAUSE_MS
        current = self._routes.current()
        known = -1 if current is None else current.version
        self._routes.publish(found.routes(known, 0 if current is None else FOLLOW_WAIT_MS))
        return 0

    def look_after_nodes(self, *, always: bool = False) -> None:
        """Loop body: who is there, and is every task where it should be?"""
        with self._ownership.writing(), self._lock:
            since_ms = self._ownership.since_ms  # once: another loop may lose the ownership meanwhile
            if since_ms is None:
                return
            always |= self._plan is None
            plan = self._repository.plan() if always or self._plan is None else self._plan
            now_ms = self._clock.monotonic_ms()
            changed = self._heard.judge(plan.nodes, since_ms, now_ms)
            self._metrics.count_nodes(self._heard.states.values())
            written = self._scheduler.step(plan, self._heard.states, now_ms)
            if changed and not written:
                self._repository.raise_version()
            if written or changed or always:
                self._publish()

    def _publish(self) -> None:
        plan = self._repository.plan()
        self._plan = plan
        self._routes.publish(
            route_table.build(plan, self._ownership.rev, self._heard.states, self._options.own_url)
        )
        self._metrics.tenants.set(len(plan.tenants))
        self._metrics.tasks.set(len(plan.tasks))
        self._metrics.route_version.set(plan.version)

    def activate_tenants(self) -> None:
        """Loop body: look for the schema_snap of tenants that have none yet."""
        plan = self._plan
        if self._ownership.since_ms is not None and plan is not None:
            self._starts.look(route_table.waiting(plan), self._activate, self._cannot)

    def _activate(self, key: TenantKey, facts: snapshot.SnapshotFacts) -> None:
        spans = ranges.cut(facts.physical_ids, self._options.ranges_per_tenant)
        with self._ownership.writing():
            activated = self._repository.activate(key, facts.snapshot_ts, spans)
        if activated:
            fields = {"tenant": str(key), "snapshot_ts": facts.snapshot_ts, "tasks": len(spans)}
            log.info("tenant starts", extra=fields)
        self.look_after_nodes(always=True)

    def _cannot(self, key: TenantKey, problem: str) -> None:
        plan = self._plan
        known = {tenant.key: tenant.problem for tenant in plan.tenants} if plan else {}
        if known.get(key) != problem:
            log.warning("tenant waits", extra={"tenant": str(key), "problem": problem})
            with self._ownership.writing():
                self._repository.set_problem(key, problem)
            with self._lock:
                self._publish()

    # -- requests ------------------------------------------------------------------------------------------------

    def create_tenant(self, key: TenantKey) -> Tenant:
        """Register a tenant; it is served once its schema_snap was read."""
        self._require_owner()
        with self._ownership.writing():
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
        with self._ownership.writing():
            start_epoch = self._repository.new_start()
        log.info("a process starts", extra={"node": node_id, "start_epoch": start_epoch})
        return start_epoch

    def register(self, node_id: str, role: str, url: str, start: Start) -> tuple[Node, int]:
        """A process has started; its node and the version of the routes that know of it. Raises Superseded."""
        self._require_owner()
        with self._ownership.writing(), self._lock:
            node = self._repository.register(node_id, role, url, start)
            self._heard.hear(node_id, self._clock.monotonic_ms())
            log.info("node registered", extra={"node": node_id, "role": role, "start_epoch": node.start_epoch})
            self.look_after_nodes(always=True)
            return node, self._known().version

    def heartbeat(
        self,
        node_id: str,
        start: Start,
        seen: Mark = NOTHING_SEEN,
        sequence: int = 0,
        holdings: Sequence[Holding] = (),
    ) -> tuple[int, int]:
        """(owner_rev, route version); `seen` are the newest routes that the node has followed, `holdings` the tasks
        that it holds or is prepared for. Raises UnknownName if nothing is known of this start; Superseded if a newer
        one has registered."""
        self._require_owner()
        with self._lock:
            self._ownership.saw(seen)
            plan = self._known()
            match standing(next((node for node in plan.nodes if node.node_id == node_id), None), start):
                case Standing.UNKNOWN:
                    raise UnknownName(f"no node {node_id} with start_epoch {start.start_epoch}")
                case Standing.SUPERSEDED:
                    raise Superseded(f"a newer start of {node_id} has registered")
            now_ms = self._clock.monotonic_ms()
            # A process of a version that tells no sequence is heard all the same; what it holds is not known.
            if not sequence or self._reports.take(node_id, start, sequence, holdings, now_ms):
                self._heard.hear(node_id, now_ms)
            return self._ownership.rev, plan.version

    def drain(self, node_id: str, draining: bool) -> None:
        """Move everything off a node, and give it nothing more; or take that back. Raises UnknownName."""
        self._require_owner()
        with self._ownership.writing():
            self._repository.drain(node_id, draining)
        log.info("node drains" if draining else "node takes tasks again", extra={"node": node_id})
        self.look_after_nodes(always=True)

    def move(self, task_id: int, node_id: str) -> None:
        """Let a sorter prepare to take a task over. Raises UnknownName; InvalidRequest where it cannot."""
        self._require_owner()
        with self._ownership.writing(), self._lock:
            self._scheduler.move(self._known(), self._heard.states, task_id, node_id)
            self.look_after_nodes(always=True)

    def split(self, task_id: int, key: bytes | None) -> tuple[int, ...]:
        """Order a task to be split at a key, or where it halves its load; the ids of its children. Raises UnknownName;
        InvalidRequest where it cannot."""
        self._require_owner()
        with self._ownership.writing(), self._lock:
            children = self._scheduler.split(self._known(), task_id, key, self._clock.monotonic_ms())
            self.look_after_nodes(always=True)
            return children

    def merge(self, task_id: int, neighbour: int) -> tuple[int, ...]:
        """Order two neighbours to be merged; the id of their child. Raises UnknownName; InvalidRequest where they
        cannot."""
        self._require_owner()
        with self._ownership.writing(), self._lock:
            children = self._scheduler.merge(self._known(), task_id, neighbour, self._clock.monotonic_ms())
            self.look_after_nodes(always=True)
            return children

    def nodes(self) -> list[tuple[Node, NodeState, int]]:
        """Every node, what is known of it, and how many tasks it has."""
        self._require_owner()
        with self._lock:
            plan = self._known()
            tasks = Tally(task.sorter_node for task in plan.tasks)
            return [(node, self._heard.states[node.node_id], tasks[node.node_id]) for node in plan.nodes]

    def tasks(self) -> list[tuple[Task, Placement, float | None]]:
        """Every task, where it is, and its load if that is known."""
        self._require_owner()
        with self._lock:
            return self._scheduler.placements(self._known())

    def who_owns(self) -> Owner:
        """The owner as the database has it."""
        return self._repository.owner()

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
        return self._announcements

    def _known(self) -> Plan:
        assert self._plan is not None, "ready"
        return self._plan

    def _require_owner(self) -> None:
        reason = self.not_ready()
        if reason is None and not self.is_owner():
            reason = "another meta server is the owner"
        if reason is not None:
            raise Unavailable(reason)
