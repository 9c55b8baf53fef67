"""Watermark rows that overlap each other: how much work they are, who goes on meanwhile, and that none is lost."""
# Attack: hundreds of thousands of overlapping watermark rows: bounded steps of a sorter

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from itertools import pairwise

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from test_slices import Arrivals, begun, row

from support.sorter_world import SorterWorld
from support.tiny_tenant import Row, TinyTenant, watermark
from tistream.format.manifest import ChainPosition
from tistream.model.span import KeySpan
from tistream.wire.file_batch import WATERMARKS
from tistream_sorter.task import tick
from tistream_sorter.watermark import slice_work
from tistream_sorter.watermark.slice_work import GOING_ON, SLICES_A_STEP, WAITING_A_STEP, passed_over
from tistream_sorter.watermark.watermark_rows import WaitingRows, Watermark, merge_rows

MANY = 20_000
TINY = TinyTenant()

KEYS = [b"", b"a", b"b", b"c", b"d"]
SPANS = st.tuples(st.sampled_from(KEYS), st.sampled_from(KEYS)).filter(lambda span: not span[1] or span[0] < span[1])
FEW = st.integers(1, 3)
ROWS = st.builds(
    lambda span, region, version, first, count, base_ts, ts, after: Watermark(
        *span, region, version, first, first + count, base_ts, ts, after, 1, 1000
    ),
    SPANS,
    FEW,
    FEW,
    st.integers(1, 6),
    st.integers(-1, 3),
    st.none() | st.integers(0, 2),
    st.integers(1, 4),
    st.just(()) | st.just(((1, 2),)) | st.just(((1, 2), (3, 4))),
)


def steps(arrivals: Arrivals, rows: pa.Table) -> int:
    arrivals.seq += 1
    return sum(arrivals.slices.applying(rows, 1, 1000 + arrivals.seq, arrivals.seq, arrivals.history))


def reaching_to_the_last_key(count: int) -> pa.Table:
    one = pa.Table.from_pylist([row((b"", b""), 1, 1, (10, 12), 50)], schema=WATERMARKS)
    rows = one.take(pa.array([0] * count, pa.int32()))
    for name, values in (("start_key", [b"k%08d" % at for at in range(count)]), ("region_id", range(2, count + 2))):
        at = rows.column_names.index(name)
        rows = rows.set_column(
            at, WATERMARKS.field(name), pa.chunked_array([pa.array(values, WATERMARKS.field(at).type)])
        )
    return rows


