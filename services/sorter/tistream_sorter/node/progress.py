"""Lists the tasks whose progress changed since a reader's last poll, so that a poll costs little. Thread-safe."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from tistream.clock import Clock
from tistream.concurrency import new_condition, new_lock
from tistream.wire.sorter import ProgressPage, TaskProgress
from tistream_sorter.state.task_state import TaskState
from tistream_sorter.task.task import Task


class ProgressFeed:
    """Gives every change of a task's state a version. `boot` identifies this process, because the versions of two
    processes cannot be compared. `tasks` returns the tasks of this process."""

    def __init__(self, boot: str, tasks: Callable[[], Iterable[Task]], clock: Clock) -> None:
        self._boot, self._tasks, self._clock = boot, tasks, clock
        self._lock = new_lock()
        self._changed = new_condition()
        self._changes = 0  # how often `look` has found a change
        self._looked: dict[int, TaskState] = {}
        self._ended = False
        self._version = 0
        self._seen: dict[int, tuple[TaskState, int]] = {}  # task -> its state, and the version of that state

    def look(self) -> bool:
        """Wake the waiting readers if a task's state has changed since the last call, and return whether one has. Only
        one thread may call this."""
        before = self._looked
        self._looked = {task.task_id: task.state for task in self._tasks()}
        if all(before.get(task_id) is state for task_id, state in self._looked.items()):
            return False
        with self._changed:
            self._changes += 1
            self._changed.notify_all()
        return True

    def end(self) -> None:
        """Answer the waiting readers now, because the process is stopping."""
        with self._changed:
            self._ended = True
            self._changed.notify_all()

    def wait(self, boot: str, version: int, wait_ms: int) -> ProgressPage:
        """List the tasks whose state changed after `version`; all tasks if `boot` identifies another process. If there
        is no such task, wait for one, up to `wait_ms`."""
        until_ms = self._clock.monotonic_ms() + wait_ms
        while True:
            changes = self._changes
            page = self._after(boot, version)
            with self._changed:
                left_ms = until_ms - self._clock.monotonic_ms()
                if page.tasks or boot != self._boot or left_ms <= 0 or self._ended:
                    return page
                if changes == self._changes:
                    self._changed.wait(left_ms / 1000)

    def _after(self, boot: str, version: int) -> ProgressPage:
        known = version if boot == self._boot else 0
        moved: list[TaskState] = []
        with self._lock:
            # A child task without a manifest has no progress of its own yet.
            held = {task.task_id: state for task in self._tasks() if not (state := task.state).inherited}
            for task_id in self._seen.keys() - held.keys():
                del self._seen[task_id]
            for task_id, state in held.items():
                seen = self._seen.get(task_id)
                if seen is None or seen[0] is not state:
                    self._version += 1
                    seen = self._seen[task_id] = state, self._version
                if seen[1] > known:
                    moved.append(state)
            version = self._version
        return ProgressPage(boot=self._boot, version=version, tasks=[_progress(state) for state in moved])


def _progress(state: TaskState) -> TaskProgress:
    identity = state.identity
    return TaskProgress(
        cluster_id=identity.tenant.cluster_id,
        tenant_id=identity.tenant.tenant_id,
        task_id=identity.task_id,
        task_epoch=identity.task_epoch,
        manifest=state.number,
        flushed_ts=state.flushed_ts,
        progress_ts=state.reported_ts,
    )
