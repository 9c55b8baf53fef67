"""Which segments are put together, and what becomes of a list of them in the course of a day."""

from __future__ import annotations

import itertools
import threading
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.effort import examples
from support.waiting import PATIENCE_S
from tistream.format.segment import SCHEMA, RowGroupInfo, SegmentRef
from tistream.model.ids import TenantKey
from tistream.model.span import WHOLE
from tistream.pool.rows import read_row_groups
from tistream.pool.writer import write_segment
from tistream.storage import layout
from tistream.storage.backends.memory import MemoryObjectStore
from tistream_sorter.jobs.compact import PACKED_ROWS, rewrite_guarded
from tistream_sorter.jobs.rewrite import Rewrite, Rewritten
from tistream_sorter.state.task_state import TaskIdentity, first_state
from tistream_sorter.upkeep.compaction_plan import CompactRules, replaced, rewrite

TENANT = TenantKey("7", "t")
IDENTITY = TaskIdentity(TENANT, 3, WHOLE, 100, 5)
RULES = CompactRules(fan_in=4, small_bytes=16 << 20)
KIB, MIB = 1 << 10, 1 << 20


def segment(size: int, number: int, task_id: int = 3, rows: int = 10) -> SegmentRef:
    key = layout.segment(TENANT, task_id, 1, f"{number:08x}", 0)
    return SegmentRef(key, size, "00000000", rows, (RowGroupInfo(rows, 1, 1, number, number),))


def live(*sizes: int) -> list[SegmentRef]:
    return [segment(size, number) for number, size in enumerate(sizes)]


def chosen(segments: list[SegmentRef], rules: CompactRules = RULES, skip: frozenset[str] = frozenset()) -> list[int]:
    found = rewrite(IDENTITY, segments, skip, "ab", rules)
    return [] if found is None else [segments.index(one) for one in found.inputs]


def test_as_many_neighbours_as_the_rules_say_are_put_together() -> None:
    assert chosen(live(*[KIB] * 3)) == []
    assert chosen(live(*[KIB] * 4)) == [0, 1, 2, 3]
    assert chosen(live(*[KIB] * 9)) == list(range(9)), "one job takes what it can"


def test_the_output_is_named_for_the_holder_of_the_epoch() -> None:
    found = rewrite(IDENTITY, live(*[KIB] * 4), frozenset(), "ab", RULES)
    assert found is not None
    assert found.key == layout.segment(TENANT, 3, 5, "ab", 0)


def test_large_ones_stay_and_part_the_others() -> None:
    assert chosen(live(KIB, KIB, 4 * MIB, KIB, KIB)) == []
    assert chosen(live(KIB, 4 * MIB, KIB, KIB, KIB, KIB)) == [2, 3, 4, 5]


def test_a_larger_one_is_not_written_again_for_a_few_small_ones() -> None:
    assert chosen(live(MIB, KIB, KIB, KIB)) == []
    assert chosen(live(MIB, KIB, KIB, KIB, KIB)) == [1, 2, 3, 4]
    assert chosen(live(MIB, MIB, MIB, MIB)) == [0, 1, 2, 3]
    assert chosen(live(MIB, 300 * KIB, 300 * KIB, 300 * KIB)) == []
    assert chosen(live(MIB, 400 * KIB, 400 * KIB, 400 * KIB)) == [0, 1, 2, 3]


def test_what_makes_a_large_one_is_put_together_before_there_are_many() -> None:
    rules = CompactRules(fan_in=100, fan_in_full=4, small_bytes=4 * MIB)
    assert chosen(live(*[900 * KIB] * 4), rules) == [], "not enough of them"
    assert chosen(live(*[900 * KIB] * 5), rules) == [0, 1, 2, 3, 4]
    assert chosen(live(*[1_000 * KIB] * 4, *[30 * KIB] * 4), rules) == list(range(8)), "whatever their tiers"
    assert chosen(live(*[1_000 * KIB] * 3, MIB, *[1_000 * KIB] * 3), rules) == [], "a quarter is no small one"
    assert chosen(live(*[30 * KIB] * 99), rules) == []
    assert chosen(live(*[30 * KIB] * 100), rules) == list(range(100)), "many"


def test_as_much_as_a_job_takes_is_put_together() -> None:
    rules = CompactRules(fan_in=100, fan_in_full=4, small_bytes=4 * MIB)
    assert chosen(live(*[KIB] * 9), replace(rules, rows_max=42)) == [0, 1, 2, 3]
    assert chosen(live(*[KIB] * 9), replace(rules, bytes_max=5 * KIB)) == [0, 1, 2, 3, 4]
    assert chosen(live(*[KIB] * 9), replace(rules, rows_max=39)) == []


