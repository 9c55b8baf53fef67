"""Liveness and assignment."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from tistream_meta.assignment import Held, assign
from tistream_meta.liveness import Liveness, Timings, liveness

TIMINGS = Timings(suspect_ms=100, lost_ms=300)
NODES = ["a", "b", "c"]


def test_silence_makes_a_node_suspect_and_then_lost():
    states = [liveness(1000, 0, 1000 + silence, TIMINGS) for silence in (0, 99, 100, 299, 300)]
    alive, suspect, lost = Liveness.ALIVE, Liveness.SUSPECT, Liveness.LOST
    assert states == [alive, alive, suspect, suspect, lost]


def test_a_new_owner_counts_silence_from_its_own_beginning():
    assert liveness(None, 5000, 5000, TIMINGS) is Liveness.ALIVE
    assert liveness(1, 5000, 5099, TIMINGS) is Liveness.ALIVE
    assert liveness(None, 5000, 5300, TIMINGS) is Liveness.LOST


@given(
    st.lists(st.sampled_from([None, *NODES, "gone"]), max_size=20),
    st.dictionaries(st.sampled_from(NODES), st.sampled_from(list(Liveness))),
)
def test_every_task_ends_with_a_sorter_that_is_not_lost_if_one_is_alive(holders, sorters):
    tasks = [Held(number, node) for number, node in enumerate(holders)]
    moves = assign(tasks, sorters)
    alive = {node for node, state in sorters.items() if state is Liveness.ALIVE}
    if not alive:
        assert moves == ()
        return
    after = {**{task.task_id: task.sorter_node for task in tasks}, **{move.task_id: move.sorter_node for move in moves}}
    assert all(node is not None and sorters.get(node, Liveness.LOST) is not Liveness.LOST for node in after.values())
    for move in moves:
        before = holders[move.task_id]
        assert move.sorter_node in alive
        assert before is None or sorters.get(before, Liveness.LOST) is Liveness.LOST
    assert assign([Held(task, node) for task, node in after.items()], sorters) == ()


def test_load_is_spread_evenly():
    moves = assign([Held(number, None) for number in range(64)], dict.fromkeys(NODES, Liveness.ALIVE))
    assert sorted(Counter(move.sorter_node for move in moves).values()) == [21, 21, 22]


def test_tasks_of_a_lost_sorter_stay_while_no_other_is_alive():
    assert assign([Held(1, "a")], {"a": Liveness.LOST, "b": Liveness.SUSPECT}) == ()
