"""Tasks that are split and merged while they work: what their holders write, what they tell, and what they refuse."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from support.effort import FULL
from support.faulty_store import Fault, FaultyObjectStore
from support.pending_rules import EXTREME
from support.split_world import NODE, RULES, PoolReader, SplitWorld, child_task
from support.tiny_tenant import Row, TinyTenant, commit, key, prewrite, rollback, watermark, whole
from tistream.format.manifest import KIND_CHECKPOINT, KIND_CLAIM, KIND_SEAL, READY, SEALED, UNMATCHED, Manifest
from tistream.format.task_view import TaskView
from tistream.model.span import WHOLE, KeySpan
from tistream.storage import layout, manifest_log
from tistream.storage.backends.memory import MemoryObjectStore
from tistream.storage.manifest_follow import TaskObjects
from tistream.wire.meta import SealOrder
from tistream_sorter.node.assignment import coming_tasks, wanted_tasks
from tistream_sorter.state.task_state import TaskIdentity

TINY = TinyTenant()
FIRST = TINY.file(1, 200, 0, [], watermark(6, 5, 150, base_ts=100))
A, M, Z = key(b"a"), key(b"m"), key(b"z")


def world_with(*rows: Row, objects: object = None, cut: object = None, resolved_ts: int = 205) -> SplitWorld:
    """The tenant's first two files have been taken, the second with these rows (log indexes 6 to 9)."""
    world = SplitWorld(TINY, objects=objects, cut=cut)  # type: ignore[arg-type]
    world.push(FIRST)
    world.push(TINY.file(1, 210, 200, list(rows), watermark(6, 9, resolved_ts)))
    world.tick()
    return world


def push(world: SplitWorld, ts: int, prev_ts: int, rows: Sequence[Row], first: int, last: int, resolved: int) -> None:
    world.push(TINY.file(1, ts, prev_ts, list(rows), watermark(first, last, resolved)))


def view(world: SplitWorld, task_id: int) -> TaskView:
    return TaskObjects(world.objects, TINY.tenant, task_id).follow()


def last(world: SplitWorld, task_id: int) -> Manifest:
    found = view(world, task_id).last
    assert found is not None
    return found


def committed(world: SplitWorld) -> list[tuple[bytes, int]]:
    reader = PoolReader(world, world.route())
    reader.refresh()
    return list(zip(*(reader.rows()[name].to_list() for name in ("key", "commit_ts")), strict=True))


# -- a split ----------------------------------------------------------------------------------------------------------


def test_a_split_ends_the_task_with_a_manifest_that_restates_all_and_names_its_children() -> None:
    world = world_with(whole(b"a", 160, 170, 6), whole(b"z", 160, 171, 7))
    before = last(world, 1)
    world.split(1, M)
    assert world.node.tick()
    seal = last(world, 1)
    assert (seal.number, seal.kind) == (before.number + 1, KIND_SEAL)
    assert seal.children == ((2, KeySpan(b"", M)), (3, KeySpan(M, b"")))
    assert seal.live_segments == view(world, 1).segments
    assert len(seal.live_segments or ()) == 1
    assert (seal.positions, seal.flushed_ts) == (before.positions, 205)
    assert TaskObjects(world.objects, TINY.tenant, 1).floor() == seal.number, "readers begin at it"


def test_who_sealed_a_task_drops_it_and_tells_so_as_long_as_it_is_routed_there() -> None:
    world = world_with()
    told = []
    world.node.report_now = lambda: told.append(world.node.reports())
    world.split(1, M)
    world.node.tick()
    assert world.node.find(1) is None
    (report,) = told[-1]
    assert (report.task_id, report.task_epoch) == (1, 1)
    assert report.sealed == [child_task(2, KeySpan(b"", M)), child_task(3, KeySpan(M, b""))]
    assert world.node.reports() == [report]
    assert world.assign()
    assert world.node.reports() == [report], "and it is not claimed again"
    assert not world.node.tick()
    world.rows.clear()
    world.assign()
    assert world.node.reports() == []


