"""A task's state changes in a turn only, one turn at a time; other threads leave notes, which the next turn takes."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from tistream.model.ids import TenantKey
from tistream.model.span import KeySpan
from tistream_sorter.jobs.rewrite import Rewritten
from tistream_sorter.state.task_state import Retention, TaskIdentity, first_state
from tistream_sorter.task.mailbox import (
    AncestorErasedNote,
    FlushedByAllNote,
    GarbageNote,
    Mailbox,
    RetentionNote,
    SchemaReadNote,
)
from tistream_sorter.task.task import Task
from tistream_sorter.task.task_machine import TickLimits
from tistream_sorter.upkeep.gc_plan import CollectRules
from tistream_sorter.upkeep.shards import CutRules

SORTER = Path(__file__).parents[3] / "services/sorter/tistream_sorter"
STATE = first_state(TaskIdentity(TenantKey("7", "acme"), 3, KeySpan(b"", b""), 100, 2), 1)
LIMITS = TickLimits(1 << 20, 1_000, 99, CutRules(1, 1 << 30), collect=CollectRules(grace_ms=0))


def test_a_second_turn_at_the_same_time_is_a_fault_and_the_first_goes_on() -> None:
    task = Task(STATE, LIMITS)
    with task.turn() as turn:
        with pytest.raises(AssertionError, match="two turns"), task.turn():
            pytest.fail("it is let in")
        assert turn.settle(0) == []
    with task.turn():
        pass


def test_a_turn_that_fails_leaves_the_door_open() -> None:
    task = Task(STATE, LIMITS)
    with pytest.raises(ValueError, match="a fault"), task.turn():
        raise ValueError("a fault")
    with task.turn() as turn:
        assert turn.state is STATE


def test_notes_count_from_the_next_turn_on() -> None:
    task = Task(STATE, LIMITS)
    task.leave(RetentionNote(60_000))
    task.leave(SchemaReadNote(90))
    task.leave(GarbageNote("k"))
    assert task.state is STATE
    with task.turn() as turn:
        assert turn.settle(0) == ["k"]
        assert turn.settle(0) == [], "handed over once"
    assert task.state.retention == Retention(60_000, 0), "nothing is flushed by all tasks yet"


def test_the_newest_note_counts_and_of_what_all_have_flushed_the_highest() -> None:
    mail = Mailbox(STATE, 99, read_by_registry=True)
    for note in (
        RetentionNote(1),
        RetentionNote(None),
        SchemaReadNote(5),
        SchemaReadNote(4),
        FlushedByAllNote(9),
        FlushedByAllNote(7),
    ):
        mail.leave(note)
    mail.leave(AncestorErasedNote(1))
    mail.leave(AncestorErasedNote(2))
    done = Rewritten(3)
    mail.leave(done)
    notes = mail.notes()
    assert (notes.keep_ms, notes.read_ts, notes.flushed_by_all) == (None, 4, 9)
    assert notes.nothing_left_of == {1, 2}
    assert notes.rewritten == [done]
    again = mail.notes()
    assert (again.rewritten, again.nothing_left_of, again.flushed_by_all) == ([], {1, 2}, 9)


def test_only_a_task_makes_its_turn_and_its_mailbox() -> None:
    made = {
        str(path.relative_to(SORTER))
        for path in SORTER.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ("TaskMachine", "Mailbox")
    }
    assert made == {"task/task.py"}
