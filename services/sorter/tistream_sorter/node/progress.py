"""Lists the tasks whose progress changed since a reader's last poll, so that a poll costs little. Thread-safe."""

from __future__ import annotations

from collections.abc import Iterable

from tistream.concurrency import new_lock
from tistream.wire.sorter import ProgressPage, TaskProgress
from tistream_sorter.state.task_state import TaskState
from tistream_sorter.task.task import Task


class ProgressFeed:
    """Gives every change of a task's state a version. `boot` identifies this process, because the versions of two
    processes cannot be compared."""

    def __init__(self, boot: str) -> None:
        self._boot = boot
        self._lock = new_lock()
        self._version = 0
        self._seen: dict[int, tuple[TaskState, int]] = {}  # task -> its state, and the version of that state

    def after(self, tasks: Iterable[Task], boot: str, version: int) -> ProgressPage:
        """List the tasks whose state changed after `version`; all tasks if `boot` identifies another process."""
        known = version if boot == self._boot else 0
        moved: list[TaskState] = []
        with self._lock:
            # A child task without a manifest has no progress of its own yet.
            held = {task.task_id: state for task in tasks if not (state := task.state).inherited}
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