def test_the_children_go_on_where_the_parent_ended() -> None:
    world = world_with(whole(b"a", 160, 170, 6), whole(b"z", 160, 171, 7))
    world.split(1, M)
    world.tick()
    assert sorted(world.rows) == [2, 3]
    for task_id in (2, 3):
        first = TaskObjects(world.objects, TINY.tenant, task_id).manifest(2)
        assert (first.kind, first.flushed_ts, first.segments) == (KIND_CHECKPOINT, 205, ())
        assert [segment.rows for segment in first.live_segments or ()] == [2], "the parent's, also of the other's keys"
        assert first.counters == {}
    push(world, 220, 210, [whole(b"a", 206, 207, 10), whole(b"z", 206, 208, 11)], 10, 12, 215)
    world.tick()
    assert world.progress_ts() == 215
    assert committed(world) == [(A, 170), (Z, 171), (A, 207), (Z, 208)]


def test_what_waits_is_carried_on_by_the_child_of_its_key() -> None:
    """Settled above the watermark, and locks whose commits come after the split."""
    rows = [whole(b"a", 206, 300, 6), whole(b"z", 206, 301, 7), prewrite(b"a1", 207, 8), prewrite(b"z1", 208, 9)]
    world = world_with(*rows)
    assert {part.kind for part in last(world, 1).pending} == {READY, UNMATCHED}
    world.split(1, M)
    world.tick()
    for task_id in (2, 3):
        pending = last(world, task_id).pending
        assert {part.kind for part in pending} == {READY, UNMATCHED}
        assert all(part.span.clip(world.rows[task_id].span) == part.span for part in pending)
    push(world, 310, 210, [commit(b"a1", 207, 302, 10), commit(b"z1", 208, 303, 11)], 10, 11, 305)
    world.tick()
    assert world.stopped() == []
    assert committed(world) == [(A, 300), (Z, 301), (key(b"a1"), 302), (key(b"z1"), 303)]


def test_the_task_is_sealed_at_all_that_it_has_told() -> None:
    """Progress that needed no manifest, and the files that told it."""
    world = world_with()
    push(world, 220, 210, [], 10, 9, 215)
    world.node.tick()
    assert (world.progress_ts(), last(world, 1).flushed_ts) == (215, 205)
    world.split(1, M)
    world.node.tick()
    assert last(world, 1).flushed_ts == 215
    assert [chain.at_ts for chain in last(world, 1).positions[1]] == [220]


def test_locks_that_wait_hear_of_a_scan_before_the_seal() -> None:
    """A pipelined lock ends by a scan that does not repeat it; that the scan came stands in no manifest."""
    world = world_with(prewrite(b"a", 160, 6, generation=1))
    push(world, 220, 210, [], 10, 9, 206)
    scanned = watermark(12, 11, 216, base_ts=190)
    world.push(TINY.file(2, 221, 0, [], scanned))
    world.node.tick()
    assert last(world, 1).pending
    world.split(1, M)
    world.tick()
    assert [last(world, task_id).pending for task_id in (2, 3)] == [(), ()]


def test_a_part_that_cannot_be_divided_is_waited_for_and_no_new_one_is_made() -> None:
    """A transaction of one commit_ts that is a segment already. Transactions go on, one above the watermark always."""
    world = world_with(whole(b"a", 206, 300, 6), whole(b"z", 206, 300, 7), cut=EXTREME)
    assert [part.kind for part in last(world, 1).pending] == [SEALED]
    world.split(1, M)
    assert not world.node.tick()
    push(world, 310, 210, [whole(b"a", 306, 400, 10), whole(b"z", 306, 400, 11)], 10, 11, 290)
    world.node.tick()
    assert last(world, 1).kind != KIND_SEAL
    assert sorted(part.span.start for part in last(world, 1).pending) == [A, A, Z]
    push(world, 320, 310, [whole(b"a", 316, 500, 12), whole(b"z", 316, 500, 13)], 12, 13, 310)
    world.tick()
    assert sorted(world.rows) == [2, 3]
    push(world, 600, 320, [], 14, 13, 600)
    world.tick()
    assert committed(world) == [(A, 300), (Z, 300), (A, 400), (Z, 400), (A, 500), (Z, 500)]