@settings(deadline=None, max_examples=examples(20))
@given(sizes=st.lists(st.integers(64 * KIB, MIB), min_size=300, max_size=600), left=st.floats(0.3, 1.0))
def test_a_byte_is_written_again_once(sizes: list[int], left: float) -> None:
    """However much fewer bytes the output is than its inputs; and what waits is not much."""
    rules = CompactRules()
    held: list[SegmentRef] = []
    outputs: set[str] = set()
    for number, size in enumerate(sizes):
        held.append(segment(size, number))
        while found := rewrite(IDENTITY, held, frozenset(), "ab", rules):
            assert outputs.isdisjoint(one.key for one in found.inputs)
            at = held.index(found.inputs[0])
            output = segment(int(left * sum(one.size for one in found.inputs)), number + 1_000)
            held[at : at + len(found.inputs)] = [output]
            outputs.add(output.key)
        waiting = [one.size for one in held if one.key not in outputs]
        assert len(waiting) < rules.fan_in
        assert len(waiting) < rules.fan_in_full or sum(waiting) < rules.small_bytes
    assert outputs


def test_another_tasks_segments_and_those_that_could_not_be_read_are_left_alone() -> None:
    segments = live(*[KIB] * 5)
    segments[2] = segment(KIB, 2, task_id=30)
    assert chosen(segments) == []
    segments = live(*[KIB] * 6)
    assert chosen(segments, skip=frozenset({segments[0].key})) == [1, 2, 3, 4, 5]


def test_one_job_takes_so_many_bytes_and_rows() -> None:
    assert chosen(live(*[MIB] * 9), replace(RULES, bytes_max=5 * MIB)) == [0, 1, 2, 3, 4]
    assert chosen(live(*[KIB] * 9), replace(RULES, rows_max=42)) == [0, 1, 2, 3]
    assert chosen(live(*[KIB] * 9), replace(RULES, rows_max=39)) == [], "too few: it would never end"


def test_a_run_that_begins_with_much_is_put_together_behind_that() -> None:
    many = [segment(KIB, number, rows=15) for number in range(3)]
    few = [segment(KIB, number) for number in range(3, 8)]
    rules = replace(RULES, rows_max=42)
    assert chosen([*many, *few], rules) == [3, 4, 5, 6]
    assert chosen([*few, *many], rules) == [0, 1, 2, 3]
    assert chosen(many * 9, rules) == []


def test_the_output_stands_where_its_inputs_stood() -> None:
    segments = live(*[KIB] * 6)
    state = replace(first_state(IDENTITY, 1), live_segments=tuple(segments))
    output = segment(9, 99)
    done = Rewritten(3, tuple(one.key for one in segments[1:4]), output)
    after = replaced(state, done)
    assert after is not None
    assert after.restate
    assert after.live_segments == (segments[0], output, *segments[4:])
    for lost in range(1, 4):
        without = replace(state, live_segments=tuple(one for at, one in enumerate(segments) if at != lost))
        assert replaced(without, done) is None


@settings(deadline=None)
@given(sizes=st.lists(st.integers(100, 200 * KIB), min_size=200, max_size=400), fan_in=st.integers(2, 16))
def test_a_list_stays_short_and_each_byte_is_written_few_times(sizes: list[int], fan_in: int) -> None:
    """One segment after the other, put together as soon as there is something to be."""
    rules = CompactRules(fan_in=fan_in, small_bytes=4 * MIB)
    held: list[SegmentRef] = []
    written = 0
    for number, size in enumerate(sizes):
        held.append(segment(size, number))
        while found := rewrite(IDENTITY, held, frozenset(), "ab", rules):
            at = held.index(found.inputs[0])
            total = sum(one.size for one in found.inputs)
            written += total
            held[at : at + len(found.inputs)] = [segment(total, number + 1_000)]
    tiers = int(np.ceil(np.log(MIB / KIB) / np.log(fan_in))) + 1
    large = sum(one.size >= MIB for one in held)
    assert len(held) <= (large + 1) * tiers * (fan_in + 1)
    assert written <= sum(sizes) * (1 + np.log2(2 * MIB / min(sizes))), "each time, its segment at least doubles"


# -- the rows ---------------------------------------------------------------------------------------------------------


def rows(seed: int, count: int, tables: int, low: int) -> pa.Table:
    rng = np.random.default_rng(seed)
    found = pa.table(
        {
            "table_id": pa.array(rng.integers(1, tables + 1, count), pa.int64()),
            "commit_ts": pa.array(rng.integers(low, low + 5, count), pa.int64()),
            "start_ts": pa.array(rng.integers(1, 4, count), pa.int64()),
            "key": pa.array([b"k%d-%d" % (one, seed) for one in rng.permutation(count)], pa.binary()),
            "op": pa.array(np.ones(count, np.int8)),
            "value": pa.array([None if one % 7 == 0 else b"v" * (one % 5) for one in range(count)], pa.binary()),
            "old_value": pa.nulls(count, pa.binary()),
            "txn_source": pa.array([None if one % 2 else one for one in range(count)], pa.int64()),
        },
        schema=SCHEMA,
    )
    return found.sort_by([(name, "ascending") for name in ("table_id", "commit_ts", "start_ts", "key")])


