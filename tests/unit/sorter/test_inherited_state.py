"""What a task begins with when it carries on sealed ones: slices, waiting rows and positions."""

from __future__ import annotations

import random
from itertools import pairwise

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tistream.format.manifest import KIND_SEAL, ChainPosition, Manifest
from tistream.model.ids import TenantKey
from tistream.model.span import WHOLE, KeySpan
from tistream.wire.file_batch import WATERMARKS
from tistream_sorter.positions import CHAINS_MAX, Positions, common
from tistream_sorter.slice_heirs import inherited_slices
from tistream_sorter.slice_history import History
from tistream_sorter.slices import SliceMap

BOUNDS = [b"", b"c", b"f", b"k", b"p", b"t"]
Rows = list[dict[str, object]]


def seal(slices: SliceMap) -> Manifest:
    tables = slices.to_tables()
    tenant = TenantKey("7", "acme")
    return Manifest(tenant, 1, 2, 1, "00", KIND_SEAL, slices.span, 100, 100, slices=tables[0], waiting=tables[1])


def some_rows(rng: random.Random) -> Rows:
    """One file's rows, of regions that have a part of the keys or all of them, some of which leave a gap."""
    out: Rows = []
    for _ in range(rng.randint(1, 4)):
        first, last = sorted(rng.sample(range(len(BOUNDS) + 1), 2))
        index = rng.randint(1, 12)
        row = {"start_key": BOUNDS[first], "end_key": BOUNDS[last] if last < len(BOUNDS) else b""}
        row |= {"region_id": rng.randint(1, 3), "region_version": rng.randint(1, 3), "first_index": index}
        row |= {"log_index": index + rng.randint(-1, 4), "resolved_ts": rng.randint(100, 200), "file": 0, "task_id": 1}
        row["base_ts"] = rng.randint(90, 140) if rng.random() < 0.4 else None
        if rng.random() < 0.2:
            row["after"] = [{"region_id": rng.randint(1, 3), "log_index": rng.randint(1, 8)}]
        out.append(row)
    return out


def apply(slices: SliceMap, files: list[Rows]) -> None:
    for ts, rows in enumerate(files, 1):
        mine = []
        for row in rows:
            piece = KeySpan(row["start_key"], row["end_key"]).clip(slices.span)  # type: ignore[arg-type]
            if piece is not None:
                mine.append({**row, "start_key": piece.start, "end_key": piece.end})
        slices.apply(pa.Table.from_pylist(mine, schema=WATERMARKS), 1, ts, 0, History())


def told(maps: list[SliceMap]) -> list[tuple[object, ...]]:
    """What is known between any two bounds."""
    out = []
    for start, end in pairwise([*BOUNDS, b""]):
        here = KeySpan(start, end)
        (state,) = (state for one in maps if here.clip(one.span) == here for state in one.states(here))
        out.append((start, state.region_id, state.region_version, state.index, state.resolved_ts))
    return out


@given(seed=st.integers(0, 2**32), cut=st.sampled_from(BOUNDS[1:]))
@settings(max_examples=150, deadline=None)
def test_slices_and_waiting_rows_are_each_keys_own_parents(seed: int, cut: bytes) -> None:
    """Split in the middle of a history, and merged again later, a task knows what it would have known."""
    rng = random.Random(seed)
    before, between, after = ([some_rows(rng) for _ in range(rng.randint(0, 6))] for _ in range(3))
    one = SliceMap(WHOLE, 100)
    parent = SliceMap(WHOLE, 100)
    apply(one, before)
    apply(parent, before)
    children = [inherited_slices(span, [seal(parent)]) for span in (KeySpan(b"", cut), KeySpan(cut, b""))]
    assert told(children) == told([one])
    for slices in (one, *children):
        apply(slices, between)
    assert told(children) == told([one])
    merged = inherited_slices(WHOLE, [seal(child) for child in children])
    assert told([merged]) == told([one])
    for slices in (one, merged):
        apply(slices, after)
    assert told([merged]) == told([one])
    assert merged.watermark() == one.watermark()


def chains(*pairs: tuple[int, int]) -> tuple[ChainPosition, ...]:
    return tuple(ChainPosition(*pair) for pair in pairs)


@pytest.mark.parametrize(
    ("several", "wanted"),
    [
        pytest.param([{1: chains((10, 90))}], {1: chains((10, 90))}, id="one parent"),
        pytest.param([{1: chains((10, 90))}, {1: chains((10, 70))}], {1: chains((10, 70))}, id="the lower one"),
        pytest.param([{1: chains((10, 90))}, {}], {}, id="a store that one has not heard of"),
        pytest.param(
            [{1: chains((10, 90), (100, 120))}, {1: chains((10, 80))}], {1: chains((10, 80))}, id="one not begun"
        ),
        pytest.param(
            [{1: chains((10, 90), (100, 190))}, {1: chains((100, 160))}],
            {1: chains((10, 90), (100, 160))},
            id="one that the other has closed",
        ),
        pytest.param(
            [{1: chains((10, 90), (210, 220))}, {1: chains((210, 230))}],
            {1: chains((210, 220))},
            id="an older one that the other may still need",
        ),
        pytest.param(
            [{1: chains((10, 90)), 2: chains((20, 50))}, {1: chains((10, 95)), 2: chains((20, 40))}],
            {1: chains((10, 90)), 2: chains((20, 40))},
            id="each store by itself",
        ),
    ],
)
def test_files_come_again_from_where_every_parent_has_been(several: list[Positions], wanted: Positions) -> None:
    assert common(several, flushed_ts=200) == wanted
    assert common(several[::-1], flushed_ts=200) == wanted


def test_no_more_chains_are_kept_than_by_a_task() -> None:
    many = {1: chains(*((first, first + 5) for first in range(10, 10 * CHAINS_MAX + 30, 10)))}
    assert common([many, many], flushed_ts=0) == {1: many[1][-CHAINS_MAX:]}
