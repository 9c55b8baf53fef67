"""What a task tells of its load, and where it would be cut."""

from __future__ import annotations

import pytest

from tistream.model.span import WHOLE, KeySpan
from tistream.wire.file_batch import RowGroupRef
from tistream_sorter.upkeep.load import MEAN_MS, LoadMeter


def group(low: bytes | None, high: bytes | None, length: int = 1_000) -> RowGroupRef:
    return RowGroupRef(0, 0, length, 10, 0, low, high)


def test_a_steady_load_is_told_in_bytes_a_second_and_falls_while_idle() -> None:
    meter = LoadMeter(WHOLE)
    for at_ms in range(0, 5 * MEAN_MS, 100):
        meter.add([group(b"a", b"b", 500)], at_ms)
    now_ms = 5 * MEAN_MS
    assert meter.per_second(now_ms) == pytest.approx(5_000, rel=0.02)
    assert meter.per_second(now_ms + MEAN_MS) == pytest.approx(5_000 / 2.718, rel=0.02)
    assert meter.per_second(now_ms + 20 * MEAN_MS) < 1


def test_the_key_cuts_the_load_in_halves() -> None:
    meter = LoadMeter(WHOLE)
    meter.add([group(bytes([one]), bytes([one]) + b"\xff") for one in range(40, 60)], 0)
    key = meter.split_key(0)
    assert bytes([46]) < key < bytes([54])


def test_what_was_hot_long_ago_does_not_count() -> None:
    meter = LoadMeter(WHOLE)
    meter.add([group(b"a", b"b", 100_000)], 0)
    now_ms = 20 * MEAN_MS
    meter.add([group(b"m", b"n"), group(b"x", b"y")], now_ms)
    assert b"m" < meter.split_key(now_ms) <= b"x"


@pytest.mark.parametrize(
    "groups",
    [
        pytest.param([], id="nothing came"),
        pytest.param([group(None, None)], id="no statistics"),
        pytest.param([group(b"k", b"k")], id="one key"),
        pytest.param([group(b"k", b"k", 90_000), group(b"z", b"z", 100)], id="one hot key"),
    ],
)
def test_no_key_is_told_where_none_is_known(groups: list[RowGroupRef]) -> None:
    meter = LoadMeter(WHOLE)
    meter.add(groups, 0)
    assert meter.split_key(0) == b""


def test_the_key_lies_strictly_inside_the_span() -> None:
    """Row groups reach beyond it on both sides."""
    span = KeySpan(b"k", b"p")
    meter = LoadMeter(span)
    meter.add([group(b"a", b"z") for _ in range(9)], 0)
    key = meter.split_key(0)
    assert key in span
    assert key > span.start


def test_the_key_follows_a_load_that_moves_but_is_not_thought_about_all_the_time() -> None:
    meter = LoadMeter(WHOLE)
    meter.add([group(b"a", b"b")], 0)
    first = meter.split_key(0)
    meter.add([group(b"x", b"y", 1_000_000)], 10)
    assert meter.split_key(20) == first
    assert meter.split_key(10_000) > b"b"
