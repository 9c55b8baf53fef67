"""Which logs a reader reads: each key's rows once, whatever route it has, before, between and after the seals."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pytest

from support.committed_pool import CommittedTask, Row
from tistream.errors import Unavailable
from tistream.model.ids import TenantKey
from tistream.model.span import WHOLE, KeySpan
from tistream.pool.lineage import Lineage, LogSpan, SharedSegments, reached
from tistream.storage import layout
from tistream.storage.backends.memory import MemoryObjectStore

TENANT = TenantKey("7", "acme")
LEFT, RIGHT = KeySpan(b"", b"m"), KeySpan(b"m", b"")


@dataclass(frozen=True)
class Routed:
    task_id: int
    span: KeySpan
    parents: Sequence[int] = ()


@dataclass(frozen=True)
class Told:
    manifest: int
    progress_ts: int


def row(commit_ts: int, key: bytes = b"a") -> Row:
    return {"table_id": 5, "commit_ts": commit_ts, "start_ts": commit_ts - 1, "key": key, "op": 1, "value": b"v"}


class Pool:
    """Tasks by number; a parent is 1, its children are 2 and 3."""

    def __init__(self) -> None:
        self.objects = MemoryObjectStore()
        self.parent = self.task(1, WHOLE)
        self.lineage = Lineage(self.objects, TENANT)

    def task(self, task_id: int, span: KeySpan) -> CommittedTask:
        return CommittedTask(self.objects, TENANT, 100, task_id=task_id, span=span)

    def split(self) -> tuple[CommittedTask, CommittedTask]:
        left, right = self.task(2, LEFT), self.task(3, RIGHT)
        self.parent.seal(left, right)
        return left, right

    def covers(self, *tasks: Routed, reported: int | None = None) -> list[LogSpan]:
        return [cover for task in tasks for cover in self.lineage.covers(task, reported)]


OLD = (Routed(1, WHOLE),)
NEW = (Routed(2, LEFT, (1,)), Routed(3, RIGHT, (1,)))


def told_of(covers: list[LogSpan]) -> list[tuple[int, KeySpan]]:
    return [(cover.log.task_id, cover.span) for cover in covers]


def counts(covers: list[LogSpan]) -> list[int]:
    shared = SharedSegments()
    shared.update(cover.log for cover in covers)
    return [segment.commit_ts_max for segment in shared.segments]


@pytest.mark.parametrize("route", [OLD, NEW], ids=["old-route", "new-route"])
def test_a_split_is_crossed_child_by_child(route: tuple[Routed, ...]) -> None:
    pool = Pool()
    pool.parent.flush(200, [row(150)])
    left, right = pool.split()
    covers = pool.covers(*route)
    assert told_of(covers) == [(1, LEFT), (1, RIGHT)]
    assert (reached(covers, {}), counts(covers)) == (200, [150])
    left.inherit(pool.parent)
    left.flush(300, [row(250)])
    covers = pool.covers(*route)
    assert told_of(covers) == [(2, LEFT), (1, RIGHT)]
    assert reached(covers, {}) == 200
    assert sorted(counts(covers)) == [150, 250], "the shared segment once"
    right.inherit(pool.parent)
    right.flush(300, [row(260, b"x")])
    covers = pool.covers(*route)
    assert told_of(covers) == [(2, LEFT), (3, RIGHT)]
    assert reached(covers, {}) == 300
    assert sorted(counts(covers)) == [150, 250, 260]


def test_a_route_that_is_ahead_of_the_seal_reads_the_parent() -> None:
    pool = Pool()
    pool.parent.flush(200, [row(150)])
    assert told_of(pool.covers(*NEW)) == [(1, LEFT), (1, RIGHT)]
    pool.parent.flush(220)
    assert reached(pool.covers(*NEW), {}) == 220


@pytest.mark.parametrize("old", [True, False])
def test_a_merge_is_crossed_when_the_child_has_its_state(old: bool) -> None:
    pool = Pool()
    left, right, child = pool.task(2, LEFT), pool.task(3, RIGHT), pool.task(4, WHOLE)
    left.flush(200, [row(150)])
    right.flush(200, [row(160, b"x")])
    route = (Routed(2, LEFT), Routed(3, RIGHT)) if old else (Routed(4, WHOLE, (2, 3)),)
    left.seal(child)
    assert told_of(pool.covers(*route)) == [(2, LEFT), (3, RIGHT)]
    right.seal(child)
    assert told_of(pool.covers(*route)) == [(2, LEFT), (3, RIGHT)]
    child.inherit(left, right)
    child.flush(300, [row(250)])
    covers = pool.covers(*route)
    assert [cover.log.task_id for cover in covers] == ([4, 4] if old else [4])
    assert (reached(covers, {}), sorted(counts(covers))) == (300, [150, 160, 250])


def test_a_very_old_route_leads_through_all_generations_and_a_task_outlives_its_parents() -> None:
    pool = Pool()
    pool.parent.flush(200, [row(150)])
    left, right = pool.split()
    left.inherit(pool.parent)
    right.inherit(pool.parent)
    again = pool.task(4, WHOLE)
    left.seal(again)
    right.seal(again)
    again.inherit(left, right)
    again.flush(300, [row(250)])
    covers = pool.covers(*OLD)
    assert told_of(covers) == [(4, LEFT), (4, RIGHT)]
    assert counts(covers) == [150, 250]
    for number in (1, 2, 3):
        for entry in list(pool.objects.list_after(f"{layout.task_prefix(TENANT, number)}manifest/")):
            pool.objects.delete(entry.key)
    fresh = Lineage(pool.objects, TENANT).covers(Routed(4, WHOLE, (2, 3)), None)
    assert counts(fresh) == [150, 250]


def test_a_promise_counts_for_the_log_that_it_is_about_and_once_that_was_read() -> None:
    pool = Pool()
    pool.parent.flush(200)
    covers = pool.covers(*OLD)
    assert reached(covers, {1: Told(pool.parent.number, 230)}) == 230
    assert reached(covers, {1: Told(pool.parent.number + 1, 230)}) == 200
    left, _ = pool.split()
    left.inherit(pool.parent)
    left.flush(300)
    covers = pool.covers(*NEW)
    assert told_of(covers) == [(2, LEFT), (1, RIGHT)]
    assert reached(covers, {2: Told(left.number, 400), 3: Told(1, 400)}) == 200, "nobody has the right half's state yet"


def test_a_log_is_not_asked_for_while_its_sorter_tells_that_nothing_is_new() -> None:
    pool = Pool()
    pool.parent.flush(200)
    known = pool.parent.number
    assert reached(pool.covers(*OLD, reported=known), {}) == 200
    pool.parent.flush(300)
    assert reached(pool.covers(*OLD, reported=known), {}) == 200
    assert reached(pool.covers(*OLD, reported=known + 1), {}) == 300


def test_an_heir_of_whom_nobody_has_the_state_is_an_error_and_no_empty_task() -> None:
    pool = Pool()
    pool.task(9, WHOLE)
    with pytest.raises(Unavailable, match="task 9"):
        pool.covers(Routed(9, WHOLE, (8,)))
    with pytest.raises(Unavailable, match="task 9"):
        pool.covers(Routed(9, WHOLE, (1,)))  # claimed, and nothing more


def test_segments_that_are_gone_from_a_log_are_gone_unless_another_lists_them() -> None:
    pool = Pool()
    pool.parent.flush(200, [row(150)])
    left, right = pool.split()
    left.inherit(pool.parent)
    right.inherit(pool.parent)
    right.flush(300, [row(250, b"x")])
    shared = SharedSegments()
    covers = pool.covers(*OLD)
    shared.update(cover.log for cover in covers)
    before = shared.segments
    shared.update(cover.log for cover in covers)
    assert shared.segments is before
    shared.update([covers[0].log])
    assert [segment.commit_ts_max for segment in shared.segments] == [150]
