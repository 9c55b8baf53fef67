"""An explicit search of the scheduling protocol: the scheduler's own rules, and every order in which elections, steps,
tables, claims, reports and losses can come, to a depth. Tables arrive late, twice or never, from old owners too.

Safety, in every state: of a task at most one sorter can commit (seed 004, "no double write"), and it is one that the
database has given it to (or once had, under the epoch that the manifests know); of a task and its children, which have
its keys, never both. Liveness, from every state: if the last elected owner goes on and everything arrives, all tasks
come to be held, each by its sorter, or are sealed, with children that are ("no lost table").
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, replace

import pytest

from support.effort import cases
from tistream.wire.clients.route_mark import NOTHING_SEEN, RouteMark
from tistream_meta.decide.liveness import NodeState
from tistream_meta.decide.task_phases import Phase, PhaseEvent, Placement
from tistream_meta.decide.task_policy import schedule

NODES = ("a", "b", "c")


@dataclass(frozen=True, slots=True)
class Row:
    """A task in the database, or the place of one that a split may make: `exists` then comes with the parent's seal."""

    sorter: str | None = None
    epoch: int = 0
    following: str | None = None
    exists: bool = True
    parent: int | None = None
    ordered: bool = False  # an operator has it split
    sealed: bool = False  # the owner has heard of its seal


@dataclass(frozen=True, slots=True)
class Node:
    """What a sorter knows: the newest table, the epochs that it has claimed, and what it has prepared."""

    seen: RouteMark = NOTHING_SEEN
    wanted: tuple[int, ...] = ()  # epoch by task; 0: not its own
    coming: frozenset[int] = frozenset()
    claimed: tuple[int, ...] = ()
    ordered: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True)
class World:
    """Everything. `believes` is the owner_rev that each meta server thinks it has."""

    rows: tuple[Row, ...]
    nodes: tuple[Node, ...]
    owner_rev: int
    version: int
    believes: tuple[int, ...]
    lost: frozenset[str]
    log: tuple[int, ...]  # epoch of the last claim in each task's manifests
    tables: frozenset[tuple[RouteMark, tuple[Row, ...]]]  # published, and delivered whenever
    told: frozenset[tuple[str, int, int, bool]]  # (node, task, epoch, prepared): heard by the newest owner
    sealed: frozenset[int]  # tasks whose last manifest is a seal
    told_seals: frozenset[int]  # those of which the newest owner has heard


def first(tasks: int, splits: int = 0) -> World:
    """`splits` of the tasks may be split, each into two."""
    children = tuple(Row(exists=False, parent=task) for task in range(splits) for _ in range(2))
    rows = (Row(),) * tasks + children
    return World(
        rows=rows,
        nodes=tuple(Node(wanted=(0,) * len(rows), claimed=(0,) * len(rows)) for _ in NODES),
        owner_rev=1,
        version=0,
        believes=(1, 0),
        lost=frozenset(),
        sealed=frozenset(),
        told_seals=frozenset(),
        log=(0,) * len(rows),
        tables=frozenset(),
        told=frozenset(),
    )


def placements(world: World) -> list[Placement]:
    return [
        Placement(
            task,
            row.sorter,
            row.epoch,
            row.following,
            held=(row.sorter, task, row.epoch, False) in world.told,
            prepared=any((row.following, task, epoch, True) in world.told for epoch in range(row.epoch + 1)),
            ordered=row.ordered,
            sealed=row.sealed,
        )
        for task, row in enumerate(world.rows)
        if row.exists
    ]


def _placement(world: World, task: int) -> Placement:
    return next(placement for placement in placements(world) if placement.task_id == task)


def ordered(world: World, task: int) -> World:
    """An operator has a task split. The owner takes that of one that runs and does not move."""
    row = world.rows[task]
    if row.ordered or not row.exists or _placement(world, task).phase is not Phase.RUNNING:
        return world
    rows = (*world.rows[:task], replace(row, ordered=True), *world.rows[task + 1 :])
    version = world.version + 1
    table = (RouteMark(world.owner_rev, version), rows)
    return replace(world, rows=rows, version=version, tables=world.tables | {table})


