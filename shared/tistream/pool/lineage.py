"""Which logs hold a tenant's committed rows, across the seals of tasks that were split or merged (design.md 4).

Readers follow the seals, not the meta server's list. An old route leads to the children through the parents' seals; a
new one names children that have no state yet, and their parents, which hold what there is until then. Segments are
shared by heirs: who reads several logs counts each once, by its key.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from tistream.errors import Unavailable
from tistream.format.segment import SegmentRef
from tistream.model.ids import TenantKey
from tistream.model.span import KeySpan, joined
from tistream.pool.task_log import TaskLog
from tistream.storage.object_store import ObjectStore


class RoutedTask(Protocol):
    """A task as a route table has it."""

    @property
    def task_id(self) -> int: ...
    @property
    def span(self) -> KeySpan: ...
    @property
    def parents(self) -> Sequence[int]: ...


class Promise(Protocol):
    """What a sorter says of a task: no row at or below progress_ts is missing from its manifests 1 … `manifest`."""

    @property
    def manifest(self) -> int: ...
    @property
    def progress_ts(self) -> int: ...


@dataclass(frozen=True, slots=True)
class Cover:
    """A log, and keys of which it holds every row that is committed."""

    span: KeySpan
    log: TaskLog


class Lineage:
    """The logs of one tenant, followed as far as its routes lead. Not for use by several threads at once."""

    def __init__(self, objects: ObjectStore, tenant: TenantKey) -> None:
        self._objects, self._tenant = objects, tenant
        self._logs: dict[int, TaskLog] = {}
        self._used: set[int] = set()

    def covers(self, task: RoutedTask, told: int | None) -> list[Cover]:
        """Logs that together cover the task's keys, each key once. `told` is the newest manifest that its sorter tells
        of; None if it does not: then the store is asked.

        Raises:
            CorruptObject, InvariantBroken: manifests are damaged, or contradict each other.
            Unavailable: no answer came, or the route is ahead of what is committed.
        """
        own = self._read(task.task_id, told)
        if own.begun or not task.parents:
            return self._below(own, task.span)
        found: list[Cover] = []
        for parent in task.parents:
            log = self._read(parent, None)
            piece = log.span.clip(task.span) if log.begun else None
            if piece is not None:
                found += self._below(log, piece)
        if joined((cover.span for cover in found), len(found) + 1) != (task.span,):
            raise Unavailable(f"task {task.task_id} of {self._tenant}: neither it nor its parents tell of all its keys")
        return found

    def forget_others(self) -> None:
        """Forget the logs that no call of `covers` has led to since the last time."""
        self._logs = {task_id: log for task_id, log in self._logs.items() if task_id in self._used}
        self._used.clear()

    def _below(self, log: TaskLog, span: KeySpan) -> list[Cover]:
        """What covers `span` if `log` did: the log itself, or after its seal its children, but for those that have no
        state yet: of their keys it is still the newest."""
        if not log.sealed:
            return [Cover(span, log)]
        found: list[Cover] = []
        for task_id, child_span in log.children:
            piece = child_span.clip(span)
            if piece is not None:
                child = self._read(task_id, None)
                found += self._below(child, piece) if child.begun else [Cover(piece, log)]
        return found

    def _read(self, task_id: int, told: int | None) -> TaskLog:
        log = self._logs.setdefault(task_id, TaskLog(self._objects, self._tenant, task_id))
        self._used.add(task_id)
        if not log.sealed and (told is None or told > log.number):
            log.refresh()
        return log


def reached(covers: Iterable[Cover], promises: Mapping[int, Promise]) -> int:
    """The ts up to which every row of all of these keys stands in manifests that were read. `promises` by task; they
    were asked for before the manifests: one counts once every manifest that it rests on has been read."""
    return min(_reached(cover.log, promises.get(cover.log.task_id)) for cover in covers)


def _reached(log: TaskLog, promise: Promise | None) -> int:
    if promise is not None and promise.manifest <= log.number:
        return max(log.flushed_ts, promise.progress_ts)
    return log.flushed_ts


class SharedSegments:
    """The live segments of several logs, each once, in a tuple that grows at its end for as long as all of them do."""

    def __init__(self) -> None:
        self.segments: tuple[SegmentRef, ...] = ()
        self._known: dict[int, tuple[SegmentRef, ...]] = {}
        self._keys: set[str] = set()

    def update(self, logs: Iterable[TaskLog]) -> None:
        """Take what these logs list now, and nothing of others."""
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
