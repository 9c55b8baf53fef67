"""The owner's copy of the database in memory. Only the owner writes, so it need not read the database again. Not
thread-safe."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from tistream.model.ids import TenantKey
from tistream_meta.decide.model import Change, Node, Plan, Store, Task, Tenant


@dataclass(slots=True)
class ConcernedItems:
    """The tasks (removed ones included) and tenants that a change may concern."""

    tasks: set[int] = field(default_factory=set)
    tenants: set[TenantKey] = field(default_factory=set)

    def add(self, other: ConcernedItems) -> None:
        """Add the tasks and tenants of `other`."""
        self.tasks |= other.tasks
        self.tenants |= other.tenants


class OwnerCopy:
    """The owner's copy of everything from which routes are made, as of `version`."""

    def __init__(self, plan: Plan) -> None:
        self.version = plan.version
        self.tenants: dict[TenantKey, Tenant] = {tenant.key: tenant for tenant in plan.tenants}
        self.nodes: dict[str, Node] = {node.node_id: node for node in plan.nodes}
        self.stores: dict[tuple[TenantKey, int], Store] = {}
        self.tasks: dict[int, Task] = {}
        self.sealing: set[int] = set()  # tasks with an order to seal themselves
        self._of_tenant: dict[TenantKey, set[int]] = defaultdict(set)
        self._of_node: dict[str, set[int]] = defaultdict(set)
        self._stores_of: dict[TenantKey, set[int]] = defaultdict(set)
        for task in plan.tasks:
            self._put(task)
        for store in plan.stores:
            self._put_store(store)

    def everything(self) -> ConcernedItems:
        """All tasks and tenants, as changed ones: for a copy that was read anew, of which any may differ."""
        return ConcernedItems(set(self.tasks), set(self.tenants))

    def take(self, change: Change) -> ConcernedItems:
        """Apply the changes of a committed transaction to the copy. Returns the tasks and tenants that they concern."""
        touched = set(change.gone)
        for tenant in change.tenants:
            self.tenants[tenant.key] = tenant
            if tenant.erasing:
                self._drop_stores(tenant.key)
        for node in change.nodes:
            self.nodes[node.node_id] = node
            touched |= self._of_node[node.node_id]  # their routes contain its URL and start
        tenants = {tenant.key for tenant in change.tenants}
        tenants |= {self.tasks[task_id].tenant for task_id in touched if task_id in self.tasks}
        for task_id in change.gone:
            self._drop(task_id)
        for task in change.tasks:
            self._drop(task.task_id)
            self._put(task)
            touched.add(task.task_id)
            tenants.add(task.tenant)
        for store in change.stores:
            self._put_store(store)
            tenants.add(store.tenant)
        for of, store_id in change.left:
            if self.stores.pop((of, store_id), None) is not None:
                self._stores_of[of].discard(store_id)
            tenants.add(of)
        for key in change.erased:
            self.tenants.pop(key, None)
            tenants.add(key)
        self.version = change.version
        return ConcernedItems(touched, tenants)

    def tasks_of(self, tenant: TenantKey) -> list[Task]:
        """The tasks of a tenant, in key order."""
        return sorted((self.tasks[one] for one in self._of_tenant[tenant]), key=lambda task: task.span.start)

    def in_order(self) -> list[Task]:
        """All tasks, by tenant and key."""
        return sorted(self.tasks.values(), key=lambda task: (task.tenant, task.span.start))

    def tasks_at(self, node_ids: Iterable[str]) -> set[int]:
        """Tasks whose sorter, or next sorter, is one of these nodes."""
        return {task_id for node_id in node_ids for task_id in self._of_node[node_id]}

    def of_role(self, role: str) -> Sequence[str]:
        """The names of the nodes with a role."""
        return [node.node_id for node in self.nodes.values() if node.role == role]

    def by_node(self) -> list[tuple[Node, int, int]]:
        """Returns (node, number of its tasks, number of its stores) for every node, by name."""
        tasks = Counter(task.sorter_node for task in self.tasks.values())
        stores = Counter(store.dispatcher_node for store in self.stores.values())
        return [(node, tasks[name], stores[name]) for name, node in sorted(self.nodes.items())]

    def stores_of(self, tenant: TenantKey) -> list[Store]:
        """The stores of a tenant, by id."""
        return [self.stores[tenant, store_id] for store_id in sorted(self._stores_of[tenant])]

    def ending(self) -> list[Tenant]:
        """The tenants that are being erased, or that will be deleted at a set time, ordered by name."""
        return [one for _, one in sorted(self.tenants.items()) if one.erasing or one.delete_at_ms is not None]

    def retired(self) -> list[Store]:
        """The retired stores whose files are being deleted, ordered by tenant and id."""
        return [store for _, store in sorted(self.stores.items()) if store.retired_ts is not None]

    def _put_store(self, store: Store) -> None:
        self.stores[store.key] = store
        self._stores_of[store.tenant].add(store.store_id)

    def _drop_stores(self, tenant: TenantKey) -> None:
        for store_id in self._stores_of.pop(tenant, ()):
            del self.stores[tenant, store_id]

    def _put(self, task: Task) -> None:
        self.tasks[task.task_id] = task
        if task.seal is not None:
            self.sealing.add(task.task_id)
        self._of_tenant[task.tenant].add(task.task_id)
        for node_id in (task.sorter_node, task.next_node):
            if node_id is not None:
                self._of_node[node_id].add(task.task_id)

    def _drop(self, task_id: int) -> None:
        task = self.tasks.pop(task_id, None)
        if task is None:
            return
        self.sealing.discard(task_id)
        self._of_tenant[task.tenant].discard(task_id)
        for node_id in (task.sorter_node, task.next_node):
            if node_id is not None:
                self._of_node[node_id].discard(task_id)