@pytest.mark.parametrize(
    "children",
    [
        pytest.param([child_task(2, KeySpan(b"", M)), child_task(3, KeySpan(Z, b""))], id="a gap"),
        pytest.param([child_task(2, KeySpan(b"", Z)), child_task(3, KeySpan(M, b""))], id="an overlap"),
        pytest.param([child_task(2, KeySpan(A, M)), child_task(3, KeySpan(M, b""))], id="not from the beginning"),
        pytest.param([child_task(2, KeySpan(b"", M)), child_task(3, KeySpan(M, Z))], id="not to the end"),
        pytest.param([child_task(2, WHOLE)], id="one child"),
        pytest.param([], id="none"),
        pytest.param([child_task(2, KeySpan(b"", M)), child_task(2, KeySpan(M, b""))], id="one id twice"),
        pytest.param([child_task(1, KeySpan(b"", M)), child_task(3, KeySpan(M, b""))], id="its own child"),
        pytest.param(
            [child_task(2, WHOLE).model_copy(update={"end_key": "6x"}), child_task(3, KeySpan(M, b""))], id="no hex"
        ),
        pytest.param(
            [child_task(2, WHOLE).model_copy(update={"start_key": "6d", "end_key": "6d"}), child_task(3, WHOLE)],
            id="no keys",
        ),
    ],
)
def test_children_that_do_not_make_up_the_task_are_refused_and_it_goes_on(
    children: list[object], caplog: pytest.LogCaptureFixture
) -> None:
    world = world_with()
    world.rows[1].order = SealOrder(children=children)  # type: ignore[arg-type]
    for _ in range(3):
        world.assign()
        world.node.tick()
    push(world, 220, 210, [whole(b"a", 206, 207, 10)], 10, 10, 215)
    world.node.tick()
    assert world.progress_ts() == 215
    assert len([one for one in caplog.records if one.message == "order to split or merge refused"]) == 1


def test_a_task_that_stopped_is_not_sealed() -> None:
    world = world_with()
    push(world, 220, 210, [whole(b"a", 160, 170, 10)], 10, 10, 215)
    world.node.tick()
    assert len(world.stopped()) == 1
    world.split(1, M)
    world.node.tick()
    assert last(world, 1).kind != KIND_SEAL


# -- a merge ----------------------------------------------------------------------------------------------------------


def two(*rows: Row, cut: object = None) -> SplitWorld:
    """Tasks 2 and 3, of the keys below M and from M on."""
    world = world_with(*rows, cut=cut)
    world.split(1, M)
    world.tick()
    return world


def order_merge(world: SplitWorld, stop_at: int | None, *, final: bool = False) -> None:
    """The order itself, and nothing that would follow from it."""
    order = SealOrder(children=[child_task(9, WHOLE)], stop_at=stop_at, final=final) if stop_at else None
    for row in world.rows.values():
        row.order = order
    world.assign()


def test_a_merge_stops_both_at_one_ts_and_goes_on_as_one() -> None:
    world = two(whole(b"a", 160, 170, 6), whole(b"z", 160, 171, 7))
    world.merge(2, 3, ahead=100)
    world.tick()
    assert [task.stop_at for task in world.node.tasks()] == [305, 305]
    push(world, 400, 210, [whole(b"a", 206, 207, 10), whole(b"z", 306, 308, 11)], 10, 12, 390)
    world.tick()
    (child,) = world.rows
    assert [last(world, one).flushed_ts for one in (2, 3)] == [305, 305]
    assert world.rows[child].span == WHOLE
    assert world.progress_ts() == 390
    assert committed(world) == [(A, 170), (Z, 171), (A, 207), (Z, 308)]
    assert last(world, child).stop_at is None
    assert len(view(world, child).segments) == 3, "what both had of their parent, once"


