"""What everybody needs to know of tenants, tasks and nodes, made from a Plan. Pure, except for the board."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import groupby

from tistream.concurrency import new_condition
from tistream.model.ids import TenantKey
from tistream.wire.meta import RouteTable, StoreRoute, TaskRoute, TenantInfo, TenantRoute
from tistream.wire.route_mark import Mark
from tistream_meta.discoverer import Discoverers, dispatchers
from tistream_meta.liveness import NodeState
from tistream_meta.model import Node, Plan, Store, Task, Tenant

_POLL_S = 0.2  # how soon a waiting reader notices that the process stops


def build(plan: Plan, owner_rev: int, states: Mapping[str, NodeState], own_url: str) -> RouteTable:
    """The route table of a plan by the owner of that rev, given what it knows of the nodes."""
    nodes = {node.node_id: node for node in plan.nodes}
    by_tenant = {key: list(group) for key, group in groupby(plan.tasks, lambda task: task.tenant)}
    stores = {key: list(group) for key, group in groupby(plan.stores, lambda store: store.tenant)}
    discoverers = Discoverers(dispatchers(plan.nodes, states))
    return RouteTable(
        version=plan.version,
        owner_rev=owner_rev,
        tenants=[
            _tenant_route(
                tenant,
                by_tenant.get(tenant.key, []),
                nodes,
                stores.get(tenant.key, []),
                discoverers.of(tenant.key),
            )
            for tenant in plan.tenants
        ],
        services={"meta": [own_url], **_services(plan.nodes, states)},
    )


def _services(nodes: tuple[Node, ...], states: Mapping[str, NodeState]) -> dict[str, list[str]]:
    """URLs by role: of the nodes that are not lost, or of all where a role has none other to try."""
    found: dict[str, list[str]] = {}
    for role in sorted({node.role for node in nodes} - {"meta"}):
        of_role = [node for node in nodes if node.role == role]
        there = [node for node in of_role if states.get(node.node_id) is not NodeState.LOST]
        found[role] = [node.url for node in there or of_role]
    return found


def _tenant_route(
    tenant: Tenant, tasks: list[Task], nodes: Mapping[str, Node], stores: list[Store], discoverer: str | None
) -> TenantRoute:
    routes = [
        TaskRoute(
            task_id=task.task_id,
            start_key=task.span.start.hex(),
            end_key=task.span.end.hex(),
            task_epoch=task.task_epoch,
            sorter_node=task.sorter_node,
            sorter_url=None if node is None else node.url,
            sorter_start_epoch=None if node is None else node.start_epoch,
            next_node=task.next_node,
            next_start_epoch=None if following is None else following.start_epoch,
        )
        for task, node, following in (
            (task, nodes.get(task.sorter_node or ""), nodes.get(task.next_node or "")) for task in tasks
        )
    ]
    homeless = sum(route.sorter_url is None for route in routes)
    problem = f"{homeless} of {len(routes)} tasks have no sorter: none has registered" if homeless else tenant.problem
    return TenantRoute(
        cluster_id=tenant.key.cluster_id,
        tenant_id=tenant.key.tenant_id,
        snapshot_ts=tenant.snapshot_ts,
        tasks=routes,
        problem=problem,
        stores=[StoreRoute(store_id=store.store_id, dispatcher_node=store.dispatcher_node) for store in stores],
        dispatcher_node=discoverer,
    )


def tenant_info(tenant: Tenant) -> TenantInfo:
    """A tenant as outsiders see it."""
    snapshot_ts = None if tenant.snapshot_ts is None else str(tenant.snapshot_ts)
    return TenantInfo(
        cluster_id=tenant.key.cluster_id,
        tenant_id=tenant.key.tenant_id,
        snapshot_ts=snapshot_ts,
        problem=tenant.problem,
    )


def waiting(plan: Plan) -> tuple[TenantKey, ...]:
    """Tenants whose schema_snap was not read yet."""
    return tuple(tenant.key for tenant in plan.tenants if tenant.snapshot_ts is None)


def _mark(table: RouteTable) -> Mark:
    return Mark(table.owner_rev, table.version)


class RouteBoard:
    """The newest route table, for readers that wait for the next one."""

    def __init__(self, stopping: Callable[[], bool]) -> None:
        self._stopping = stopping
        self._changed = new_condition()
        self._table: RouteTable | None = None

    def publish(self, table: RouteTable) -> None:
        """Replace the table and wake those who wait. An older one than the present changes nothing."""
        with self._changed:
            if self._table is None or _mark(table) >= _mark(self._table):
                self._table = table
                self._changed.notify_all()

    def current(self) -> RouteTable | None:
        """The newest table, or None before the first."""
        with self._changed:
            return self._table

    def wait(self, known_version: int, wait_ms: int) -> RouteTable | None:
        """The newest table; waits up to wait_ms while its version is `known_version`."""
        with self._changed:
            remaining_s = wait_ms / 1000
            while self._known(known_version) and remaining_s > 0 and not self._stopping():
                self._changed.wait(min(_POLL_S, remaining_s))
                remaining_s -= _POLL_S
            return self._table

    def _known(self, version: int) -> bool:
        return self._table is None or self._table.version == version