def test_many_rows_that_all_overlap_are_a_step_each_and_no_work_for_later_files() -> None:
    arrivals = begun()
    every = steps(arrivals, reaching_to_the_last_key(MANY))
    assert MANY <= every <= MANY * (1 + MANY // SLICES_A_STEP)
    assert len(arrivals.slices.waiting) == MANY
    later = pa.Table.from_pylist([row((b"k", b""), 9_999_999, 1, (10, 12), 50)], schema=WATERMARKS)
    looked_at = 1 + len(arrivals.slices) // SLICES_A_STEP
    once = (MANY + 1 + len(arrivals.slices)) // WAITING_A_STEP  # as columns, to join the new one to its like
    assert steps(arrivals, later) == looked_at + once, "none of those that wait is tried"
    assert len(arrivals.slices.waiting) == MANY + 1


def test_rows_that_wait_elsewhere_are_not_looked_at() -> None:
    arrivals = begun()
    arrivals.file(
        row((b"", b"k"), 1, 2, (11, 12), 100, after=[(1, 10)]), row((b"k", b""), 2, 2, (6, 9), 100, after=[(1, 10)])
    )
    steps(arrivals, reaching_to_the_last_key(50))
    left = [row((b"", b"k"), 1, 2, (first, first), 200 + first) for first in (13, 14)]  # not alone: row by row
    assert steps(arrivals, pa.Table.from_pylist(left, schema=WATERMARKS)) == 4, "a row and a slice each"
    assert [state.resolved_ts for state in arrivals.slices.states(KeySpan(b"", b"k"))] == [214]


def test_what_others_set_free_connects_at_once() -> None:
    arrivals = begun()
    assert arrivals.file(row((b"", b""), 1, 1, (16, 18), 300), store=2) == 100
    both = [row((b"", b""), 1, 1, (11, 12), 200), row((b"", b""), 1, 1, (13, 15), 250)]
    assert arrivals.file(*both) == 300
    assert arrivals.slices.waiting == []


def test_a_scan_from_above_waits_beside_others_too() -> None:
    arrivals = begun()
    both = [row((b"", b""), 2, 2, (6, 9), 300, base_ts=201), row((b"", b""), 2, 2, (10, 12), 310)]
    assert arrivals.file(*both) == 100
    assert arrivals.file(row((b"", b""), 1, 1, (11, 12), 200)) == 200
    assert arrivals.file(row((b"", b""), 1, 1, (13, 13), 201)) == 310


def test_a_file_that_closes_a_gap_is_taken_however_little_room_there_is(monkeypatch: pytest.MonkeyPatch) -> None:
    arrivals = begun()
    arrivals.file(row((b"", b""), 1, 1, (21, 25), 400))
    arrivals.file(row((b"", b""), 1, 1, (13, 18), 300))
    monkeypatch.setattr(slice_work, "WAITING_MAX", 0)
    assert arrivals.file(row((b"", b""), 1, 1, (11, 12), 200)) == 300
    assert len(arrivals.slices.waiting) == 1


# -- what a node makes of it ------------------------------------------------------------------------------------------


def overlapping(count: int) -> list[Row]:
    """All in the first task, and of logs of which nothing has come."""
    return [
        watermark(10, 12, 150, region_id=100 + at, region_version=1, key=b"a%03d" % at, end_key=b"m")
        for at in range(count)
    ]


def two_tasks(apply_steps: int) -> SorterWorld:
    world = SorterWorld(TINY, [b"m"])
    world.limits = replace(world.limits, apply_steps=apply_steps)
    world.start()
    world.push(TINY.file(1, 200, 0, [], watermark(6, 5, 150, base_ts=100)))
    world.tick()
    return world


def progress(world: SorterWorld, task_id: int) -> int:
    task = world.node.find(task_id)
    assert task is not None
    return task.state.progress_ts


def test_another_tenants_tasks_go_on_while_a_file_is_taken() -> None:
    """What goes round is a task, whoever's it is."""
    world = two_tasks(apply_steps=5)
    world.push(TINY.file(2, 205, 0, [], *overlapping(60)))
    world.push(TINY.file(1, 210, 200, [], watermark(6, 6, 205)))
    rounds = 1
    while world.node.tick():
        rounds += 1
        assert (progress(world, 1), progress(world, 2)) == (150, 205)
    assert rounds >= 60 // 5
    assert progress(world, 1) == 205
    found = world.node.find(1)
    assert found is not None
    assert len(found.state.slices.waiting) == 60
    assert world.stopped() == []


def test_what_is_done_for_rows_that_wait_is_told_though_none_is_tried() -> None:
    arrivals = begun()
    steps(arrivals, reaching_to_the_last_key(MANY))
    wake = pa.Table.from_pylist([row((b"", b""), 1, 1, (11, 12), 200)], schema=WATERMARKS)
    assert steps(arrivals, wake) >= MANY // WAITING_A_STEP


def test_files_that_say_more_than_is_kept_at_once_are_taken_a_few_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tick, "CHANGES_AT_ONCE", 5)
    world = two_tasks(apply_steps=1_000)
    world.push(TINY.file(2, 205, 0, [], watermark(6, 5, 150, base_ts=100)))
    for number in range(6):
        said = [watermark(6 + number, 6 + number, 300 + number, key=key) for key in (b"", b"c")]
        world.push(TINY.file(1, 210 + number, 209 + number if number else 200, [], *said))
    seen = []
    for _ in range(8):
        world.node.tick()
        seen.append(progress(world, 1))
    assert seen == sorted(seen)
    assert 150 < seen[0] < 305 == seen[-1] == progress(world, 2), "the first take ended before the last file"
    assert world.stopped() == []


