"""Makes route tables from the owner's copy of the database. A route table has the tenants, tasks, stores and nodes that
all other processes need to know. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from tistream.model.ids import TenantKey
from tistream.wire.meta import ChildTask, RouteTable, SealOrder, StoreRoute, TaskRoute, TenantInfo, TenantRoute
from tistream_meta.decide.discoverer import Discoverers, dispatchers
from tistream_meta.decide.liveness import NodeState
from tistream_meta.decide.model import Node, Store, Task, Tenant
from tistream_meta.owner.owner_copy import ConcernedItems, OwnerCopy


class RouteMaker:
    """Makes each route table from the owner's copy and the previous table. A route that has not changed is the same
    object in both tables, so that readers can compare them quickly."""

    def __init__(self) -> None:
        self._tasks: dict[int, TaskRoute] = {}
        self._tenants: dict[TenantKey, TenantRoute] = {}
        self._discovered_by: dict[TenantKey, str | None] = {}

    def make(
        self, book: OwnerCopy, touched: ConcernedItems, owner_rev: int, states: Mapping[str, NodeState], own_url: str
    ) -> RouteTable:
        """Make the route table of the present state. `touched` has the tasks and tenants that may have changed since
        the last table; only their routes are made anew."""
        for task_id in touched.tasks:
            task = book.tasks.get(task_id)
            if task is None:
                self._tasks.pop(task_id, None)
            else:
                self._tasks[task_id] = _task_route(task, book)
        discoverers = Discoverers(dispatchers(book.nodes.values(), states))
        discovered_by = {key: discoverers.of(key) for key in book.tenants}
        turned = {key for key, node in discovered_by.items() if self._discovered_by.get(key) != node}
        self._discovered_by = discovered_by
        for key in self._tenants.keys() - book.tenants.keys():
            del self._tenants[key]
        for key in (touched.tenants | turned) & book.tenants.keys():
            routes = [self._tasks[task.task_id] for task in book.tasks_of(key)]
            self._tenants[key] = _tenant_route(book.tenants[key], routes, book.stores_of(key), discovered_by[key])
        return RouteTable(
            version=book.version,
            owner_rev=owner_rev,
            tenants=[self._tenants[key] for key in sorted(book.tenants)],
            services={"meta": [own_url], **_services(tuple(book.nodes.values()), states)},
        )


def _services(nodes: tuple[Node, ...], states: Mapping[str, NodeState]) -> dict[str, list[str]]:
    """The URLs of the nodes of each role. Lost nodes are left out, unless all nodes of the role are lost."""
    found: dict[str, list[str]] = {}
    for role in sorted({node.role for node in nodes} - {"meta"}):
        of_role = [node for node in nodes if node.role == role]
        there = [node for node in of_role if states.get(node.node_id) is not NodeState.LOST]
        found[role] = [node.url for node in there or of_role]
    return found


def _task_route(task: Task, book: OwnerCopy) -> TaskRoute:
    node, following = book.nodes.get(task.sorter_node or ""), book.nodes.get(task.next_node or "")
    return TaskRoute(
        task_id=task.task_id,
        start_key=task.span.start.hex(),
        end_key=task.span.end.hex(),
        task_epoch=task.task_epoch,
        sorter_node=task.sorter_node,
        sorter_url=None if node is None else node.url,
        sorter_start_epoch=None if node is None else node.start_epoch,
        next_node=task.next_node,
        next_start_epoch=None if following is None else following.start_epoch,
        parents=list(task.parents),
        seal=_seal_order(task, book),
    )


def _tenant_route(tenant: Tenant, routes: list[TaskRoute], stores: list[Store], discoverer: str | None) -> TenantRoute:
    homeless = sum(route.sorter_url is None for route in routes)
    problem = f"{homeless} of {len(routes)} tasks have no sorter: none has registered" if homeless else tenant.problem
    return TenantRoute(
        cluster_id=tenant.key.cluster_id,
        tenant_id=tenant.key.tenant_id,
        snapshot_ts=tenant.snapshot_ts,
        tasks=routes,
        problem=problem,
        stores=[
            StoreRoute(store_id=store.store_id, dispatcher_node=store.dispatcher_node)
            for store in stores
            if store.retired_ts is None
        ],
        retired_stores=[store.store_id for store in stores if store.retired_ts is not None],
        dispatcher_node=discoverer,
        retention_ms=tenant.retention_ms,
        limits=tenant.limits,
        kms_key_id=tenant.kms_key_id,
        index_keys=tenant.index_keys,
        kind=tenant.kind,
        paused=not tenant.accepts_files,
        erasing=tenant.erasing,
        delete_at_ms=tenant.delete_at_ms,
    )


def _seal_order(task: Task, book: OwnerCopy) -> SealOrder | None:
    """The order to seal a task, for its sorter. It names all parents of a merge, because a sorter's routes have only
    its own tasks, and each parent must know the others. All parents are ordered in one transaction, so their routes
    always change together."""
    seal = task.seal
    if seal is None:
        return None
    merged = [one for one in book.tasks_of(task.tenant) if one.seal is not None and one.seal.children == seal.children]
    parents = [one.task_id for one in sorted(merged, key=lambda one: one.span.start)] if seal.merges else []
    children = [
        ChildTask(task_id=child.task_id, start_key=child.span.start.hex(), end_key=child.span.end.hex())
        for child in seal.children
    ]
    return SealOrder(children=children, stop_at=seal.stop_at, final=seal.final, parents=parents)


def tenant_info(tenant: Tenant) -> TenantInfo:
    """Convert a tenant to the form that the API returns."""
    snapshot_ts = None if tenant.snapshot_ts is None else str(tenant.snapshot_ts)
    return TenantInfo(
        cluster_id=tenant.key.cluster_id,
        tenant_id=tenant.key.tenant_id,
        snapshot_ts=snapshot_ts,
        problem=tenant.problem,
        retention_ms=None if tenant.retention_ms is None else str(tenant.retention_ms),
        kms_key_id=tenant.kms_key_id,
        index_keys=tenant.index_keys,
        kind=tenant.kind,
        state="deleting" if tenant.erasing else "active" if tenant.accepts_files else "paused",
        delete_at_ms=None if tenant.delete_at_ms is None else str(tenant.delete_at_ms),
    )


def waiting(tenants: Iterable[Tenant]) -> tuple[TenantKey, ...]:
    """The tenants that have not started, because their schema_snap has not been read."""
    return tuple(tenant.key for tenant in tenants if tenant.snapshot_ts is None and not tenant.erasing)
