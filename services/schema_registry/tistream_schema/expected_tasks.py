"""Finds the tasks that hold a tenant's schema keys, and their progress. Pure.

The minimum is taken over the tasks that *must* exist to cover the schema's key spans, never over those that happened to
answer (docs/invariants.md, invariant 14).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from tistream.model.span import KeySpan
from tistream.schema.tidb.meta_change import SCHEMA_SPANS
from tistream.wire.meta import TaskRoute, TenantRoute


@dataclass(frozen=True, slots=True)
class SchemaTask:
    """A task whose span overlaps the schema's keys."""

    task_id: int
    span: KeySpan
    task_epoch: int
    sorter_url: str | None
    parents: tuple[int, ...] = ()


class ReportedProgress(Protocol):
    """What a sorter reports of a task: the epoch under which it holds the task, the task's `progress_ts`, and the
    number of the manifest on which this progress rests."""

    @property
    def task_epoch(self) -> int: ...
    @property
    def manifest(self) -> int: ...
    @property
    def progress_ts(self) -> int: ...


@dataclass(frozen=True, slots=True)
class TaskPromise:
    """What a sorter promises about a task: no row at or below progress_ts is missing from manifests 1 … `manifest`."""

    manifest: int
    progress_ts: int


def schema_tasks(route: TenantRoute) -> list[SchemaTask]:
    """The tasks of a route whose spans overlap the schema's keys, in key order."""
    tasks = [_task(task) for task in route.tasks]
    needed = [task for task in tasks if overlaps_schema(task.span)]
    return sorted(needed, key=lambda task: task.span.start)


def overlaps_schema(span: KeySpan) -> bool:
    """Whether a span may contain keys of the schema."""
    return any(span.overlaps(one) for one in SCHEMA_SPANS)


def uncovered_span(tasks: list[SchemaTask]) -> KeySpan | None:
    """A part of the schema's key spans that no task covers; None if the tasks cover all of them. `tasks` are in key
    order."""
    for needed in SCHEMA_SPANS:
        at = needed.start
        for task in tasks:
            if at in task.span:
                at = task.span.end
                if not at or at >= needed.end:
                    break
        else:
            return KeySpan(at, needed.end)
    return None


def promises(tasks: list[SchemaTask], statuses: Mapping[int, ReportedProgress]) -> dict[int, TaskPromise]:
    """What the sorters promise about these tasks, by task id. Reports under an older epoch than the route's are
    ignored."""
    return {
        task.task_id: TaskPromise(status.manifest, status.progress_ts)
        for task in tasks
        if (status := statuses.get(task.task_id)) is not None and status.task_epoch >= task.task_epoch
    }


def _task(route: TaskRoute) -> SchemaTask:
    span = KeySpan(bytes.fromhex(route.start_key), bytes.fromhex(route.end_key))
    return SchemaTask(route.task_id, span, route.task_epoch, route.sorter_url, tuple(route.parents))
