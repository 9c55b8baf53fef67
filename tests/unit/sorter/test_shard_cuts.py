"""How a tick's keys are cut into shards: evenly, and at row groups' bounds where that is even enough."""

from __future__ import annotations

import random
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.effort import examples
from tistream.format.manifest import PendingPart
from tistream.model.span import WHOLE, KeySpan
from tistream.wire.file_batch import RowGroupRef
from tistream_sorter.jobs.pruning import ReadRules
from tistream_sorter.jobs.shard import ShardFile
from tistream_sorter.upkeep.shards import CutRules, cut


def file(*groups: tuple[bytes, bytes, int]) -> ShardFile:
    refs = tuple(RowGroupRef(at, 0, size, 1, 0, low, high) for at, (low, high, size) in enumerate(groups))
    return ShardFile(0, "k", 1, 0, refs, tuple(range(len(refs))))


def cut_into(span: KeySpan, files: list[ShardFile], count: int) -> tuple[KeySpan, ...]:
    return cut(span, files, [], ReadRules(0, 0), CutRules(count, 1)).spans


def record(handle: int, table_id: int = 101) -> bytes:
    return b"t" + ((1 << 63) + table_id).to_bytes(8, "big") + b"_r" + handle.to_bytes(8, "big")


def test_cuts_lie_between_row_groups_that_do_not_overlap() -> None:
    groups = [(record(1000 * n), record(1000 * n + 999), 100) for n in range(8)]
    assert [span.start for span in cut_into(WHOLE, [file(*groups)], 4)] == [
        b"",
        record(2000),
        record(4000),
        record(6000),
    ]


@settings(max_examples=examples(50), deadline=None)
@given(st.randoms(use_true_random=False), st.integers(2, 8))
def test_no_row_group_is_read_twice_where_cuts_between_regions_are_even_enough(
    random: random.Random, count: int
) -> None:
    """Each region's row groups begin and end anywhere near its bounds, and are not quite of one size."""
    groups = [
        (record(1000 * region + random.randrange(100)), record(1000 * region + 899), 10_000 + random.randrange(100))
        for region in range(count)
        for _ in range(10)
    ]
    random.shuffle(groups)
    spans = cut_into(WHOLE, [file(*groups)], count)
    assert len(spans) == count
    for low, high, _ in groups:
        assert sum(span.touches(low, high) for span in spans) == 1


def test_what_is_pending_all_over_a_shard_leaves_cuts_between_regions() -> None:
    """Two shards of the tick before have left parts that span half of the keys each: row groups are not cut for it."""
    groups = [(record(1000 * n), record(1000 * n + 999), 10_000) for n in range(8)]
    halves = [KeySpan(record(0), record(4000)), KeySpan(record(4000), record(8000))]
    parts = [PendingPart(f"p{at}", 20_000, "", 10, "ready", 1, 1, 5, half) for at, half in enumerate(halves)]
    spans = cut(WHOLE, [file(*groups)], parts, ReadRules(9, 1), CutRules(4, 1)).spans
    assert [span.start for span in spans] == [b"", record(2000), record(4000), record(6000)]


@pytest.mark.parametrize("others", [[b"mDB:1"], [record(1, table_id=20)], [b"mDB:1", record(7, table_id=200)], [b""]])
def test_a_row_group_of_another_table_does_not_keep_cuts_from_being_even(others: list[bytes]) -> None:
    apart = [(record(1000 * n), record(1000 * n + 999), 1_000) for n in range(100)]
    everywhere = [(record(n), record(1_000_000 - n), 1_000) for n in range(100)]
    for groups in (apart, everywhere):
        weights = [0] * 4
        for number, span in enumerate(cut_into(WHOLE, [file(*groups, *((key, key, 1) for key in others))], 4)):
            weights[number] = sum(_share(span, *group) for group in groups)
        assert max(weights) <= 1.3 * sum(weights) / 4


def _share(span: KeySpan, low: bytes, high: bytes, weight: int) -> float:
    """What a span has of a row group whose keys lie evenly; both are keys of one table."""
    start, end = (max(0, min(handle(key), 1 << 63)) for key in (span.start, span.end or b"\xff"))
    inside = min(end, handle(high) + 1) - max(start, handle(low))
    return weight * max(0, inside) / (handle(high) + 1 - handle(low))


def handle(key: bytes) -> int:
    """Of a key of the table, or where the table begins or ends, for one of outside."""
    prefix = record(0)[:11]
    if key[:11] != prefix:
        return 0 if key < prefix else 1 << 63
    return int.from_bytes(key[11:19].ljust(8, b"\x00"), "big")


def test_traffic_in_one_region_is_cut_inside_of_its_row_groups() -> None:
    """Every row group has keys from all over the region: by their lowest keys, one shard would have nearly all."""
    groups = [(record(n), record(1_000_000 - n), 100) for n in range(40)]
    first, second = cut_into(WHOLE, [file(*groups)], 2)
    assert record(480_000) < first.end == second.start < record(520_000)


@pytest.mark.parametrize("low", [b"k", b"m", record(5)])
def test_one_key_with_all_the_traffic_is_one_shards(low: bytes) -> None:
    spans = cut_into(WHOLE, [file(*[(low, low, 100)] * 5)], 3)
    assert sum(low in span for span in spans) == 1


@settings(max_examples=examples(100), deadline=None)
@given(
    bounds=st.lists(st.tuples(st.binary(max_size=12), st.binary(max_size=12)), min_size=1, max_size=12),
    sizes=st.lists(st.integers(0, 1000), min_size=12, max_size=12),
    span=st.sampled_from([WHOLE, KeySpan(b"\x01", b""), KeySpan(b"", b"\x70"), KeySpan(b"\x10\x00", b"\x10\x00\x01")]),
    count=st.integers(1, 5),
)
def test_shards_cover_the_span_without_overlap(
    bounds: list[tuple[bytes, bytes]], sizes: list[int], span: KeySpan, count: int
) -> None:
    groups = [(min(pair), max(pair), size) for pair, size in zip(bounds, sizes, strict=False)]
    spans = cut_into(span, [file(*groups)], count)
    assert (spans[0].start, spans[-1].end) == (span.start, span.end)
    assert all(left.end == right.start for left, right in pairwise(spans))
    assert len(spans) <= max(1, count)
