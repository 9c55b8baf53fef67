"""Where reads of a table are cut into parts."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tistream_api.points.parts import Mark, cuts

MARKS = st.lists(st.builds(Mark, st.integers(0, 50), st.integers(0, 100)), min_size=1, max_size=40)


@given(MARKS, st.integers(1, 8))
def test_cuts_ascend_and_leave_no_row_out(marks: list[Mark], parts: int) -> None:
    found = cuts(marks, parts)
    assert 1 <= len(found) <= parts
    ends = [mark.at for mark in found]
    assert ends == sorted(set(ends))
    assert ends[-1] == max(mark.at for mark in marks)
    for low, mark in zip([-1, *ends], found, strict=False):
        assert mark.rows == sum(one.rows for one in marks if low < one.at <= mark.at)


def test_parts_have_about_equally_many_rows() -> None:
    found = cuts([Mark(at, 10) for at in range(100)], 4)
    assert [mark.rows for mark in found] == [250, 250, 250, 250]
    assert [mark.rows for mark in cuts([Mark(1, 1_000), Mark(2, 1), Mark(3, 1)], 3)] == [1_000, 1, 1]
    assert cuts([Mark(1, 0), Mark(2, 0)], 4) == [Mark(2, 0)]
