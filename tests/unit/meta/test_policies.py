"""The scheduler's rules, and that whatever happens it comes to rest with every task held once."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.effort import examples
from tistream_meta.decide.liveness import Liveness, NodeState, node_state
from tistream_meta.decide.task_phases import TRANSITIONS, Phase, PhaseEvent, Placement, WrongStep
from tistream_meta.decide.task_policy import Command, MoveLimits, expected_loads, schedule, urgent

ALIVE, SUSPECT, LOST, DRAINING = NodeState.ALIVE, NodeState.SUSPECT, NodeState.LOST, NodeState.DRAINING
NODES = ["a", "b", "c"]


def taken(tasks: Sequence[Placement], commands: Sequence[Command]) -> list[Placement]:
    steps = {command.task_id: command for command in commands}
    assert len(steps) == len(commands), "one step a task and round"
    return [
        task if (command := steps.get(task.task_id)) is None else task.after(command.step, command.node)
        for task in tasks
    ]


def settled(
    tasks: Sequence[Placement], nodes: Mapping[str, NodeState], load: Mapping[int, float] | None = None
) -> tuple[list[Placement], int]:
    """Rounds until nothing is to be done, with sorters that do what they are told; and how many it took."""
    now = list(tasks)
    for rounds in range(1, 10 * len(now) + 10):
        commands = schedule(now, nodes, load or {})
        now = [
            replace(task, held=task.held or nodes.get(task.sorter_node or "") in (ALIVE, DRAINING, SUSPECT))
            if task.sorter_node is not None
            else task
            for task in taken(now, commands)
        ]
        now = [replace(task, prepared=task.next_node is not None) for task in now]
        if not commands and not any(task.next_node for task in now):
            return now, rounds
    raise AssertionError("it does not come to rest")


placements = st.lists(
    st.builds(
        Placement,
        task_id=st.just(0),
        sorter_node=st.sampled_from([None, *NODES, "gone"]),
        task_epoch=st.integers(0, 3),
        next_node=st.sampled_from([None, None, *NODES, "gone"]),
        held=st.booleans(),
        prepared=st.booleans(),
    ),
    max_size=12,
).map(lambda found: [replace(task, task_id=number) for number, task in enumerate(found)])
states = st.dictionaries(st.sampled_from(NODES), st.sampled_from(list(NodeState)), min_size=1)


@settings(max_examples=examples(400), deadline=None)
@given(placements, states)
def test_it_comes_to_rest_with_every_task_at_a_sorter_that_is_there(
    tasks: list[Placement], nodes: dict[str, NodeState]
) -> None:
    after, _ = settled(tasks, nodes)
    if ALIVE not in nodes.values():
        return
    for task in after:
        assert nodes.get(task.sorter_node or "") in (ALIVE, SUSPECT)
        assert task.next_node is None
    assert all(now.task_epoch >= before.task_epoch for now, before in zip(after, tasks, strict=True))


@settings(max_examples=examples(200), deadline=None)
@given(placements, states)
def test_a_task_whose_sorter_works_is_never_handed_over_before_the_next_one_is_prepared(
    tasks: list[Placement], nodes: dict[str, NodeState]
) -> None:
    known = {task.task_id: task for task in tasks}
    for command in schedule(tasks, nodes, {}):
        task = known[command.task_id]
        if command.step is PhaseEvent.HAND_OVER and nodes.get(task.sorter_node or "", LOST) is not LOST:
            assert task.prepared
            assert command.node == task.next_node
        if command.node is not None:
            assert nodes[command.node] is ALIVE


def test_tasks_without_a_sorter_are_spread_evenly() -> None:
    after, rounds = settled([Placement(number) for number in range(64)], dict.fromkeys(NODES, ALIVE))
    assert sorted(Counter(task.sorter_node for task in after).values()) == [21, 21, 22]
    assert rounds == 2


def test_tasks_of_a_lost_sorter_stay_while_no_other_is_alive() -> None:
    assert schedule([Placement(1, "a", 1, held=True)], {"a": LOST, "b": SUSPECT}, {}) == []


def test_a_node_that_is_drained_ends_without_a_task_some_at_a_time() -> None:
    tasks = [Placement(number, "a", 1, held=True) for number in range(30)]
    nodes = {"a": DRAINING, "b": ALIVE, "c": ALIVE}
    first = schedule(tasks, nodes, {}, MoveLimits(moves_max=5))
    assert [command.step for command in first] == [PhaseEvent.PREPARE] * 5
    assert schedule(taken(tasks, first), nodes, {}, MoveLimits(moves_max=5)) == [], "they are under way"
    after, _ = settled(tasks, nodes)
    assert sorted(Counter(task.sorter_node for task in after).items()) == [("b", 15), ("c", 15)]
    assert {task.task_epoch for task in after} == {2}


def test_load_and_not_the_number_of_tasks_is_balanced() -> None:
    tasks = [Placement(number, "a", 1, held=True) for number in range(9)]
    load = {0: 8.0, **dict.fromkeys(range(1, 9), 1.0)}
    after, _ = settled(tasks, {"a": ALIVE, "b": ALIVE}, load)
    sums = Counter[str]()
    for task in after:
        sums[task.sorter_node or ""] += int(load[task.task_id])
    assert max(sums.values()) <= MoveLimits().uneven * 8
    assert sums["a"] > 0


@settings(max_examples=examples(100), deadline=None)
@given(st.lists(st.floats(0.1, 100), min_size=1, max_size=40), st.randoms(use_true_random=False))
def test_balance_ends(loads: list[float], rng: random.Random) -> None:
    tasks = [Placement(number, rng.choice(NODES), 1, held=True) for number in range(len(loads))]
    after, _ = settled(tasks, dict.fromkeys(NODES, ALIVE), dict(enumerate(loads)))
    assert schedule(after, dict.fromkeys(NODES, ALIVE), dict(enumerate(loads))) == []


def test_a_move_is_given_up_when_the_next_sorter_goes_and_hurried_when_the_first_does() -> None:
    moving = Placement(1, "a", 3, next_node="b", held=True)
    assert [command.step for command in schedule([moving], {"a": ALIVE, "b": SUSPECT}, {})] == [PhaseEvent.ABANDON]
    (hurried,) = schedule([moving], {"a": LOST, "b": ALIVE}, {})
    assert (hurried.step, hurried.node) == (PhaseEvent.HAND_OVER, "b")
    assert moving.after(hurried.step, hurried.node) == Placement(1, "b", 4)


def test_every_step_leads_where_the_table_says() -> None:
    """The table is what docs show; the phase follows from the fields."""
    for held in (False, True):
        for task in (
            Placement(1),
            Placement(1, "a", 1, held=held),
            Placement(1, "a", 1, next_node="b", held=held),
            Placement(1, "a", 1, held=held, sealed=True),
        ):
            for step in PhaseEvent:
                if step not in TRANSITIONS[task.phase]:
                    with pytest.raises(WrongStep):
                        task.after(step, "c")
                    continue
                after = task.after(step, "c").phase
                if (task.phase, step) == (Phase.PREPARING, PhaseEvent.ABANDON) and held:
                    assert after is Phase.RUNNING
                else:
                    assert after is TRANSITIONS[task.phase][step]


def test_a_node_is_drained_until_it_is_lost() -> None:
    assert [node_state(state, draining=True) for state in Liveness] == [DRAINING, DRAINING, LOST]
    assert [node_state(state, draining=False) for state in Liveness] == [ALIVE, SUSPECT, LOST]


def test_a_sorter_that_joins_is_given_its_share_though_nobody_had_too_much() -> None:
    tasks = [Placement(number, f"n{number % 10}", 1, held=True) for number in range(1_000)]
    nodes = {f"n{number}": ALIVE for number in range(11)}
    after, _ = settled(tasks, nodes)
    counts = Counter(task.sorter_node for task in after)
    assert min(counts.values()) * MoveLimits().uneven >= 1_000 / 11
    moved = sum(now.sorter_node != before.sorter_node for now, before in zip(after, tasks, strict=True))
    assert moved == counts["n10"], "only what goes to the new one"


def test_tasks_that_come_after_a_sorter_has_gone_and_another_has_joined_go_to_the_least_loaded_of_those_there() -> None:
    known = expected_loads(
        ["a", "b"], [Placement(1, "a", 1, held=True), Placement(2, "b", 1, held=True)], {1: 5.0, 2: 2.0}
    )
    there = dict.fromkeys(("a", "c"), ALIVE)
    loads = known.among(there)
    assert loads.of == {"a": 5.0, "c": 0.0}
    new = [Placement(number) for number in (3, 4, 5)]
    commands = urgent(new, there, {3: 4.0, 4: 2.0, 5: 1.0}, loads)
    assert [command.node for command in commands] == ["c", "c", "a"]
    assert loads.of == {"a": 6.0, "c": 6.0}
    assert known.of == {"a": 5.0, "b": 2.0}, "what was known before stays"
