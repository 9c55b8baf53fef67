"""Builds the answer of TenantPlacement: the node of each task and store of a tenant, and what each of these waits for.
Pure."""

from __future__ import annotations

from tistream.wire.api import StorePlace, TaskPlace, TenantPlacement
from tistream.wire.meta import TaskRoute, TenantRoute
from tistream_api.status.lateness import TenantReports


def placement(picture: TenantReports, route: TenantRoute) -> TenantPlacement:
    """The answer of TenantPlacement: tasks in key order, stores by id."""
    return TenantPlacement(tasks=[_task(picture, task) for task in route.tasks], stores=_stores(picture, route))


def _task(picture: TenantReports, task: TaskRoute) -> TaskPlace:
    status = picture.statuses.get(task.task_id)
    return TaskPlace(
        task_id=str(task.task_id),
        start_key=task.start_key,
        end_key=task.end_key,
        sorter=task.sorter_node,
        next_sorter=task.next_node,
        task_epoch=str(task.task_epoch),
        resolved_ts=None if status is None else str(status.progress_ts),
        waits=_task_waits(picture, task),
    )


def _task_waits(picture: TenantReports, task: TaskRoute) -> str | None:
    """Why a task waits; None if it does not wait. Of several reasons the first one of this list is returned: no sorter,
    no report of its sorter, stopped, a hold, its children are about to replace it, it moves to another sorter."""
    status = picture.statuses.get(task.task_id)
    if task.sorter_node is None:
        return "no sorter has it: none is alive"
    if status is None:
        return f"{task.sorter_node} does not report it yet"
    if status.stopped is not None:
        return f"stopped: {status.stopped}"
    if status.holds:
        return status.holds[0].reason
    if task.seal is not None:
        children = ", ".join(str(child.task_id) for child in task.seal.children)
        return f"it is about to be carried on by {children}"
    return None if task.next_node is None else f"{task.next_node} prepares to take it over"


def _stores(picture: TenantReports, route: TenantRoute) -> list[StorePlace]:
    """The stores that the route names, and further ones that dispatchers report."""
    reported = {store.store_id: store for store in picture.stores}
    named = {store.store_id: store.dispatcher_node for store in route.stores or ()}
    waits = {hold.store_id: hold.reason for hold in picture.holds if hold.store_id is not None}
    found = []
    for store_id in sorted(named.keys() | reported.keys()):
        store = reported.get(store_id)
        hold = None if store is None or store.hold is None else store.hold.reason
        found.append(
            StorePlace(
                store_id=str(store_id),
                dispatcher=named.get(store_id),
                last_file_ts=None if store is None else str(store.last_file_ts),
                waits=hold or waits.get(str(store_id)),
            )
        )
    return found
