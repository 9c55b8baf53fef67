"""An order to merge tasks of several sorters: each gets the routes of its own tasks, and must know the others."""

from __future__ import annotations

from tistream.clock import ManualClock
from tistream.model.ids import TenantKey
from tistream.model.span import WHOLE, KeySpan
from tistream.wire.clients.route_mark import NOTHING_SEEN
from tistream.wire.meta import RouteTable
from tistream_meta.decide.liveness import NodeState
from tistream_meta.decide.model import Change, Child, Node, Plan, Seal, Task, Tenant
from tistream_meta.owner.owner_copy import OwnerCopy
from tistream_meta.owner.route_board import RouteBoard
from tistream_meta.owner.route_table import RouteMaker
from tistream_sorter.node.assignment import TaskRules, seal_orders

ACME, BETA = TenantKey("c", "acme"), TenantKey("c", "beta")
NODES = tuple(Node(f"sorter-{number}", "sorter", f"http://sorter-{number}", number, "a") for number in (1, 2, 3))
MERGE = Seal((Child(9, WHOLE),), 500, final=False)
RULES = TaskRules(keep_index_keys=False, checkpoint_every=64)


def task(task_id: int, start: bytes, end: bytes, sorter: int, tenant: TenantKey = ACME) -> Task:
    return Task(task_id, tenant, KeySpan(start, end), f"sorter-{sorter}", 1)


def orders(routes: RouteTable | None, sorter: int) -> dict[int, list[int]]:
    """The parents of each task's order, as that sorter reads its routes."""
    assert routes is not None
    found = seal_orders(routes, f"sorter-{sorter}", sorter, RULES)
    return {task_id: order.parents for task_id, order in found.items()}


def test_each_sorter_is_told_all_tasks_that_become_one() -> None:
    rows = (task(3, b"", b"m", 2), task(2, b"m", b"", 1), task(4, b"", b"", 3, BETA))
    book = OwnerCopy(Plan(1, (Tenant(ACME, 7, None), Tenant(BETA, 7, None)), rows, NODES))
    states = {node.node_id: NodeState.ALIVE for node in NODES}
    maker, board = RouteMaker(), RouteBoard(ManualClock())
    board.publish(maker.make(book, book.everything(), 1, states, "http://meta"))
    assert orders(board.wait(NOTHING_SEEN, 0, "sorter-1"), 1) == {}
    given = tuple(Task(one.task_id, ACME, one.span, one.sorter_node, 1, seal=MERGE) for one in rows[:2])
    touched = book.take(Change(2, tasks=given))
    board.publish(maker.make(book, touched, 1, states, "http://meta"))
    assert orders(board.wait(NOTHING_SEEN, 0, "sorter-1"), 1) == {2: [3, 2]}
    assert orders(board.wait(NOTHING_SEEN, 0, "sorter-2"), 2) == {3: [3, 2]}
    assert orders(board.wait(NOTHING_SEEN, 0, "sorter-3"), 3) == {}