def sealed(world: World, number: int, task: int) -> World:
    """The sorter's last manifest of a task, under the epoch that it has claimed, if none newer has claimed since."""
    node = world.nodes[number]
    if task not in node.ordered or not node.claimed[task] or node.claimed[task] != world.log[task]:
        return world
    return replace(world, sealed=world.sealed | {task})


def decided(world: World) -> World:
    """The owner takes what steps the policies want, in one transaction, and publishes."""
    states = {node: NodeState.LOST if node in world.lost else NodeState.ALIVE for node in NODES}
    rows = list(world.rows)
    sealed = sorted(task for task in world.told_seals if not rows[task].sealed)
    if sealed:  # first of all, and with the children in the same transaction
        for task in sealed:
            after = _placement(world, task).after(PhaseEvent.SEALED)
            rows[task] = replace(rows[task], sealed=after.sealed, following=after.next_node)
            for child, row in enumerate(rows):
                rows[child] = replace(row, exists=True) if row.parent == task else row
    else:
        commands = schedule(placements(world), states, {})
        if not commands and any(mark.version == world.version for mark, _ in world.tables):
            return world
        for command in commands:
            after = _placement(world, command.task_id).after(command.step, command.node)
            rows[command.task_id] = replace(
                rows[command.task_id], sorter=after.sorter_node, epoch=after.task_epoch, following=after.next_node
            )
    version = world.version + 1
    table = (RouteMark(world.owner_rev, version), tuple(rows))
    return replace(world, rows=tuple(rows), version=version, tables=world.tables | {table})


def delivered(world: World, number: int, table: tuple[RouteMark, tuple[Row, ...]]) -> World:
    """A sorter takes a table, unless it has seen a newer one."""
    mark, rows = table
    node = world.nodes[number]
    if mark <= node.seen:
        return world
    name = NODES[number]
    wanted = tuple(row.epoch if row.exists and not row.sealed and row.sorter == name else 0 for row in rows)
    claimed = tuple(has if has == want else 0 for has, want in zip(node.claimed, wanted, strict=True))
    coming = frozenset(task for task, row in enumerate(rows) if row.following == name)
    orders = frozenset(task for task, row in enumerate(rows) if row.ordered and wanted[task])
    return with_node(world, number, Node(mark, wanted, coming, claimed, orders))


def claimed(world: World, number: int, task: int) -> World:
    """A claim manifest: won if no epoch at or above it has claimed before. A sealed task takes none."""
    node = world.nodes[number]
    epoch = node.wanted[task]
    if not epoch or task in world.sealed or node.claimed[task] == epoch or world.log[task] >= epoch:
        return world
    log = (*world.log[:task], epoch, *world.log[task + 1 :])
    mine = (*node.claimed[:task], epoch, *node.claimed[task + 1 :])
    return replace(with_node(world, number, replace(node, claimed=mine)), log=log)


def heard(world: World, number: int) -> World:
    """The owner hears what a sorter holds and is prepared for; it replaces what it heard before."""
    node, name = world.nodes[number], NODES[number]
    held = {(name, task, epoch, False) for task, epoch in enumerate(node.claimed) if epoch}
    ready = {(name, task, 0, True) for task in node.coming}
    seals = frozenset(task for task, epoch in enumerate(node.wanted) if epoch and task in world.sealed)
    told = frozenset(one for one in world.told if one[0] != name) | held | ready
    return replace(world, told=told, told_seals=world.told_seals | seals)


def with_node(world: World, number: int, node: Node) -> World:
    return replace(world, nodes=(*world.nodes[:number], node, *world.nodes[number + 1 :]))


