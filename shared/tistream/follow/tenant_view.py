"""Progress and data of one tenant: the logs of its tasks, its schema, and the reports of its sorters.

A refresh reads first the progress that sorters report, each with the number of a manifest; then the manifests at least
up to these numbers; then the schema. Only then does it raise `resolved_ts`. In another order, rows at or below
`resolved_ts` could be missing.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from prometheus_client import Counter

from tistream.clock import Clock
from tistream.concurrency import Event, new_condition, new_lock, new_rlock
from tistream.errors import TiStreamError, Unavailable
from tistream.follow.served_progress import EVERY_MS, ServedProgress
from tistream.follow.snapshot_ids import SnapshotIds
from tistream.logbackup.release import STORE_ID
from tistream.model.ids import TenantKey
from tistream.model.span import KeySpan
from tistream.pool.lineage import Lineage, LogSpan, SharedSegments, reached
from tistream.pool.segment_index import SegmentIndex
from tistream.pool.versions.plan import IndexShard, shards_of
from tistream.read.group_cache import GroupCache
from tistream.read.row_events import Barrier
from tistream.read.source import TenantSource, not_kept
from tistream.storage.object_store import ObjectStore
from tistream.wire.clients.schema_client import SchemaReplica
from tistream.wire.clients.sorter_client import SorterClient
from tistream.wire.meta import TaskRoute, TenantRoute
from tistream.wire.sorter import TaskStatus

log = logging.getLogger(__name__)


# A tenant is active, and refreshed often, for this long after a request; a reader that waits requests it all the time.
IDLE_AFTER_MS = 1_000
FRESH_MS = 200  # maximum age of a refresh that a request uses without waiting
FRESH_WAIT_MS = 500
FIRST_WAIT_MS = 3_000
LOOK_MS = 500  # interval at which a waiting request checks whether its client is still connected
BARRIERS_MAX = 100
# At most BARRIERS_MAX undecodable rows are logged in this time. If there are more than BARRIERS_MAX in all, a row that
# pulls reach again is recorded as a new one.
BARRIER_LINES_MS = 60_000


class TenantView:
    """One tenant, as this process serves it to readers. Thread-safe; one refresh runs at a time."""

    def __init__(
        self,
        route: TenantRoute,
        objects: ObjectStore,
        cache: GroupCache,
        sorters: SorterClient,
        replica: SchemaReplica,
        clock: Clock,
        stopping: Event,
        undecodable: Counter,
        on_wake: Callable[[], None] = lambda: None,
    ) -> None:
        """`on_wake` is called at the first request after a pause of IDLE_AFTER_MS: from then on refreshes are due more
        often."""
        self.tenant = TenantKey(route.cluster_id, route.tenant_id)
        self.route = route
        self.statuses: dict[int, TaskStatus] = {}  # the last report of each task's sorter
        self.problems: dict[str, str] = {}  # peers that the last refresh could not reach, with the reason
        self._objects = objects
        self._sorters = sorters
        self._replica = replica
        self._clock = clock
        self._stopping = stopping
        self._undecodable = undecodable
        self._on_wake = on_wake
        self._lock = new_rlock()
        self._moved = new_condition(self._lock)
        self._refreshing = new_lock()
        self._refreshed_ms = -(1 << 62)
        self._settled = False
        self._requested_ms = -(1 << 62)
        self._lineage = Lineage(objects, self.tenant)  # used by the refreshing thread alone
        self._covers: dict[int, list[LogSpan]] = {}  # by task of the route: the logs that its rows were last read from
        self._shared = SharedSegments()
        self._segments = SegmentIndex()
        self._shards: list[IndexShard] = []
        self._progress: dict[int, int] = {}
        self._resolved_ts = self._flushed_ts = self._retained_ts = self._backfilled_ts = 0
        self._barriers: dict[tuple[int, bytes, int], Barrier] = {}
        self._lines_ms, self._lines = -(1 << 62), 0
        self._served = ServedProgress(objects, self.tenant, clock)
        self.source = TenantSource(
            self._lock,
            lambda: self._replica.history,
            lambda: [self._segments],
            cache,
            self.replan,
            lambda: self._retained_ts,
            SnapshotIds(objects, self.tenant).highest,
        )

    # ---- for pulls

    def resolved_ts(self) -> int:
        """The ts up to which every row can be read now; 0 before the first complete refresh. It never decreases."""
        with self._lock:
            return self._resolved_ts

    def flushed_ts(self) -> int:
        """The lowest flushed_ts of the tenant's tasks; 0 until all tasks have been read. It never decreases."""
        with self._lock:
            return self._flushed_ts

    def earliest_ts(self) -> int:
        """The lowest ts above which all changes are served. Raises Unavailable while it is not known.

        With a log backup as the source, that is the highest base_ts of its backfills, if it is above `kept_ts`: changes
        up to it have no old values, because the rows before them were never read (docs/backfill.md).
        """
        kept_ts = self.kept_ts()
        with self._lock:
            return max(kept_ts, self._backfilled_ts) if self._fed_by_log_backup() else kept_ts

    def kept_ts(self) -> int:
        """The lowest ts above which every change is kept. Raises Unavailable while it is not known."""
        if self.route.snapshot_ts is None:
            raise Unavailable(f"tenant {self.tenant} cannot be read yet: {self.route.problem or 'it has no tasks yet'}")
        with self._lock:
            history = self._replica.history
            return max(self.route.snapshot_ts, self._retained_ts, 0 if history is None else history.base_ts)

    def _fed_by_log_backup(self) -> bool:
        """Whether the tenant has, or had, a log backup as a source: then it has the store id that stands for log
        backups, which no TiKV store has."""
        stores = (store.store_id for store in self.route.stores or ())
        return STORE_ID in self.route.retired_stores or STORE_ID in stores

    def check_kept(self, ts: int) -> None:
        """Check that changes above `ts` are kept. Raises Gone if some may have been deleted."""
        kept_ts = self.kept_ts()
        if ts < kept_ts:
            raise not_kept(ts, kept_ts)

    def check_served(self, ts: int) -> None:
        """Check that changes above `ts` are kept and served. Raises Gone if some may have been deleted, or lie below
        `earliest_ts`."""
        earliest_ts = self.earliest_ts()
        if ts < earliest_ts:
            raise not_kept(ts, earliest_ts)

    def check_known(self) -> None:
        """Check that a refresh has completed, so that the tenant can be read. Raises Unavailable until then."""
        self.earliest_ts()
        if self.resolved_ts() == 0:
            # Clients must not see the addresses of services.
            peers = sorted({peer.split()[0] for peer in self.problems})
            reason = f"no answer from {', '.join(peers)}" if peers else "it is being read"
            raise Unavailable(f"tenant {self.tenant} cannot be read yet: {reason}")

    def shards(self) -> list[IndexShard]:
        """The segments and runs with the tenant's committed versions, as of the last refresh: one IndexShard for each
        span of keys, in key order. Reads up to resolved_ts may use them."""
        with self._lock:
            return self._shards

    def wait_above(self, ts: int, timeout_ms: int) -> bool:
        """Wait until resolved_ts > `ts`, the time has passed or the service stops. Returns whether resolved_ts is
        above. The wait counts as a request for the tenant, so that it is refreshed often."""
        deadline_ms = self._clock.monotonic_ms() + timeout_ms
        while not self._stopping.is_set():
            self._record_request()
            with self._moved:
                if self._resolved_ts > ts:
                    return True
                left_ms = deadline_ms - self._clock.monotonic_ms()
                if left_ms <= 0:
                    return False
                self._moved.wait(min(left_ms, 250) / 1000)  # a stop does not notify, so check now and then
        return False

    def stopping(self) -> bool:
        """Whether the service is stopping."""
        return self._stopping.is_set()

    def record_barrier(self, barrier: Barrier) -> None:
        """Record an undecodable row (a barrier): it is shown in status, counted once in the metric and, up to a limit,
        logged."""
        with self._lock:
            known = self._barriers.setdefault((barrier.table_id, barrier.key, barrier.commit_ts), barrier)
            if len(self._barriers) > BARRIERS_MAX:
                self._barriers.pop(next(iter(self._barriers)))
            now_ms = self._clock.monotonic_ms()
            if now_ms - self._lines_ms >= BARRIER_LINES_MS:
                self._lines_ms, self._lines = now_ms, 0
            self._lines += known is barrier
            logged = self._lines <= BARRIERS_MAX
        if known is barrier:
            self._undecodable.inc()
        if known is barrier and logged:
            log.error("a row cannot be decoded", extra={"tenant": str(self.tenant), "row": str(barrier)})

    def barriers(self) -> list[Barrier]:
        """The recorded undecodable rows, lowest commit_ts first."""
        with self._lock:
            return sorted(self._barriers.values(), key=lambda barrier: barrier.commit_ts)

    def _record_request(self) -> int:
        """Record a request for this tenant. Returns its time, in monotonic ms."""
        before_ms, now_ms = self._requested_ms, self._clock.monotonic_ms()
        self._requested_ms = now_ms
        if now_ms - before_ms >= IDLE_AFTER_MS:
            self._on_wake()
        return now_ms

    @property
    def idle(self) -> bool:
        """Whether no request for this tenant came for IDLE_AFTER_MS."""
        return self.idle_ms() >= IDLE_AFTER_MS

    def idle_ms(self) -> int:
        """Milliseconds since the last request for this tenant."""
        return self._clock.monotonic_ms() - self._requested_ms

    def age_ms(self) -> int:
        """Milliseconds since the last refresh."""
        return self._clock.monotonic_ms() - self._refreshed_ms

    @property
    def refreshed(self) -> bool:
        """Whether at least one refresh has completed."""
        return self._refreshed_ms >= 0

    @property
    def settled(self) -> bool:
        """Whether the next refresh finds nothing new unless a task makes progress: at the last one, each task's sorter
        and the schema registry answered, and the schema was not behind the tasks."""
        return self._settled

    def seen_ago_ms(self) -> int:
        """Milliseconds since the last refresh, whether or not all peers answered it; 0 while resolved_ts is 0."""
        return self.age_ms() if self.resolved_ts() else 0

    # ---- refreshing

    def wait_fresh(self, alive: Callable[[], None] = lambda: None) -> None:
        """Record that a reader requests this tenant, so that it is refreshed often. If the last refresh is old, wait
        for a new one: up to FRESH_WAIT_MS, or FIRST_WAIT_MS before the first refresh.

        If no refresh completes in that time, the request continues with the earlier data, which are still correct.
        Calls `alive` while it waits; an exception from `alive` ends the wait.
        """
        requested_ms = self._record_request()
        oldest_ms = requested_ms - FRESH_MS
        with self._moved:
            patience_ms = FRESH_WAIT_MS if self._resolved_ts else FIRST_WAIT_MS
            while self._refreshed_ms < oldest_ms and not self._stopping.is_set():
                left_ms = requested_ms + patience_ms - self._clock.monotonic_ms()
                if left_ms <= 0:
                    return
                alive()
                self._moved.wait(min(left_ms, LOOK_MS) / 1000)

    def refresh(self) -> None:
        """Refresh progress, logs and schema now, and return when that is done. Peers and tasks that cannot be read are
        recorded in `problems`; their earlier data stay."""
        with self._refreshing:
            self._refresh()

    def record_served(self) -> None:
        """Write the current resolved_ts where sorters find it (served_progress.py), if a consumer reads this tenant."""
        if self.route.snapshot_ts is not None and self.idle_ms() < EVERY_MS:
            self._served.record(self.route.snapshot_ts, self.resolved_ts(), self.flushed_ts())

    def replan(self) -> None:
        """Refresh now, because a segment has disappeared. The newest manifests are looked for in the object store; the
        sorter's report is not used, because a sorter that has lost its task without noticing would report no newer
        manifest."""
        with self._refreshing:
            self._refresh(ask_store=True)

    def _refresh(self, *, ask_store: bool = False) -> None:
        problems: dict[str, str] = {}
        statuses = self._ask_sorters(problems)
        reported = {} if ask_store else {task_id: status.manifest for task_id, status in statuses.items()}
        complete = self._read_logs(self.route.tasks, statuses, reported, problems)
        self._read_schema(problems)
        with self._moved:
            self.statuses = {**{one: self.statuses[one] for one in self.statuses if one in complete}, **statuses}
            self.problems = problems
            known = self._progress | complete
            self._progress = {task_id: ts for task_id, ts in known.items() if task_id in self._covers}
            self._resolve()
            wanted = {task.task_id for task in self.route.tasks}
            reached = min((self._progress.get(task_id, 0) for task_id in wanted), default=0)
            answered = bool(wanted) and wanted <= statuses.keys() and not problems
            self._settled = answered and reached <= self._replica.resolved_ts
            self._refreshed_ms = self._clock.monotonic_ms()
            self._moved.notify_all()

    def _ask_sorters(self, problems: dict[str, str]) -> dict[int, TaskStatus]:
        wanted = {task.task_id: task.sorter_url for task in self.route.tasks}
        epochs = {task.task_id: task.task_epoch for task in self.route.tasks}
        statuses: dict[int, TaskStatus] = {}
        for url in sorted({url for url in wanted.values() if url is not None}):
            try:
                answer = self._sorters.tasks(url, self.tenant.cluster_id, self.tenant.tenant_id)
            except TiStreamError as error:
                problems[f"sorter {url}"] = str(error)
                continue
            for status in answer.tasks:
                # Ignore a sorter that has not learned of the task's newest epoch.
                if wanted.get(status.task_id) == url and status.task_epoch >= epochs[status.task_id]:
                    statuses[status.task_id] = status
        return statuses

    def _read_logs(
        self,
        tasks: Sequence[TaskRoute],
        statuses: dict[int, TaskStatus],
        reported: dict[int, int],
        problems: dict[str, str],
    ) -> dict[int, int]:
        """Read each task's manifests, at least up to the one that its reported progress names. Returns the progress of
        the tasks that were read."""
        progress: dict[int, int] = {}
        for task in tasks:
            try:
                # The sorter's report shows whether there is a newer manifest, so no object is requested without need.
                covers = self._lineage.covers(_Routed.of(task), reported.get(task.task_id))
            except TiStreamError as error:
                problems[f"task {task.task_id}"] = str(error)
                continue
            self._covers[task.task_id] = covers
            progress[task.task_id] = reached(covers, statuses)
        # Otherwise a task's cached logs may belong to another task now. A route without tasks is that of a tenant that
        # a restored database has forgotten. Its tasks will come back, and its resolved_ts has stayed, so rows below
        # resolved_ts would be missing without the cached segments.
        if tasks and len(progress) == len(tasks):
            self._covers = {task_id: self._covers[task_id] for task_id in progress}
            self._lineage.forget_others()
        self._shared.update(cover.log for covers in self._covers.values() for cover in covers)
        states = (cover.log.view.state for covers in self._covers.values() for cover in covers)
        retained_ts = max((state.retained_ts for state in states if state is not None), default=0)
        routed = [self._covers.get(task.task_id) for task in tasks]
        # Both are set together, so that a reader whose segment has disappeared sees the retained_ts that explains it.
        with self._lock:
            self._segments.update(self._shared.segments)
            if tasks and all(routed):  # the tasks of one route share no key
                self._shards = shards_of(cover for covers in routed for cover in covers or ())
                bases = (base.base_ts for shard in self._shards for base in shard.cover)
                self._backfilled_ts = max(self._backfilled_ts, max(bases, default=0))
            self._retained_ts = max(self._retained_ts, retained_ts)
        return progress

    def _read_schema(self, problems: dict[str, str]) -> None:
        try:
            complete = False
            while not complete:
                page = self._replica.fetch()
                with self._lock:
                    complete = self._replica.apply(page)
        except TiStreamError as error:
            problems["schema"] = str(error)

    def _resolve(self) -> None:
        """Compute resolved_ts and flushed_ts: the minimum over every task of the route, not only over those that
        answered (docs/invariants.md, invariant 14)."""
        schema_ts = self._replica.resolved_ts
        known = [self._progress.get(task.task_id, 0) for task in self.route.tasks]
        lowest = min([schema_ts, *known]) if known else 0
        self._resolved_ts = max(self._resolved_ts, lowest)
        covers = [self._covers.get(task.task_id, []) for task in self.route.tasks]
        if covers and all(covers):
            flushed_ts = min(cover.log.flushed_ts for some in covers for cover in some)
            self._flushed_ts = max(self._flushed_ts, flushed_ts)

    def replace_route(self, route: TenantRoute) -> None:
        """Replace the tenant's route by a newer one. The data that was read for the previous route stays until the
        tasks of the new one have been read."""
        with self._lock:
            self.route = route

    def schema_resolved_ts(self) -> int:
        """The ts up to which the tenant's schema history is complete."""
        with self._lock:
            return self._replica.resolved_ts


@dataclass(frozen=True, slots=True)
class _Routed:
    """A task of the route, in the form that Lineage needs (RoutedTask)."""

    task_id: int
    span: KeySpan
    parents: Sequence[int]

    @classmethod
    def of(cls, task: TaskRoute) -> _Routed:
        span = KeySpan(bytes.fromhex(task.start_key), bytes.fromhex(task.end_key))
        return cls(task.task_id, span, task.parents)
