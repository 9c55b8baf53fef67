"""The cut of a new tenant's key space."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.effort import examples
from tistream_meta.decide.ranges import DDL_JOB_TABLE, RANGES_MAX, cut, cut_raw, row_key, table_key


@settings(max_examples=examples(60), deadline=None)
@given(
    st.lists(st.integers(1, 2**48) | st.integers(1, 300), max_size=40),
    st.integers(1, 300) | st.sampled_from([1023, 1024, 4095, RANGES_MAX]),
)
def test_exactly_that_many_ranges_cover_the_key_space_without_overlap(ids, count):
    spans = cut(ids, count)
    assert len(spans) == count
    assert spans[0].start == b""
    assert spans[-1].end == b""
    assert all(left.end == right.start for left, right in pairwise(spans))
    assert all(left.start < right.start for left, right in pairwise(spans))
    assert spans == cut(list(reversed(ids)), count)


def test_every_count_works_for_a_fresh_tidb():
    ids = [*range(2, 112, 2), *range(2**48 - 8, 2**48 - 1)]
    for count in range(1, 600):
        assert len(cut(ids, count)) == count


def test_many_ranges_cut_between_and_inside_tables_to_come_and_inside_the_schema():
    spans = cut([*range(2, 112, 2), DDL_JOB_TABLE], 64)
    bounds = [span.start for span in spans[1:]]
    future = [bound for bound in bounds if table_key(112) <= bound < table_key(368)]
    assert sum(len(bound) == 9 for bound in future) >= 15
    assert sum(len(bound) > 9 for bound in future) >= 15
    assert sum(bound.startswith(b"m") for bound in bounds) >= 3
    assert table_key(DDL_JOB_TABLE) in bounds
    assert any(row_key(DDL_JOB_TABLE, 1) < bound < row_key(DDL_JOB_TABLE, 10_000) for bound in bounds)


@pytest.mark.parametrize(("low", "high"), [(-1, 0), (0, 1), (1, 2), (255, 256)])
def test_handles_compare_as_numbers(low, high):
    assert row_key(5, low) < row_key(5, high) < table_key(6)


@pytest.mark.parametrize("count", [1, 2, 7, 256, RANGES_MAX])
def test_the_ranges_of_rawkv_cut_its_first_keyspace_evenly(count: int) -> None:
    spans = cut_raw(count)
    assert len(spans) == count
    assert (spans[0].start, spans[-1].end) == (b"", b"")
    assert all(left.start < left.end == right.start for left, right in pairwise(spans))
    assert all(span.start.startswith(b"r\0\0\0") for span in spans[1:])