def steps(world: World, elections: int) -> Iterator[World]:
    for meta, rev in enumerate(world.believes):
        if rev == world.owner_rev:
            yield decided(world)
            for task in {row.parent for row in world.rows if row.parent is not None}:
                yield ordered(world, task)
        elif world.owner_rev < 1 + elections:
            # Its lease ran out. The old one does not know, and writes nothing more: the condition says owner_rev.
            taken = world.owner_rev + 1
            believes = (*world.believes[:meta], taken, *world.believes[meta + 1 :])
            yield replace(world, owner_rev=taken, believes=believes, told=frozenset(), told_seals=frozenset())
    for number, name in enumerate(NODES):
        for table in world.tables:
            yield delivered(world, number, table)
        for task in range(len(world.rows)):
            yield claimed(world, number, task)
            yield sealed(world, number, task)
        if name not in world.lost:
            yield heard(world, number)
        if len(world.lost) < len(NODES) - 1 or name in world.lost:
            told = frozenset(one for one in world.told if one[0] != name)
            yield replace(world, lost=world.lost ^ {name}, told=told)


def check_safety(world: World) -> None:
    for task, epoch in enumerate(world.log):
        able = [name for name, node in zip(NODES, world.nodes, strict=True) if epoch and node.claimed[task] == epoch]
        assert len(able) <= 1, f"task {task}: {able} can both commit"
        assert world.rows[task].epoch >= epoch, "an epoch that the database never gave"
        parent = world.rows[task].parent
        assert not epoch or parent is None or parent in world.sealed, f"task {task} and its parent can both commit"


def check_liveness(world: World) -> None:
    """With the last owner, all messages and no more losses."""
    now = world
    for _ in range(12):
        before = now
        now = decided(now)
        newest = max(now.tables, key=lambda table: table[0])
        for number, name in enumerate(NODES):
            now = delivered(now, number, newest)
            for task in range(len(now.rows)):
                now = sealed(claimed(now, number, task), number, task)
            if name not in now.lost:
                now = heard(now, number)
        if now == before:
            break
    for placement in placements(now):
        task = placement.task_id
        assert (task in now.sealed) == placement.sealed, f"nobody tells of a seal, after {world}"
        assert placement.sealed or not now.rows[task].ordered, f"an order is forgotten, after {world}"
        if placement.sealed:
            continue
        assert placement.phase.value == "running", f"{placement} after {world}"
        node = now.nodes[NODES.index(placement.sorter_node or "")]
        assert node.claimed[task] == now.log[task] == placement.task_epoch
        assert placement.sorter_node not in now.lost


@pytest.mark.parametrize(
    ("tasks", "splits", "elections", "depth", "at_least"),
    cases([(1, 0, 2, 9, 5_000)], [(3, 0, 2, 7, 10_000), (1, 1, 1, 10, 15_000)]),
)
def test_no_double_write_and_no_lost_table(tasks: int, splits: int, elections: int, depth: int, at_least: int) -> None:
    start = first(tasks, splits)
    known, open_ = {start}, deque([(start, 0)])
    while open_:
        world, at = open_.popleft()
        check_safety(world)
        check_liveness(world)
        if at < depth:
            for following in steps(world, elections):
                if following not in known:
                    known.add(following)
                    open_.append((following, at + 1))
    print(f"{len(known):,} states")
    assert len(known) >= at_least


def test_the_search_finds_a_double_write_where_claims_do_not_fence(monkeypatch: pytest.MonkeyPatch) -> None:
    """Or the search would say nothing."""

    def unfenced(world: World, number: int, task: int) -> World:
        epoch = world.nodes[number].wanted[task]
        mine = (epoch,)
        return replace(with_node(world, number, replace(world.nodes[number], claimed=mine)), log=(epoch,))

    world = replace(first(1), rows=(Row("a", 1),))
    world = with_node(world, 0, Node(RouteMark(1, 1), (1,), frozenset(), (0,)))
    world = with_node(world, 1, Node(RouteMark(1, 1), (1,), frozenset(), (0,)))
    world = unfenced(unfenced(world, 0, 0), 1, 0)
    with pytest.raises(AssertionError, match="can both commit"):
        check_safety(world)


def test_the_search_finds_a_lost_task_where_nobody_hands_it_over(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("test_scheduling_model.schedule", lambda *_: [])
    with pytest.raises(AssertionError, match="absent"):
        check_liveness(replace(first(1), tables=frozenset({(RouteMark(1, 1), (Row(),))})))
