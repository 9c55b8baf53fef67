"""Builds the task reports of a sorter's heartbeat. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from tistream.wire.meta import ChildTask, TaskReport
from tistream_sorter.node.claims import SealedTask
from tistream_sorter.task.task import Task


def reports(
    held: Iterable[Task],
    ended: Iterable[SealedTask],
    prepared: Iterable[int],
    now_ms: int,
    fenced: Iterable[tuple[int, int, int]] = (),
) -> list[TaskReport]:
    """Build the task reports of a heartbeat, for running, sealed, prepared and fenced tasks. `now_ms`: monotonic. A
    stopped task is not reported. A child task is not reported before its first manifest, because its parents are needed
    until then."""
    working = [_working(task, now_ms) for task in held if task.stopped is None and not task.state.inherited]
    coming = [TaskReport(task_id=one, task_epoch=0, prepared=True) for one in prepared]
    refused = [TaskReport(task_id=one, task_epoch=epoch, fenced_by=by) for one, epoch, by in fenced]
    return [*working, *map(_ended, ended), *coming, *refused]


def _working(task: Task, now_ms: int) -> TaskReport:
    state = task.state
    return TaskReport(
        task_id=task.task_id,
        task_epoch=state.identity.task_epoch,
        load=task.load.per_second(now_ms),
        split_key=task.load.split_key(now_ms).hex(),
        progress_ts=state.reported_ts,
        stop_at=task.stop_at,
    )


def _ended(ended: SealedTask) -> TaskReport:
    children = [
        ChildTask(task_id=task_id, start_key=span.start.hex(), end_key=span.end.hex())
        for task_id, span in ended.children
    ]
    return TaskReport(task_id=ended.identity.task_id, task_epoch=ended.identity.task_epoch, sealed=children)
