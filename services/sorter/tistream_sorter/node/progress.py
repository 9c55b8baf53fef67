"""Lists the tasks whose progress changed since a reader's last poll, so that a poll costs little. Thread-safe."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

from tistream.clock import Clock
from tistream.concurrency import new_condition, new_lock
from tistream.wire.sorter import ProgressPage, TaskProgress
from tistream_sorter.state.task_state import TaskState
from tistream_sorter.task.task import Task, Troubles


class _Seen(NamedTuple):
    """What readers know of a task."""

    state: TaskState
    troubles: Troubles

    def differs(self, other: _Seen | None) -> bool:
        return other is None or self.state is not other.state or self.troubles != other.troubles


class ProgressFeed:
    """Gives every change of a task's state or troubles a version, because readers show both. `boot` identifies this
    process, because the versions of two processes cannot be compared. `tasks` returns the tasks of this process."""

    def __init__(self, boot: str, tasks: Callable[[], Iterable[Task]], clock: Clock) -> None:
        self._boot, self._tasks, self._clock = boot, tasks, clock
        self._lock = new_lock()
        self._changed = new_condition()
        self._changes = 0  # how often `look` has found a change
        self._looked: dict[int, _Seen] = {}
        self._ended = False
        self._version = 0
        self._seen: dict[int, tuple[_Seen, int]] = {}  # task -> what it was last, and the version of that

    def look(self) -> bool:
        """Wake the waiting readers if a task has changed since the last call, and return whether one has. Only one
        thread may call this."""
        before = self._looked
        self._looked = self._now()
        if not any(seen.differs(before.get(task_id)) for task_id, seen in self._looked.items()):
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
        """List the tasks that changed after `version`; all tasks if `boot` identifies another process. If there is no
        such task, wait for one, up to `wait_ms`. A child task without a manifest of its own is left out."""
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

    def _now(self) -> dict[int, _Seen]:
        wall_ms, monotonic_ms = self._clock.now_ms(), self._clock.monotonic_ms()
        return {task.task_id: _Seen(task.state, task.troubles(wall_ms, monotonic_ms)) for task in self._tasks()}

    def _after(self, boot: str, version: int) -> ProgressPage:
        known = version if boot == self._boot else 0
        moved: list[TaskState] = []
        with self._lock:
            # A child task without a manifest has no progress of its own yet.
            held = {task_id: now for task_id, now in self._now().items() if not now.state.inherited}
            for task_id in self._seen.keys() - held.keys():
                del self._seen[task_id]
            for task_id, now in held.items():
                seen = self._seen.get(task_id)
                if seen is None or now.differs(seen[0]):
                    self._version += 1
                    seen = self._seen[task_id] = now, self._version
                if seen[1] > known:
                    moved.append(now.state)
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