def test_nothing_above_stop_at_is_flushed_or_told_while_files_go_on_being_taken() -> None:
    world = two()
    order_merge(world, 305)
    world.node.tick()
    assert [report.stop_at for report in world.node.reports()] == [305, 305]
    push(world, 400, 210, [whole(b"a", 206, 207, 10), whole(b"a", 306, 308, 11)], 10, 12, 390)
    for _ in range(3):
        world.clock.advance(11_000)
        world.node.tick()
    assert [report.progress_ts for report in world.node.reports()] == [305, 305]
    assert [last(world, task_id).flushed_ts for task_id in (2, 3)] == [305, 305]
    assert [chain.at_ts for chain in last(world, 2).positions[1]] == [400]
    assert committed(world) == [(A, 207)]
    assert [part.kind for part in last(world, 2).pending] == [READY]
    late_ms = world.clock.now_ms() + 60_000
    assert "will be merged with" in world.task(2).status(late_ms, world.clock.monotonic_ms()).holds[0].reason


def test_a_stop_at_binds_who_holds_the_task_next() -> None:
    world = two()
    order_merge(world, 305)
    world.node.tick()
    push(world, 400, 210, [whole(b"a", 306, 308, 10)], 10, 12, 390)
    world.node.tick()
    world.crash()
    assert world.task(2).state.progress_ts == 305, "though all has come up to 390"
    for _ in range(3):
        world.node.tick()
        world.clock.advance(11_000)
    assert [task.stop_at for task in world.node.tasks()] == [305, 305]
    assert world.progress_ts() == 305
    assert committed(world) == []


@pytest.mark.parametrize("instead", [None, 350], ids=["withdrawn", "another ts"])
def test_an_order_that_is_taken_back_lets_the_task_go_on(instead: int | None) -> None:
    """What has come above the old stop_at meanwhile is flushed before it is passed."""
    world = two()
    order_merge(world, 305)
    world.node.tick()
    push(world, 400, 210, [whole(b"a", 306, 308, 10)], 10, 12, 390)
    world.node.tick()
    assert world.progress_ts() == 305
    order_merge(world, instead)
    while world.node.tick():
        assert world.progress_ts() == 305 or committed(world) == [(A, 308)]
    assert [last(world, task_id).stop_at for task_id in (2, 3)] == [instead, instead]
    assert world.progress_ts() == (instead or 390)
    assert committed(world) == [(A, 308)]


def test_a_stop_at_below_what_was_told_is_not_taken() -> None:
    world = two()
    push(world, 220, 210, [], 10, 9, 215)
    world.node.tick()
    order_merge(world, 214)
    world.node.tick()
    assert [(report.stop_at, report.progress_ts) for report in world.node.reports()] == [(None, 215)] * 2
    order_merge(world, 215)
    world.node.tick()
    assert [(report.stop_at, report.progress_ts) for report in world.node.reports()] == [(215, 215)] * 2


def test_a_merge_is_not_sealed_before_it_has_come_to_stop_at() -> None:
    world = two()
    order_merge(world, 305, final=True)
    for _ in range(3):
        world.node.tick()
    assert [last(world, task_id).kind for task_id in (2, 3)] != [KIND_SEAL, KIND_SEAL]
    push(world, 400, 210, [], 10, 9, 305)
    for _ in range(3):
        world.node.tick()
    seals = [last(world, task_id) for task_id in (2, 3)]
    assert [(seal.kind, seal.flushed_ts, seal.stop_at) for seal in seals] == [(KIND_SEAL, 305, 305)] * 2


@pytest.mark.parametrize(
    "children",
    [
        pytest.param([child_task(9, KeySpan(b"", Z))], id="only a part of its keys"),
        pytest.param([child_task(8, KeySpan(b"", M)), child_task(9, KeySpan(M, b""))], id="two children"),
    ],
)
def test_a_merge_into_something_else_is_refused(children: list[object]) -> None:
    world = world_with()
    world.rows[1].order = SealOrder(children=children, stop_at=500, final=False)  # type: ignore[arg-type]
    world.assign()
    world.node.tick()
    assert world.task(1).stop_at is None


