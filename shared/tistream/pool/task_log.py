"""Reads a task's committed segments from its manifests, follows new manifests, and finds segments by window."""

from __future__ import annotations

from tistream.errors import UnknownName
from tistream.format.segment import SegmentRef
from tistream.format.task_view import NOTHING, TaskView
from tistream.model.ids import TenantKey
from tistream.model.span import KeySpan
from tistream.model.ts import Window
from tistream.pool.segment_index import SegmentIndex
from tistream.storage.manifest_follow import TaskObjects
from tistream.storage.object_store import ObjectStore


class TaskLog:
    """Follows the manifests of one task. Not thread-safe; returned objects are immutable."""

    def __init__(self, objects: ObjectStore, tenant: TenantKey, task_id: int) -> None:
        self._task = TaskObjects(objects, tenant, task_id)
        self._view = NOTHING
        self._index = SegmentIndex()

    def refresh(self) -> bool:
        """Read the manifests committed since the last refresh. Returns whether there were any. If there were none, it
        costs two small requests.

        Raises:
            CorruptObject, InvariantBroken: the task's manifests are damaged, or contradict each other.
            Unavailable: the object store does not answer; the log is unchanged.
        """
        before, self._view = self._view, self._task.follow(self._view)
        return self._view.number != before.number

    @property
    def view(self) -> TaskView:
        """The task's state according to its manifests, as of the last refresh."""
        return self._view

    @property
    def task_id(self) -> int:
        return self._task.task_id

    @property
    def begun(self) -> bool:
        """Whether some manifest states the task's segments. Until then, the rows of its keys are in the logs of its
        parents."""
        return self._view.state is not None

    @property
    def number(self) -> int:
        """The number of the newest manifest that was read; 0 before the first."""
        return self._view.number

    @property
    def epoch(self) -> int:
        return self._view.epoch

    @property
    def flushed_ts(self) -> int:
        """The ts up to which the segments hold every commit in the task's span; 0 before the first flush."""
        return self._view.flushed_ts

    @property
    def span(self) -> KeySpan:
        """The span of keys that the task holds. Raises UnknownName before the task's first manifest."""
        if self._view.last is None:
            raise UnknownName(f"task {self._task.task_id} of {self._task.tenant} has no manifest yet")
        return self._view.last.span

    @property
    def segments(self) -> tuple[SegmentRef, ...]:
        """The live segments, in the order in which manifests named them."""
        return self._view.segments

    @property
    def sealed(self) -> bool:
        return self._view.sealed

    @property
    def children(self) -> tuple[tuple[int, KeySpan], ...]:
        """The tasks that replace this one, if it is sealed: (task_id, span)."""
        return self._view.last.children if self._view.last is not None else ()

    def segments_overlapping(self, window: Window) -> list[SegmentRef]:
        """The live segments that may hold rows of the window, in the order in which manifests named them."""
        self._index.update(self._view.segments)
        return self._index.overlapping(window)
