"""Mutants of the meta server's scheduling: moves, splits and merges, what is told in parts."""

from mutants.mutant import Mutant

MUTANTS = (
    Mutant(
        name="handed-over-before-it-is-prepared",
        invariants=(21,),
        breaks="a task is taken from a sorter that works before the next one is level with it",
        file="services/meta/tistream_meta/policies.py",
        old="    if task.prepared:\n",
        new="    if True:\n",
        catchers=(
            "tests/unit/meta/test_policies.py::test_a_task_whose_sorter_works_is_never_handed_over_before_the_next_one_is_prepared",
        ),
    ),
    Mutant(
        name="drained-nodes-are-given-tasks",
        invariants=(21,),
        breaks="a node that is to be empty is given tasks",
        file="services/meta/tistream_meta/policies.py",
        old="    return [node for node, state in nodes.items() if state is NodeState.ALIVE]\n",
        new="    return [node for node, state in nodes.items() if state is not NodeState.LOST]\n",
        catchers=("tests/unit/meta/test_policies.py::test_a_node_that_is_drained_ends_without_a_task_some_at_a_time",),
    ),
    Mutant(
        name="two-hand-one-task-to-and-fro",
        invariants=(21,),
        breaks="a task is moved though it only makes the other sorter the one with too much",
        file="services/meta/tistream_meta/policies.py",
        old=" and loads.of[target] + amount < loads.of[source]:\n",
        new=":\n",
        catchers=("tests/unit/meta/test_policies.py::test_balance_ends",),
    ),
    Mutant(
        name="children-before-all-parents-are-sealed",
        invariants=(1, 14),
        breaks="the child of a merge takes the place of one parent while the other still works",
        file="services/meta/tistream_meta/seals.py",
        old="        if _around([child.span for child in children]) == _around([task.span for task in parents]):\n",
        new="        if True:\n",
        catchers=(
            "tests/unit/meta/test_splits_and_merges.py::test_children_take_their_places_once_all_that_they_cover_is_sealed",
        ),
    ),
    Mutant(
        name="merge-sealed-though-one-goes-on",
        invariants=(3, 5),
        breaks="tasks are told to seal before each has committed where it stops",
        file="services/meta/tistream_meta/seals.py",
        old="        elif all(one.stop_at == seal.stop_at for one in heard):\n",
        new="        elif any(one.stop_at == seal.stop_at for one in heard):\n",
        catchers=(
            "tests/unit/meta/test_splits_and_merges.py::test_a_merge_may_seal_once_both_have_committed_the_stop",
        ),
    ),
    Mutant(
        name="final-order-taken-back",
        invariants=(21,),
        breaks="a merge that may have sealed one of its tasks is given up",
        file="services/meta/tistream_meta/seals.py",
        old="            continue  # one of them may be sealed: there is no way back\n",
        new="            pass\n",
        catchers=(
            "tests/unit/meta/test_splits_and_merges.py::test_a_merge_that_does_not_come_to_rest_is_given_up_but_never_one_that_may_have_sealed",
        ),
    ),
    Mutant(
        name="task-id-given-again",
        invariants=(11,),
        breaks="the id of a task that was sealed is given to another one",
        file="services/meta/tistream_meta/counter_rows.py",
        old="    raise_by(connection, tables.LAST_TASK_ID, count)\n    return read",
        new="    return read",
        catchers=("tests/unit/meta/test_book.py::test_a_task_id_is_never_given_twice_though_its_task_is_gone",),
    ),
    Mutant(
        name="routes-in-parts-forget-who-lost-a-task",
        invariants=(15, 21),
        breaks="a sorter is not told of a task that it has no more",
        file="services/meta/tistream_meta/route_board.py",
        old="    changed = [task for task in before.tasks if id(task) not in new]\n",
        new="    changed = []\n",
        catchers=("tests/unit/meta/test_route_board.py::test_what_is_told_in_parts_adds_up_to_the_whole",),
    ),
    Mutant(
        name="book-keeps-what-is-gone",
        invariants=(1, 14),
        breaks="the owner goes on with tasks whose place others have taken",
        file="services/meta/tistream_meta/book.py",
        old="        for task_id in change.gone:\n            self._drop(task_id)\n",
        new="",
        catchers=("tests/unit/meta/test_book.py::test_the_book_is_what_the_database_has",),
    ),
    Mutant(
        name="homeless-tasks-forgotten",
        invariants=(21,),
        breaks="a task that found no sorter waits though one comes",
        file="services/meta/tistream_meta/scheduler.py",
        old="            self._news |= self._homeless\n",
        new="",
        catchers=(
            "tests/unit/meta/test_meta_routes.py::test_a_tenant_waits_for_its_snapshot_and_is_then_cut_and_served",
        ),
    ),
    Mutant(
        name="lease-taken-from-ones-successor",
        invariants=(22,),
        breaks="a meta server that wakes takes the lease from the process that has replaced it",
        file="services/meta/tistream_meta/repository.py",
        old="        own = true() if first else owner.c.owner_rev == self._owner_rev\n",
        new="        own = true()\n",
        catchers=(
            "tests/unit/meta/test_two_owners.py::test_a_process_that_wakes_does_not_take_the_lease_from_its_successor",
        ),
    ),
)