def test_a_child_of_a_merge_takes_what_only_one_parent_has_taken_again_and_writes_it_once() -> None:
    """Region 1 with store 1, region 2 with store 2; task 3 has seen nothing of store 1 lately. It comes again: rows of
    task 2 that are flushed, that are settled above the ts of the merge, locks that are settled and one that waits."""
    left, right = {"end_key": M}, {"region_id": 2, "key": M}
    world = SplitWorld(TINY)
    world.push(TINY.file(1, 200, 0, [], watermark(6, 5, 150, base_ts=100, **left)))
    world.push(TINY.file(2, 201, 0, [], watermark(6, 5, 150, base_ts=100, **right)))
    world.tick()
    world.split(1, M)
    world.tick()
    order_merge(world, 305)
    world.node.tick()
    world.withheld.add((3, 1))
    rows = [
        *[whole(b"a", 206, 207, 6), prewrite(b"b", 209, 7), commit(b"b", 209, 210, 8), whole(b"c", 306, 320, 9)],
        *[prewrite(b"d", 300, 10), prewrite(b"e", 301, 11), commit(b"e", 301, 322, 12), prewrite(b"f", 303, 13)],
        rollback(b"f", 303, 14),
    ]
    world.push(TINY.file(1, 400, 200, rows, watermark(6, 14, 315, **left)))
    row = {**whole(b"z", 206, 208, 6), "region_id": 2}
    world.push(TINY.file(2, 401, 201, [row], watermark(6, 6, 316, **right)))
    world.node.tick()
    order_merge(world, 305, final=True)
    for _ in range(2):
        world.node.tick()
    assert [last(world, task_id).kind for task_id in (2, 3)] == [KIND_SEAL] * 2
    assert [[chain.at_ts for chain in last(world, one).positions[1]] for one in (2, 3)] == [[400], [200]]
    world._replace([2, 3], [child_task(9, WHOLE)])
    world.assign()
    world.tick()
    assert [chain.at_ts for chain in last(world, 9).positions[1]] == [400]
    assert last(world, 9).counters["repeated_rows"] == 2
    assert world.progress_ts() == 315
    world.push(TINY.file(1, 500, 400, [commit(b"d", 300, 420, 15)], watermark(15, 16, 490, **left)))
    world.push(TINY.file(2, 501, 401, [], watermark(7, 6, 490, **right)))
    world.tick()
    assert world.stopped() == []
    names = (b"a", b"z", b"b", b"c", b"e", b"d")
    assert committed(world) == list(zip(map(key, names), (207, 208, 210, 320, 322, 420), strict=True))
    assert last(world, 9).pending == ()


def test_parents_that_were_not_sealed_at_one_ts_are_refused_loudly(caplog: pytest.LogCaptureFixture) -> None:
    world = two()
    child = child_task(9, WHOLE)
    for task_id, stop_at in ((2, 205), (3, 215)):
        world.rows[task_id].order = SealOrder(children=[child], stop_at=stop_at, final=True)
    world.assign()
    push(world, 220, 210, [], 10, 9, 215)
    for _ in range(3):
        world.node.tick()
    assert [last(world, task_id).flushed_ts for task_id in (2, 3)] == [205, 215]
    world._replace([2, 3], [child])
    assert not world.assign()
    assert "not at one flushed_ts" in caplog.text
    assert world.node.tasks() == []


# -- children ---------------------------------------------------------------------------------------------------------


def identity(world: SplitWorld, task_id: int) -> TaskIdentity:
    row = world.rows[task_id]
    return TaskIdentity(TINY.tenant, task_id, row.span, TINY.snapshot_ts, row.epoch, parents=row.parents)


def test_a_child_is_not_held_before_every_parent_is_sealed_in_its_favour() -> None:
    world = two()
    order_merge(world, 305, final=True)
    push(world, 310, 210, [], 10, 9, 305)
    child = TaskIdentity(TINY.tenant, 9, WHOLE, TINY.snapshot_ts, 1, parents=(2, 3))
    held = [identity(world, 2), identity(world, 3)]
    assert not world.node.assign([*held, child], {2: world.rows[2].order})  # type: ignore[dict-item]
    for _ in range(3):
        world.node.tick()
    assert not world.node.assign([*held, child])
    assert world.node.find(9) is None
    world.assign()
    for _ in range(3):
        world.node.tick()
    other = replace(child, span=KeySpan(b"", Z), task_epoch=2)
    assert not world.node.assign([other]), "the seals name it with another span"
    assert world.node.assign([replace(child, task_epoch=3)])
    world.node.tick()
    assert world.node.find(9) is not None


