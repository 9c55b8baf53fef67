"""The matching kernel: arrival order, repeats and the cut into ticks must not matter; every lock ends rightly."""

from __future__ import annotations

import polars as pl
import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from support.effort import examples
from support.kernel_ticks import Entry, Ticks, entry, record_key, rows_of, scan, states
from tistream_sorter.match.contracts import (
    COMMIT,
    COMMITTED,
    POINTED_WIDE,
    PREWRITE,
    READY_WIDE,
    ROLLBACK,
    UNMATCHED_WIDE,
)
from tistream_sorter.match.sealing import in_order

transactions = st.dictionaries(
    keys=st.tuples(st.binary(min_size=1, max_size=2), st.integers(1, 50)),
    values=st.tuples(st.sampled_from(["commit", "rollback", "whole", "open"]), st.integers(51, 90)),
    max_size=14,
)


@settings(max_examples=examples(200), deadline=None)
@given(txns=transactions, replays=st.integers(0, 2), ticks=st.integers(1, 4), data=st.data())
def test_any_arrival_order_commits_the_same_rows_once(
    txns: dict[tuple[bytes, int], tuple[str, int]], replays: int, ticks: int, data: st.DataObject
) -> None:
    entries: list[Entry] = []
    for (name, start_ts), (fate, commit_ts) in txns.items():
        if fate == "whole":
            entries.append(entry(COMMITTED, name, start_ts, commit_ts))
            continue
        entries.append(entry(PREWRITE, name, start_ts))
        if fate == "commit":
            entries.append(entry(COMMIT, name, start_ts, commit_ts))
        if fate == "rollback":
            entries.append(entry(ROLLBACK, name, start_ts))
    arrivals = data.draw(st.permutations(entries * (1 + replays)))
    world = Ticks()
    step = max(1, -(-len(arrivals) // ticks))
    for at in range(0, len(arrivals), step):
        assert rows_of(world.tick(arrivals[at : at + step], high=0)) == []
    out = world.tick([], high=100)
    expected = [
        (record_key(name), start_ts, commit_ts, b"v%d" % start_ts)
        for (name, start_ts), (fate, commit_ts) in txns.items()
        if fate in ("commit", "whole")
    ]
    assert rows_of(out) == sorted(expected, key=lambda row: (row[2], row[1], row[0]))
    assert not len(out.stranded)
    assert not len(out.repeats)
    assert world.above() == 0
    opened = {start_ts for (_, start_ts), (fate, _) in txns.items() if fate == "open"}
    assert {start for kind, start in world.waiting() if kind == PREWRITE} >= opened


def test_rows_above_the_watermark_wait_and_those_below_are_flushed_in_order() -> None:
    world = Ticks()
    changes = [entry(COMMITTED, b"b", 5, 20), entry(COMMITTED, b"a", 6, 20), entry(COMMITTED, b"c", 1, 30)]
    out = world.tick(changes, high=20)
    assert [(key, commit) for key, _, commit, _ in rows_of(out)] == [(record_key(b"b"), 20), (record_key(b"a"), 20)]
    assert world.above() == 1
    assert [commit for _, _, commit, _ in rows_of(world.tick([], high=30))] == [30]


def test_a_repeat_at_or_below_the_window_is_handed_out_for_lookup() -> None:
    world = Ticks()
    world.tick([entry(COMMITTED, b"a", 5, 20)], high=20)
    out = world.tick([entry(COMMITTED, b"a", 5, 20), entry(COMMIT, b"b", 4, 19)], high=25)
    assert out.committed.num_rows == 0
    assert sorted(out.repeats["commit_ts"].to_list()) == [19, 20]


def test_a_commit_without_prewrite_inside_the_window_is_stranded() -> None:
    out = Ticks().tick([entry(COMMIT, b"a", 5, 20)], high=20)
    assert out.stranded["commit_ts"].to_list() == [20]


def test_changes_up_to_the_snapshot_and_index_keys_are_dropped() -> None:
    world = Ticks(snapshot_ts=50)
    index = {**entry(COMMITTED, b"a", 60, 70), "key": record_key(b"a").replace(b"_r", b"_i")}
    lone = [entry(COMMIT, b"b", 4, 49), entry(COMMIT, b"c", 4, 50)]
    out = world.tick([entry(COMMITTED, b"a", 5, 50), *lone, index], high=100)
    assert out.committed.num_rows == 0
    assert not len(out.repeats)
    assert world.waiting() == []
    assert (out.counters["below_snapshot"], out.counters["index_entries"]) == (3, 1)


def test_the_highest_generation_wins() -> None:
    world = Ticks()
    early = entry(PREWRITE, b"a", 5, generation=1, value=b"one", log_index=9)
    late = entry(PREWRITE, b"a", 5, generation=2, value=b"two", log_index=3)
    world.tick([late], high=0)
    out = world.tick([early, entry(COMMIT, b"a", 5, 20)], high=20)
    assert [value for *_, value in rows_of(out)] == [b"two"]


def test_a_prewrite_without_value_does_not_replace_one_that_has_it() -> None:
    out = Ticks().tick(
        [entry(PREWRITE, b"a", 5), entry(PREWRITE, b"a", 5, value=None, log_index=8), entry(COMMIT, b"a", 5, 9)], 9
    )
    assert [value for *_, value in rows_of(out)] == [b"v5"]


# -- dead locks -----------------------------------------------------------------------------------------------------


def test_a_prewrite_below_the_watermark_is_not_dead_for_that() -> None:
    """A long transaction prewrites far below a counted watermark and commits above it."""
    world = Ticks()
    known = states((-1, 1, 10, 100, -1, -1, -1, -1), (0, 1, 15, 200, 1, 15, 200, -1))
    world.tick([entry(PREWRITE, b"a", 5, log_index=12)], high=200, history=known)
    assert world.waiting() == [(PREWRITE, 5)]
    out = world.tick([entry(COMMIT, b"a", 5, 250, log_index=16)], high=250)
    assert [commit for _, _, commit, _ in rows_of(out)] == [250]


def test_a_row_that_connects_later_with_a_higher_index_and_resolved_ts_ends_it() -> None:
    world = Ticks()
    known = states((-1, 1, 10, 100, -1, -1, -1, -1), (0, 1, 15, 200, 1, 15, 200, -1))
    world.tick([entry(PREWRITE, b"a", 5, log_index=12)], high=200, history=known)
    out = world.tick([], high=201, history=states((-1, 1, 15, 200, -1, -1, -1, -1), (0, 1, 16, 201, 1, 16, 201, -1)))
    assert world.waiting() == []
    assert out.counters["dead_locks"] == 1


def test_a_late_row_from_before_it_proves_nothing() -> None:
    world = Ticks()
    known = states((-1, 1, 10, 100, -1, -1, -1, -1), (0, 1, 15, 200, 1, 15, 200, -1))
    world.tick([entry(PREWRITE, b"a", 5, log_index=15)], high=200, history=known)
    for index in (14, 15):
        later = states((-1, 1, 15, 200, -1, -1, -1, -1), (0, 1, 15, 300, 1, index, 300, -1))
        world.tick([], high=300, history=later)
        assert world.waiting() == [(PREWRITE, 5)]


def test_a_row_at_or_below_the_floor_proves_nothing() -> None:
    world = Ticks()
    known = states((-1, 1, 10, 100, -1, -1, -1, -1), (0, 1, 15, 200, 1, 15, 200, -1))
    world.tick([entry(PREWRITE, b"a", 5, log_index=12)], high=200, history=known)
    world.tick([], high=200, history=states((-1, 1, 15, 200, -1, -1, -1, -1), (0, 1, 20, 200, 1, 20, 200, -1)))
    assert world.waiting() == [(PREWRITE, 5)]


def test_a_repeat_at_a_covered_place_that_is_not_pending_is_settled() -> None:
    world = Ticks()
    known = states((-1, 1, 10, 100, -1, -1, -1, -1), (0, 1, 15, 200, 1, 15, 200, -1))
    out = world.tick([entry(PREWRITE, b"a", 5, log_index=10)], high=200, history=known)
    assert world.waiting() == []
    assert out.counters["settled_repeats"] == 1


def test_a_lock_of_this_files_scan_is_kept_at_a_covered_place() -> None:
    world = Ticks()
    known = states((-1, 1, 10, 100, -1, -1, -1, -1))
    world.tick([entry(PREWRITE, b"a", 5, log_index=10)], high=100, history=known, scans=scan(0, 1, 10))
    assert world.waiting() == [(PREWRITE, 5)]


def test_a_repeat_at_a_higher_place_must_be_covered_anew() -> None:
    """The scan's copy of a pending lock moves its place: rows from before that place cannot end it."""
    world = Ticks()
    known = states((-1, 1, 10, 100, -1, -1, -1, -1), (0, 1, 15, 200, 1, 15, 200, -1))
    world.tick([entry(PREWRITE, b"a", 5, log_index=12)], high=200, history=known)
    later = states((-1, 1, 15, 200, -1, -1, -1, -1), (0, 1, 18, 300, 1, 18, 300, -1))
    world.tick([entry(PREWRITE, b"a", 5, log_index=20, seq=1)], high=300, history=later)
    assert world.waiting() == [(PREWRITE, 5)]


def test_a_pipelined_lock_ends_only_by_its_outcome_or_a_scan_without_it() -> None:
    world = Ticks()
    known = states((-1, 1, 10, 100, -1, -1, -1, -1), (0, 1, 15, 200, 1, 15, 200, -1))
    world.tick([entry(PREWRITE, b"a", 5, log_index=12, generation=3)], high=200, history=known)
    for scan_index, left in ((-1, [(PREWRITE, 5)]), (12, [(PREWRITE, 5)]), (16, [])):
        later = states((-1, 1, 15, 200, -1, -1, -1, -1), (0, 1, 20, 300, 1, 20, 300, scan_index))
        world.tick([], high=300, history=later)
        assert world.waiting() == left


def test_untouched_parts_are_carried_by_reference() -> None:
    world = Ticks()
    world.tick([entry(PREWRITE, b"a", 5)], high=0)
    out = world.tick([entry(PREWRITE, b"b", 6)], high=0)
    assert out.unmatched_parts == frozenset()
    assert pl.Series(out.unmatched["start_ts"]).to_list() == [6]
    out = world.tick([entry(COMMIT, b"a", 5, 9)], high=9)
    assert out.unmatched_parts == {0}


def test_what_is_written_holds_columns_of_any_size() -> None:
    """With 32-bit offsets more than 2 GiB of values in one piece would be an error, in every tick anew."""
    world = Ticks()
    out = world.tick([entry(COMMITTED, b"r", 1, 60), entry(PREWRITE, b"u", 2)], high=50)
    for table in (out.ready, out.unmatched, in_order(out.ready)):
        assert table.num_rows == 1
        assert {table.schema.field(name).type for name in ("key", "value", "old_value")} == {pa.large_binary()}
    out = world.tick([], high=50)
    assert (out.ready.schema, out.unmatched.schema, out.pointed.schema) == (READY_WIDE, UNMATCHED_WIDE, POINTED_WIDE)
