"""What readers of the route table are told, and that it adds up to the whole."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from tistream.clock import ManualClock
from tistream.model.ids import TenantKey
from tistream.model.span import KeySpan
from tistream.wire.clients.route_mark import NOTHING_SEEN, RouteMark
from tistream.wire.clients.route_merge import merged
from tistream.wire.meta import RouteTable
from tistream_meta.decide.liveness import NodeState
from tistream_meta.decide.model import Change, Node, Plan, Task, Tenant
from tistream_meta.owner.owner_copy import OwnerCopy
from tistream_meta.owner.route_board import RouteBoard
from tistream_meta.owner.route_table import RouteMaker

NODES = ["sorter-1", "sorter-2", "sorter-3"]
TENANTS = [TenantKey("c", f"t{number}") for number in range(5)]


def board() -> RouteBoard:
    return RouteBoard(ManualClock())


def table(version: int, owner_rev: int = 0) -> RouteTable:
    return RouteTable(version=version, owner_rev=owner_rev, tenants=[], services={})


def test_an_older_table_that_comes_late_replaces_nothing() -> None:
    routes = board()
    for version in (5, 4):
        routes.publish(table(version))
    newest = routes.current()
    assert newest is not None
    assert newest.version == 5


@pytest.mark.parametrize(("member", "value"), [("retention_ms", 3_600_000), ("kms_key_id", "a-key")])
def test_a_node_hears_of_what_is_said_of_a_tenant_whose_tasks_stay_as_they_are(member: str, value: object) -> None:
    owner, routes = Owner(1), board()
    [task] = [task for task in owner.book.tasks.values() if task.task_id == 10]
    given = replace(task, sorter_node=NODES[0], task_epoch=task.task_epoch + 1)
    owner.touched.add(owner.book.take(Change(owner.book.version + 1, tasks=(given,))))
    routes.publish(owner.table())
    known = routes.wait(NOTHING_SEEN, 0, NODES[0])
    assert known is not None
    said = replace(owner.book.tenants[task.tenant], **{member: value})
    owner.touched.add(owner.book.take(Change(owner.book.version + 1, tenants=(said,))))
    routes.publish(owner.table())
    told = routes.wait(RouteMark(known.owner_rev, known.version), 0, NODES[0])
    assert told is not None
    assert [getattr(tenant, member) for tenant in told.tenants] == [value]
    other = routes.wait(RouteMark(known.owner_rev, known.version), 0, NODES[1])
    assert other is not None
    assert other.tenants == [], "it has no task of it"


class Owner:
    """A book that changes at random, and the tables made of it."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        nodes = tuple(Node(name, "sorter", f"http://{name}", number, "a") for number, name in enumerate(NODES))
        tasks = tuple(
            Task(10 * at + part, key, KeySpan(b"%d" % part, b"%d" % (part + 1)), None, 0)
            for at, key in enumerate(TENANTS)
            for part in range(4)
        )
        self.book = OwnerCopy(Plan(1, tuple(Tenant(key, 7, None) for key in TENANTS), tasks, nodes))
        self.maker = RouteMaker()
        self.touched = self.book.everything()

    def change(self) -> None:
        tasks = self.rng.sample(sorted(self.book.tasks.values(), key=lambda task: task.task_id), self.rng.randrange(4))
        given = tuple(
            Task(
                task.task_id,
                task.tenant,
                task.span,
                self.rng.choice(NODES),
                task.task_epoch + 1,
                self.rng.choice([None, *NODES]),
            )
            for task in tasks
        )
        if self.rng.random() < 0.05:
            self.erase(self.rng.choice(TENANTS))
            return
        nodes = ()
        if self.rng.random() < 0.2:
            name = self.rng.choice(NODES)
            nodes = (Node(name, "sorter", f"http://{name}", self.book.version + 100, "b"),)
        self.touched.add(self.book.take(Change(self.book.version + 1, tasks=given, nodes=nodes)))

    def erase(self, key: TenantKey) -> None:
        """A tenant that has tasks loses them; one that has none is no more."""
        tenant, version = self.book.tenants.get(key), self.book.version + 1
        if tenant is None:
            return
        gone = tuple(task.task_id for task in self.book.tasks_of(key))
        left = Change(version, tenants=(replace(tenant, erasing=True),), gone=gone)
        self.touched.add(self.book.take(left if gone else Change(version, erased=(key,))))

    def table(self) -> RouteTable:
        made = self.maker.make(self.book, self.touched, 3, dict.fromkeys(NODES, NodeState.ALIVE), "http://meta")
        self.touched = type(self.touched)()
        return made

    def anew(self) -> RouteTable:
        """Made at once from all that there is."""
        states = dict.fromkeys(NODES, NodeState.ALIVE)
        return RouteMaker().make(self.book, self.book.everything(), 3, states, "http://meta")