def test_a_child_is_not_told_as_held_and_tells_no_progress_before_its_first_manifest() -> None:
    world = world_with()
    world.split(1, M)
    world.node.tick()
    world.meta()
    assert [last(world, task_id).kind for task_id in (2, 3)] == [KIND_CLAIM, KIND_CLAIM]
    assert world.node.reports() == []
    reader = PoolReader(world, world.route())
    reader.refresh()
    assert reader.resolved_ts == 205, "the parent's"
    world.node.tick()
    assert [report.task_id for report in world.node.reports()] == [2, 3]


def test_the_first_manifest_is_written_before_anything_else_is_done() -> None:
    world = world_with()
    world.split(1, M)
    world.node.tick()
    world.meta()
    push(world, 220, 210, [whole(b"a", 206, 207, 10)], 10, 10, 215)
    world.node.tick()
    assert [(last(world, one).kind, last(world, one).flushed_ts) for one in (2, 3)] == [(KIND_CHECKPOINT, 205)] * 2
    world.tick()
    assert committed(world) == [(A, 207)]


def test_once_a_child_has_its_first_manifest_its_parents_are_not_needed() -> None:
    world = world_with(whole(b"a", 160, 170, 6))
    world.split(1, M)
    world.tick()
    for entry in list(world.objects.list_after(f"{layout.task_prefix(TINY.tenant, 1)}manifest/")):
        world.objects.delete(entry.key)
    world.objects.delete(layout.floor(TINY.tenant, 1))
    world.crash()
    world.split(2, A)
    world.tick()
    push(world, 220, 210, [whole(b"a", 206, 207, 10)], 10, 10, 215)
    world.tick()
    assert committed(world) == [(A, 170), (A, 207)]


def test_a_child_can_be_prepared_before_and_after_its_first_manifest() -> None:
    world = world_with(whole(b"a", 160, 170, 6))
    world.split(1, M)
    world.node.tick()
    world.meta()
    other = world._new_node()
    next_ones = [replace(identity(world, task_id), task_epoch=2) for task_id in (2, 3)]
    other.prepare(next_ones)
    assert [report.task_id for report in other.reports() if report.prepared] == [2, 3]
    world.node.tick()
    other.prepare(next_ones)
    assert other.assign(next_ones)
    for row in world.rows.values():
        row.epoch = 2
    late, world.node = world.node, other
    push(world, 220, 210, [whole(b"a", 206, 207, 10)], 10, 10, 215)
    world.tick()
    assert committed(world) == [(A, 170), (A, 207)]
    assert not late.tick()


def test_coverage_is_told_of_a_task_that_was_just_sealed() -> None:
    world = world_with()
    world.split(1, M)
    world.node.tick()
    task = world.node.known(1)
    assert task is not None
    assert [piece.resolved_ts for piece in task.coverage(WHOLE).slices] == ["205"]
    assert world.node.known(7) is None


def test_routes_tell_parents_orders_and_who_is_to_come() -> None:
    world = world_with()
    world.split(1, M)
    world.node.tick()
    world.meta()
    table = world.table()
    assert [one.parents for one in wanted_tasks(table, NODE, 1, RULES)] == [(1,), (1,)]
    assert coming_tasks(table, NODE, 1, RULES) == []


# -- what goes wrong --------------------------------------------------------------------------------------------------


class Killed(BaseException):
    """The process is dead."""


class DeadlyStore(MemoryObjectStore):
    """Kills the process right after a manifest was written, when so many have been."""

    left = 1 << 60

    def put_new(self, key: str, body: bytes) -> None:
        super().put_new(key, body)
        self.left -= 1
        if self.left == 0:
            raise Killed


