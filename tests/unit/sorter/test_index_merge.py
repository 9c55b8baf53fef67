"""Jobs that merge segments and runs: in one piece or in shards, what comes out is the same."""

from __future__ import annotations

import random
from dataclasses import replace
from itertools import pairwise

import pyarrow as pa
import pytest

from support.index_reader import Versions, inside, newest, run_versions, versions_of
from tistream.errors import Unavailable
from tistream.format import segment
from tistream.format.run import RunRef
from tistream.format.segment import SegmentRef
from tistream.model.ids import TenantKey
from tistream.model.span import WHOLE, KeySpan
from tistream.pool.rows import read_row_groups
from tistream.pool.writer import write_segment
from tistream.storage.backends.memory import MemoryObjectStore
from tistream_sorter.jobs.index import index_merge
from tistream_sorter.jobs.index.index_merge import cut, merge_guarded
from tistream_sorter.jobs.index.index_unit import IndexResult, IndexUnit

TENANT = TenantKey("7", "acme")


def key(number: int) -> bytes:
    return b"t" + (5 ^ (1 << 63)).to_bytes(8, "big") + b"_r" + (number ^ (1 << 63)).to_bytes(8, "big")


class Pool:
    """Segments of random changes to few keys; commit_ts counts up from 1."""

    def __init__(self, segments: int = 4, rows: int = 500, keys: int = 100) -> None:
        self.objects = MemoryObjectStore()
        self.segments: list[SegmentRef] = []
        rng = random.Random(3)
        ts = 0
        for number in range(segments):
            found = []
            for _ in range(rows):
                ts += 1
                put = rng.random() < 0.8
                value = rng.randbytes(rng.randrange(200)) if put else None
                found.append((5, ts, ts - 1, key(rng.randrange(keys)), 1 if put else 2, value, None, None))
            columns = [pa.array(column, field.type) for column, field in zip(zip(*found), segment.SCHEMA)]  # noqa: B905
            body, ref = write_segment(pa.table(columns, schema=segment.SCHEMA), f"segment-{number}")
            self.objects.put(ref.key, body)
            self.segments.append(ref)
        self.all: Versions = {}
        for ref in self.segments:
            self.all |= versions_of(read_row_groups(self.objects, ref, range(len(ref.row_groups))))

    def unit(self, low: int | None, high: int, **more: object) -> IndexUnit:
        unit = IndexUnit(TENANT, 3, 4, f"nonce-{low}-{high}", WHOLE, low, high)
        return replace(unit, **more)  # type: ignore[arg-type]

    def run(self, unit: IndexUnit) -> tuple[RunRef, ...]:
        """As the driver does."""
        done = merge_guarded(self.objects, unit)
        results = [done]
        if done.shards:
            assert not done.runs
            spans = enumerate(done.shards)
            results = [merge_guarded(self.objects, replace(unit, shard=span, number=at)) for at, span in spans]
        assert [one.failed for one in results] == [None] * len(results)
        return tuple(run for one in results for run in one.runs)


def test_a_window_of_segments_becomes_a_run() -> None:
    pool = Pool()
    (run,) = pool.run(pool.unit(100, 1_300, segments=tuple(pool.segments)))
    assert run.window == (100, 1_300)
    assert run_versions(pool.objects, [run], WHOLE) == inside(pool.all, WHOLE, 100, 1_300)


@pytest.mark.parametrize("unpacked_max", [10_000, 40_000])
def test_what_does_not_fit_into_memory_is_merged_in_shards(unpacked_max: int) -> None:
    pool = Pool()
    (whole,) = pool.run(pool.unit(0, 2_000, segments=tuple(pool.segments)))
    pieces = pool.run(pool.unit(0, 2_000, segments=tuple(pool.segments), unpacked_max=unpacked_max, nonce="cut"))
    assert len(pieces) > 3
    assert all(left.last < right.first for left, right in pairwise(pieces))
    assert run_versions(pool.objects, pieces, WHOLE) == run_versions(pool.objects, [whole], WHOLE) == pool.all
    assert max(one.rows for one in pieces) < 3 * whole.rows * unpacked_max / 250_000, "about equal"