def own(whole: RouteTable, node: str) -> dict[int, tuple[str | None, int, str | None, int | None]]:
    return {
        task.task_id: (task.sorter_node, task.task_epoch, task.next_node, task.sorter_start_epoch)
        for tenant in whole.tenants
        for task in tenant.tasks
        if node in (task.sorter_node, task.next_node)
    }


@pytest.mark.parametrize("seed", range(20))
def test_what_is_told_in_parts_adds_up_to_the_whole(seed: int) -> None:
    """Readers of everything and of one node's tasks, each as far behind as it happens to be."""
    owner, routes, rng = Owner(seed), board(), random.Random(seed)
    readers: dict[str | None, RouteTable | None] = dict.fromkeys([None, *NODES])
    for _ in range(60):
        for _ in range(rng.randrange(3)):
            owner.change()
        routes.publish(owner.table())
        for node in [one for one in readers if rng.random() < 0.4]:
            known = readers[node]
            mark = NOTHING_SEEN if known is None else RouteMark(known.owner_rev, known.version)
            told = routes.wait(mark, 0, node)
            assert told is not None
            readers[node] = merged(known, told)
    whole = owner.anew()
    for node, known in readers.items():
        assert known is not None
        told = routes.wait(RouteMark(known.owner_rev, known.version), 0, node)
        assert told is not None
        now = merged(known, told)
        if node is None:
            assert now == whole
        else:
            assert own(now, node) == own(whole, node)


def test_a_reader_is_told_only_what_has_changed_and_a_node_only_of_its_own() -> None:
    owner, routes = Owner(1), board()
    routes.publish(owner.table())
    task = owner.book.tasks[21]
    given = Task(21, task.tenant, task.span, "sorter-2", 1)
    owner.touched.add(owner.book.take(Change(2, tasks=(given,))))
    routes.publish(owner.table())
    everything = routes.wait(RouteMark(3, 1), 0)
    assert everything is not None
    assert (everything.since, [tenant.tenant_id for tenant in everything.tenants]) == (1, ["t2"])
    mine, others = (routes.wait(RouteMark(3, 1), 0, node) for node in ("sorter-2", "sorter-1"))
    assert mine is not None
    assert others is not None
    assert [[task.task_id for task in tenant.tasks] for tenant in mine.tenants] == [[21]]
    assert (others.version, others.tenants) == (2, [])


def test_who_followed_another_owner_is_told_everything() -> None:
    owner, routes = Owner(1), board()
    routes.publish(owner.table())
    told = routes.wait(RouteMark(2, 1), 0)
    assert told is not None
    assert (told.since, len(told.tenants)) == (None, len(TENANTS))


def test_a_tenant_that_a_restored_database_does_not_know_is_told_to_nobody() -> None:
    owner, routes = Owner(1), board()
    routes.publish(owner.table())
    fewer = owner.table().model_copy(update={"owner_rev": 9, "version": 2})
    routes.publish(fewer.model_copy(update={"tenants": fewer.tenants[1:]}))
    told = routes.wait(RouteMark(3, 1), 0, "sorter-1")
    assert told is not None
    assert TENANTS[0].tenant_id not in {tenant.tenant_id for tenant in told.tenants}


def test_who_waits_hears_of_a_new_owner_though_it_changed_nothing() -> None:
    owner, routes = Owner(1), board()
    table_now = owner.table()
    routes.publish(table_now)
    known = RouteMark(table_now.owner_rev, table_now.version)
    routes.publish(table_now.model_copy(update={"owner_rev": known.owner_rev + 1}))
    told = routes.wait(known, 60_000)
    assert told is not None
    assert told.owner_rev == known.owner_rev + 1
