"""An explicit search of the scheduling protocol: the scheduler's own rules, and every order in which elections, steps,
tables, claims, reports and losses can come, to a depth. Tables arrive late, twice or never, from old owners too.

Safety, in every state: of a task at most one sorter can commit (seed 004, "no double write"), and it is one that the
database has given it to (or once had, under the epoch that the manifests know). Liveness, from every state: if the last
elected owner goes on and everything arrives, all tasks come to be held, each by its sorter ("no lost table").
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, replace

import pytest

from tistream.wire.route_mark import NOTHING_SEEN, Mark
from tistream_meta.liveness import NodeState
from tistream_meta.placement import Placement
from tistream_meta.policies import schedule

NODES = ("a", "b", "c")


@dataclass(frozen=True, slots=True)
class Row:
    """A task in the database."""

    sorter: str | None = None
    epoch: int = 0
    following: str | None = None


@dataclass(frozen=True, slots=True)
class Node:
    """What a sorter knows: the newest table, the epochs that it has claimed, and what it has prepared."""

    seen: Mark = NOTHING_SEEN
    wanted: tuple[int, ...] = ()  # epoch by task; 0: not its own
    coming: frozenset[int] = frozenset()
    claimed: tuple[int, ...] = ()


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
    tables: frozenset[tuple[Mark, tuple[Row, ...]]]  # published, and delivered whenever
    told: frozenset[tuple[str, int, int, bool]]  # (node, task, epoch, prepared): heard by the newest owner


def first(tasks: int) -> World:
    return World(
        rows=(Row(),) * tasks,
        nodes=tuple(Node(wanted=(0,) * tasks, claimed=(0,) * tasks) for _ in NODES),
        owner_rev=1,
        version=0,
        believes=(1, 0),
        lost=frozenset(),
        log=(0,) * tasks,
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
        )
        for task, row in enumerate(world.rows)
    ]


def decided(world: World) -> World:
    """The owner takes what steps the policies want, in one transaction, and publishes."""
    states = {node: NodeState.LOST if node in world.lost else NodeState.ALIVE for node in NODES}
    commands = schedule(placements(world), states, {})
    if not commands and any(mark.version == world.version for mark, _ in world.tables):
        return world
    rows = list(world.rows)
    for command in commands:
        after = placements(world)[command.task_id].after(command.step, command.node)
        rows[command.task_id] = Row(after.sorter_node, after.task_epoch, after.next_node)
    version = world.version + 1
    table = (Mark(world.owner_rev, version), tuple(rows))
    return replace(world, rows=tuple(rows), version=version, tables=world.tables | {table})


def delivered(world: World, number: int, table: tuple[Mark, tuple[Row, ...]]) -> World:
    """A sorter takes a table, unless it has seen a newer one."""
    mark, rows = table
    node = world.nodes[number]
    if mark <= node.seen:
        return world
    name = NODES[number]
    wanted = tuple(row.epoch if row.sorter == name else 0 for row in rows)
    claimed = tuple(has if has == want else 0 for has, want in zip(node.claimed, wanted, strict=True))
    coming = frozenset(task for task, row in enumerate(rows) if row.following == name)
    return with_node(world, number, Node(mark, wanted, coming, claimed))


def claimed(world: World, number: int, task: int) -> World:
    """A claim manifest: won if no epoch at or above it has claimed before."""
    node = world.nodes[number]
    epoch = node.wanted[task]
    if not epoch or node.claimed[task] == epoch or world.log[task] >= epoch:
        return world
    log = (*world.log[:task], epoch, *world.log[task + 1 :])
    mine = (*node.claimed[:task], epoch, *node.claimed[task + 1 :])
    return replace(with_node(world, number, replace(node, claimed=mine)), log=log)


def heard(world: World, number: int) -> World:
    """The owner hears what a sorter holds and is prepared for; it replaces what it heard before."""
    node, name = world.nodes[number], NODES[number]
    held = {(name, task, epoch, False) for task, epoch in enumerate(node.claimed) if epoch}
    ready = {(name, task, 0, True) for task in node.coming}
    return replace(world, told=frozenset(one for one in world.told if one[0] != name) | held | ready)


def with_node(world: World, number: int, node: Node) -> World:
    return replace(world, nodes=(*world.nodes[:number], node, *world.nodes[number + 1 :]))


def steps(world: World, elections: int) -> Iterator[World]:
    for meta, rev in enumerate(world.believes):
        if rev == world.owner_rev:
            yield decided(world)
        elif world.owner_rev < 1 + elections:
            # Its lease ran out. The old one does not know, and writes nothing more: the condition says owner_rev.
            taken = world.owner_rev + 1
            believes = (*world.believes[:meta], taken, *world.believes[meta + 1 :])
            yield replace(world, owner_rev=taken, believes=believes, told=frozenset())
    for number, name in enumerate(NODES):
        for table in world.tables:
            yield delivered(world, number, table)
        for task in range(len(world.rows)):
            yield claimed(world, number, task)
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
                now = claimed(now, number, task)
            if name not in now.lost:
                now = heard(now, number)
        if now == before:
            break
    for task, placement in enumerate(placements(now)):
        assert placement.phase.value == "running", f"{placement} after {world}"
        node = now.nodes[NODES.index(placement.sorter_node or "")]
        assert node.claimed[task] == now.log[task] == placement.task_epoch
        assert placement.sorter_node not in now.lost


@pytest.mark.parametrize(("tasks", "elections", "depth", "at_least"), [(1, 2, 9, 5_000), (3, 2, 5, 2_000)])
def test_no_double_write_and_no_lost_table(tasks: int, elections: int, depth: int, at_least: int) -> None:
    start = first(tasks)
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
    world = with_node(world, 0, Node(Mark(1, 1), (1,), frozenset(), (0,)))
    world = with_node(world, 1, Node(Mark(1, 1), (1,), frozenset(), (0,)))
    world = unfenced(unfenced(world, 0, 0), 1, 0)
    with pytest.raises(AssertionError, match="can both commit"):
        check_safety(world)


def test_the_search_finds_a_lost_task_where_nobody_hands_it_over(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("test_scheduling_model.schedule", lambda *_: [])
    with pytest.raises(AssertionError, match="absent"):
        check_liveness(replace(first(1), tables=frozenset({(Mark(1, 1), (Row(),))})))