def through_split_and_merge(world: SplitWorld, after_death: int) -> bool:
    """A tenant's life; whether the process died. Then a new one goes on."""
    store = world.objects
    assert isinstance(store, DeadlyStore)
    store.left = after_death
    died = False

    def surviving(act: object) -> None:
        nonlocal died
        try:
            act()  # type: ignore[operator]
            world.tick()
        except Killed:
            died = True
            world.crash()
            world.tick()

    surviving(world.tick)
    rows = [whole(b"a", 206, 300, 6), whole(b"z", 206, 301, 7), prewrite(b"a1", 207, 8), prewrite(b"z1", 208, 9)]
    surviving(lambda: push(world, 210, 200, rows, 6, 9, 205))
    surviving(lambda: world.split(1, M))
    rows = [commit(b"a1", 207, 302, 10), commit(b"z1", 208, 303, 11)]
    surviving(lambda: push(world, 310, 210, rows, 10, 11, 301))
    surviving(lambda: world.merge(*sorted(world.rows), ahead=20))
    surviving(lambda: push(world, 400, 310, [whole(b"a", 310, 350, 12)], 12, 13, 390))
    return died


def test_a_process_may_die_after_any_manifest() -> None:
    for after_death in range(1, 60, 1 if FULL else 3):
        world = SplitWorld(TINY, objects=DeadlyStore())
        world.push(FIRST)
        reader = PoolReader(world, world.route())
        died = through_split_and_merge(world, after_death)
        assert (len(world.rows), len(world.sealed)) == (1, 3), after_death
        assert world.stopped() == []
        names = (b"a", b"z", b"a1", b"z1", b"a")
        wanted = list(zip(map(key, names), (300, 301, 302, 303, 350), strict=True))
        assert committed(world) == wanted, after_death
        reader.refresh()
        assert reader.resolved_ts == 390
        if not died:
            assert after_death > 15
            return
    raise AssertionError("it died whatever had been written")


def test_who_is_given_a_sealed_task_tells_of_the_seal() -> None:
    world = world_with()
    world.split(1, M)
    world.node.tick()
    world.crash()
    (report,) = world.node.reports()
    assert (report.task_epoch, [child.task_id for child in report.sealed]) == (2, [2, 3])
    world.tick()
    assert sorted(world.rows) == [2, 3]


def test_a_late_holder_neither_seals_nor_begins_a_child() -> None:
    world = world_with(whole(b"a", 160, 170, 6))
    world.split(1, M)
    world.crash(late=True)
    world.withdraw(1)
    (late,) = world.late
    assert not late.tick()
    assert last(world, 1).kind == KIND_CLAIM
    world.split(1, A)
    world.node.tick()
    world.meta()
    world.crash(late=True)
    before = [view(world, task_id).number for task_id in sorted(world.rows)]
    assert not world.late[-1].tick()
    assert [view(world, task_id).number for task_id in sorted(world.rows)] == before
    world.tick()
    assert committed(world) == [(A, 170)]


@pytest.mark.parametrize("fault", [Fault.UNANSWERED, Fault.LOST, Fault.DELAYED])
def test_a_seal_whose_answer_is_unknown_is_put_again_until_it_is_known(
    fault: Fault, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(manifest_log, "BACKOFF_SECONDS", (0.0,))
    store = FaultyObjectStore(MemoryObjectStore())
    world = world_with(whole(b"a", 160, 170, 6), objects=store)
    world.split(1, M)
    store.plan.extend([fault] + [Fault.LOST] * (2 * manifest_log.ATTEMPTS))
    world.node.tick()
    assert all(not report.sealed for report in world.node.reports()) or fault is Fault.UNANSWERED
    store.deliver()
    store.plan.clear()
    world.withdraw(1)
    world.tick()
    assert sorted(world.rows) == [2, 3], "it may have been written: the order cannot be taken back"
    assert committed(world) == [(A, 170)]


def test_a_commit_in_doubt_is_settled_before_the_seal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(manifest_log, "BACKOFF_SECONDS", (0.0,))
    store = FaultyObjectStore(MemoryObjectStore())
    world = world_with(objects=store)
    store.plan.extend([Fault.LOST] * manifest_log.ATTEMPTS)
    push(world, 220, 210, [whole(b"a", 206, 207, 10)], 10, 10, 215)
    world.node.tick()
    number = last(world, 1).number
    world.split(1, M)
    world.node.tick()
    assert (last(world, 1).number, last(world, 1).kind != KIND_SEAL) == (number + 1, True)
    world.node.tick()
    assert (last(world, 1).number, last(world, 1).kind) == (number + 2, KIND_SEAL)
    world.tick()
    assert world.stopped() == []
    assert committed(world) == [(A, 207)]
