"""HTTP routes of the sorter. They parse requests, call SorterNode and convert its results to answers."""

from itertools import pairwise
from typing import Annotated

import numpy as np
import pyarrow as pa
from fastapi import APIRouter, Depends, Query, Request

from tistream import trace
from tistream.clock import Clock
from tistream.errors import InvalidRequest, Unavailable, UnknownName
from tistream.model.span import KeySpan
from tistream.trace import Mark
from tistream.wire import file_batch
from tistream.wire.sorter import Coverage, FilesReceipt, ProgressPage, StoreNeed, TaskList
from tistream_sorter.node.node import SorterNode
from tistream_sorter.node.progress import ProgressFeed
from tistream_sorter.task.mailbox import FlushedByAllNote
from tistream_sorter.task.status import chains
from tistream_sorter.task.tick import TaskFile

router = APIRouter()


async def raw_body(request: Request) -> bytes:
    """The request body as bytes."""
    return await request.body()


def node_of(request: Request) -> SorterNode:
    """The SorterNode of this process."""
    node: SorterNode = request.app.state.node
    return node


def clock_of(request: Request) -> Clock:
    """The clock of this process."""
    clock: Clock = request.app.state.clock
    return clock


Node = Annotated[SorterNode, Depends(node_of)]


@router.post("/v1/files", operation_id="AcceptFiles")
def accept_files(
    body: Annotated[bytes, Depends(raw_body)], node: Node, clock: Annotated[Clock, Depends(clock_of)]
) -> FilesReceipt:
    """Queue new files, of which the request has names and watermark rows but no changes, for the tasks that the request
    names. Idempotent. A task whose inbox is full accepts no file: its `received` positions show that, and the sender
    repeats the call. The other tasks of the request accept their files. If all of them are full, the answer is 503."""
    try:
        batch = file_batch.decode(body)
    except (ValueError, KeyError, TypeError) as error:
        raise InvalidRequest(f"not a file batch: {error}") from error
    received = {}
    unknown = []
    full = True
    for task_id, files in by_task(batch, trace.mark()).items():
        task = node.find(task_id)
        if task is None:
            unknown.append(task_id)
            continue
        if batch.flushed_ts is not None:
            task.leave(FlushedByAllNote(batch.flushed_ts))
        full &= not task.offer(files, clock.monotonic_ms())
        received[task_id] = chains(task.received())
    node.wake()
    if received and full:
        raise Unavailable("no task of the batch has room for more files; send again")
    return FilesReceipt(received=received, unknown_tasks=unknown)


def by_task(batch: file_batch.FileBatch, mark: Mark | None = None) -> dict[int, list[TaskFile]]:
    """The files of a request by task id, each with the watermark rows of that task. mark: the trace context of their
    arrival."""
    file, task = (batch.watermarks[name].to_numpy() for name in ("file", "task_id"))
    order = np.lexsort((task, file))  # stable: the rows of each pair stay in order
    rows = batch.watermarks
    if (np.diff(order) < 0).any():
        rows, file, task = rows.take(pa.array(order)), file[order], task[order]
    begins = np.flatnonzero((np.diff(file, prepend=-1) != 0) | (np.diff(task, prepend=-1) != 0)).tolist()
    runs = {
        (int(file[begin]), int(task[begin])): rows.slice(begin, end - begin)
        for begin, end in pairwise([*begins, len(order)])
    }
    none = rows.slice(0, 0)
    out: dict[int, list[TaskFile]] = {}
    for number, ref in enumerate(batch.files):
        for task_id in ref.row_groups:
            out.setdefault(task_id, []).append(TaskFile(ref, runs.get((number, task_id), none), mark))
    return out


@router.get("/v1/tasks", operation_id="ListTasks")
def list_tasks(
    request: Request,
    node: Node,
    clock: Annotated[Clock, Depends(clock_of)],
    cluster_id: str | None = None,
    tenant_id: str | None = None,
) -> TaskList:
    """List the tasks of this sorter with their progress, positions and holds."""
    wall_ms, monotonic_ms = clock.now_ms(), clock.monotonic_ms()
    wanted = [
        task.status(wall_ms, monotonic_ms)
        for task in node.tasks()
        if cluster_id in (None, task.state.identity.tenant.cluster_id)
        and tenant_id in (None, task.state.identity.tenant.tenant_id)
    ]
    return TaskList(node_id=request.app.state.node_id, tasks=wanted)


@router.get("/v1/progress", operation_id="Progress")
def progress(
    request: Request, boot: str = "", after: int = 0, wait_ms: Annotated[int, Query(ge=0, le=60_000)] = 0
) -> ProgressPage:
    """The progress of the tasks that changed since an earlier answer, whose `boot` and `version` the caller passes as
    `boot` and `after`. If no task has changed, the answer comes when one does, or after `wait_ms`. One call is for all
    tenants."""
    feed: ProgressFeed = request.app.state.progress
    return feed.wait(boot, after, wait_ms)


@router.get("/v1/tasks/{task_id}/coverage", operation_id="TaskCoverage")
def task_coverage(task_id: int, node: Node, start_key: str = "", end_key: str = "") -> Coverage:
    """The task's slices inside [start_key, end_key) (hex; empty = unbounded) in key order, according to its newest
    manifest. 404 if this sorter does not hold the task."""
    task = node.known(task_id)
    if task is None:
        raise UnknownName(f"task {task_id} is not held here")
    try:
        start, end = bytes.fromhex(start_key), bytes.fromhex(end_key)
    except ValueError as error:
        raise InvalidRequest(f"start_key and end_key are hexadecimal: {error}") from error
    if end and start >= end:
        raise InvalidRequest("start_key must lie below end_key")
    return task.coverage(KeySpan(start, end))


@router.get("/v1/tasks/{task_id}/stores/{store_id}", operation_id="StoreNeed")
def store_need(task_id: int, store_id: int, node: Node) -> StoreNeed:
    """What a task still needs from a store: the slice that depends on the store, and the store's files that it still
    reads. 404 if this sorter does not hold the task."""
    task = node.known(task_id)
    if task is None:
        raise UnknownName(f"task {task_id} is not held here")
    return task.needs_of(store_id)
