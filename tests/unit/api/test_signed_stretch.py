"""Which part of a table's changes a reader fetches from the object store, and which it pulls."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tistream.format.segment import RowGroupInfo, SegmentRef
from tistream.model.ts import Window
from tistream.read.plan import GroupRef, groups_in
from tistream_api.signed import stretch as stretches
from tistream_api.signed.stretch import Stretch, StretchLimits, not_excluded, slowed, stretch

END = 60
OWN, SHARED = 7, 8  # the table's own row groups, and one that also has rows of others


def group_of(low: int, high: int, rows: int = 10, own: bool = True) -> RowGroupInfo:
    return RowGroupInfo(rows, OWN, OWN if own else SHARED, low, high)


def found_in(groups: list[RowGroupInfo], window: Window, limits: StretchLimits) -> Stretch:
    segment = SegmentRef("s", 100 * len(groups), "", sum(one.rows for one in groups), tuple(groups))
    listed = groups_in([segment], window, None)
    return stretch(listed, window, lambda one: one.info.table_id_max == OWN, limits)


GROUPS = st.lists(
    st.builds(
        lambda low, length, rows, own: group_of(low, low + length, rows, own),
        st.integers(1, END),
        st.integers(0, 15),
        st.integers(1, 30),
        st.booleans(),
    ),
    max_size=12,
)


@given(GROUPS, st.integers(1, 4), st.integers(1, 40), st.integers(0, END))
def test_stretches_cover_the_window_once_and_give_only_what_may_be_given(
    groups: list[RowGroupInfo], most: int, rows_min: int, low: int
) -> None:
    limits = StretchLimits(groups=most, rows_min=rows_min)
    while low < END:
        found = found_in(groups, window := Window(low, END), limits)
        assert low < found.high <= END
        reached = Window(low, found.high)
        inside = [one for one in groups if reached.overlaps(one.commit_ts_min, one.commit_ts_max)]
        if found.direct:
            assert [one.table_id_max for one in inside] == [OWN] * len(inside)
            assert sorted(map(str, inside)) == sorted(str(one.info) for one in found.groups)
        else:
            assert found.groups == ()
            assert any(one.table_id_max != OWN for one in inside) or sum(one.rows for one in inside) < rows_min
        low = found.high
        del window


def test_without_row_groups_nothing_is_pulled() -> None:
    assert found_in([], Window(3, 9), StretchLimits()) == Stretch(9, direct=True, groups=())


def test_few_rows_are_pulled_and_many_are_fetched() -> None:
    limits = StretchLimits(rows_min=20)
    groups = [group_of(1, 5, 5), group_of(6, 9, 50, own=False), group_of(20, 30, 100), group_of(40, 41, 5)]
    assert found_in(groups, Window(0, END), limits) == Stretch(9, direct=False, groups=())
    found = found_in(groups, Window(9, END), limits)
    assert (found.high, found.direct, [one.index for one in found.groups]) == (END, True, [2, 3])


def test_an_answer_ends_where_it_has_enough() -> None:
    groups = [group_of(10 * at + 1, 10 * at + 9) for at in range(5)]
    found = found_in(groups, Window(0, END), StretchLimits(groups=2, rows_min=1))
    assert (found.high, [one.index for one in found.groups]) == (20, [0, 1])
    found = found_in(groups, Window(0, END), StretchLimits(bytes=150, rows_min=1))
    assert (found.high, [one.index for one in found.groups]) == (20, [0, 1])
    assert slowed(StretchLimits(bytes=1_000), 0, 10).bytes == 1_000
    assert slowed(StretchLimits(bytes=1_000), 15, 10).bytes == 150


@given(GROUPS, st.integers(1, 4), st.integers(1, 6), st.integers(0, END), st.sets(st.integers(0, 11)))
def test_what_a_filter_excludes_is_left_out_up_to_where_the_others_were_looked_at(
    groups: list[RowGroupInfo], most: int, looks: int, low: int, without: set[int]
) -> None:
    """The next answer begins where this one ends, so each row group that has rows of its window is decided once."""
    segment = SegmentRef("s", 100, "", sum(one.rows for one in groups), tuple(groups))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(stretches, "LOOKS", looks)
        while low < END:
            window, looked = Window(low, END), list[int]()

            def excluded(one: GroupRef, of: Window, window: Window = window, looked: list[int] = looked) -> bool:
                assert of == window
                looked.append(one.index)
                return one.index in without

            found, reached = not_excluded(
                groups_in([segment], window, None), window, excluded, StretchLimits(groups=most)
            )
            assert low == reached.low < reached.high <= END
            inside = [one for one in groups_in([segment], reached, None) if one.index not in without]
            assert [one.index for one in inside] == [
                one.index for one in found if reached.overlaps(one.info.commit_ts_min, one.info.commit_ts_max)
            ]
            first = [one for one in groups_in([segment], window, None) if one.info.commit_ts_min <= low + 1]
            assert len(looked) <= max(looks, len(first))
            low = reached.high


def test_an_answer_without_a_wanted_row_group_ends_where_the_looks_end() -> None:
    groups = [group_of(10 * at + 1, 10 * at + 9) for at in range(5)]
    listed = groups_in([SegmentRef("s", 100, "", 50, tuple(groups))], Window(0, END), None)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(stretches, "LOOKS", 3)
        found, window = not_excluded(listed, Window(0, END), lambda *_: True, StretchLimits())
    assert (found, window) == ([], Window(0, 30))
    assert stretch(found, window, lambda _: True, StretchLimits()) == Stretch(30, direct=True, groups=())
    found, window = not_excluded(listed, Window(0, END), lambda *_: False, StretchLimits(groups=2))
    assert ([one.index for one in found], window) == ([0, 1], Window(0, 20))
