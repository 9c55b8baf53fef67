"""Which chunks a task takes, for which parts of its index, what becomes of them, and what retention waits for."""

from __future__ import annotations

from dataclasses import replace

from tistream.format.backfill.chunk_plan import ChunkPlan
from tistream.format.run import IndexPart, RunRef
from tistream.format.segment import RowGroupInfo, SegmentRef
from tistream.model.base_cover import Base
from tistream.model.ids import TenantKey
from tistream.model.span import WHOLE, KeySpan
from tistream.model.ts import MAX_TS
from tistream.schema.tidb.meta_change import record_span
from tistream_sorter.jobs.index.base_unit import BaseResult
from tistream_sorter.state.task_state import Retention, TaskIdentity, TaskState, first_state
from tistream_sorter.task.mailbox import OpenBackfillsNote, RetentionNote
from tistream_sorter.task.task import Task
from tistream_sorter.task.task_machine import TickLimits
from tistream_sorter.upkeep.base_plan import OpenBackfill, kept_above, refusal, units, with_bases
from tistream_sorter.upkeep.retention import retained
from tistream_sorter.upkeep.shards import CutRules
from tistream_sorter.upkeep.version_index import BYTES_IN, BYTES_OUT

TENANT = TenantKey("7", "acme")
TABLE = record_span(9)
MIDDLE = TABLE.start + b"\x80\x00"
LEFT, RIGHT = KeySpan(b"", MIDDLE), KeySpan(MIDDLE, b"")
IDENTITY = TaskIdentity(TENANT, 3, WHOLE, 100, 4)


def state(*parts: IndexPart, flushed_ts: int = 1_000, retained_ts: int = 0) -> TaskState:
    return replace(first_state(IDENTITY, 1), flushed_ts=flushed_ts, retained_ts=retained_ts, index=parts)


def backfill(*base_ts: int, min_ts: int = 100, old_values: bool = True) -> OpenBackfill:
    """A backfill of the table in two chunks, of which those with a base_ts exist."""
    plan = ChunkPlan((KeySpan(TABLE.start, MIDDLE), KeySpan(MIDDLE, TABLE.end)), min_ts)
    return OpenBackfill(TENANT, "b1", plan, old_values, dict(enumerate(base_ts)))


def run(key: str, base_ts: int, first: bytes = b"\x80", last: bytes = b"\x81") -> RunRef:
    bounds = [(9, TABLE.start + one) for one in (first, last)]
    return RunRef(key, 10, "00000000", 2, None, base_ts, bounds[0], bounds[1])


def nonce() -> str:
    return "00"


def test_a_chunk_is_a_unit_for_each_part_of_the_index() -> None:
    inner = KeySpan(b"", TABLE.start + b"\x40")
    outer = KeySpan(inner.end, b"")
    older = run("older", 150, b"\x10", b"\x20")
    index = (IndexPart(inner, 100, 100, 300, (), (older,)), IndexPart(outer, 100, 200, 400))
    found = units(state(*index), backfill(500), nonce, 8)
    assert [(one.span, one.indexed_ts, one.basis) for one in found] == [
        (KeySpan(TABLE.start, inner.end), 300, (older,)),
        (KeySpan(inner.end, MIDDLE), 400, ()),
    ]
    half = replace(state(*index), cover=(Base(KeySpan(TABLE.start, inner.end), 600),))
    assert [one.span for one in units(half, backfill(500), nonce, 8)] == [KeySpan(inner.end, MIDDLE)]
    assert units(state(*index), backfill(1_001), nonce, 8) == [], "above what was flushed"


def test_a_chunk_below_the_log_is_refused() -> None:
    assert refusal(state(), backfill(99, min_ts=90), 0) is not None, "below the snapshot"
    assert refusal(state(retained_ts=200), backfill(199), 0) is not None, "past retention"
    assert refusal(state(), backfill(99), 0) is not None, "below the plan"
    assert refusal(state(retained_ts=200), backfill(200), 0) is None


def test_a_task_refuses_no_chunk_of_keys_that_it_does_not_have() -> None:
    """The chunk beside it may be of a task whose retention has not got so far, and a refusal is for ever."""
    late = state(retained_ts=200)
    right = replace(late, identity=replace(IDENTITY, span=RIGHT))
    assert refusal(late, backfill(199, 199), 0) is not None
    assert refusal(right, backfill(199, 199), 1) is not None
    assert refusal(right, backfill(199, 199), 0) is None, "left of it"


def test_a_base_joins_the_parts_that_it_touches_and_counts_as_taken_in() -> None:
    index = (IndexPart(LEFT, 100, 100, 300), IndexPart(RIGHT, 100, 100, 400))
    made = BaseResult(
        3,
        units(state(*index), backfill(500), nonce, 1)[0].chunk,
        Base(TABLE, 500),
        (run("new", 500, b"\x81", b"\x82"),),
    )
    after, vain = with_bases(state(*index), [made])
    assert vain == []
    assert [part.basis for part in after.index] == [(), made.runs]
    assert (after.cover, after.restate) == ((made.base,), True)
    assert (after.counters[BYTES_IN], after.counters[BYTES_OUT]) == (10, 10)
    again, vain = with_bases(after, [made])
    assert (again, vain) == (after, ["new"]), "the same chunk twice"
    late, vain = with_bases(state(*index, retained_ts=501), [made])
    assert (late.cover, vain) == ((), ["new"]), "retention has passed it meanwhile"


def test_an_index_that_ends_takes_the_bases_with_it() -> None:
    part = IndexPart(WHOLE, 100, 100, 100, (), (run("new", 500),))
    live = (SegmentRef("s", 1, "0", 1, (RowGroupInfo(1, 9, 9, 600, 600),)),)
    begun = replace(state(part), cover=(Base(TABLE, 500),), live_segments=live)
    kept = retained(replace(begun, retention=Retention(1, 599)), 1 << 41)
    assert (kept.index, kept.cover) == ((part,), begun.cover), "nothing is dropped yet"
    far = replace(begun, retention=Retention(1, 600), flushed_ts=(1 << 40) << 18)
    ended = retained(far, 1 << 41)
    assert (ended.live_segments, ended.index, ended.cover) == ((), (), ())
    going_on = retained(replace(far, retention=Retention(1, 600, indexed=True)), 1 << 41)
    assert (going_on.live_segments, going_on.index, going_on.cover) == (live, (part,), begun.cover)


def test_retention_waits_for_open_backfills() -> None:
    plan = backfill(500, min_ts=300).plan
    assert kept_above([]) == MAX_TS
    assert kept_above([plan, replace(plan, min_ts=200)]) == 200
    assert kept_above([plan, None]) == 0, "a plan that is not known may allow any ts"
    limits = TickLimits(1 << 30, 10_000, 100, CutRules(1, 1 << 30), backfills=True)
    task = Task(state(), limits)
    task.leave(RetentionNote(1))
    for above_ts in (0, 300, MAX_TS):
        if above_ts:
            task.leave(OpenBackfillsNote(above_ts))
        with task.turn() as turn:
            turn.settle(0)
        assert task.state.retention.read_ts <= above_ts
        kept = replace(task.state, retention=Retention(1, min(above_ts, 900)), flushed_ts=(1 << 40) << 18)
        assert retained(kept, 1 << 41).retained_ts == min(above_ts, 900)
