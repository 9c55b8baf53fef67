"""Which merge of the version index comes next, and what it costs in the long run."""

from __future__ import annotations

import random
from dataclasses import dataclass, field, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.effort import examples
from tistream.format.run import IndexPart, RunRef, check_index, runs_of
from tistream.format.segment import RowGroupInfo, SegmentRef
from tistream.model.ids import TenantKey
from tistream.model.span import WHOLE, KeySpan
from tistream.model.ts import from_physical_ms
from tistream_sorter.jobs.index_unit import IndexUnit
from tistream_sorter.state.task_state import Retention, TaskIdentity, TaskState, first_state
from tistream_sorter.upkeep.index_plan import IndexRules, index_unit
from tistream_sorter.upkeep.retention import retained
from tistream_sorter.upkeep.version_index import BYTES_IN, BYTES_OUT, inherited, merged

IDENTITY = TaskIdentity(TenantKey("7", "acme"), 3, WHOLE, from_physical_ms(1), 4)
SECOND, MINUTE, HOUR, MIB = 1_000, 60_000, 3_600_000, 1 << 20
RULES = IndexRules()
BEGIN_MS = 1 << 40


def at(ms: int) -> int:
    return from_physical_ms(BEGIN_MS + ms)


def segment(low_ms: int, high_ms: int, size: int = MIB, rows: int = 1_000) -> SegmentRef:
    """A segment with rows in (low, high]."""
    group = RowGroupInfo(rows, 1, 1, at(low_ms) + 1, at(high_ms))
    return SegmentRef(f"segment-{low_ms}-{high_ms}", size, "00000000", rows, (group,))


def run(low_ms: int | None, high_ms: int, size: int = MIB, first: bytes = b"a", last: bytes = b"z") -> RunRef:
    low = None if low_ms is None else at(low_ms)
    return RunRef(
        f"run-{low_ms}-{high_ms}-{first.hex()}", size, "00000000", 10, low, at(high_ms), (1, first), (1, last)
    )


def state(flushed_ms: int, *live: SegmentRef, runs: tuple[RunRef, ...] = (), **more: object) -> TaskState:
    """A task whose index begins at 0."""
    windows = [one for one in runs if one.low_ts is not None]
    base = next((one.high_ts for one in runs if one.low_ts is None), at(0))
    part = IndexPart(WHOLE, at(0), base, max([base, *(one.high_ts for one in windows)]), runs)
    begun = replace(first_state(IDENTITY, 1), flushed_ts=at(flushed_ms), live_segments=live, index=(part,))
    return replace(begun, **{"counters": {BYTES_IN: 1 << 50}, **more})  # type: ignore[arg-type]


def planned(
    found: TaskState, rules: IndexRules = RULES, now_ms: int = 1 << 41, skip: frozenset[str] = frozenset()
) -> IndexUnit | None:
    return index_unit(found, rules, now_ms, "nonce", skip)


# -- new rows ---------------------------------------------------------------------------------------------------------


def test_rows_that_are_old_enough_become_a_run() -> None:
    old, young = segment(0, 5 * MINUTE), segment(5 * MINUTE, 14 * MINUTE)
    unit = planned(state(15 * MINUTE, old, young))
    assert unit is not None
    assert (unit.low_ts, unit.high_ts, unit.segments) == (at(0), at(5 * MINUTE), (old,))
    assert (unit.source_bytes, unit.span) == (MIB, WHOLE)
    assert planned(state(15 * MINUTE - 1, old, young)) is None


def test_age_counts_from_the_earlier_clock() -> None:
    old = segment(0, MINUTE)
    assert planned(state(HOUR, old), now_ms=BEGIN_MS + 11 * MINUTE - 1) is None
    assert planned(state(HOUR, old), now_ms=BEGIN_MS + 11 * MINUTE) is not None
    assert planned(state(11 * MINUTE - 1, old)) is None, "this node's clock is years ahead"


