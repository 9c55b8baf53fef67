"""Publishes the newest route table to readers that poll it and already have most of it."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterator

from tistream.clock import Clock
from tistream.concurrency import new_condition
from tistream.model.ids import TenantKey
from tistream.wire.clients.route_mark import RouteMark
from tistream.wire.meta import RouteTable, TenantRoute

_NO_REV = -1
_REMEMBERED = 65_536  # changes of tenants; a reader that is further behind gets the whole table

Keys = set[TenantKey]


class RouteBoard:
    """Publishes the newest route table to readers that poll. Thread-safe. A reader sends the version of its table and
    gets the changes since then; a sorter gets those of its own tasks only. So the cost of an answer grows with the
    changes, not with the size of the table."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._ended = False
        self._changed = new_condition()
        self._table: RouteTable | None = None
        self._tenants: dict[TenantKey, TenantRoute] = {}
        self._at: dict[str, Keys] = defaultdict(set)  # node -> tenants of which it has tasks
        self._log: deque[tuple[int, dict[TenantKey, set[str]]]] = deque()  # (version, changed tenant -> nodes)
        self._log_from = -1  # the log has every change after this version
        self._remembered = 0

    def publish(self, table: RouteTable) -> None:
        """Set the newest table, and wake the waiting readers. A table that is older than the present one is ignored."""
        with self._changed:
            before = self._table
            if before is not None and _mark(table) < _mark(before):
                return
            if before is None or before.owner_rev != table.owner_rev:
                self._log.clear()
                self._remembered = 0
                self._log_from = table.version
            self._note(table)
            self._table = table
            self._changed.notify_all()

    def _note(self, table: RouteTable) -> None:
        tenants = {TenantKey(route.cluster_id, route.tenant_id): route for route in table.tenants}
        changed = {
            key: _nodes_of_difference(self._tenants.get(key), route)
            for key, route in tenants.items()
            if self._tenants.get(key) is not route
        }
        for key in self._tenants.keys() - tenants.keys():
            changed[key] = set(_nodes(self._tenants[key])) | {node for node, keys in self._at.items() if key in keys}
        for key, nodes in changed.items():
            there = set(_nodes(tenants[key])) if key in tenants else set[str]()
            for node in nodes:
                (self._at[node].add if node in there else self._at[node].discard)(key)
        self._tenants = tenants
        self._log.append((table.version, changed))
        self._remembered += len(changed)
        while self._remembered > _REMEMBERED and len(self._log) > 1:
            version, oldest = self._log.popleft()
            self._remembered -= len(oldest)
            self._log_from = version

    def current(self) -> RouteTable | None:
        """The newest table; None before the first one."""
        with self._changed:
            return self._table

    def wait(self, known: RouteMark, wait_ms: int, node_id: str | None = None) -> RouteTable | None:
        """Wait up to `wait_ms` for a newer route table than that of the reader, whose owner_rev and version are
        `known`. Returns the tenants that have changed since then, or the whole table if the changes are not known any
        more. With `node_id`, the answer has only the tasks of which that node is the sorter or the next sorter. Returns
        None before the first table."""
        with self._changed:
            until_ms = self._clock.monotonic_ms() + wait_ms
            while self._nothing_new(known) and not self._ended:
                left_ms = until_ms - self._clock.monotonic_ms()
                if left_ms <= 0 or not self._changed.wait(left_ms / 1000):
                    break
            return self._answer(known, node_id)

    def end(self) -> None:
        """Answer the waiting readers now, because the process is stopping."""
        with self._changed:
            self._ended = True
            self._changed.notify_all()

    def _nothing_new(self, known: RouteMark) -> bool:
        newest = self._table
        if newest is None:
            return True
        # A reader of an older version sends no owner_rev, and compares versions only.
        return newest.version == known.version and known.owner_rev in (newest.owner_rev, _NO_REV)

    def _answer(self, known: RouteMark, node_id: str | None) -> RouteTable | None:
        table = self._table
        if table is None:
            return None
        since = known.version if known.owner_rev == table.owner_rev and known.version >= self._log_from else None
        if since is None and node_id is None:
            return table
        keys = self._keys(since, node_id)
        tenants = [_of_node(self._tenants[key], node_id) for key in keys if key in self._tenants]
        gone = [(key.cluster_id, key.tenant_id) for key in keys if key not in self._tenants]
        return table.model_copy(update={"tenants": tenants, "since": since, "gone": gone})

    def _keys(self, since: int | None, node_id: str | None) -> list[TenantKey]:
        if since is None:
            assert node_id is not None
            return sorted(self._at.get(node_id, Keys()) & self._tenants.keys())
        found: Keys = set()
        for version, changed in reversed(self._log):
            if version <= since:
                break
            found.update(
                # The end of a tenant concerns every reader, because its last tasks were removed before it.
                key
                for key, nodes in changed.items()
                if node_id is None or node_id in nodes or key not in self._tenants
            )
        return sorted(found)


def _mark(table: RouteTable) -> RouteMark:
    return RouteMark(table.owner_rev, table.version)


def _nodes(route: TenantRoute) -> Iterator[str]:
    for task in route.tasks:
        for node in (task.sorter_node, task.next_node):
            if node is not None:
                yield node


def _nodes_of_difference(before: TenantRoute | None, after: TenantRoute) -> set[str]:
    """The nodes that the change of a tenant's route concerns: their tasks, or the tenant's rules, have changed."""
    if before is None or _rules(before) != _rules(after):
        return {*_nodes(after), *(_nodes(before) if before is not None else ())}
    old, new = {id(task) for task in before.tasks}, {id(task) for task in after.tasks}
    changed = [task for task in before.tasks if id(task) not in new]
    changed += [task for task in after.tasks if id(task) not in old]
    return {node for task in changed for node in (task.sorter_node, task.next_node) if node is not None}


def _rules(route: TenantRoute) -> tuple[object, ...]:
    """The parts of a tenant's route that concern every task of the tenant, such as its retention."""
    kept = route.retention_ms, route.kms_key_id, route.index_keys
    return route.snapshot_ts, route.problem, *kept, route.paused, route.erasing


def _of_node(route: TenantRoute, node_id: str | None) -> TenantRoute:
    if node_id is None:
        return route
    own = [task for task in route.tasks if node_id in (task.sorter_node, task.next_node)]
    return route.model_copy(update={"tasks": own})
