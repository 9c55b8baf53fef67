"""A sorter tells which source files its manifests still point into, and as long as it has none of its own, nothing."""

from __future__ import annotations

from dataclasses import replace

from tistream.format.manifest import READY, UNMATCHED, PendingPart
from tistream.format.source_file import SourceFile
from tistream.model.ids import TenantKey
from tistream.model.span import KeySpan
from tistream.storage import layout
from tistream_sorter.state.task_state import TaskIdentity, TaskState, first_state
from tistream_sorter.task.task import Task
from tistream_sorter.task.task_machine import TickLimits
from tistream_sorter.upkeep.shards import CutRules

TENANT = TenantKey("7", "acme")
EVERYTHING = KeySpan(b"", b"")


def part(kind: str, *files: tuple[int, int]) -> PendingPart:
    sources = tuple(SourceFile(layout.change_file(TENANT, store, ts), 9, 8, ()) for store, ts in files)
    return PendingPart("k", 1, "00000000", 1, kind, 1, 1, 1, EVERYTHING, 5 * len(sources), sources)


def state(*pending: PendingPart, inherited: bool = False) -> TaskState:
    identity = TaskIdentity(TENANT, 3, EVERYTHING, 100, 2)
    return replace(first_state(identity, 1), pending=pending, inherited=inherited)


def task(begun: TaskState) -> Task:
    return Task(begun, TickLimits(1 << 20, 1_000, 99, CutRules(1, 1 << 30)))


def pointed(found: Task) -> dict[int, int] | None:
    return found.status(1_000, 1_000).pointed


def test_by_store_the_oldest_of_all_parts() -> None:
    parts = part(UNMATCHED, (1, 300), (2, 50)), part(UNMATCHED, (1, 200), (1, 400)), part(READY)
    assert pointed(task(state(*parts))) == {1: 200, 2: 50}
    assert pointed(task(state(part(READY)))) == {}


def test_only_a_manifest_moves_it() -> None:
    before, after = state(part(UNMATCHED, (1, 200))), state(part(UNMATCHED, (1, 500)))
    held = task(before)
    with held.turn() as turn:
        turn.state = after  # a tick that is under way, or files taken without one
        assert pointed(held) == {1: 200}
        turn.committed(after, 0, 1_000)
    assert pointed(held) == {1: 500}


def test_an_heir_says_nothing_before_its_first_manifest() -> None:
    begun = state(part(UNMATCHED, (1, 200)), inherited=True)
    held = task(begun)
    assert pointed(held) is None
    with held.turn() as turn:
        turn.committed(replace(begun, inherited=False), 0, 1_000)
    assert pointed(held) == {1: 200}