def test_few_rows_beside_a_large_index_wait() -> None:
    large, little = run(0, MINUTE, 100 * MIB), segment(MINUTE, 2 * MINUTE, MIB)
    assert planned(state(HOUR, little, runs=(large,))) is None
    unit = planned(state(HOUR + MINUTE, little, runs=(large,)))
    assert unit is not None, "the oldest has waited for an hour"
    assert unit.segments == (little,)
    several = [segment((1 + at) * MINUTE, (2 + at) * MINUTE, 8 * MIB) for at in range(2)]
    assert planned(state(20 * MINUTE, *several, runs=(large,))) is not None, "16 MiB are enough"
    floor = replace(state(20 * MINUTE, little, runs=(large,)), retained_ts=at(2 * MINUTE))
    assert planned(floor) is not None, "retention waits for the index"


def test_a_backlog_is_taken_in_pieces() -> None:
    live = [segment(at * MINUTE, (at + 1) * MINUTE, 20 * MIB) for at in range(8)]
    unit = planned(state(HOUR, *live))
    assert unit is not None
    assert unit.segments == tuple(live[:3])
    assert planned(state(HOUR, segment(0, MINUTE, 900 * MIB))) is not None, "what cannot be cut is taken whole"


def test_a_segment_that_reaches_over_the_end_is_read_in_part() -> None:
    wide = SegmentRef(
        "wide",
        3_000,
        "00000000",
        30,
        (RowGroupInfo(10, 1, 1, at(10), at(MINUTE)), RowGroupInfo(20, 2, 2, at(20), at(50 * MINUTE))),
    )
    unit = planned(state(HOUR, segment(0, 2 * MINUTE), wide))
    assert unit is not None
    assert [one.key for one in unit.segments] == [f"segment-0-{2 * MINUTE}", "wide"]
    assert unit.high_ts == at(50 * MINUTE)
    behind = planned(state(55 * MINUTE, segment(0, 2 * MINUTE), wide))
    assert behind is not None
    assert behind.high_ts == at(2 * MINUTE)
    assert behind.source_bytes == MIB + 3_000


def test_an_index_begins_above_what_may_be_gone() -> None:
    fresh = replace(first_state(IDENTITY, 1), flushed_ts=at(HOUR), live_segments=(segment(0, MINUTE),))
    unit = planned(fresh)
    assert unit is not None
    assert unit.low_ts == IDENTITY.snapshot_ts
    unit = planned(replace(fresh, retained_ts=at(30 * SECOND)))
    assert unit is not None
    assert unit.low_ts == at(30 * SECOND)


def test_damaged_objects_are_left_alone() -> None:
    live = segment(0, MINUTE)
    assert planned(state(HOUR, live), skip=frozenset([live.key])) is None


# -- fold and tiers ---------------------------------------------------------------------------------------------------


def test_runs_below_the_floor_are_folded_once_they_are_a_fifth_of_the_rest() -> None:
    runs = (run(None, 0, 50 * MIB), run(0, 10, 5 * MIB), run(10, 20, 6 * MIB), run(20, 30, 4 * MIB))
    assert planned(replace(state(HOUR, runs=runs), retained_ts=at(10))) is None
    unit = planned(replace(state(HOUR, runs=runs), retained_ts=at(29)))
    assert unit is not None
    assert (unit.low_ts, unit.high_ts, unit.runs) == (None, at(20), runs[:3])


def test_base_objects_without_changes_are_kept() -> None:
    base = tuple(run(None, 0, MIB, bytes([one]), bytes([one + 1])) for one in b"aceg")
    change = run(0, 10, MIB, b"c", b"f")
    found = replace(state(HOUR, runs=(*base, change)), retained_ts=at(10))
    unit = planned(found)
    assert unit is not None
    assert (unit.runs, unit.keep) == ((*base[1:3], change), (base[0], base[3]))
    written = run(None, 10, 2 * MIB, b"c", b"f")
    after = merged(found, unit, [written])
    assert after is not None
    (part,) = after.index
    assert [one.key for one in part.runs] == [base[0].key, written.key, base[3].key]
    assert {one.high_ts for one in part.runs} == {at(10)}
    check_index(after.index, WHOLE, after.flushed_ts, found.index)