def test_of_many_tasks_that_go_on_a_few_are_at_work_in_turn() -> None:
    tasks = list(range(10))
    at_work = Counter[int]()
    for turn in range(10):
        going = set(tasks) - set(passed_over(tasks, turn))
        assert len(going) == GOING_ON
        at_work.update(going)
    assert set(at_work.values()) == {GOING_ON}
    assert passed_over(tasks[:GOING_ON], 1) == (), "few are at work all at once"


def test_a_file_for_whose_rows_there_is_no_room_is_held_and_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slice_work, "WAITING_MAX", 5)
    world = two_tasks(apply_steps=1_000)
    task = world.node.find(1)
    assert task is not None
    late = TINY.file(2, 205, 0, [], *overlapping(10))
    world.push(late)
    world.push(TINY.file(1, 210, 200, [], watermark(6, 6, 205)))
    world.tick()
    world.clock.advance(3_000)
    world.tick()
    assert (progress(world, 1), progress(world, 2)) == (205, 205), "the other store goes on"
    (hold,) = [hold for hold in task.status(0, world.clock.monotonic_ms()).holds if hold.stage == "damaged"]
    assert (hold.store_id, hold.object) == ("2", late.key)
    assert hold.reason == "more than 5 watermark rows would wait for log entries that have not arrived"
    assert 2 not in task.received()
    assert task.state.slices.waiting == []
    monkeypatch.setattr(slice_work, "WAITING_MAX", 10)
    world.clock.advance(60_000)
    world.send(world.sent)
    world.tick()
    assert task.received()[2] == (ChainPosition(205, 205),), "nothing of it is lost"
    assert len(task.state.slices.waiting) == 10
    assert [hold for hold in task.status(0, world.clock.monotonic_ms()).holds if hold.stage == "damaged"] == []


# -- rows that wait, as columns ---------------------------------------------------------------------------------------


@given(rows=st.lists(ROWS, max_size=15))
def test_rows_are_joined_as_one_by_one(rows: list[Watermark]) -> None:
    def order(one: Watermark) -> tuple[object, ...]:
        base_ts = -1 if one.base_ts is None else one.base_ts
        place = (one.region_version, one.region_id, one.first_index, one.log_index, one.resolved_ts)
        return (one.start, one.end, *place, base_ts, one.after)

    out: list[Watermark] = []
    for one in sorted(set(rows), key=order):
        before = out[-1] if out else None
        if (
            before is not None
            and order(before)[:4] == order(one)[:4]
            and one.base_ts is None
            and not one.after
            and one.first_index <= before.log_index + 1
            and one.log_index >= before.log_index
            and one.resolved_ts >= before.resolved_ts
        ):
            out[-1] = replace(before, log_index=one.log_index, resolved_ts=one.resolved_ts)
        else:
            out.append(one)
    assert merge_rows(rows) == out
    assert WaitingRows.from_table(WaitingRows.of(rows).to_table()).rows == rows


@given(rows=st.lists(ROWS, max_size=10), cuts=st.sets(st.sampled_from(KEYS[1:])))
def test_the_first_row_over_each_span(rows: list[Watermark], cuts: set[bytes]) -> None:
    waiting = WaitingRows.of(rows).merged()
    bounds = [b"", *sorted(cuts), b""]
    spans = list(pairwise(bounds))
    expected = [
        next((one for one in waiting.rows if KeySpan(one.start, one.end).overlaps(KeySpan(*span))), None)
        for span in spans
    ]
    assert waiting.first_over(spans) == expected