def test_a_run_with_very_many_rows_is_cut_for_its_filters_and_a_base_run_is_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(index_merge, "OBJECT_ROWS", 600)
    pool = Pool()
    pieces = pool.run(pool.unit(0, 2_000, segments=tuple(pool.segments)))
    assert len(pieces) >= 4
    assert max(one.rows for one in pieces) <= 900, "about"
    assert run_versions(pool.objects, pieces, WHOLE) == pool.all
    again = pool.run(pool.unit(0, 2_000, runs=pieces, nonce="again"))
    assert max(one.rows for one in again) <= 900
    assert run_versions(pool.objects, again, WHOLE) == pool.all
    base = pool.run(pool.unit(None, 2_000, runs=again, nonce="base"))
    assert len(base) == 1
    assert run_versions(pool.objects, base, WHOLE) == newest(pool.all, 2_000)


@pytest.mark.parametrize("unpacked_max", [1 << 30, 20_000])
def test_runs_are_merged_and_folded(unpacked_max: int) -> None:
    pool = Pool()
    bounds = (0, 700, 1_200, 2_000)
    runs = [pool.run(pool.unit(low, high, segments=tuple(pool.segments)))[0] for low, high in pairwise(bounds)]
    merged = pool.run(pool.unit(0, 1_200, runs=tuple(runs[:2]), nonce="merged", unpacked_max=unpacked_max))
    assert run_versions(pool.objects, merged, WHOLE) == inside(pool.all, WHOLE, 0, 1_200)
    base = pool.run(pool.unit(None, 1_200, runs=merged, nonce="base", unpacked_max=unpacked_max))
    assert run_versions(pool.objects, base, WHOLE) == newest(pool.all, 1_200)
    again = pool.run(pool.unit(None, 2_000, runs=(*base, runs[2]), nonce="again", unpacked_max=unpacked_max))
    assert run_versions(pool.objects, again, WHOLE) == newest(pool.all, 2_000)
    assert {(one.low_ts, one.high_ts) for one in again} == {(None, 2_000)}


def test_rows_of_other_tasks_are_left_out() -> None:
    pool = Pool()
    span = KeySpan(key(20), key(60))
    (run,) = pool.run(pool.unit(0, 2_000, segments=tuple(pool.segments), span=span))
    assert run_versions(pool.objects, [run], WHOLE) == inside(pool.all, span)
    half = KeySpan(key(40), b"")
    (clipped,) = pool.run(pool.unit(0, 2_000, runs=(run,), span=half, nonce="half"))
    assert run_versions(pool.objects, [clipped], WHOLE) == inside(pool.all, KeySpan(key(40), key(60)))
    assert pool.run(pool.unit(0, 2_000, runs=(clipped,), span=KeySpan(key(90), b""), nonce="none")) == ()


def test_a_damaged_object_is_named_and_a_silent_store_is_not() -> None:
    pool = Pool(2)
    body = bytearray(pool.objects.get("segment-1"))
    body[100] ^= 1
    pool.objects.put("segment-1", bytes(body))
    done = merge_guarded(pool.objects, pool.unit(0, 1_000, segments=tuple(pool.segments)))
    assert done.damaged == ("segment-1",)
    assert not done.runs

    class Silent(MemoryObjectStore):
        def get_tail(self, key: str, length: int) -> tuple[bytes, int]:
            raise Unavailable("slow down")

    done = merge_guarded(Silent(), pool.unit(0, 1_000, segments=tuple(pool.segments)))
    assert done == IndexResult(3, failed="slow down", traffic=done.traffic)


def test_spans_are_cut_at_keys_and_cover_everything() -> None:
    points = [(bytes([number]), 10) for number in range(100)]
    spans = cut(WHOLE, points, 250)
    assert [span.start for span in spans] == [b"", b"\x19", b"2", b"K"]
    assert all(left.end == right.start for left, right in pairwise(spans))
    assert spans[-1].end == b""
    assert cut(KeySpan(b"b", b"c"), [(b"a", 9), (b"b", 9), (b"bb", 9), (b"d", 9)], 10) == (
        KeySpan(b"b", b"bb"),
        KeySpan(b"bb", b"c"),
    )
