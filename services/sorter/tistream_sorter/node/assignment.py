"""Finds in the route table the tasks that this sorter must hold, and those that will move to it. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tistream.model.ids import TenantKey
from tistream.model.span import KeySpan
from tistream.model.tenant_kind import TenantKind
from tistream.wire.meta import RouteTable, SealOrder, TaskRoute
from tistream_sorter.state.task_state import TaskIdentity


@dataclass(frozen=True, slots=True)
class TaskRules:
    """Settings that apply to every task of this sorter (task_state.TaskIdentity). keep_index_keys: the value for
    tenants that do not set it themselves."""

    keep_index_keys: bool
    checkpoint_every: int


def wanted_tasks(routes: RouteTable, node_id: str, start_epoch: int, rules: TaskRules) -> list[TaskIdentity]:
    """The tasks that the route table assigns to this start of `node_id`. Tenants whose snapshot_ts is not known are
    left out."""
    me = (node_id, start_epoch)
    return [one for one, task in _tasks(routes, rules) if (task.sorter_node, task.sorter_start_epoch) == me]


def seal_orders(routes: RouteTable, node_id: str, start_epoch: int, rules: TaskRules) -> dict[int, SealOrder]:
    """The owner's orders to split or merge tasks of this start of `node_id`, by task id."""
    me = (node_id, start_epoch)
    mine = (
        (one, task.seal) for one, task in _tasks(routes, rules) if (task.sorter_node, task.sorter_start_epoch) == me
    )
    return {one.task_id: seal for one, seal in mine if seal is not None}


def coming_tasks(routes: RouteTable, node_id: str, start_epoch: int, rules: TaskRules) -> list[TaskIdentity]:
    """The tasks that will move to this start of `node_id`."""
    me = (node_id, start_epoch)
    return [one for one, task in _tasks(routes, rules) if (task.next_node, task.next_start_epoch) == me]


def retentions(routes: RouteTable) -> dict[TenantKey, int]:
    """For how many ms each tenant's committed rows are kept, without the tenants that keep rows for ever."""
    return {
        TenantKey(tenant.cluster_id, tenant.tenant_id): tenant.retention_ms
        for tenant in routes.tenants
        if tenant.retention_ms is not None
    }


def _tasks(routes: RouteTable, rules: TaskRules) -> Iterator[tuple[TaskIdentity, TaskRoute]]:
    for tenant in routes.tenants:
        if tenant.snapshot_ts is None:
            continue
        for task in tenant.tasks:
            identity = TaskIdentity(
                tenant=TenantKey(tenant.cluster_id, tenant.tenant_id),
                task_id=task.task_id,
                span=KeySpan(bytes.fromhex(task.start_key), bytes.fromhex(task.end_key)),
                snapshot_ts=tenant.snapshot_ts,
                task_epoch=task.task_epoch,
                keep_index_keys=rules.keep_index_keys if tenant.index_keys is None else tenant.index_keys,
                raw=tenant.kind is TenantKind.RAW,
                checkpoint_every=rules.checkpoint_every,
                parents=tuple(task.parents),
            )
            yield identity, task
