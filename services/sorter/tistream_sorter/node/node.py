"""The tasks that a sorter process holds, and their ticks. This module does the I/O; task/task.py decides."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType

from tistream import trace
from tistream.clock import Clock
from tistream.concurrency import new_executor, new_lock
from tistream.errors import CommitStateUnknown, Fenced, InvariantBroken, KeyUnusable, TiStreamError, Unavailable
from tistream.format.manifest import KIND_SEAL, Manifest
from tistream.model.ids import TenantKey
from tistream.storage.measured import MeasuredObjectStore
from tistream.wire.meta import SealOrder, TaskReport
from tistream_sorter.metrics import SorterMetrics
from tistream_sorter.node.claims import Claims, HeldTask, SealedTask
from tistream_sorter.node.collector import Collector
from tistream_sorter.node.reports import reports
from tistream_sorter.node.tick_jobs import Runner, TickJobs, give_up
from tistream_sorter.node.tick_trace import TickTrace
from tistream_sorter.node.upkeep import Upkeep
from tistream_sorter.state.task_state import TaskIdentity, TaskState
from tistream_sorter.task.mailbox import RetentionNote
from tistream_sorter.task.status import log_fields
from tistream_sorter.task.task import Task
from tistream_sorter.task.task_machine import TickLimits
from tistream_sorter.task.tick import TickPlan
from tistream_sorter.upkeep.gc_plan import dropped, manifests_below
from tistream_sorter.watermark.slice_work import passed_over

log = logging.getLogger(__name__)

COMMIT_THREADS = 8
LARGE_THREADS = 4  # large ticks that run at the same time; each occupies a thread, which mostly waits
KEEP_ALL: Mapping[TenantKey, int] = MappingProxyType({})
NO_ORDERS: Mapping[int, SealOrder] = MappingProxyType({})
# How long a task pauses if its tenant's key cannot be used: each refused request delays the other tasks of the tick.
KEY_AGAIN_MS = 2_000
# How long a task that has nothing to do is left alone. What comes for it ends that, so this only bounds an oversight.
REST_MS = 5_000
TROUBLE_AGAIN_MS = 10_000  # interval at which a tick that keeps failing is logged


class SorterNode:
    """The tasks of a sorter process, by id. The assignment loop calls `assign`, the tick loop calls `tick`."""

    def __init__(
        self,
        objects: MeasuredObjectStore,
        runner: Runner,
        limits: TickLimits,
        clock: Clock,
        new_nonce: Callable[[], str],
        metrics: SorterMetrics,
    ) -> None:
        self._clock, self._new_nonce, self._metrics = clock, new_nonce, metrics
        self._large_work = limits.large_work
        self._jobs = TickJobs(objects, runner, clock, metrics, self._trouble, self._stop)
        self._collector = Collector(objects, limits.collect, clock, metrics)
        self._upkeep = Upkeep(objects, runner, limits, clock, new_nonce, metrics)
        self._claims = Claims(objects, limits, clock, new_nonce, metrics)
        self._held: dict[int, HeldTask] = {}
        self._sealed: dict[int, SealedTask] = {}  # sealed tasks that are still routed to this process
        self._lock = new_lock()
        self._turn = 0
        self._pool = new_executor("commit", COMMIT_THREADS)
        self._beside = new_executor("large", LARGE_THREADS)
        self.wake: Callable[[], None] = lambda: None  # called when files arrive; the tick loop sets it
        self.report_now: Callable[[], None] = lambda: None  # sends a heartbeat at once, with a report
        self.on_tick: Callable[[], object] = lambda: None  # called at the end of each tick

    def tasks(self) -> list[Task]:
        """The tasks that this process holds."""
        with self._lock:
            return [held.task for held in self._held.values()]

    @property
    def rests(self) -> bool:
        """Whether no task needs a tick until something comes for it, as of the last tick."""
        with self._lock:
            return all(held.rest_until_ms for held in self._held.values())

    def find(self, task_id: int) -> Task | None:
        """The task with this id; None if this process does not hold it."""
        with self._lock:
            held = self._held.get(task_id)
        return held.task if held else None

    def known(self, task_id: int) -> Task | None:
        """The task with this id, if this process holds it. A task that this process has sealed is returned too, as long
        as the route table assigns it here. Otherwise None."""
        with self._lock:
            ended = self._sealed.get(task_id)
        return self.find(task_id) or (ended.task if ended else None)

    # -- assignment -----------------------------------------------------------------------------------------------

    def assign(
        self,
        wanted: Sequence[TaskIdentity],
        orders: Mapping[int, SealOrder] = NO_ORDERS,
        keep: Mapping[TenantKey, int] = KEEP_ALL,
    ) -> bool:
        """Hold exactly the wanted tasks, each under its epoch, and pass them the owner's orders to split or merge.
        keep: retention of committed rows by tenant, in ms. Claims run in parallel. Returns False if some claims must be
        repeated, because they failed or their result is not known."""
        epochs = {identity.task_id: identity.task_epoch for identity in wanted}
        with self._lock:
            current = {task_id: held.task.state.identity.task_epoch for task_id, held in self._held.items()}
            current |= {task_id: ended.identity.task_epoch for task_id, ended in self._sealed.items()}
            for task_id, epoch in current.items():
                if epochs.get(task_id) != epoch:
                    self._held.pop(task_id, None)
                    self._sealed.pop(task_id, None)
        for task in self.tasks():
            task.leave(RetentionNote(keep.get(task.state.identity.tenant)))
            self._give(task, orders)
        self._claims.keep_only(epochs)
        new = [identity for identity in wanted if current.get(identity.task_id) != identity.task_epoch]
        complete = True
        for identity, (opened, final) in zip(new, self._pool.map(self._claims.open, new), strict=True):
            complete &= final
            if isinstance(opened, SealedTask):
                with self._lock:
                    self._sealed[identity.task_id] = opened
                self.report_now()
            elif opened is not None:
                opened.task.leave(RetentionNote(keep.get(identity.tenant)))
                self._give(opened.task, orders)
                with self._lock:
                    self._held[identity.task_id] = opened
                log.info("task claimed", extra=log_fields(opened.task.state))
        self.wake()
        held = self.tasks()
        self._metrics.tasks.set(len(held))
        self._metrics.stopped.set(sum(task.stopped is not None for task in held))
        return complete

    def _give(self, task: Task, orders: Mapping[int, SealOrder]) -> None:
        """Pass a task the order of the owner, before the task's first commit. Without the order the task would flush
        past its stop_at."""
        reason = task.order(orders.get(task.task_id))
        if reason is not None:
            self._metrics.refused.inc()
            log.error("order to split or merge refused", extra={**log_fields(task.state), "reason": reason})

    def prepare(self, coming: Sequence[TaskIdentity]) -> None:
        """Read the manifests of tasks that other sorters hold and that will move to this process."""
        self._claims.prepare(coming)

    def reports(self) -> list[TaskReport]:
        """The task reports for a heartbeat."""
        with self._lock:
            held, ended = [one.task for one in self._held.values()], list(self._sealed.values())
        prepared, fenced = self._claims.prepared(), self._claims.fenced()
        return reports(held, ended, prepared, self._clock.monotonic_ms(), fenced)

    def collect(self) -> bool:
        """Delete objects that no reader needs any more. Returns whether more can be deleted at once. A stopped task
        keeps all of its objects. Call it in a thread of its own."""
        with self._lock:
            held = [one for one in self._held.values() if one.task.stopped is None]
        return self._collector.collect(held)

    def compact(self) -> bool:
        """Compact small segments, then merge the version index, with one job of each kind for all tasks. Returns
        whether there was any work. Call it in a thread of its own."""
        if not self._upkeep.work(lambda: [task for task in self.tasks() if task.stopped is None]):
            return False
        self.wake()
        return True

    # -- ticks ----------------------------------------------------------------------------------------------------

    def tick(self) -> bool:
        """Run one tick of every due task, all in one job, and commit the results. A large tick runs in a job of its
        own, and its task is not due until it has ended. Returns whether anything was committed, or another tick should
        follow at once."""
        with self._lock:
            held = list(self._held.values())
        plans: list[tuple[HeldTask, TickPlan]] = []
        commits: list[tuple[HeldTask, Manifest, TaskState, int]] = []
        now_ms, unfinished = self._clock.monotonic_ms(), False
        self._turn += 1
        waits = passed_over([one for one in held if one.task.unfinished], self._turn)
        for one in held:
            if now_ms < one.rest_until_ms and not one.task.has_unread:
                continue
            if one in waits:
                unfinished = True
                continue
            if one.beside is None and now_ms < one.not_before_ms:
                continue
            if one.doubtful is not None:
                commits.append((one, *one.doubtful))
                continue
            if one.beside is not None:
                commits += self._ended(one)
                continue
            due = self._due(one, now_ms)
            unfinished |= one.task.unfinished
            if isinstance(due, TickPlan) and due.work > self._large_work:
                one.beside = self._beside.submit(self._run_beside, one, due)
                one.beside.add_done_callback(lambda _: self.wake())
            elif isinstance(due, TickPlan):
                plans.append((one, due))
            elif due is not None:
                commits.append((one, *due, 0))
        began = self._clock.monotonic_ms()
        concluded = self._jobs.run(plans)
        give_up([one for one, _ in plans], concluded)
        commits += concluded
        done = list(self._pool.map(lambda commit: self._commit(*commit), commits))
        if plans:
            self._metrics.tick_seconds.observe((self._clock.monotonic_ms() - began) / 1000)
        self.on_tick()
        return any(done) or unfinished

    def _due(self, one: HeldTask, now_ms: int) -> TickPlan | tuple[Manifest, TaskState] | None:
        """Let a task decide its next step, and begin the step's trace. Returns the step, or None if there is nothing to
        do."""
        with one.task.turn() as turn:
            try:
                self._claims.read_others(one, turn, now_ms)
            except TiStreamError as error:  # the task waits, and the logs are read again later
                self._trouble(one, f"cannot read the other parents of the merge: {error}")
            began_ms, began_ns = self._clock.monotonic_ms(), trace.now_ns()
            one.garbage.note(turn.settle(began_ms), began_ms)
            try:
                due = turn.due(self._clock.monotonic_ms(), self._clock.now_ms(), self._new_nonce())
            except Exception as error:  # a fault in the input of one tenant: the other tasks continue
                self._stop(one, error)
                return None
            one.rest_until_ms = began_ms + REST_MS if due is None and turn.rests else 0
        if due is not None and trace.on():
            planned = due if isinstance(due, TickPlan) else due[0]
            one.trace = TickTrace.begun(one.task.state, planned, began_ns)
        return due

    def _run_beside(self, one: HeldTask, due: TickPlan) -> list[tuple[HeldTask, Manifest, TaskState, int]]:
        """Run the job of a large tick, in the thread that calls this. Returns what must be committed (TickJobs.run);
        the thread of the ticks commits it, because a commit is short."""
        began = self._clock.monotonic_ms()
        try:
            return self._jobs.run([(one, due)], beside=True)
        finally:
            self._metrics.tick_seconds.observe((self._clock.monotonic_ms() - began) / 1000)

    def _ended(self, one: HeldTask) -> list[tuple[HeldTask, Manifest, TaskState, int]]:
        """The manifest of a large tick that has ended, which can be committed now; empty while the tick runs."""
        running = one.beside
        if running is None or not running.done():
            return []
        one.beside = None
        concluded: list[tuple[HeldTask, Manifest, TaskState, int]] = []
        try:
            concluded = running.result()
        except Exception as error:  # an unexpected fault
            self._stop(one, error)
        give_up([one], concluded)
        return concluded

    def _trouble(self, held: HeldTask, reason: str, *, key_unusable: bool = False) -> None:
        """Record that a tick failed and will be repeated. The task's status shows the reason. The log shows the first
        failure, and later ones at most once in TROUBLE_AGAIN_MS: a full disk can last, each reason names other objects,
        and one line per tick would fill the log."""
        now_ms = self._clock.monotonic_ms()
        if key_unusable:
            held.not_before_ms = now_ms + KEY_AGAIN_MS
        if held.task.trouble is None or now_ms - held.logged_ms >= TROUBLE_AGAIN_MS:
            held.logged_ms = now_ms
            log.warning("tick failed", extra={**log_fields(held.task.state), "reason": reason})
        held.task.fail(reason)

    def _commit(self, held: HeldTask, manifest: Manifest, after: TaskState, files: int) -> bool:
        """Commit a manifest. `after`: the task's state with the manifest. `files`: how many files at the head
        of the inbox the manifest covers. Returns True if it is known to be committed. If the result is not
        known, the commit is repeated later, and the tick's trace stays open until then."""
        if held.trace is None:
            return self._committed(held, manifest, after, files)
        with trace.inside(held.trace.span), trace.child("commit"):
            done = self._committed(held, manifest, after, files)
        if done:
            held.trace.committed(manifest.number)
        elif held.doubtful is None:
            held.trace.given_up("commit")
        if held.doubtful is None:
            held.trace = None
        return done

    def _committed(self, held: HeldTask, manifest: Manifest, after: TaskState, files: int) -> bool:
        held.doubtful = None
        before, durable = held.task.state, held.task.durable
        try:
            held.manifests.commit(manifest)
        except Fenced as error:
            self._lost(held, error)
            return False
        except CommitStateUnknown as error:
            held.doubtful = (manifest, after, files)
            self._trouble(held, str(error), key_unusable=isinstance(error.__cause__, KeyUnusable))
            return False
        except Unavailable as error:
            self._trouble(held, str(error), key_unusable=isinstance(error, KeyUnusable))
            return False
        # An unknown writer has the manifest number, or another unexpected error: only a new epoch may continue.
        except Exception as error:
            self._stop(held, error)
            return False
        with held.task.turn() as turn:
            now_ms = self._clock.now_ms()
            waited_ms = [now_ms - file.ref.arrived_ms for file in turn.queued(files)]
            self._metrics.count_commit(manifest, before.counters, waited_ms)
            held.garbage.note(dropped(durable, manifest, after), self._clock.monotonic_ms())
            turn.committed(after, files, self._clock.monotonic_ms())
        if manifest.live_segments is not None:
            self._raise_floor(held, manifest.number)
        if before.stop_at != manifest.stop_at:
            log.info("task stops at", extra={**log_fields(after), "stop_at": str(manifest.stop_at)})
        if manifest.kind == KIND_SEAL:
            self._end(held, manifest)
        if manifest.kind == KIND_SEAL or before.inherited or before.stop_at != manifest.stop_at:
            self.report_now()
        return True

    def _end(self, held: HeldTask, manifest: Manifest) -> None:
        """Drop a task that was sealed. Its children are reported as long as the route table assigns the task to this
        process."""
        state = held.task.state
        self._metrics.seals.labels("split" if len(manifest.children) > 1 else "merge").inc()
        log.info("task sealed", extra={**log_fields(state), "children": str([one for one, _ in manifest.children])})
        with self._lock:
            if self._drop(held):
                self._sealed[held.task.task_id] = SealedTask(state.identity, manifest.children, held.task)

    def _raise_floor(self, held: HeldTask, number: int) -> None:
        try:
            floor = held.manifests.raise_floor(number)
        except TiStreamError as error:  # readers start more slowly until the next checkpoint
            log.warning("manifest floor not raised", extra={"task_id": held.task.task_id, "error": str(error)})
            return
        if held.floor is not None:  # otherwise the collector's first search finds the manifests
            held.garbage.note(manifests_below(held.task.durable, held.floor, floor), self._clock.monotonic_ms())
            held.floor = floor

    def _stop(self, held: HeldTask, error: Exception) -> None:
        known = isinstance(error, TiStreamError)
        reason = str(error) if known else f"{type(error).__name__}: {error}"
        held.task.stop(reason)
        self._metrics.broken.labels(str(error.number) if isinstance(error, InvariantBroken) else "none").inc()
        self._metrics.stopped.inc()
        fields = {**log_fields(held.task.state), "error": reason}
        log.error("task stopped by an error: it deletes nothing", exc_info=None if known else error, extra=fields)

    def _lost(self, held: HeldTask, error: TiStreamError) -> None:
        self._metrics.fenced.inc()
        log.warning("task is lost", extra={**log_fields(held.task.state), "error": str(error)})
        with self._lock:
            self._drop(held)

    def _drop(self, held: HeldTask) -> bool:
        """Remove a task, if this process still holds it as `held`. Returns whether it was removed. The caller must hold
        the lock."""
        if self._held.get(held.task.task_id) is not held:
            return False
        del self._held[held.task.task_id]
        return True

    def close(self) -> None:
        """Stop the threads. Nothing is committed after this call."""
        self._pool.shutdown(wait=False, cancel_futures=True)
        self._beside.shutdown(wait=False, cancel_futures=True)
        self._collector.close()
