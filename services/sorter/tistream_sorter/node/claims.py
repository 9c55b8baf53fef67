"""Claims tasks for this process: commits an empty manifest that begins the task's new epoch, and rebuilds the task's
state from its manifests."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, replace

from tistream.clock import Clock
from tistream.concurrency import new_lock
from tistream.errors import CommitStateUnknown, CorruptObject, Fenced, NotFoundYet, RetryableError, TiStreamError
from tistream.format import served as served_format
from tistream.format.manifest import Manifest
from tistream.format.task_view import TaskView
from tistream.model.span import KeySpan
from tistream.storage import layout
from tistream.storage.manifest_follow import TaskObjects
from tistream.storage.manifest_log import ManifestLog, Sealed
from tistream.storage.object_store import ObjectStore
from tistream_sorter.metrics import SorterMetrics
from tistream_sorter.node.garbage import Garbage
from tistream_sorter.node.tick_trace import TickTrace
from tistream_sorter.state.task_state import TaskIdentity, TaskState, first_state, recovered_state
from tistream_sorter.task.from_parents import inherited_state
from tistream_sorter.task.seal_orders import state_of_others
from tistream_sorter.task.task import Task
from tistream_sorter.task.task_machine import TaskMachine, TickLimits

log = logging.getLogger(__name__)

READS_AT_ONCE = 10  # consecutive ticks that read the other parents' logs; after that, one read each READ_AGAIN_MS
READ_AGAIN_MS = 1_000


class HeldTask:
    """A task that this process holds, with the log of its manifests. Times are monotonic ms.

    doubtful: a commit of which it is not known whether it succeeded. beside: a large tick that is running. trace: the
    trace of the current tick. logged_ms: when a failure was last logged. not_before_ms: the earliest time of the next
    tick. rest_until_ms: no turn is needed before, unless something comes. The attributes from `looked_ms` on belong to
    Collector, which searches for objects of earlier epochs and of sealed tasks.
    """

    def __init__(self, task: Task, manifests: ManifestLog) -> None:
        self.task = task
        self.manifests = manifests
        self.doubtful: tuple[Manifest, TaskState, int] | None = None
        self.beside: Future[list[tuple[HeldTask, Manifest, TaskState, int]]] | None = None
        self.trace: TickTrace | None = None
        self.logged_ms = 0
        self.not_before_ms = 0
        self.rest_until_ms = 0
        self.garbage = Garbage()
        self.reads, self.read_ms = 0, 0  # consecutive reads of the other parents of a merge; the time of the next read
        self.looked_ms: int | None = None
        self.heritage_ms = 0
        self.floor: int | None = None  # manifests from this number on are not recorded as garbage yet
        self.heritage_looks = 0  # consecutive searches for objects of sealed tasks that found nothing
        self.read_at: int | None = None  # the manifest at which the progress of the schema registry was last read


@dataclass(frozen=True, slots=True)
class SealedTask:
    """A sealed task that is assigned to this process. Heartbeats report its children to the meta server. `task` is its
    last state if this process sealed it, otherwise None."""

    identity: TaskIdentity
    children: tuple[tuple[int, KeySpan], ...]
    task: Task | None = None


class Claims:
    """Claims tasks, and remembers claims whose result is not known. Such a claim is repeated with the same nonce: it
    may have been written, and with another nonce it would look like the claim of another process. Thread-safe if no two
    threads work on the same task."""

    def __init__(
        self,
        objects: ObjectStore,
        limits: TickLimits,
        clock: Clock,
        new_nonce: Callable[[], str],
        metrics: SorterMetrics,
    ) -> None:
        self._objects, self._limits, self._clock = objects, limits, clock
        self._new_nonce, self._metrics = new_nonce, metrics
        self._lock = new_lock()
        self._nonces: dict[tuple[int, int], str] = {}  # (task, epoch) -> nonce of a claim without an answer
        self._fenced: dict[tuple[int, int], int] = {}  # (task, epoch) -> the epoch that has claimed it
        # The logs of tasks that will move here, as far as they have been read.
        self._prepared: dict[int, ManifestLog] = {}

    def keep_only(self, epochs: Mapping[int, int]) -> None:
        """Forget the claims of all other tasks and epochs. `epochs`: by id, the epoch of each task that is assigned to
        this process."""
        with self._lock:
            self._nonces = {key: nonce for key, nonce in self._nonces.items() if epochs.get(key[0]) == key[1]}
            self._fenced = {key: by for key, by in self._fenced.items() if epochs.get(key[0]) == key[1]}

    def prepare(self, coming: Sequence[TaskIdentity]) -> None:
        """Read the manifests of the tasks that will move to this process, so that it can take them over quickly.
        Forgets the manifests of all other tasks."""
        ids = {identity.task_id for identity in coming}
        with self._lock:
            logs = {task_id: log for task_id, log in self._prepared.items() if task_id in ids}
            self._prepared = {}
        for identity in coming:
            manifests = logs.get(identity.task_id)
            if manifests is None:
                manifests = ManifestLog(self._objects, identity.tenant, identity.task_id, identity.span)
            try:
                manifests.follow()
            except TiStreamError as error:  # the task's holder reports the fault; here it only delays the move
                log.warning(
                    "the manifests of a task that is to move here cannot be read: the move waits",
                    extra={"task_id": identity.task_id, "error": str(error)},
                )
                continue
            with self._lock:
                self._prepared[identity.task_id] = manifests

    def prepared(self) -> list[int]:
        """The ids of the tasks whose manifests are in memory, so that this process could take them over at once."""
        with self._lock:
            return sorted(self._prepared)

    def fenced(self) -> list[tuple[int, int, int]]:
        """The tasks that this process could not claim because a newer epoch has claimed them, as (task, assigned epoch,
        epoch that has claimed it)."""
        with self._lock:
            return [(task_id, epoch, by) for (task_id, epoch), by in sorted(self._fenced.items())]

    def open(self, identity: TaskIdentity) -> tuple[HeldTask | SealedTask | None, bool]:
        """Try to claim a task. Returns (HeldTask, True) if this process has it now; (SealedTask, True) if it is sealed;
        (None, True) if a newer epoch holds it; (None, False) if the claim failed or its result is not known, and the
        caller must try again."""
        key = (identity.task_id, identity.task_epoch)
        with self._lock:
            nonce = self._nonces.setdefault(key, self._new_nonce())
        try:
            held: HeldTask | SealedTask | None = self._claimed(identity, nonce)
        except Sealed as error:
            children = str([task_id for task_id, _ in error.children])
            log.info("task is sealed", extra={"task_id": identity.task_id, "children": children})
            held = SealedTask(identity, error.children)
        except Fenced as error:
            log.warning("task is held by a newer epoch", extra={"task_id": identity.task_id, "error": str(error)})
            self._metrics.fenced.inc()
            held = None
            with self._lock:
                self._fenced[key] = error.current_epoch
        except (RetryableError, CommitStateUnknown) as error:
            log.warning("cannot claim task yet", extra={"task_id": identity.task_id, "error": str(error)})
            return None, False
        except Exception as error:  # damaged manifests, or an unexpected fault: the other tasks continue
            log.error("task cannot be opened", exc_info=error, extra={"task_id": identity.task_id, "error": str(error)})
            return None, False
        with self._lock:
            self._nonces.pop(key, None)
        return held, True

    def _claimed(self, identity: TaskIdentity, nonce: str) -> HeldTask:
        with self._lock:
            manifests = self._prepared.pop(identity.task_id, None)
        if manifests is None:
            manifests = ManifestLog(self._objects, identity.tenant, identity.task_id, identity.span)
        view = manifests.claim(identity.task_epoch, nonce, self._clock.now_ms())
        if view.state is not None:
            state = recovered_state(identity, view)
        elif identity.parents:
            state = inherited_state(identity, [self._parent(identity, one) for one in identity.parents], view.number)
        else:
            state = first_state(identity, view.number)
        state = replace(state, served_ts=self._served_ts(identity))
        return HeldTask(Task(state, self._limits), manifests)

    def _served_ts(self, identity: TaskIdentity) -> int:
        """The highest resolved_ts that readers of the tenant have received; 0 if none is recorded."""
        key = layout.served(identity.tenant)
        try:
            served = served_format.decode(key, self._objects.get(key))
        except NotFoundYet:
            return 0
        except CorruptObject as error:  # an API server replaces it
            log.error(
                "a damaged object of served progress is ignored",
                extra={"task_id": identity.task_id, "error": str(error)},
            )
            return 0
        return served.resolved_ts if served.snapshot_ts == identity.snapshot_ts else 0

    def read_others(self, one: HeldTask, turn: TaskMachine, now_ms: int) -> None:
        """Read the manifests of the other parents of a merge, if the task's next step depends on them. `now_ms`:
        monotonic. Raises the errors of a read."""
        wanted = turn.parents_to_read
        if not wanted:
            one.reads = 0
        if not wanted or now_ms < one.read_ms:
            return
        one.reads += 1
        one.read_ms = now_ms if one.reads < READS_AT_ONCE else now_ms + READ_AGAIN_MS
        state = turn.state
        views = [TaskObjects(self._objects, state.identity.tenant, task_id).follow() for task_id in wanted]
        turn.set_other_parents(state_of_others(state, views))

    def _parent(self, identity: TaskIdentity, task_id: int) -> TaskView:
        return TaskObjects(self._objects, identity.tenant, task_id).follow()