def test_runs_of_a_tier_are_merged_by_four() -> None:
    runs = tuple(run(one, one + 1, MIB) for one in range(4))
    assert planned(state(HOUR, runs=runs[:3])) is None
    unit = planned(state(HOUR, runs=runs))
    assert unit is not None
    assert (unit.low_ts, unit.high_ts, unit.runs) == (at(0), at(4), runs)
    large = run(0, 1, 64 * MIB)
    assert planned(state(HOUR, runs=(large, *runs[1:]))) is None, "the large one would be written again for little"


def test_with_a_retention_runs_stay_small_beside_the_index() -> None:
    runs = tuple(run(one, one + 1, 20 * MIB) for one in range(4))
    found = state(HOUR, runs=(run(None, 0, 200 * MIB), *runs))
    assert planned(found) is not None
    assert planned(replace(found, retention=Retention(HOUR))) is None, "a tenth of the index is 28 MiB"


def test_what_the_budget_cannot_pay_waits() -> None:
    runs = tuple(run(one, one + 1, MIB) for one in range(4))
    poor = {BYTES_IN: 4 * MIB, BYTES_OUT: 12 * MIB + 1}
    assert planned(state(HOUR, runs=runs, counters=poor)) is None
    assert planned(state(HOUR, runs=runs, counters={**poor, BYTES_OUT: 12 * MIB})) is not None
    assert planned(state(HOUR, segment(4, MINUTE), runs=runs, counters=poor)) is not None, "new rows are always taken"


# -- several parts ----------------------------------------------------------------------------------------------------

LEFT, RIGHT = KeySpan(b"", b"m"), KeySpan(b"m", b"")


def parted(left: tuple[RunRef, ...], right: tuple[RunRef, ...], *live: SegmentRef) -> TaskState:
    parts = []
    for span, runs in ((LEFT, left), (RIGHT, right)):
        parts.append(IndexPart(span, at(0), at(0), max((one.high_ts for one in runs), default=at(0)), runs))
    return replace(state(HOUR, *live), index=tuple(parts))


def test_a_part_that_is_behind_catches_up_first() -> None:
    live = [segment(one * MINUTE, (one + 1) * MINUTE) for one in range(5)]
    found = parted((run(0, 3 * MINUTE, MIB, b"a", b"b"),), (), *live)
    unit = planned(found)
    assert unit is not None
    assert (unit.span, unit.low_ts, unit.high_ts) == (RIGHT, at(0), at(3 * MINUTE))
    after = merged(found, unit, [run(0, 3 * MINUTE, MIB, b"n", b"o")])
    assert after is not None
    (part,) = after.index
    assert part.span == WHOLE, "the windows are equal, so the parts become one"


def test_windows_that_differ_are_made_equal() -> None:
    left = (run(0, 2, MIB, b"a", b"b"), run(2, 4, MIB, b"a", b"b"), run(4, 6, MIB, b"a", b"b"))
    right = (run(0, 3, MIB, b"n", b"o"), run(3, 4, MIB, b"n", b"o"), run(4, 6, MIB, b"n", b"o"))
    found = parted(left, right)
    units = []
    while len(found.index) > 1:
        unit = planned(found)
        assert unit is not None
        units.append(unit)
        assert unit.low_ts is not None
        written = replace(unit.runs[0], key=f"new-{len(units)}", low_ts=unit.low_ts, high_ts=unit.high_ts)
        after = merged(found, unit, [written])
        assert after is not None
        found = after
    assert [(one.span, one.low_ts, one.high_ts) for one in units] == [(LEFT, at(0), at(4)), (RIGHT, at(0), at(4))]
    assert [one.window for one in found.index[0].runs] == 2 * [(at(0), at(4))] + 2 * [(at(4), at(6))]
    check_index(found.index, WHOLE, found.flushed_ts, ())


