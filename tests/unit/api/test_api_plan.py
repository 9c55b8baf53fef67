"""Cutting a window into chunks, and a crowded commit_ts into pieces."""

from __future__ import annotations

import numpy as np
import polars as pl
from hypothesis import given
from hypothesis import strategies as st

from tistream.format.segment import RowGroupInfo, SegmentRef
from tistream.model.ts import Window
from tistream.read.cursor import Place, Position
from tistream.read.plan import (
    OP_DELETE,
    OP_PUT,
    CrowdedRun,
    GroupRef,
    PlanPiece,
    coarse_cut,
    exact_cut,
    groups_in,
    key_cuts,
    pieces,
    rows_within,
)


def segment(*groups: tuple[int, int, int, int, int], size: int = 1000) -> SegmentRef:
    infos = tuple(RowGroupInfo(*group) for group in groups)
    return SegmentRef("s", size, "00000000", sum(info.rows for info in infos), infos)


def test_row_groups_are_chosen_by_window_and_id() -> None:
    segments = [segment((10, 5, 5, 100, 200), (10, 6, 9, 150, 160), (10, 0, 0, 100, 200))]
    window = Window(90, 180)
    assert [ref.index for ref in groups_in(segments, window, None)] == [0, 1]
    assert [ref.index for ref in groups_in(segments, window, np.array([7]))] == [1]
    assert [ref.index for ref in groups_in(segments, window, np.array([4, 10]))] == []
    assert groups_in(segments, Window(200, 300), None) == []
    assert [ref.index for ref in groups_in(segments, Window(199, 300), None)] == [0]


BOUNDS = st.tuples(st.integers(1, 50), st.integers(1, 60), st.integers(0, 20))


@given(st.lists(BOUNDS, max_size=12), st.integers(0, 40), st.integers(1, 120))
def test_a_coarse_cut_leaves_nothing_out(bounds: list[tuple[int, int, int]], low: int, budget: int) -> None:
    refs = [GroupRef(segment((rows, 1, 1, begin, begin + length)), 0) for rows, begin, length in bounds]
    window = Window(low, 80)
    groups = groups_in([ref.segment for ref in refs], window, None)
    high, near = coarse_cut(groups, window, budget)
    assert low < high <= 80
    within = [ref for ref in groups if Window(low, high).overlaps(ref.info.commit_ts_min, ref.info.commit_ts_max)]
    assert sorted(map(id, within)) == sorted(map(id, near))
    assert near or not groups


@given(st.lists(st.integers(1, 30), max_size=60), st.integers(1, 20), st.integers(0, 30))
def test_an_exact_cut_keeps_commit_ts_whole(ts: list[int], budget: int, more: int) -> None:
    cut = exact_cut(np.array(ts, dtype=np.int64), 30, budget, budget + more)
    taken = [one for one in ts if one <= cut.high]
    if cut.crowded:
        assert len(taken) > budget + more
        assert set(taken) == {cut.high}
    else:
        assert len(taken) == cut.rows
        assert len(taken) <= budget or (set(taken) == {cut.high} and len(taken) <= budget + more)
        assert cut.high == 30 or len(ts) > budget
    assert taken or not ts or cut.high == 30


def test_long_rows_lower_the_budget() -> None:
    short, long = (GroupRef(segment((10, 1, 1, 1, 1), size=size), 0) for size in (100, 1_000_000))
    assert rows_within(1000, 1 << 20, [short]) == 1000
    assert rows_within(1000, 1 << 20, [short, long]) == 10
    assert rows_within(1000, 1, [long]) == 1
    assert rows_within(1000, 1, []) == 1000


@st.composite
def crowds(draw: st.DrawFn) -> list[tuple[CrowdedRun, list[bytes]]]:
    out = []
    for number in range(draw(st.integers(1, 8))):
        keys = sorted(draw(st.sets(st.integers(0, 40), min_size=1, max_size=12)))
        raw = [bytes([key]) for key in keys]
        start_ts, table_id = draw(st.integers(1, 2)), draw(st.integers(1, 2))
        out.append((CrowdedRun(number, 0, start_ts, table_id, table_id, len(raw), raw[0], raw[-1]), raw))
    return out


def keys_in(piece: PlanPiece, keys_of: dict[int, list[bytes]]) -> pl.Series:
    """The keys of its rows, ascending."""
    every = [key for run in piece.runs for key in keys_of[id(run)]]
    inside = [key for key in every if key >= piece.key_low and (piece.key_high is None or key < piece.key_high)]
    return pl.Series(sorted(inside), dtype=pl.Binary)


@given(crowds(), st.integers(1, 15), st.data())
def test_pieces_hold_every_row_once_and_in_order(
    crowd: list[tuple[CrowdedRun, list[bytes]]], budget: int, data: st.DataObject
) -> None:
    keys_of = {id(run): keys for run, keys in crowd}
    found = []
    cut = [
        part
        for piece in pieces([run for run, _ in crowd], budget)
        for part in (piece.cut_at(key_cuts(keys_in(piece, keys_of), budget)) if piece.rows_max > budget else [piece])
    ]
    for piece in cut:
        assert len(set(keys_in(piece, keys_of))) <= budget or piece.op is None
        events = [
            (run.start_ts, run.table_id, op, key, id(run))
            for run in piece.runs
            for op in ((OP_DELETE, OP_PUT) if piece.op is None else (piece.op,))
            for key in keys_of[id(run)]
            if key >= piece.key_low and (piece.key_high is None or key < piece.key_high)
        ]
        found.append(sorted(events))
    flat = [event for events in found for event in events]
    assert [event[:4] for event in flat] == sorted(event[:4] for event in flat)
    want = [(run.start_ts, run.table_id, op, key, id(run)) for run, keys in crowd for op in (0, 1) for key in keys]
    assert sorted(flat) == sorted(want)
    if not flat:
        return
    start_ts, table_id, op, key, _ = data.draw(st.sampled_from(flat))
    at = Position(9, Place.ROW, start_ts, table_id, op, key)
    for piece, events in zip(cut, found, strict=True):
        if piece.ends_by(at):
            assert all(event[:4] <= (start_ts, table_id, op, key) for event in events)
