"""Which tasks meta wants this sorter to hold. Pure."""

from __future__ import annotations

from tistream.model.ids import TenantKey
from tistream.model.span import KeySpan
from tistream.wire.meta import RouteTable
from tistream_sorter.tick import TaskIdentity


def wanted_tasks(
    routes: RouteTable, node_id: str, start_epoch: int, *, keep_index_keys: bool, checkpoint_every: int
) -> list[TaskIdentity]:
    """The tasks routed to this start of `node_id`, of tenants whose snapshot_ts is known."""
    return [
        TaskIdentity(
            tenant=TenantKey(tenant.cluster_id, tenant.tenant_id),
            task_id=task.task_id,
            span=KeySpan(bytes.fromhex(task.start_key), bytes.fromhex(task.end_key)),
            snapshot_ts=tenant.snapshot_ts,
            task_epoch=task.task_epoch,
            keep_index_keys=keep_index_keys,
            checkpoint_every=checkpoint_every,
        )
        for tenant in routes.tenants
        if tenant.snapshot_ts is not None
        for task in tenant.tasks
        if task.sorter_node == node_id and task.sorter_start_epoch == start_epoch
    ]