def test_a_window_that_only_one_part_has_is_cut_like_the_other_part() -> None:
    found = parted((run(0, 4, MIB, b"a", b"b"),), (run(0, 2, MIB, b"n", b"o"), run(2, 4, MIB, b"n", b"o")))
    unit = planned(found)
    assert unit is not None
    assert (unit.span, unit.low_ts, unit.high_ts) == (RIGHT, at(0), at(4))
    half = planned(parted((run(0, 4, MIB, b"a", b"b"),), (run(2, 4, MIB, b"n", b"o"),)))
    assert half is not None, "two windows in all"
    assert (half.span, half.low_ts, half.high_ts) == (RIGHT, at(0), at(4))


def test_a_child_takes_the_index_of_its_parents_and_one_without_an_index_counts_from_its_begin() -> None:
    runs = (run(0, 2, MIB, b"a", b"b"),)
    indexed = (IndexPart(LEFT, at(0), at(0), at(2), runs),)
    assert inherited(WHOLE, [(LEFT, (), at(0)), (RIGHT, (), at(0))]) == ()
    both = inherited(WHOLE, [(LEFT, indexed, at(0)), (RIGHT, (), at(1))])
    assert [(one.span, one.indexed_ts, one.runs) for one in both] == [(LEFT, at(2), runs), (RIGHT, at(1), ())]
    (half,) = inherited(KeySpan(b"", b"k"), [(LEFT, indexed, at(0))])
    assert (half.span, half.runs) == (KeySpan(b"", b"k"), runs)


def test_parts_stay_apart_while_an_object_reaches_over_their_bound() -> None:
    shared, own = run(0, 2, MIB, b"a", b"z"), run(0, 2, MIB, b"n", b"o")
    found = parted((shared,), (own,))
    unit = IndexUnit(IDENTITY.tenant, 3, 4, "n", RIGHT, at(2), at(3))
    after = merged(found, unit, [])
    assert after is not None
    assert len(after.index) == 2


def test_the_result_of_a_merge_whose_inputs_are_gone_is_dropped() -> None:
    runs = tuple(run(one, one + 1, MIB) for one in range(4))
    found = state(HOUR, runs=runs)
    unit = planned(found)
    assert unit is not None
    assert merged(state(HOUR, runs=runs[:3]), unit, [run(0, 4)]) is None
    assert merged(parted((), ()), unit, [run(0, 4)]) is None
    new = planned(state(HOUR, segment(0, MINUTE)))
    assert new is not None
    assert merged(state(HOUR, runs=runs), new, []) is None


# -- in the long run --------------------------------------------------------------------------------------------------