def put(objects: MemoryObjectStore, tables: list[pa.Table]) -> tuple[SegmentRef, ...]:
    out = []
    for number, table in enumerate(tables):
        body, ref = write_segment(table, layout.segment(TENANT, 3, 1, f"{number:08x}", 0))
        objects.put(ref.key, bytes(body))
        out.append(ref)
    return tuple(out)


@pytest.mark.parametrize("overlap", [0, 3])
def test_the_rows_are_the_same_and_in_order(overlap: int) -> None:
    objects = MemoryObjectStore()
    tables = [rows(seed, 200, 9, 100 + seed * (5 - overlap)) for seed in range(5)]
    done = rewrite_guarded(objects, Rewrite(TENANT, 3, put(objects, tables), "out", 1 << 30))
    assert done.output is not None
    found = read_row_groups(objects, done.output, range(len(done.output.row_groups)))
    expected = pa.concat_tables(tables).sort_by(
        [(name, "ascending") for name in ("table_id", "commit_ts", "start_ts", "key")]
    )
    assert found.combine_chunks() == expected.combine_chunks()
    assert done.output.rows == 1_000


def test_small_tables_share_less_than_in_a_ticks_segment() -> None:
    objects = MemoryObjectStore()
    refs = put(objects, [rows(seed, PACKED_ROWS, 4, 100 + 5 * seed) for seed in range(2)])
    assert all(len(ref.row_groups) == 1 for ref in refs)
    done = rewrite_guarded(objects, Rewrite(TENANT, 3, refs, "out", 1 << 30))
    assert done.output is not None
    assert len(done.output.row_groups) > 1
    assert all(group.rows <= PACKED_ROWS for group in done.output.row_groups)


class Slow(MemoryObjectStore):
    """Answers the first one, and then when four ask."""

    def __init__(self) -> None:
        super().__init__()
        self._asked, self._asking = itertools.count(), threading.Barrier(4)

    def get_tail(self, key: str, length: int) -> tuple[bytes, int]:
        if next(self._asked):
            self._asking.wait(PATIENCE_S)
        return super().get_tail(key, length)


def test_several_are_read_at_a_time() -> None:
    objects = Slow()
    refs = put(objects, [rows(seed, 20, 3, 100 + 5 * seed) for seed in range(13)])
    done = rewrite_guarded(objects, Rewrite(TENANT, 3, refs, "out", 1 << 30))
    assert done.output is not None, done.failed
    assert done.inputs == tuple(ref.key for ref in refs)


def test_what_unpacks_to_too_much_is_taken_in_part() -> None:
    objects = MemoryObjectStore()
    refs = put(objects, [rows(seed, 100, 2, 100 + 5 * seed) for seed in range(4)])
    unpacked = read_row_groups(objects, refs[0], range(len(refs[0].row_groups))).nbytes
    done = rewrite_guarded(objects, Rewrite(TENANT, 3, refs, "out", 2 * unpacked - 200))
    assert done.inputs == tuple(ref.key for ref in refs[:2])
    assert done.output is not None
    assert done.output.rows == 200


def test_one_that_is_too_much_by_itself_is_told_and_nothing_is_written() -> None:
    objects = MemoryObjectStore()
    refs = put(objects, [rows(seed, 100, 2, 100 + 5 * seed) for seed in range(4)])
    done = rewrite_guarded(objects, Rewrite(TENANT, 3, refs, "out", 100))
    assert (done.inputs, done.output) == ((refs[0].key,), None)
    assert done.failed
    assert {info.key for info in objects.list_after("")} == {ref.key for ref in refs}


def test_a_segment_that_is_gone_or_damaged_is_told() -> None:
    objects = MemoryObjectStore()
    refs = put(objects, [rows(seed, 100, 2, 100 + 5 * seed) for seed in range(2)])
    objects.put(refs[1].key, objects.get(refs[1].key)[:-3])
    done = rewrite_guarded(objects, Rewrite(TENANT, 3, refs, "out", 1 << 30))
    assert refs[1].key in (done.failed or "")
    assert done.inputs == (refs[1].key,), "the others can do without it"
    assert done.output is None
    objects.delete(refs[1].key)
    done = rewrite_guarded(objects, Rewrite(TENANT, 3, refs, "out", 1 << 30))
    assert (done.inputs, done.output) == ((), None), "compacted or collected meanwhile: it is planned anew"
