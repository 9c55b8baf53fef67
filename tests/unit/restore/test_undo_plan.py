"""What an undo takes back, and what it leaves as a conflict."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from tistream.restore.undo_plan import Cells, Change, Conflict, CurrentRow, Reason, Reversal, UndoPlan, plan_undo

T = 7
COLUMNS = frozenset({1, 2, 3})


def change(ts: int, before: Cells | None, after: Cells | None, row: str = "a") -> Change:
    return Change(T, row, ts, ts - 1, before, after)


def plan(*changes: Change, now: Cells | None, at: int | None = None, columns: frozenset[int] = COLUMNS) -> UndoPlan:
    ts = changes[-1].commit_ts if at is None else at
    return plan_undo(changes, {(T, one.row): CurrentRow(now, ts, ts - 1) for one in changes}, {T: columns})


def only(found: UndoPlan) -> Reversal:
    assert not found.conflicts
    (reversal,) = found.reversals
    return reversal


def conflict(found: UndoPlan) -> Conflict:
    assert not found.reversals
    (one,) = found.conflicts
    return one


BEFORE, AFTER = {1: 1, 2: "x", 3: "p"}, {1: 1, 2: "y", 3: "p"}


def test_an_update_gets_its_changed_columns_back() -> None:
    found = only(plan(change(10, BEFORE, AFTER), now=AFTER))
    assert found.then == BEFORE
    assert found.changed == {2}


def test_a_later_change_of_other_columns_stays() -> None:
    found = only(plan(change(10, BEFORE, AFTER), now={**AFTER, 3: "q"}, at=20))
    assert found.then == {1: 1, 2: "x", 3: "q"}
    assert found.changed == {2}


def test_a_later_change_of_the_same_column_is_a_conflict_that_names_it() -> None:
    found = conflict(plan(change(10, BEFORE, AFTER), now={**AFTER, 2: "z"}, at=20))
    assert (found.reason, found.by) == (Reason.CHANGED, (19, 20))
    assert (found.left, found.now) == (AFTER, {1: 1, 2: "z", 3: "p"})


def test_a_row_that_already_is_as_before_needs_nothing() -> None:
    undone_by_hand = plan(change(10, BEFORE, AFTER), change(20, AFTER, BEFORE), now=BEFORE)
    assert undone_by_hand == UndoPlan((), (), 1)


def test_an_insert_is_deleted_and_a_delete_inserted() -> None:
    assert only(plan(change(10, None, AFTER), now=AFTER)).then is None
    assert only(plan(change(10, BEFORE, None), now=None)).then == BEFORE


def test_a_deleted_row_that_is_there_again_is_a_conflict() -> None:
    assert conflict(plan(change(10, BEFORE, None), now=BEFORE, at=20)).reason is Reason.EXISTS


def test_a_changed_row_that_was_deleted_since_is_a_conflict() -> None:
    assert conflict(plan(change(10, BEFORE, AFTER), now=None, at=20)).reason is Reason.GONE


def test_columns_dropped_since_are_reported_and_not_written() -> None:
    found = only(plan(change(10, BEFORE, {1: 1, 2: "y", 3: "r"}), now={1: 1, 3: "r"}, columns=frozenset({1, 3})))
    assert (found.then, found.dropped) == ({1: 1, 3: "p"}, {2: "x"})


def test_a_row_inserted_by_it_is_kept_if_a_column_added_since_was_set() -> None:
    columns = COLUMNS | {4}
    assert only(plan(change(10, None, AFTER), now={**AFTER, 4: "default"}, columns=columns)).then is None
    set_since = plan(change(10, None, AFTER), now={**AFTER, 4: "set"}, at=20, columns=columns)
    assert conflict(set_since).reason is Reason.CHANGED


def test_a_table_that_is_gone_is_a_conflict_for_each_row() -> None:
    changes = [change(10, BEFORE, AFTER, row) for row in "ab"]
    found = plan_undo(changes, {}, {})
    assert [one.reason for one in found.conflicts] == [Reason.NO_TABLE, Reason.NO_TABLE]
    assert {one.by for one in found.conflicts} == {(0, 0)}, "it is not known who dropped the table"


def test_deletes_come_first_and_inserts_last_each_newest_first() -> None:
    changes = [
        change(10, BEFORE, None, "deleted"),
        change(11, BEFORE, AFTER, "updated"),
        change(12, None, AFTER, "inserted"),
        change(13, None, AFTER, "inserted later"),
    ]
    now = {"deleted": None, "updated": AFTER, "inserted": AFTER, "inserted later": AFTER}
    standing = {(T, row): CurrentRow(cells, 13, 12) for row, cells in now.items()}
    found = plan_undo(changes, standing, {T: COLUMNS})
    assert [one.row for one in found.reversals] == ["inserted later", "inserted", "updated", "deleted"]


cells = st.fixed_dictionaries({1: st.just(1), 2: st.integers(0, 2), 3: st.integers(0, 2)})
states = st.lists(st.one_of(st.none(), cells), min_size=2, max_size=7)


@given(states, st.data())
def test_undo_of_the_newest_changes_gives_the_state_before_them(history: list[Any], data: st.DataObject) -> None:
    """A row that went through `history`: whatever the newest changes were, undoing them all gives the state before."""
    first = data.draw(st.integers(0, len(history) - 2))
    steps = [
        change(10 + at, before, after)
        for at, (before, after) in enumerate(zip(history[first:], history[first + 1 :], strict=False))
        if before != after
    ]
    if not steps:
        return
    found = plan(*steps, now=history[-1])
    assert not found.conflicts
    if history[first] == history[-1]:
        assert found == UndoPlan((), (), 1)
    else:
        assert only(found).then == history[first]


@given(cells, cells, cells)
def test_the_undo_of_one_update_among_others_touches_only_its_columns(a: Any, b: Any, c: Any) -> None:
    """a -> b is undone, and b -> c came after it. Either c kept what a -> b had set, or it is a conflict."""
    if a == b:
        return
    found = plan(change(10, a, b), now=c, at=20)
    set_by_it = {column for column in a if a[column] != b[column]}
    if any(c[column] != b[column] for column in set_by_it):
        assert conflict(found).reason is Reason.CHANGED
    else:
        assert only(found).then == {**c, **{column: a[column] for column in set_by_it}}
