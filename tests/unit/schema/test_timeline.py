import itertools

from hypothesis import given
from hypothesis import strategies as st

from tistream.schema.timeline import Timeline

CHANGES = st.lists(st.tuples(st.integers(1, 30), st.integers(0, 3)), max_size=12).map(sorted)


def build(changes: list[tuple[int, int]]) -> tuple[Timeline[int], dict[int, int]]:
    line, at, value = Timeline(0), {}, 0
    for ts, new in changes:
        line.set(ts, new)
    by_ts = dict(changes)
    for ts in range(40):
        value = by_ts.get(ts, value)
        at[ts] = value
    return line, at


@given(CHANGES)
def test_it_answers_as_an_array_would(changes: list[tuple[int, int]]) -> None:
    line, at = build(changes)
    for ts in range(1, 40):
        assert line.at(ts) == at[ts]
        assert line.before(ts) == at[ts - 1]
    assert line.last == at[39]


@given(CHANGES, st.integers(0, 35), st.integers(0, 35))
def test_runs_cut_the_window_exactly(changes: list[tuple[int, int]], low: int, high: int) -> None:
    line, _ = build(changes)
    runs = list(line.runs(low, high))
    covered = [(ts, value) for start, end, value in runs for ts in range(start + 1, end + 1)]
    assert covered == [(ts, line.before(ts)) for ts in range(low + 1, high + 1)]
    assert all(one[2] != two[2] for one, two in itertools.pairwise(runs))


@given(CHANGES, st.integers(0, 35))
def test_forgetting_keeps_what_later_times_need(changes: list[tuple[int, int]], before: int) -> None:
    line, at = build(changes)
    line.forget(before)
    assert [line.at(ts) for ts in range(before, 40)] == [at[ts] for ts in range(before, 40)]
    assert sum(ts <= before for ts, _ in line.changes()) <= 1