@dataclass
class Life:
    """A task over days, by sizes: keys are numbers, a version has VERSION bytes in a run, and in a segment twice that
    if it replaces another one, whose value it repeats."""

    rng: random.Random
    keep_ms: int | None
    keys: int
    rules: IndexRules = RULES
    ms: int = 0
    taken: int = 0
    written: int = 0
    state: TaskState = field(init=False)
    rows: dict[str, list[tuple[int, int]]] = field(default_factory=dict)  # (key, commit ms) by object
    names: int = 0

    def __post_init__(self) -> None:
        begun = replace(first_state(replace(IDENTITY, snapshot_ts=at(0)), 1), flushed_ts=at(0))
        self.state = replace(begun, retention=Retention(self.keep_ms, indexed=True))
        self.seen: set[int] = set()

    def pass_time(self, ms: int, rows: int) -> None:
        """Some rows are committed, then everything that is due is done."""
        self.ms += ms
        if rows:
            found = [(self.rng.randrange(self.keys), self.ms) for _ in range(rows)]
            size = sum(VERSION * (1 + (key in self.seen)) for key, _ in found)
            self.seen |= {key for key, _ in found}
            name = self._name(found)
            group = RowGroupInfo(rows, 1, 1, at(self.ms), at(self.ms))
            live = (*self.state.live_segments, SegmentRef(name, size, "0", rows, (group,)))
            self.state = replace(self.state, live_segments=live)
        self.state = retained(replace(self.state, flushed_ts=at(self.ms)), BEGIN_MS + self.ms)
        for _ in range(20):
            unit = index_unit(self.state, self.rules, BEGIN_MS + self.ms, "n")
            if unit is None:
                return
            self._do(unit)
        raise AssertionError("never comes to rest")

    def _name(self, rows: list[tuple[int, int]]) -> str:
        self.names += 1
        self.rows[str(self.names)] = rows
        return str(self.names)

    def _do(self, unit: IndexUnit) -> None:
        rows = {row for key in unit.inputs for row in self.rows[key]}
        if unit.low_ts is not None:
            rows = {(key, ms) for key, ms in rows if unit.low_ts < at(ms) <= unit.high_ts}
        else:
            rows = set({key: (key, ms) for key, ms in sorted(rows)}.values())
        written = []
        if rows:
            size = VERSION * len(rows)
            name = self._name(sorted(rows))
            written = [RunRef(name, size, "0", len(rows), unit.low_ts, unit.high_ts, (1, b"a"), (1, b"z"))]
            self.written += size
        self.taken += unit.source_bytes
        before = self.state
        after = merged(before, unit, written)
        assert after is not None
        check_index(after.index, WHOLE, after.flushed_ts, before.index)
        self.state = after

    def space(self) -> tuple[int, int]:
        """Bytes of the index, and the least that could hold what can be read: the base and the retained changes."""
        held = sum(one.size for one in runs_of(self.state.index))
        floor_ms = (self.state.retained_ts - at(0)) >> 18 if self.state.retained_ts else -1
        indexed = [row for part in self.state.index for one in part.runs for row in self.rows[one.key]]
        base = {key for key, ms in indexed if ms <= floor_ms}
        return held, VERSION * (len(base) + len({row for row in indexed if row[1] > floor_ms}))


VERSION = 1_000


@settings(max_examples=examples(40), deadline=None)
@given(
    seed=st.integers(0, 2**32),
    keep_ms=st.sampled_from([None, HOUR, 6 * HOUR, 24 * HOUR]),
    keys=st.sampled_from([10, 1_000, 100_000]),
)
def test_the_index_writes_at_most_four_bytes_for_each_byte_of_segments(
    seed: int, keep_ms: int | None, keys: int
) -> None:
    life = Life(random.Random(seed), keep_ms, keys, replace(RULES, run_bytes=200 * VERSION))
    for _ in range(150):
        life.pass_time(life.rng.choice([MINUTE, 20 * MINUTE, HOUR]), life.rng.choice([0, 1, 10, 100]))
        assert life.written <= RULES.amplification * life.taken
    assert life.taken
    counters = life.state.counters
    assert (counters[BYTES_IN], counters[BYTES_OUT]) == (life.taken, life.written)


@pytest.mark.parametrize("keep_ms", [6 * HOUR, 24 * HOUR])
def test_space_stays_within_a_third_of_what_can_be_read(keep_ms: int) -> None:
    """Updates of random keys, where the retained changes weigh as much as the base or more."""
    life = Life(random.Random(3), keep_ms, 1_500, replace(RULES, run_bytes=200 * VERSION))
    worst = 0.0
    for step in range(600):
        life.pass_time(10 * MINUTE, 50)
        held, least = life.space()
        if step > 200:
            worst = max(worst, held / least)
    assert 1.0 <= worst <= 1.3
    assert life.written <= 4 * life.taken


@pytest.mark.parametrize("keep_ms", [None, HOUR])
def test_a_task_to_which_nothing_comes_plans_nothing_for_ever(keep_ms: int | None) -> None:
    life = Life(random.Random(5), keep_ms, 100)
    for _ in range(40):
        life.pass_time(10 * MINUTE, 20)
    quiet = life.state
    for days in range(1, 400):
        assert index_unit(quiet, RULES, BEGIN_MS + life.ms + days * 24 * HOUR, "n") is None
    # Files without rows go on: what is left becomes runs, and then nothing is due either.
    for _ in range(20):
        life.pass_time(HOUR, 0)
    settled = life.state
    for _ in range(200):
        life.pass_time(24 * HOUR, 0)
    assert life.state.index == settled.index
    assert life.state.counters == settled.counters
