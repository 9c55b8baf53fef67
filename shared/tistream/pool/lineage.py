"""Finds the logs that hold a tenant's committed rows, across the seals of split and merged tasks (design.md 4).

Readers follow the seals, because the meta server's route may be older or newer than the logs. From a task in an old
route, its seal leads to its children. A new route may name children that have written nothing yet; their rows are still
in the logs of their parents, which the route names too. Several children may list the same segment, so a reader of
several logs deduplicates segments by key.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from tistream.errors import Unavailable
from tistream.format.segment import SegmentRef
from tistream.model.ids import TenantKey
from tistream.model.span import KeySpan, merge_spans
from tistream.pool.task_log import TaskLog
from tistream.storage.object_store import ObjectStore


class RoutedTask(Protocol):
    """What a reader needs to know of a task in a route table."""

    @property
    def task_id(self) -> int: ...
    @property
    def span(self) -> KeySpan: ...
    @property
    def parents(self) -> Sequence[int]: ...


class ManifestProgress(Protocol):
    """A sorter's report about a task: the task's manifests 1 … `manifest` hold every row at or below progress_ts."""

    @property
    def manifest(self) -> int: ...
    @property
    def progress_ts(self) -> int: ...


@dataclass(frozen=True, slots=True)
class LogSpan:
    """A task's log, and a span of keys. All committed rows with these keys are in that log."""

    span: KeySpan
    log: TaskLog


class Lineage:
    """Finds the task logs of one tenant, from the tasks in its routes. Keeps the logs for later calls. Not
    thread-safe."""

    def __init__(self, objects: ObjectStore, tenant: TenantKey) -> None:
        self._objects, self._tenant = objects, tenant
        self._logs: dict[int, TaskLog] = {}
        self._used: set[int] = set()

    def covers(self, task: RoutedTask, reported: int | None) -> list[LogSpan]:
        """Logs that together cover the task's span, each key once. `reported` is the number of the newest manifest that
        the task's sorter has reported. If it is None, the object store is asked for newer manifests.

        Raises:
            CorruptObject, InvariantBroken: manifests are damaged, or contradict each other.
            Unavailable: the object store does not answer, or the route names tasks that have not been committed yet.
        """
        own = self._read(task.task_id, reported)
        if own.begun or not task.parents:
            return self._below(own, task.span)
        found: list[LogSpan] = []
        for parent in task.parents:
            log = self._read(parent, None)
            piece = log.span.clip(task.span) if log.begun else None
            if piece is not None:
                found += self._below(log, piece)
        if merge_spans((cover.span for cover in found), len(found) + 1) != (task.span,):
            raise Unavailable(f"task {task.task_id} of {self._tenant}: its log and its parents' logs miss some keys")
        return found

    def forget_others(self) -> None:
        """Drop the logs that no call of `covers` has used since the last call of this method."""
        self._logs = {task_id: log for task_id, log in self._logs.items() if task_id in self._used}
        self._used.clear()

    def _below(self, log: TaskLog, span: KeySpan) -> list[LogSpan]:
        """Find the logs that have the rows of `span`, which is a part of the span of `log`: `log` itself or, if its
        task is sealed, the logs of its children. If a child has written nothing yet, `log` still has the rows of its
        keys."""
        if not log.sealed:
            return [LogSpan(span, log)]
        found: list[LogSpan] = []
        for task_id, child_span in log.children:
            piece = child_span.clip(span)
            if piece is not None:
                child = self._read(task_id, None)
                found += self._below(child, piece) if child.begun else [LogSpan(piece, log)]
        return found

    def _read(self, task_id: int, reported: int | None) -> TaskLog:
        log = self._logs.setdefault(task_id, TaskLog(self._objects, self._tenant, task_id))
        self._used.add(task_id)
        if not log.sealed and (reported is None or reported > log.number):
            log.refresh()
        return log


def reached(covers: Iterable[LogSpan], reports: Mapping[int, ManifestProgress]) -> int:
    """The ts up to which, inclusive, the manifests that were read hold every row with keys in the spans of `covers`.
    `covers` has at least one element.

    `reports` has the sorters' reports, by task id. They must have been fetched before the manifests were read. A report
    counts only if every manifest up to its `manifest` has been read.
    """
    return min(_reached(cover.log, reports.get(cover.log.task_id)) for cover in covers)


def _reached(log: TaskLog, report: ManifestProgress | None) -> int:
    if report is not None and report.manifest <= log.number:
        return max(log.flushed_ts, report.progress_ts)
    return log.flushed_ts


class SharedSegments:
    """The live segments of several logs, without duplicates. As long as the logs only add segments, `segments` only
    grows at its end, so that a SegmentIndex of it is updated cheaply."""

    def __init__(self) -> None:
        self.segments: tuple[SegmentRef, ...] = ()
        self._known: dict[int, tuple[SegmentRef, ...]] = {}
        self._keys: set[str] = set()

    def update(self, logs: Iterable[TaskLog]) -> None:
        """Replace the segments by those that `logs` list now."""
        listed = {log.task_id: log.segments for log in logs}
        if not all(_grew(listed.get(task_id, ()), known) for task_id, known in self._known.items()):
            self.segments, self._known, self._keys = (), {}, set()
        new: list[SegmentRef] = []
        for task_id, segments in listed.items():
            for segment in segments[len(self._known.get(task_id, ())) :]:
                if segment.key not in self._keys:
                    self._keys.add(segment.key)
                    new.append(segment)
        self._known = listed
        if new:
            self.segments = (*self.segments, *new)


def _grew(segments: tuple[SegmentRef, ...], known: tuple[SegmentRef, ...]) -> bool:
    return segments is known or segments[: len(known)] == known
